"""Measures batches with a few changes in each of many tables. It asserts nothing.

python -m tests.bench.many_tables [--tables N] [--changes N] [--rounds N] [--set NAME=VALUE]

One query runs for all rounds. The first round creates the tables; the others change them. The topics have what a
producer would write. Last, Spark alone appends one row to each of these tables on as many threads: the least that a
commit of Delta costs here.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, Any

from confluent_kafka.cimpl import NewTopic

from tailrace.schemas.connect import ConnectField
from tailrace.spark_consumer import config, session
from tailrace.spark_consumer.app import load_sinks
from tailrace.spark_consumer.monitor.status import Status
from tailrace.spark_consumer.query import RunningQuery
from tailrace.spark_consumer.small_data import by_operator
from tailrace.spark_consumer.tables.pool import clone_session
from tests.bench.options import setting
from tests.bench.usage import spark_cpu_s
from tests.embedded.kafka import KafkaBroker
from tests.embedded.prepare import prepare
from tests.embedded.spark import spark_environment, spark_jars
from tests.spark.records import Feed, Message, Table, connect, table_schema
from tests.spark.running import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PREFIX = "bench"
_TOPICS_AT_ONCE = 200
_IDLE_S = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return the exit code."""
    options = _options(arguments)
    prepare(("kafka", "spark"))
    os.environ.update(spark_environment(), SPARK_JARS=",".join(str(path) for path in spark_jars()))
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as folder, KafkaBroker() as broker:
        _run(broker, Path(folder), options)
    return 0


def _run(broker: KafkaBroker, work: Path, options: argparse.Namespace) -> None:
    feed = Feed(broker, PREFIX)
    tables = _tables(broker, feed, options.tables)
    given = settings(broker, PREFIX, work, trigger__availableNow="false") | {
        "trigger.processingTime": "1 second",
        "spark.ui.retainedJobs": "1000000",
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.local.dir": str(work),
        "spark.log.level": "ERROR",
        # Otherwise Hadoop starts more processes for the files of a commit on a local disk (docs/sinks/delta.md).
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
        "spark.delta.logStore.file.impl": "io.delta.storage.LocalLogStore",
        **dict(options.set),
    }
    parsed = config.parse(given)
    sinks = load_sinks(parsed)
    spark = session.build(parsed, [sink.plugin for sink in sinks])
    paths = [str(work / "tables" / table.schema.database / table.schema.table) for table in tables]
    try:
        status = Status(parsed.name, parsed.sink_names)
        query = RunningQuery(spark, parsed, sinks, status)
        with ThreadPoolExecutor(1) as waiting:
            ended = waiting.submit(query.wait)
            try:
                for number in range(options.rounds):
                    before, cpu = status.phases.totals(), spark_cpu_s(spark)
                    jobs, batches = _jobs(spark), _batches(status)
                    feed.write(message for table in tables for message in _changes(table, number, options.changes))
                    _wait_for_batch(query, status, batches)
                    found = {
                        "round": number,
                        "batches": _batches(status) - batches,
                        "cpu_seconds": round(spark_cpu_s(spark) - cpu, 1),
                        "states": status.as_dict()["table_states"],
                    }
                    _report(found, _since(status, before), _jobs(spark) - jobs, len(tables))
            finally:
                query.stop()
            ended.result()
        for _ in range(options.appends):
            _append_to_each(spark, paths)
    finally:
        spark.stop()


def _tables(broker: KafkaBroker, feed: Feed, count: int) -> list[Table]:
    """Create the topics of some tables with different columns, and publish their schemas."""
    tables = []
    for number in range(count):
        more = [ConnectField(f"c{number % 50}_{index}", connect("int32")) for index in range(number % 7)]
        tables.append(Table(table_schema(PREFIX, f"t{number:04d}", *more)))
    admin = broker.admin()
    for first in range(0, count, _TOPICS_AT_ONCE):
        names = [table.schema.topic for table in tables[first : first + _TOPICS_AT_ONCE]]
        for created in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
            created.result(120)
    feed.write(table.published(PREFIX) for table in tables)
    return tables


def _changes(table: Table, number: int, count: int) -> Iterator[Message]:
    """Yield inserts in the first round, and later changes of the same rows, an insert and a delete."""
    more = {field.name: number for field in table.schema.columns[2:]}
    for key in range(count):
        old = {"id": key, "name": f"{number - 1}", **more}
        new = {**old, "name": f"{number}"}
        yield from table.change("u" if number else "c", old if number else None, new, pos=1000 * number + key)
    if number:
        row = {"id": count + number, "name": "new", **more}
        yield from table.change("c", None, row, pos=1000 * number + count)
        if number > 1:
            gone = {"id": count + number - 1, "name": "new", **more}
            yield from table.change("d", gone, None, pos=1000 * number + count + 1)


def _append_to_each(spark: SparkSession, paths: Sequence[str]) -> None:
    """Append one row to each table with Spark alone, and print the seconds for each table."""
    started, cpu = time.monotonic(), spark_cpu_s(spark)
    sessions: Queue[SparkSession] = Queue()
    threads = max(2, spark.sparkContext.defaultParallelism)
    for _ in range(threads):
        sessions.put(clone_session(spark))

    def append(path: str) -> None:
        own = sessions.get()
        with by_operator(own, when=True):
            row = own.sql("SELECT -1L AS id, 'appended' AS name")
            row.write.format("delta").mode("append").save(path)
        sessions.put(own)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(append, paths))
    wall, used = time.monotonic() - started, spark_cpu_s(spark) - cpu
    found = {"bare_append_seconds": round(wall / len(paths), 3), "cpu_seconds": round(used / len(paths), 3)}
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def _jobs(spark: SparkSession) -> Counter[str]:
    """Return the number of jobs by what they did for a table."""
    context: Any = spark.sparkContext
    jobs = context._jsc.sc().statusStore().jobsList(None)
    names: Counter[str] = Counter()
    for index in range(jobs.size()):
        job = jobs.apply(index)
        name = str(job.description().get()).splitlines() if job.description().isDefined() else [""]
        kind = name[0].rpartition(": ")[2]
        names[f"{kind} {name[-1].rpartition(': ')[2]}" if len(name) > 1 else kind] += 1
    return names


def _batches(status: Status) -> int:
    return int(status.as_dict()["batches"])


def _since(status: Status, before: Mapping[str, float]) -> dict[str, float]:
    return {name: value - before.get(name, 0) for name, value in status.phases.totals().items()}


def _wait_for_batch(query: RunningQuery, status: Status, before: int) -> None:
    """Return when the query has processed a batch, and waits for records again."""
    idle_since: float | None = None
    while idle_since is None or time.monotonic() < idle_since + _IDLE_S:
        time.sleep(0.2)
        is_busy = bool(query.query.status["isTriggerActive"]) or _batches(status) == before
        idle_since = None if is_busy else (idle_since or time.monotonic())
        if not query.query.isActive:
            raise RuntimeError("the query has ended")


def _report(found: dict[str, object], phases: Mapping[str, float], jobs: Counter[str], tables: int) -> None:
    found |= {
        "seconds": round(phases.get("spark.addBatch", 0), 1),
        "phases": {name: round(value, 1) for name, value in phases.items()},
        "jobs_per_table": {name: round(count / tables, 2) for name, count in jobs.most_common(12)},
    }
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.many_tables", description=__doc__)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--changes", type=int, default=5, help="changes for each table in a round (default 5)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--appends", type=int, default=2, help="rounds of appends by Spark alone (default 2)")
    parser.add_argument("--set", action="append", default=[], type=setting, metavar="NAME=VALUE")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
