"""Measures a changelog sink over backlogs of growing size. It asserts nothing.

python -m tests.bench.changelog_backlog [--records N,N,…] [--sink kafka|parquet] [--set NAME=VALUE]

Each backlog is a topic with a first snapshot in splits of 10,000 rows, a third of the records, and later changes of
these rows. The first one warms up the JVM and is not printed. The rate should be the same for every size.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.spark_consumer import config, session
from tailrace.spark_consumer.app import load_sinks
from tailrace.spark_consumer.monitor.status import Status
from tailrace.spark_consumer.query import RunningQuery
from tests.bench import report
from tests.bench.options import setting
from tests.bench.usage import spark_cpu_s
from tests.embedded.kafka import KafkaBroker
from tests.embedded.prepare import prepare
from tests.embedded.spark import spark_environment, spark_jars
from tests.spark.records import Feed, Message, Row, Table, table_schema
from tests.spark.running import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SPLIT = 10_000
_WARM_UP = 10_000
_PER_TRANSACTION = 50_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return the exit code."""
    options = _options(arguments)
    prepare(("kafka", "spark"))
    os.environ.update(spark_environment(), SPARK_JARS=",".join(str(path) for path in spark_jars()))
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as folder, KafkaBroker() as broker:
        spark: SparkSession | None = None
        for records in (_WARM_UP, *options.records):
            work = Path(folder) / str(records)
            prefix = f"bench{records}"
            _write(broker, prefix, records)
            given = settings(broker, prefix, work, sink=options.sink) | {
                "spark.local.dir": folder,
                "spark.log.level": "ERROR",
                "maxOffsetsPerTrigger": str(options.batch),
                **dict(options.set),
            }
            parsed = config.parse(given)
            sinks = load_sinks(parsed)
            spark = spark or session.build(parsed, [sink.plugin for sink in sinks])
            status = Status(parsed.name, parsed.sink_names)
            started, cpu = time.monotonic(), spark_cpu_s(spark)
            RunningQuery(spark, parsed, sinks, status).wait()
            if records != _WARM_UP:
                _report(records, time.monotonic() - started, spark_cpu_s(spark) - cpu, status)
        if spark is not None:
            spark.stop()
    return 0


def _write(broker: KafkaBroker, prefix: str, records: int) -> None:
    """Write a backlog as a producer would: a third of the records are rows of a snapshot."""
    feed = Feed(broker, prefix)
    table = feed.table(table_schema(prefix, "t"), partitions=2)
    rows, table.keys_per_split = records // 3, _SPLIT
    splits = -(-rows // _SPLIT)
    table.last_split = splits - 1
    for number in range(splits):
        keys = range(number * _SPLIT, min((number + 1) * _SPLIT, rows))
        low, high = 100 + 10 * number, 105 + 10 * number
        split = table.snapshot(prefix, number, [_row(key, 0) for key in keys], low=low, high=high)
        feed.write([*split, table.end(prefix, number, high=high, rows=len(keys))])
    changes = _changes(table, rows, records - rows)
    while part := list(islice(changes, _PER_TRANSACTION)):
        feed.write(part)


def _changes(table: Table, rows: int, count: int) -> Iterator[Message]:
    """Yield updates of the rows in another order than that of their keys."""
    versions = [0] * rows
    for number in range(count):
        key = number * 7919 % rows
        old, versions[key] = versions[key], versions[key] + 1
        yield from table.change("u", _row(key, old), _row(key, old + 1), pos=1_000_000 + number)


def _row(key: int, version: int) -> Row:
    return {"id": key, "name": f"version {version} of a row with the number {key}"}


def _report(records: int, seconds: float, cpu: float, status: Status) -> None:
    found = {
        "records": records,
        "seconds": round(seconds, 1),
        "records_per_second": round(records / seconds),
        "records_per_cpu_second": round(records / cpu),
        "batches": status.as_dict()["batches"],
        "machine": report.machine(),
    }
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.changelog_backlog", description=__doc__)
    parser.add_argument(
        "--records",
        type=lambda text: [int(part) for part in text.split(",")],
        default=[100_000, 200_000, 400_000, 800_000],
        help="sizes (default 100000,200000,400000,800000)",
    )
    parser.add_argument("--batch", type=int, default=100_000, help="records in a micro-batch (default 100,000)")
    parser.add_argument("--sink", choices=("kafka", "parquet"), default="kafka")
    parser.add_argument("--set", action="append", default=[], type=setting, metavar="NAME=VALUE")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
