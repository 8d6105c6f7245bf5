"""A topic that is deleted and created again: its table has a precise reason, and goes on after the remedy, not lost."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition

from tailrace.spark_consumer import config
from tailrace.spark_consumer.app import load_sinks
from tailrace.spark_consumer.monitor.status import Status
from tailrace.spark_consumer.query import RunningQuery
from tests.embedded import supervised
from tests.embedded.kafka import KafkaBroker
from tests.sinks.backend import SinkBackend
from tests.sinks.conformance import INTEGER, row
from tests.sinks.harness import BatchRunner
from tests.sinks.jdbc_backend import JdbcBackend
from tests.sinks.test_delta import DeltaBackend
from tests.sinks.test_delta_targets import CatalogBackend
from tests.sinks.test_iceberg import IcebergBackend
from tests.sinks.test_upsert_kafka import UpsertKafkaBackend
from tests.spark.records import Feed, Message, Table, table_schema
from tests.spark.running import settings
from tests.spark.test_parking import delete_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1800)


class Postgres(JdbcBackend):
    """Tables of PostgreSQL."""

    database = "postgresql"


class Tables:
    """One query with a table whose topic is deleted, and one that stays."""

    def __init__(self, backend: SinkBackend, prefix: str, *, partitions: int = 1) -> None:
        self.backend = backend
        self.feed = Feed(backend.broker, prefix)
        self.table = self.feed.table(table_schema(prefix, "gone", INTEGER), partitions=partitions)
        self.good = self.feed.table(table_schema(prefix, "good", INTEGER))
        self.topic = self.table.schema.topic
        self.run = BatchRunner(self.feed, self.table, backend, backend.work)
        self.run.others.append(self.good)
        self.written = 0

    def changes(self, table: Table, *keys: int, n: int = 0) -> list[Message]:
        """Return an insert for each key."""
        return [m for key in keys for m in table.change("c", None, row(key, n), pos=100 + 10 * n + key)]

    def batch(self, *records: list[Message], planned: Callable[[], object] | None = None) -> None:
        """Process some records, and one of the table that stays."""
        self.written += 1
        self.run.batch(*records, self.changes(self.good, self.written), planned=planned)
        assert set(self.backend.rows(self.good.schema)) == set(range(1, self.written + 1))

    def delete(self) -> None:
        """Delete the topic."""
        delete_topic(self.feed.broker, self.topic)

    def create(self, *keys: int, partitions: int = 1) -> None:
        """Create the topic again, with records."""
        self.table.partitions = partitions
        self.feed.broker.create_topic(self.topic, partitions=partitions)
        self.feed.write(self.changes(self.table, *keys, n=1))

    def move_target(self) -> None:
        """Do what the hint of a table says whose topic was created again."""
        schema = self.table.schema
        if isinstance(self.backend, DeltaBackend):
            shutil.move(self.backend.work / "tables" / schema.database / schema.table, self.backend.work / "former")
        elif isinstance(self.backend, UpsertKafkaBackend):
            delete_topic(self.feed.broker, f"latest.{self.topic}")
        elif isinstance(self.backend, JdbcBackend):
            self.backend.execute(f"DROP TABLE {self.backend.table(schema.table)}")
        elif isinstance(self.backend, IcebergBackend):
            self.backend.execute(f"DROP TABLE {self.backend.name(schema.table)}")
        else:
            assert isinstance(self.backend, CatalogBackend)
            self.backend.execute(f"DROP TABLE {self.backend.name(f'shop_{schema.table}')}")

    def reason(self) -> str:
        """Return why the table is parked; empty if it is not."""
        return str(self.run.parked().get(self.topic, {}).get("reason", ""))

    def rows(self) -> dict[int, int]:
        """Return the values of the table by key."""
        return {key: each["n"] for key, each in self.backend.rows(self.table.schema).items()}


@pytest.fixture
def make(spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path) -> Callable[..., Tables]:
    """Return a function that makes the tables for a kind of backend."""

    def found(kind: type[SinkBackend], *, partitions: int = 1) -> Tables:
        return Tables(kind(spark, kafka_broker, tmp_path), prefix, partitions=partitions)

    return found


@pytest.mark.parametrize(
    "backend",
    [
        DeltaBackend,
        pytest.param(UpsertKafkaBackend, marks=pytest.mark.long),
        pytest.param(CatalogBackend, marks=pytest.mark.long),
        pytest.param(IcebergBackend, marks=pytest.mark.long),
        pytest.param(Postgres, marks=pytest.mark.long),
    ],
    indirect=True,
)
def test_table_goes_on_in_a_new_topic_without_a_restart(
    backend: type[SinkBackend], make: Callable[..., Tables]
) -> None:
    """The topic is deleted while its records are read, and the new one is shorter than what was read."""
    tables = make(backend)
    tables.batch(tables.changes(tables.table, 1, 2, 3, 4, 5))
    tables.batch(tables.changes(tables.table, 6, 7), planned=tables.delete)
    assert tables.reason() == f"topic {tables.topic} does not exist"

    tables.create(8, 9)
    tables.batch()
    tables.run.retry()
    assert f"topic {tables.topic} was deleted and created again" in tables.reason()
    tables.move_target()
    tables.run.retry()

    assert tables.reason() == ""
    assert tables.rows() == {8: 1, 9: 1}
    tables.batch(tables.changes(tables.table, 10, n=2))
    assert tables.rows() == {8: 1, 9: 1, 10: 2}


@pytest.mark.long
@pytest.mark.parametrize("keys", [(8, 9), tuple(range(8, 20))], ids=["shorter", "longer"])
def test_nothing_of_a_new_topic_is_left_out_if_the_target_was_moved_before(
    make: Callable[..., Tables], keys: tuple[int, ...]
) -> None:
    """The position that was stored belongs to the former topic."""
    tables = make(DeltaBackend)
    tables.batch(tables.changes(tables.table, 1, 2, 3, 4, 5))
    tables.batch(tables.changes(tables.table, 6, 7), planned=tables.delete)
    tables.move_target()
    tables.create(*keys)
    tables.run.restart()
    tables.batch()
    tables.run.retry()

    assert tables.reason() == ""
    assert tables.rows() == dict.fromkeys(keys, 1)


@pytest.mark.long
def test_new_topic_with_other_partitions_leaves_no_position(make: Callable[..., Tables]) -> None:
    """One partition is gone, and one of the new topic has no record."""
    tables = make(DeltaBackend, partitions=3)
    tables.batch(tables.changes(tables.table, *range(1, 10)))
    tables.batch(tables.changes(tables.table, 10), planned=tables.delete)
    tables.create(11, partitions=2)
    tables.batch()
    tables.move_target()
    tables.run.retry()
    assert tables.reason() == ""
    assert tables.rows() == {11: 1}

    tables.batch()  # begins at the position
    assert not list((tables.backend.work / "checkpoint" / "tailrace" / "parked").glob("*.json"))
    more = (12, 13, 14, 15)
    tables.batch(tables.changes(tables.table, *more, n=2))
    assert tables.rows() == {11: 1, **dict.fromkeys(more, 2)}


@pytest.mark.long
def test_table_is_not_tried_while_its_topic_is_missing(make: Callable[..., Tables]) -> None:
    """A retry gives the same reason; the same topic, of which a broker did not know, goes on where it was."""
    tables = make(DeltaBackend)
    tables.batch(tables.changes(tables.table, 1, 2, 3))
    tables.batch(tables.changes(tables.table, 4), planned=tables.delete)
    tables.run.retry()
    assert "does not exist" in tables.reason()

    position = tables.run.parked()[tables.topic]
    assert "restart the producer" in position["hint"]
    assert position["starts"]["0"] >= 3
    tables.create(5)
    tables.move_target()
    tables.batch()
    tables.run.retry()
    assert tables.rows() == {5: 1}


@pytest.mark.long
def test_records_that_kafka_has_removed_are_named(make: Callable[..., Tables]) -> None:
    tables = make(DeltaBackend)
    tables.batch(tables.changes(tables.table, 1, 2, 3))

    def remove() -> None:
        admin = tables.feed.broker.admin()
        for done in admin.delete_records([TopicPartition(tables.topic, 0, 6)]).values():
            done.result(60)

    tables.batch(tables.changes(tables.table, 4, 5, 6), planned=remove)

    assert tables.reason() == f"topic {tables.topic} has lost records that were not read: Kafka has removed them"
    details = tables.run.parked()[tables.topic]["details"]
    assert (details["first_offsets"], details["not_read_from"]) == ("partition 0: 6", "partition 0: 4")


@pytest.mark.long
@pytest.mark.parametrize("retry_ms", ["0", "3000"], ids=["by_signal", "by_time"])
def test_running_query_takes_up_a_table_of_one_of_its_sinks(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path, retry_ms: str
) -> None:
    """Spark plans the batches; the tables of the other sink go on meanwhile."""
    feed = Feed(kafka_broker, prefix)
    gone, other = (feed.table(table_schema(prefix, name, INTEGER)) for name in ("lake", "up"))
    lake, up = DeltaBackend(spark, kafka_broker, tmp_path), UpsertKafkaBackend(spark, kafka_broker, tmp_path)
    given = settings(kafka_broker, prefix, tmp_path, sink=None)
    given |= {"trigger.availableNow": "false", "trigger.processingTime": "1 second", "sinks": "lake,up"}
    given |= {"tailrace.parked.table.retry.ms": retry_ms}
    for name, backend in (("lake", lake), ("up", up)):
        given |= {f"sinks.{name}.type": backend.sink, f"sinks.{name}.table.include.list": rf"shop\.{name}"}
        given |= {f"sinks.{name}.{key}": value for key, value in backend.settings().items()}
    feed.write(m for table in (gone, other) for n in range(1, 6) for m in table.change("c", None, row(n), pos=100 + n))
    parsed = config.parse(given)
    status = Status(parsed.name, parsed.sink_names)
    # Settings of the query must not reach other tests.
    running = RunningQuery(spark.newSession(), parsed, load_sinks(parsed), status)
    ended = threading.Thread(target=running.wait)
    ended.start()

    def wait(table: Table, state: str, records: int = 0) -> None:
        def found() -> bool:
            now = status.as_dict()["tables"].get(table.schema.topic, {})
            return bool(now.get("state") == state and now["records_applied"] >= records)

        supervised.wait_until(found, what=f"{table.schema.table}: {state}", deadline_s=600)

    try:
        for table in (gone, other):
            wait(table, "streaming", 5)
        delete_topic(kafka_broker, gone.schema.topic)
        kafka_broker.create_topic(gone.schema.topic)
        feed.write([*gone.change("c", None, row(8), pos=200), *other.change("c", None, row(8), pos=200)])
        wait(gone, "parked")
        wait(other, "streaming", 6)
        shutil.move(tmp_path / "tables" / "shop" / "lake", tmp_path / "former")
        if retry_ms == "0":
            running.retry_parked()
        wait(gone, "streaming")
        feed.write([*gone.change("c", None, row(9), pos=210), *other.change("c", None, row(9), pos=210)])
        supervised.wait_until(lambda: set(lake.rows(gone.schema)) == {8, 9}, what="the table", deadline_s=600)
        wait(other, "streaming", 7)
    finally:
        running.stop()
        ended.join(300)

    assert set(up.rows(other.schema)) == {1, 2, 3, 4, 5, 8, 9}
