"""Measures steady batches with MERGE next to a bare Spark job that does the same. It asserts only that both agree.

python -m tests.bench.merge_batches [--rows N] [--batches N] [--size N] [--rounds N] [--set NAME=VALUE]

A Delta table exists. In each round its topic gets changes, and two queries read them in batches: Tailrace, and a
streaming query whose foreachBatch takes the last record of each key and runs MERGE. They read in turns, in one session,
each into a table of its own. The first round compiles the code and is not printed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as fn

from tailrace.runtime.logging import configure_logging
from tailrace.spark_consumer import config, session
from tailrace.spark_consumer.app import load_sinks
from tailrace.spark_consumer.monitor.status import Status
from tailrace.spark_consumer.query import RunningQuery
from tailrace.spark_consumer.sink.delta_sink import SINK
from tests.bench import report, topics
from tests.bench.narrow_rows import COLUMNS, FIELDS, STRUCT, row
from tests.bench.options import setting
from tests.bench.usage import spark_cpu_s
from tests.embedded.kafka import KafkaBroker
from tests.embedded.prepare import prepare
from tests.embedded.spark import spark_environment, spark_jars
from tests.spark.records import Feed, Message, Table, table_schema
from tests.spark.running import settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PREFIX: Final = "bench"
_TOPIC: Final = f"{_PREFIX}.shop.t"
_PARTITIONS: Final = 2
_SPLIT: Final = 20_000
_PER_TRANSACTION: Final = 50_000
_MARKERS: Final = 100
"""Offsets by which a batch may exceed its share of a round, so that no batch with a few offsets is left over."""
_PAUSE_S: Final = 2.0
"""A commit returns before its markers are written, which is soon."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return the exit code."""
    options = _options(arguments)
    configure_logging(level="warning")
    prepare(("kafka", "spark"))
    os.environ.update(spark_environment(), SPARK_JARS=",".join(str(path) for path in spark_jars()))
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as folder, KafkaBroker() as broker:
        work = Path(folder)
        feed = Feed(broker, _PREFIX)
        table = feed.table(table_schema(_PREFIX, "t", *FIELDS), partitions=_PARTITIONS)
        given = settings(broker, _PREFIX, work) | {
            "spark.local.dir": folder,
            "spark.log.level": "ERROR",
            **dict(options.set),
        }
        spark = session.build(config.parse(given), [SINK])
        try:
            _measure(spark, feed, _Changes(table, options.rows), given, options)
        finally:
            spark.stop()
    return 0


def _measure(
    spark: SparkSession, feed: Feed, changes: _Changes, given: dict[str, str], options: argparse.Namespace
) -> None:
    folder = Path(given["sink.path"]).parent
    bare = _Bare(spark, feed.broker, folder)

    def tailrace(limit: int) -> None:
        parsed = config.parse({**given, "maxOffsetsPerTrigger": str(limit)})
        RunningQuery(spark.newSession(), parsed, load_sinks(parsed), Status(parsed.name, parsed.sink_names)).wait()

    for messages in changes.snapshot():
        feed.write(messages)
    time.sleep(_PAUSE_S)
    read = topics.end_offset(feed.broker.bootstrap, _TOPIC, _PARTITIONS)
    for query in (tailrace, bare.run):
        query(2 * read)
    for number in range(options.rounds + 1):
        left = options.batches * options.size
        made = changes.some()
        while left > 0 and (part := list(islice(made, min(left, _PER_TRANSACTION)))):
            feed.write(message for messages in part for message in messages)
            left -= len(part)
        time.sleep(_PAUSE_S)
        end = topics.end_offset(feed.broker.bootstrap, _TOPIC, _PARTITIONS)
        limit = (end - read) // options.batches + _MARKERS
        # In turns, so that a slow minute of the machine does not hit one of them alone.
        order: list[tuple[str, Callable[[int], None]]] = [("tailrace", tailrace), ("bare_spark", bare.run)]
        found = {name: _used(spark, query, limit) for name, query in (order if number % 2 else order[::-1])}
        if number:
            _report(number, options, end - read, found)
        read = end
    _require_equal(spark, folder, changes.count)


class _Changes:
    """The rows of the table, and what changes them."""

    def __init__(self, table: Table, rows: int) -> None:
        self._table = table
        self._least, self._next = 0, rows
        self._versions: Counter[int] = Counter()
        self._position = 1_000_000

    @property
    def count(self) -> int:
        """The rows that the table has after all changes so far."""
        return self._next - self._least

    def snapshot(self) -> Iterator[list[Message]]:
        """Yield the transactions of the first snapshot."""
        table, splits = self._table, -(-self._next // _SPLIT)
        table.keys_per_split, table.last_split = _SPLIT, splits - 1
        for number in range(splits):
            keys = range(number * _SPLIT, min(self._next, (number + 1) * _SPLIT))
            split = table.snapshot(_PREFIX, number, [row(key, 0) for key in keys], low=10, high=20)
            yield [*split, table.end(_PREFIX, number, high=20, rows=len(keys))]

    def some(self) -> Iterator[list[Message]]:
        """Yield the records of changes: of ten one insert, one delete, and eight updates all over the table."""
        while True:
            self._position += 1
            number, versions = self._position, self._versions
            if number % 10 == 0:
                key, self._next = self._next, self._next + 1
                yield self._table.change("c", None, row(key, 0), pos=number)
            elif number % 10 == 1:
                key, self._least = self._least, self._least + 1
                yield self._table.change("d", row(key, versions.pop(key, 0)), None, pos=number)
            else:
                key = self._least + number * 7919 % self.count
                before = row(key, versions[key])
                versions[key] += 1
                yield self._table.change("u", before, row(key, versions[key]), pos=number)


class _Bare:
    """The bare job: a streaming query that merges the last record of each key."""

    def __init__(self, spark: SparkSession, broker: KafkaBroker, folder: Path) -> None:
        self._spark = spark.newSession()
        # As many tasks as Tailrace has; the default of 200 is for clusters.
        self._spark.conf.set("spark.sql.shuffle.partitions", str(2 * int(spark.sparkContext.defaultParallelism)))
        self._broker = broker
        self._checkpoint = folder / "bare-checkpoint"
        self._target = f"delta.`{folder / 'bare'}`"
        columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        # Deletion vectors as Tailrace's tables have.
        properties = "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
        self._spark.sql(f"CREATE TABLE {self._target} ({columns}) USING DELTA {properties}")

    def run(self, limit: int) -> None:
        """Read everything that is in the topic, in batches of ``limit`` offsets."""
        options = {
            "kafka.bootstrap.servers": self._broker.bootstrap,
            "kafka.isolation.level": "read_committed",
            "subscribe": _TOPIC,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(limit),
        }
        stream = self._spark.readStream.format("kafka").options(**options).load()
        writer: Any = stream.writeStream.option("checkpointLocation", str(self._checkpoint))
        writer.foreachBatch(self._merge).trigger(availableNow=True).start().awaitTermination()

    def _merge(self, batch: DataFrame, _number: int) -> None:
        event = fn.from_json(fn.col("value").cast("string"), f"op STRING, before {STRUCT}, after {STRUCT}")
        events = batch.where("value IS NOT NULL").select("offset", event.alias("e"))
        rows = events.select("offset", "e.op", fn.coalesce("e.after", "e.before").alias("row"))
        newest = Window.partitionBy("row.id").orderBy(fn.col("offset").desc())
        last = rows.withColumn("rank", fn.row_number().over(newest)).where("rank = 1").select("op", "row.*")
        last.createOrReplaceTempView("bare_batch")
        names = list(COLUMNS)
        batch.sparkSession.sql(
            f"MERGE INTO {self._target} AS t USING bare_batch AS s ON t.id = s.id\n"
            "WHEN MATCHED AND s.op = 'd' THEN DELETE\n"
            f"WHEN MATCHED THEN UPDATE SET {', '.join(f't.{name} = s.{name}' for name in names)}\n"
            f"WHEN NOT MATCHED AND s.op <> 'd' THEN INSERT ({', '.join(names)})"
            f" VALUES ({', '.join(f's.{name}' for name in names)})"
        )


def _used(spark: SparkSession, query: Callable[[int], None], limit: int) -> tuple[float, float]:
    """Return the seconds and the CPU seconds of a query."""
    started, cpu = time.monotonic(), spark_cpu_s(spark)
    query(limit)
    return time.monotonic() - started, spark_cpu_s(spark) - cpu


def _report(number: int, options: argparse.Namespace, offsets: int, found: dict[str, tuple[float, float]]) -> None:
    changes = options.batches * options.size
    line: dict[str, object] = {
        "round": number,
        "rows": options.rows,
        "batches": options.batches,
        "changes": changes,
        "offsets": offsets,
    }
    for name, (seconds, cpu) in sorted(found.items()):
        line[name] = {
            "seconds": round(seconds, 1),
            "cpu_seconds": round(cpu, 1),
            "changes_per_second": round(changes / seconds),
            "changes_per_cpu_second": round(changes / cpu),
        }
    (ours, our_cpu), (bare, bare_cpu) = found["tailrace"], found["bare_spark"]
    line["times_bare"] = {"seconds": round(ours / bare, 2), "cpu_seconds": round(our_cpu / bare_cpu, 2)}
    sys.stdout.write(json.dumps({**line, "machine": report.machine()}) + "\n")
    sys.stdout.flush()


def _require_equal(spark: SparkSession, folder: Path, count: int) -> None:
    """Raise AssertionError if the two tables differ, or have another number of rows."""
    ours, bare = (
        spark.read.format("delta").load(str(path)).select(*COLUMNS)
        for path in (folder / "tables" / "shop" / "t", folder / "bare")
    )
    if ours.count() != count or bare.count() != count or not ours.exceptAll(bare).isEmpty():
        raise AssertionError(f"the tables differ: {ours.count()} and {bare.count()} rows instead of {count}")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.merge_batches", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table (default 1,000,000)")
    parser.add_argument("--batches", type=int, default=5, help="micro-batches of a round (default 5)")
    parser.add_argument("--size", type=int, default=100_000, help="changes of a micro-batch (default 100,000)")
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds (default 3)")
    parser.add_argument("--set", action="append", default=[], type=setting, metavar="NAME=VALUE")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
