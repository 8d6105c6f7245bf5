"""Partitions that a topic gets after its first records: a key has records in two of them, read in any order.

The topics of the tests have two partitions from the start; the records say what the producer knew when it wrote them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.schemas.watermark import WatermarkKind
from tests.embedded.kafka import KafkaBroker
from tests.sinks.backend import SinkBackend
from tests.sinks.conformance import INTEGER, row
from tests.sinks.harness import BatchRunner
from tests.sinks.test_delta import DeltaBackend
from tests.sinks.test_iceberg import IcebergBackend
from tests.sinks.test_restored_targets import saved
from tests.sinks.test_upsert_kafka import UpsertKafkaBackend
from tests.spark.records import Feed, Message, Table, table_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1800)
BOTH = pytest.mark.parametrize(
    "backend", [DeltaBackend, pytest.param(IcebergBackend, marks=pytest.mark.long)], indirect=True
)


@pytest.fixture
def backend(request: pytest.FixtureRequest, spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path) -> Any:
    """Return a place for tables of a format."""
    return request.param(spark, kafka_broker, tmp_path)


@pytest.fixture
def feed(kafka_broker: KafkaBroker, prefix: str) -> Feed:
    """Return a writer of the topics of a prefix."""
    return Feed(kafka_broker, prefix)


@pytest.fixture
def table(feed: Feed, prefix: str) -> Table:
    """Return a table whose topic had one partition, and has two."""
    made = feed.table(table_schema(prefix, "t", INTEGER), partitions=2)
    made.last_split = 9
    return made


def at(partition: int, messages: list[Message]) -> list[Message]:
    """Return messages in another partition."""
    return [replace(message, partition=partition) for message in messages]


def split(table: Table, prefix: str, number: int, *keys: int, low: int, high: int) -> list[Message]:
    """Return a split with its END, written when the topic had one partition."""
    known, table.partitions = table.partitions, 1
    made = table.snapshot(prefix, number, [row(key) for key in keys], low=low, high=high)
    table.partitions = known
    return [*made, table.end(prefix, number, high=high, rows=len(keys))]


def rows(backend: SinkBackend, table: Table) -> Counter[tuple[int, int]]:
    """Return the key and the value of each row, also of those that are there twice."""
    if isinstance(backend, DeltaBackend):
        path = backend.work / "tables" / table.schema.database / table.schema.table
        found = backend.spark.read.format("delta").load(str(path))
    else:
        assert isinstance(backend, IcebergBackend)
        found = backend.spark.read.table(backend.name(table.schema.table))
    return Counter((each["id"], each["n"]) for each in found.collect())


@BOTH
@pytest.mark.parametrize("running", [False, pytest.param(True, marks=pytest.mark.long)])
def test_row_of_the_initial_load_whose_change_was_read_before_is_not_appended(
    backend: SinkBackend, feed: Feed, table: Table, tmp_path: Path, *, running: bool
) -> None:
    """The row is in the former partition, and its change in the new one, which is read first."""
    if running:
        table.partitions = 1
    run = BatchRunner(feed, table, backend, tmp_path)
    read = 0
    if running:
        run.batch(split(table, feed.prefix, 0, 0, low=10, high=20))
        table.partitions, read = 2, 2
    feed.write(split(table, feed.prefix, 1, 1, low=30, high=40))
    feed.write(at(1, table.change("u", row(1), row(1, 5), pos=200)))

    run.batch(until={0: read})
    run.batch()
    run.batch(at(1, table.change("u", row(1, 5), row(1, 6), pos=300)))

    assert rows(backend, table) == Counter([(1, 6), *([(0, 0)] if running else [])])


@BOTH
@pytest.mark.parametrize("kind", [WatermarkKind.LOW, pytest.param(WatermarkKind.CREATED, marks=pytest.mark.long)])
def test_query_that_starts_later_does_not_bring_a_deleted_row_back(
    backend: SinkBackend, feed: Feed, table: Table, tmp_path: Path, *, kind: WatermarkKind
) -> None:
    """The key was created in the former partition and deleted in the new one, which is read first."""
    if kind is WatermarkKind.LOW:
        feed.write(split(table, feed.prefix, 0, low=10, high=20))
    else:
        feed.write([replace(table, partitions=1).created(feed.prefix, pos=10)])
    feed.write(at(0, table.change("c", None, row(7), pos=50)))
    feed.write(at(0, table.change("c", None, row(1), pos=100)))
    feed.write(at(1, table.change("d", row(1), None, pos=200)))
    feed.write(at(1, table.change("c", None, row(8), pos=210)))
    run = BatchRunner(feed, table, backend, tmp_path).from_beginning()

    run.batch(until={0: 2})
    run.batch()

    assert rows(backend, table) == Counter([(7, 0), (8, 0)])


def test_deletes_are_remembered_while_applied_records_are_skipped(
    spark: SparkSession, kafka_broker: KafkaBroker, feed: Feed, table: Table, tmp_path: Path
) -> None:
    """With an empty checkpoint the former partition is skipped up to what the target has: it is not read to its end."""
    backend = DeltaBackend(spark, kafka_broker, tmp_path)
    feed.write([replace(table, partitions=1).created(feed.prefix, pos=10)])
    for key in (7, 9):
        feed.write(at(0, table.change("c", None, row(key), pos=50 + key)))
    BatchRunner(feed, table, backend, tmp_path / "first").from_beginning().batch()
    feed.write(at(0, table.change("c", None, row(1), pos=100)))
    feed.write(at(1, table.change("d", row(1), None, pos=200)))
    feed.write(at(1, table.change("c", None, row(8), pos=210)))

    run = BatchRunner(feed, table, backend, tmp_path / "second").from_beginning()
    run.batch(until={0: 2, 1: 3})
    run.batch(until={0: 4, 1: 5})
    run.batch()

    assert rows(backend, table) == Counter([(7, 0), (9, 0), (8, 0)])


@pytest.mark.parametrize("copy", [False, pytest.param(True, marks=pytest.mark.long)], ids=["checkpoint", "copy"])
@pytest.mark.parametrize("made", [DeltaBackend, pytest.param(UpsertKafkaBackend, marks=pytest.mark.long)])
def test_delete_that_the_target_has_applied_is_known_when_an_older_record_is_read(
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    feed: Feed,
    table: Table,
    tmp_path: Path,
    *,
    made: type[SinkBackend],
    copy: bool,
) -> None:
    """With an empty checkpoint, or with an older copy of the target."""
    backend = made(spark, kafka_broker, tmp_path)
    feed.write([replace(table, partitions=1).created(feed.prefix, pos=10)])
    for key, pos in ((7, 50), (1, 100)):
        feed.write(at(0, table.change("c", None, row(key), pos=pos)))
    feed.write(at(1, table.change("d", row(1), None, pos=200)))
    feed.write(at(1, table.change("c", None, row(8), pos=210)))
    run = BatchRunner(feed, table, backend, tmp_path / "first").from_beginning()
    run.batch(until={0: 2})

    if copy:
        put_back = saved(run)
        run.batch()
        run.batch(at(0, table.change("c", None, row(9), pos=300)), at(1, table.change("c", None, row(10), pos=301)))
        put_back()
        run.restart()
        run.batch(at(0, table.change("c", None, row(11), pos=310)))
        run.retry()
    else:
        run = BatchRunner(feed, table, backend, tmp_path / "second").from_beginning()
        run.batch()

    assert run.parked() == {}
    assert set(backend.rows(table.schema)) == ({7, 8, 9, 10, 11} if copy else {7, 8})
