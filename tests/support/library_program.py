"""A program that uses the library; as a main program it runs through Spark Connect."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run(spark: SparkSession, bootstrap: str, prefix: str, topic: str, work: Path) -> dict[str, Any]:
    """Read the changes of a table, stream them into a Delta table, and return what was seen."""
    from pyspark.sql import functions as fn  # noqa: PLC0415 - Spark Connect chooses its functions when the session starts

    from tailrace.spark_consumer import apply_changes, decode, latest, read_changes, to_changelog  # noqa: PLC0415

    target = f"delta.`{work}/target`"
    stream = read_changes(spark, topic, prefix=prefix, bootstrap_servers=bootstrap)

    def merge(batch: DataFrame, _: int) -> None:
        # Spark Connect runs this function in another process, which has its own imports.
        from tailrace.spark_consumer import apply_changes as merge_into  # noqa: PLC0415

        merge_into(batch, target)

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


def main(settings: str, bootstrap: str, prefix: str, topic: str, work: str) -> None:
    """Start a local server of Spark Connect with ``settings`` (a JSON file), run, and print the result."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    builder: Any = SparkSession.builder.remote("local[2]")
    for name, value in json.loads(Path(settings).read_text(encoding="utf-8")).items():
        if name != "spark.master":
            builder = builder.config(name, value)
    spark = builder.getOrCreate()
    sys.stdout.write(f"{json.dumps(run(spark, bootstrap, prefix, topic, Path(work)))}\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
