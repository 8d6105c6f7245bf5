"""Measures the rows per second of each sink, next to a bare Spark job that writes the same rows. It asserts nothing.

python -m tests.bench.sinks [--rows N] [--rounds N] [--sinks delta,iceberg,postgres,mysql,parquet,kafka,upsert-kafka]
.venv-hudi/bin/python -m tests.bench.sinks --sinks hudi

A topic has the rows of a snapshot, as a producer would write them. In each round every sink gets them into a new
target: once by a query of the consumer, and once by a job that reads the topic, parses its JSON and writes with Spark's
own writer of the format. Both run in one session. The first round includes the compilation of code: look at the others.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as fn

from tailrace.spark_consumer import config, session
from tailrace.spark_consumer.app import load_sinks
from tailrace.spark_consumer.monitor.status import Status
from tailrace.spark_consumer.query import RunningQuery
from tailrace.spark_consumer.sink.plugin import load_sink
from tests.bench.narrow_rows import FIELDS, STRUCT, row
from tests.demo.stack import Stack
from tests.demo.targets import TARGETS, Postgres, Target, session_settings
from tests.embedded.prepare import prepare
from tests.embedded.spark import spark_environment
from tests.spark.records import Feed, table_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Hudi(Target):
    """Tables in a folder, on the Spark line of Hudi (./run setup --profile hudi)."""

    kind = "hudi"


_TARGETS: Final[dict[str, type[Target]]] = {**TARGETS, "hudi": Hudi}
_PREFIX: Final = "bench"
_SPLIT: Final = 20_000


def main() -> int:
    """Run the program and return the exit code."""
    options = _options()
    names = [name.strip() for name in options.sinks.split(",")]
    prepare(("kafka", "spark", *(("postgresql",) if "postgres" in names else ()), *_mysql(names)))
    os.environ.update(spark_environment())
    with Stack() as stack:
        stack.kafka.start()
        targets = [_TARGETS[name](stack, name) for name in names]
        # The stack closes what it knows when it is entered.
        for target in targets:
            target.start()
        try:
            _measure(stack, targets, options)
        finally:
            for target in targets:
                if isinstance(target, Postgres):
                    target.server.close()
    return 0


def _measure(stack: Stack, targets: list[Target], options: argparse.Namespace) -> None:
    feed = Feed(stack.kafka, _PREFIX)
    table = feed.table(table_schema(_PREFIX, "t", *FIELDS), partitions=2)
    for number, start in enumerate(range(0, options.rows, _SPLIT)):
        keys = range(start, min(options.rows, start + _SPLIT))
        feed.write(table.snapshot(_PREFIX, number, map(row, keys), low=10, high=20))
        feed.write([table.end(_PREFIX, number, high=20, rows=len(keys))])
    first = config.parse(_settings(stack, targets[0], 0))
    spark = session.build(first, [load_sink(target.kind) for target in targets])
    try:
        for number in range(1, options.rounds + 1):
            # In turns, so that a slow minute of the machine does not hit one sink alone.
            for target in targets[number % len(targets) :] + targets[: number % len(targets)]:
                if "kafka" in target.kind:
                    stack.kafka.create_topic(f"bare.{target.kind}.{number}")
                ours = _consume(spark, stack, target, number, options.rows)
                bare = _seconds(partial(_bare, spark, stack, target, number))
                sys.stdout.write(
                    f"round {number}  {target.name:13} {options.rows / ours:9,.0f} rows/s   "
                    f"bare Spark {options.rows / bare:9,.0f} rows/s   {ours / bare:5.2f} times its time\n"
                )
                sys.stdout.flush()
    finally:
        spark.stop()


def _consume(spark: SparkSession, stack: Stack, target: Target, number: int, rows: int) -> float:
    """Return the seconds of the batches of a query that reads everything."""
    parsed = config.parse(_settings(stack, target, number))
    status = Status(parsed.name, parsed.sink_names)
    RunningQuery(spark.newSession(), parsed, load_sinks(parsed), status).wait()
    found = status.as_dict()
    written = found["tables"][f"{_PREFIX}.shop.t"]["records_applied"]
    if written != rows or found["batches"] != 1:
        raise AssertionError(f"{target.name} has {written} of {rows} rows in {found['batches']} batches")
    return float(found["last_batch_seconds"])


def _settings(stack: Stack, target: Target, number: int) -> dict[str, str]:
    """Return the configuration of a query into a new target."""
    location: dict[str, str] = {
        "delta": f"sink.path={stack.work}/delta-{number}",
        "iceberg": f"sink.table=demo.ours{number}.{{table}}",
        "jdbc": f"sink.table=ours{number}.{{table}}",
        "hudi": f"sink.path={stack.work}/hudi-{number}",
        "parquet": f"sink.path={stack.work}/parquet-{number}",
        "kafka": f"sink.topic=ours{number}.{{topic}}",
        "upsert-kafka": f"sink.topic=last{number}.{{topic}}",
    }
    name, _, value = location[target.kind].partition("=")
    given: dict[str, Any] = {
        "bootstrap.servers": stack.bootstrap,
        "topic.prefix": _PREFIX,
        "checkpointLocation": stack.work / f"checkpoint-{target.name}-{number}",
        "trigger.availableNow": "true",
        "maxOffsetsPerTrigger": 1 << 40,
        "log.level": "warning",
        "sink": target.kind,
        **target.settings(),
        **session_settings(stack),
        **stack.spark_settings(),
        "spark.driver.memory": "3g",
        "spark.log.level": "ERROR",
        name: value,
    }
    return {key: str(each) for key, each in given.items()}


def _bare(spark: SparkSession, stack: Stack, target: Target, number: int) -> None:
    """Read the topic, parse the row images and write them with Spark's own writer."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", stack.bootstrap)
    records = reader.option("subscribe", f"{_PREFIX}.shop.t").option("kafka.isolation.level", "read_committed").load()
    image = fn.from_json(fn.col("value").cast("string"), f"after {STRUCT}")
    rows = records.select("key", image["after"].alias("row"))
    _WRITERS[target.kind](rows, stack, target, number)


def _write_delta(rows: DataFrame, stack: Stack, target: Target, number: int) -> None:
    rows.select("row.*").write.format("delta").save(f"{stack.work}/delta-bare-{number}")


def _write_iceberg(rows: DataFrame, stack: Stack, target: Target, number: int) -> None:
    rows.sparkSession.sql("CREATE SCHEMA IF NOT EXISTS demo.bare")
    rows.select("row.*").writeTo(f"demo.bare.t{number}").create()


def _write_hudi(rows: DataFrame, stack: Stack, target: Target, number: int) -> None:
    options = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id"}
    rows.select("row.*").write.format("hudi").options(**options).save(f"{stack.work}/hudi-bare-{number}")


def _write_parquet(rows: DataFrame, stack: Stack, target: Target, number: int) -> None:
    rows.select("row.*").write.parquet(f"{stack.work}/parquet-bare-{number}")


def _write_jdbc(rows: DataFrame, stack: Stack, target: Target, number: int) -> None:
    assert isinstance(target, Postgres)
    options = {**target.properties, "url": target.url, "user": target.server.user, "password": target.server.password}
    # The schema is that of the query of this round.
    writer = rows.select("row.*").write.format("jdbc").options(**options, driver=target.driver, batchsize="1000")
    writer.option("dbtable", f"ours{number}.bare").save()


def _write_kafka(rows: DataFrame, stack: Stack, target: Target, number: int) -> None:
    json = rows.select("key", fn.to_json("row").alias("value"))
    writer = json.write.format("kafka").option("kafka.bootstrap.servers", stack.bootstrap)
    writer.option("topic", f"bare.{target.kind}.{number}").save()


_WRITERS: Final[dict[str, Callable[[DataFrame, Stack, Target, int], None]]] = {
    "delta": _write_delta,
    "hudi": _write_hudi,
    "iceberg": _write_iceberg,
    "parquet": _write_parquet,
    "jdbc": _write_jdbc,
    "kafka": _write_kafka,
    "upsert-kafka": _write_kafka,
}


def _seconds(job: Callable[[], None]) -> float:
    started = time.monotonic()
    job()
    return time.monotonic() - started


def _mysql(names: list[str]) -> tuple[str, ...]:
    return ("mysql",) if "mysql" in names else ()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000, help="rows (default 500,000)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default 3)")
    parser.add_argument("--sinks", default=",".join(TARGETS), help="sinks, separated by commas")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
