"""Two processes write to one target: nothing is doubled, and nothing that is gone comes back."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from pyspark.sql import functions as fn

from tailrace.runtime.errors import TailraceError
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.sink.delta_table import DeltaTable
from tailrace.spark_consumer.sink.iceberg_table import IcebergTable
from tailrace.spark_consumer.sink.table_names import Location
from tailrace.spark_consumer.sink.target_table import TargetTable
from tests.embedded.kafka import KafkaBroker
from tests.sinks.backend import SinkBackend, WithSettings
from tests.sinks.conformance import INTEGER, row
from tests.sinks.harness import BatchRunner
from tests.sinks.test_delta import DeltaBackend
from tests.sinks.test_iceberg import IcebergBackend
from tests.sinks.test_restored_targets import saved, split
from tests.sinks.test_upsert_kafka import UpsertKafkaBackend
from tests.spark.records import Feed, table_schema
from tests.spark.running import count_jobs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1800)

OTHERS = r"another process has written to "


class History(WithSettings, DeltaBackend):
    """Tables that have each change."""

    added: Mapping[str, str] = {"sink.shape": "history"}


def ids(backend: SinkBackend, schema: TableSchema) -> list[int]:
    """Return the keys of all rows, also of those that a key has twice."""
    if isinstance(backend, IcebergBackend):
        rows = backend.spark.read.table(backend.name())
    elif not isinstance(backend, DeltaBackend):
        return sorted(backend.rows(schema))
    else:
        rows = backend.spark.read.format("delta").load(str(backend.work / "tables" / "shop" / "t"))
    return sorted(each["id"] for each in rows.select("id").collect())


@pytest.mark.parametrize("backend", [DeltaBackend, IcebergBackend, UpsertKafkaBackend])
def test_older_driver_writes_nothing_that_the_newer_one_has_written(
    backend: type[SinkBackend], spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """The older one has read the ledger before, and each of its batches was planned before those of the newer one."""
    feed, target = Feed(kafka_broker, prefix), backend(spark, kafka_broker, tmp_path)
    table = feed.table(table_schema(prefix, "t", INTEGER))
    table.last_split = 9
    new, old = (BatchRunner(feed, table, target, tmp_path / name) for name in ("new", "old"))
    new.batch(split(table, prefix, 0, 0, low=10))
    old.batch()

    # Rows of an initial load are appended.
    feed.write(split(table, prefix, 1, 1, low=30))
    new.batch()
    with pytest.raises(TailraceError, match=OTHERS):
        old.batch()
    assert ids(target, table.schema) == [0, 1]

    # It goes on with what the table has.
    old.restart()
    feed.write(table.change("c", None, row(50), pos=100))
    old.batch()
    assert ids(target, table.schema) == [0, 1, 50]

    # Now the other one is behind: its batch has a row that is gone.
    with pytest.raises(TailraceError, match=OTHERS):
        new.batch(planned=lambda: old.batch(table.change("d", row(50), None, pos=110)))
    assert ids(target, table.schema) == [0, 1]
    new.restart()
    new.batch(table.change("c", None, row(51), pos=120))
    assert ids(target, table.schema) == [0, 1, 51]


@pytest.mark.long
def test_rows_of_a_late_writer_are_replaced(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """Its rows are behind those of the other one in the topic, and then comes its record of the ledger."""
    feed, target = Feed(kafka_broker, prefix), UpsertKafkaBackend(spark, kafka_broker, tmp_path)
    table = feed.table(table_schema(prefix, "t", INTEGER))
    run = BatchRunner(feed, table, target, tmp_path)
    run.batch(table.change("c", None, row(1), pos=100), table.change("c", None, row(2), pos=110))
    write_ledger = saved(run)
    run.batch(table.change("u", row(1), row(1, 5), pos=120), table.change("d", row(2), None, pos=130))
    late = Producer({"bootstrap.servers": kafka_broker.bootstrap})
    for key in (1, 2):
        value = json.dumps(row(key)).encode()
        late.produce(f"latest.{table.schema.topic}", key=json.dumps({"id": key}, separators=(",", ":")), value=value)
    assert late.flush(60) == 0
    assert target.rows(table.schema) == {1: row(1), 2: row(2)}
    write_ledger()

    with pytest.raises(TailraceError, match=OTHERS):
        run.batch(table.change("c", None, row(3), pos=140))
    run.repeat()
    run.retry()

    assert run.parked() == {}
    assert target.rows(table.schema) == {1: row(1, 5), 3: row(3)}


@pytest.mark.long
@pytest.mark.parametrize("commit", ["append", "merge"])
def test_commit_to_iceberg_follows_the_snapshot_whose_ledger_was_read(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path, commit: str
) -> None:
    """Another one is committed after the ledger was read, and before Spark plans the statement."""
    feed, target = Feed(kafka_broker, prefix), IcebergBackend(spark, kafka_broker, tmp_path)
    table = feed.table(table_schema(prefix, "t", INTEGER))
    run = BatchRunner(feed, table, target, tmp_path)
    run.batch(table.change("c", None, row(1), pos=100))
    location = Location(target.name(), target.name())
    mine, other = IcebergTable(spark, location), IcebergTable(spark, location)
    rows = mine.rows()
    assert mine.newest_ledger(table.schema.topic) is not None
    other.newest_ledger(table.schema.topic)
    other.append(rows.limit(0), "other")

    with pytest.raises(Exception, match="fast-forward"):  # noqa: PT012
        if commit == "append":
            mine.append(rows, "mine")
        else:
            with mine.following() as name:
                spark.sql(f"DELETE FROM {name} WHERE id = 1")

    assert ids(target, table.schema) == [1]
    assert not [ref for ref in spark.sql(f"SELECT name FROM {target.name()}.refs").collect() if ref[0] != "main"]


@pytest.mark.long
@pytest.mark.parametrize("backend", [DeltaBackend, IcebergBackend])
def test_fill_of_a_column_replaces_no_rows_that_it_has_not_read(
    backend: type[SinkBackend], spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """Another process writes while the table is rewritten."""
    feed, target = Feed(kafka_broker, prefix), backend(spark, kafka_broker, tmp_path)
    table = feed.table(table_schema(prefix, "t", INTEGER))
    run = BatchRunner(feed, table, target, tmp_path)
    run.batch(table.change("c", None, row(1), pos=100))
    begun, go, path = tmp_path / "begun", tmp_path / "go", str(tmp_path / "tables" / "shop" / "t")
    mine: TargetTable = DeltaTable(spark, Location(f"delta.`{path}`", path))
    if isinstance(target, IcebergBackend):
        mine = IcebergTable(spark, Location(target.name(), target.name()))

    @partial(fn.udf, returnType="int", useArrow=False)
    def held(number: int) -> int:
        begun.touch()
        while not go.exists():
            time.sleep(0.05)
        return number

    with ThreadPoolExecutor(1) as pool:
        fill = pool.submit(mine.replace, lambda stored: stored.withColumn("n", held("n")), once=None)
        while not (begun.exists() or fill.done()):
            time.sleep(0.05)
        run.batch(table.change("c", None, row(2), pos=110), table.change("u", row(1), row(1, 5), pos=120))
        go.touch()
        assert fill.exception(300) is not None

    assert target.rows(table.schema) == {1: row(1, 5), 2: row(2)}


@pytest.mark.parametrize(
    "backend", [DeltaBackend, *(pytest.param(each, marks=pytest.mark.long) for each in (History, IcebergBackend))]
)
def test_older_driver_with_the_same_checkpoint_writes_nothing_twice(
    backend: type[SinkBackend], spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """It ends a batch that the newer one has written too: an append of the initial load, and a row that is gone."""
    feed, target = Feed(kafka_broker, prefix), backend(spark, kafka_broker, tmp_path)
    table = feed.table(table_schema(prefix, "t", INTEGER))
    table.last_split = 9
    run = BatchRunner(feed, table, target, tmp_path)
    run.batch(split(table, prefix, 0, 0, low=10))
    for records, expected in (
        (split(table, prefix, 1, 1, low=30), [0, 1]),
        (table.change("c", None, row(50), pos=100), [0, 1, 50]),
    ):
        older = run._pipeline
        run.restart()
        run.batch(records)
        with pytest.raises(TailraceError, match=OTHERS):
            older(run._spark.range(0), run._number)
        assert ids(target, table.schema) == expected

    older, planned = run._pipeline, run._number
    run.restart()
    run.batch(table.change("d", row(50), None, pos=110))
    run.batch(table.change("c", None, row(51), pos=120))
    with pytest.raises(TailraceError, match=OTHERS):
        older(run._spark.range(0), planned + 1)
    expected = [0, 1, 50, 50, 51] if backend is History else [0, 1, 51]
    assert ids(target, table.schema) == expected


def test_history_has_each_change_once(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    feed, target = Feed(kafka_broker, prefix), History(spark, kafka_broker, tmp_path)
    table = feed.table(table_schema(prefix, "t", INTEGER))
    new, old = (BatchRunner(feed, table, target, tmp_path / name) for name in ("new", "old"))
    new.batch(table.change("c", None, row(1), pos=100))
    old.batch()
    feed.write(table.change("c", None, row(2), pos=110))
    with pytest.raises(TailraceError, match=OTHERS):
        new.batch()
    old.batch()
    new.restart()
    new.batch()
    assert ids(target, table.schema) == [1, 2]


def test_number_of_a_commit_needs_no_job(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """Delta would read the state of the table; the log has the number, also in a new process."""
    feed = Feed(kafka_broker, prefix)
    table = feed.table(table_schema(prefix, "t", INTEGER))
    run = BatchRunner(feed, table, DeltaBackend(spark, kafka_broker, tmp_path), tmp_path)
    path = tmp_path / "tables" / "shop" / "t"
    location = Location(f"delta.`{path}`", str(path))
    for number in range(1, 4):
        run.batch(table.change("c", None, row(number), pos=100 + number))
        target, before = DeltaTable(spark, location), count_jobs(spark)
        assert target.newest_ledger(table.schema.topic) is not None
        assert target._next["txnVersion"] == str(number)
        assert count_jobs(spark) == before
    assert target.transaction(spark).number_of(f"tailrace/{table.schema.topic}", None) == 3
