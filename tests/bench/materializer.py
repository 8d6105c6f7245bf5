"""Measures the upsert materializer of the library: keys per second and per CPU second. It asserts nothing.

python -m tests.bench.materializer [--keys N]

The first micro-batch adds a row to each key, the second one changes each row.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.spark_consumer import materialize
from tests.bench import report
from tests.bench.usage import descendants
from tests.embedded.prepare import prepare
from tests.embedded.spark import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WARM_UP = 1000
_SCHEMA = "kind STRING, sequence BIGINT, row STRUCT<id: BIGINT, owner: BIGINT, text: STRING, amount: DECIMAL(10,2)>"
_STATE_STORE = {
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state."
    "RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return the exit code."""
    options = _options(arguments)
    prepare(("spark",))
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as folder:
        work = Path(folder)
        spark = start_session(work / "spark", **_STATE_STORE)
        try:
            _measure(spark, work / "warm-up", _WARM_UP)
            for name, found in zip(("add", "change"), _measure(spark, work / "run", options.keys), strict=True):
                sys.stdout.write(json.dumps({"entries": name, **found, "machine": report.machine()}) + "\n")
        finally:
            spark.stop()
    return 0


def _measure(spark: SparkSession, work: Path, keys: int) -> list[dict[str, Any]]:
    """Run both micro-batches, each in a query of its own."""
    found = []
    for number, kind in enumerate(("+I", "+U")):
        entries = spark.range(keys).selectExpr(
            f"'{kind}' AS kind",
            f"id + {number * keys} AS sequence",
            f"struct(id, id % 100 AS owner, 'version {number}' AS text, CAST(id AS DECIMAL(10,2)) AS amount) AS row",
        )
        entries.write.mode("append").parquet(str(work / "in"))
        changes = materialize(spark.readStream.schema(_SCHEMA).parquet(str(work / "in")), ["id"], ["id"])
        writer = changes.writeStream.format("noop").option("checkpointLocation", str(work / "checkpoint"))
        before = _cpu_s()
        started = time.monotonic()
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        seconds, cpu = time.monotonic() - started, _cpu_s() - before
        [operator] = query.recentProgress[-1].stateOperators
        found.append(
            {
                "keys": keys,
                "seconds": round(seconds, 1),
                "keys_per_second": round(keys / seconds),
                "keys_per_cpu_second": round(keys / cpu),
                "state_rows": operator.numRowsTotal,
                "state_bytes": operator.memoryUsedBytes,
            }
        )
    return found


def _cpu_s() -> float:
    """Return the CPU seconds of the processes of this program; Spark keeps its Python workers between the queries."""
    total = time.process_time()
    for pid in descendants(os.getpid()):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        # Those of children that have ended too.
        total += sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    return total


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.materializer", description=__doc__)
    parser.add_argument("--keys", type=int, default=100_000, help="keys of the target (default 100,000)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
