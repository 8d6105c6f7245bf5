"""A program that uses the library.

python -m tests.support.library_program REMOTE BOOTSTRAP PREFIX TOPIC FOLDER

runs it through Spark Connect and prints what was seen as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as fn

from tailrace.spark_consumer import apply_changes, decode, latest, read_changes, to_changelog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run(spark: SparkSession, bootstrap: str, prefix: str, topic: str, work: Path) -> dict[str, Any]:
    """Read the changes of a table, stream them into a Delta table, and return what was seen."""
    target = f"delta.`{work}/target`"
    stream = read_changes(spark, topic, prefix=prefix, bootstrap_servers=bootstrap)

    def merge(batch: DataFrame, _: int) -> None:
        apply_changes(batch, target)

    query = stream.writeStream.option("checkpointLocation", f"{work}/checkpoint").foreachBatch(merge)
    query.trigger(availableNow=True).start().awaitTermination()
    records = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    changes = decode(records.option("includeHeaders", "true").load(), topic, prefix=prefix, bootstrap_servers=bootstrap)
    apply_changes(changes, target)  # a second time: it changes nothing

    def rows(frame: DataFrame, *columns: Any) -> list[list[Any]]:
        return sorted([list(row) for row in frame.select(*columns).collect()])

    row_id = fn.coalesce("after.id", "before.id")
    first = changes.where("kind = '+U'").select(
        "database", "table", fn.col("headers")[0]["key"], fn.col("op_ts").isNotNull()
    )
    return {
        "kinds": rows(changes, "kind", "_change_type", row_id),
        "changelog": rows(to_changelog(changes), "kind", "row.id"),
        "latest": rows(latest(changes), "key.id", "kind"),
        "table": rows(spark.sql(f"SELECT id, name, n FROM {target}"), "*"),
        "metadata": list(first.collect()[0]),
    }


def main() -> None:
    """Run in a session of a Spark Connect server."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only this process uses Spark Connect

    remote, bootstrap, prefix, topic, folder = sys.argv[1:]
    builder: Any = SparkSession.builder
    spark: SparkSession = builder.remote(remote).getOrCreate()
    try:
        print(json.dumps(run(spark, bootstrap, prefix, topic, Path(folder))))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
