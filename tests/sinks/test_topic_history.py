"""What a topic has been before its table reads it: its beginning is gone, it is another one, its log was cut off."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition
from structlog.testing import capture_logs

from tailrace.spark_consumer.errors import IncompleteTopicError
from tailrace.spark_consumer.tables.progress import TablePosition
from tests.embedded.kafka import KafkaBroker
from tests.sinks.conformance import INTEGER, row
from tests.sinks.harness import BatchRunner
from tests.sinks.test_delta import DeltaBackend
from tests.sinks.test_new_topics import Tables
from tests.sinks.test_splits import state
from tests.spark.records import Feed, table_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture
def feed(kafka_broker: KafkaBroker, prefix: str) -> Feed:
    """Return a writer of the topics of a prefix."""
    return Feed(kafka_broker, prefix)


@pytest.fixture
def backend(spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path) -> DeltaBackend:
    """Return a place for Delta tables."""
    return DeltaBackend(spark, kafka_broker, tmp_path)


def remove_before(broker: KafkaBroker, topic: str, partition: int, offset: int) -> None:
    """Remove the first records of a partition, as retention does."""
    admin = broker.admin()  # a reference: its requests end with it
    for done in admin.delete_records([TopicPartition(topic, partition, offset)]).values():
        done.result(60)


def test_topic_found_later_that_has_lost_its_beginning_stops_its_table(
    feed: Feed, backend: DeltaBackend, tmp_path: Path
) -> None:
    first = feed.table(table_schema(feed.prefix, "t", INTEGER))
    run = BatchRunner(feed, first, backend, tmp_path)
    run.batch(first.change("c", None, row(1), pos=100))
    late, whole = (feed.table(table_schema(feed.prefix, name, INTEGER)) for name in ("late", "whole"))
    for key in (1, 2):
        for table in (late, whole):
            feed.write(table.change("c", None, row(key), pos=110 + key))
    remove_before(feed.broker, late.schema.topic, 0, 1)
    run.others += [late, whole]

    run.batch(first.change("c", None, row(2), pos=130))

    assert set(backend.rows(first.schema)) == set(backend.rows(whole.schema)) == {1, 2}
    assert list(run.parked()) == [late.schema.topic]
    position = run.parked()[late.schema.topic]
    assert position["reason"] == f"topic {late.schema.topic} has lost its beginning: the table would lack rows"
    assert position["details"]["first_offsets"] == "partition 0: 1"
    run.accept_incomplete = True
    run.restart()
    run.retry()
    assert set(backend.rows(late.schema)) == {2}


@pytest.mark.long
def test_partition_found_later_that_has_lost_its_beginning_stops_the_table(
    feed: Feed, backend: DeltaBackend, tmp_path: Path
) -> None:
    table = feed.table(table_schema(feed.prefix, "t", INTEGER), partitions=2)
    other = feed.table(table_schema(feed.prefix, "other", INTEGER))
    table.partitions = 1
    run = BatchRunner(feed, table, backend, tmp_path)
    run.others.append(other)
    run.batch(table.change("c", None, row(1), pos=100), other.change("c", None, row(1), pos=100))
    table.partitions = 2
    keys = [key for key in range(2, 20) if table.partition(table.key(row(key))) == 1][:2]
    for key in keys:
        feed.write(table.change("c", None, row(key), pos=100 + key))
    remove_before(feed.broker, table.schema.topic, 1, 1)

    run.batch(other.change("c", None, row(2), pos=200))

    assert set(backend.rows(other.schema)) == {1, 2}
    assert "has lost its beginning" in run.parked()[table.schema.topic]["reason"]
    assert run.parked()[table.schema.topic]["details"]["first_offsets"] == "partition 1: 1"


def test_table_goes_on_at_once_in_a_new_topic_of_its_name(backend: DeltaBackend, prefix: str) -> None:
    """The last committed batch ends at offsets of the former topic, which the new one does not have."""
    tables = Tables(backend, prefix, partitions=2)
    tables.batch(tables.changes(tables.table, *range(1, 9)))
    tables.batch(tables.changes(tables.table, 9, 10), planned=tables.delete)
    tables.create(11, 12)
    tables.move_target()
    tables.run.restart()

    with capture_logs() as logs:
        tables.run.retry()

    assert tables.reason() == ""
    assert tables.rows() == {11: 1, 12: 1}
    assert not [entry for entry in logs if entry["event"] == "topics are read one by one"]
    tables.batch(tables.changes(tables.table, 13, n=2))
    assert tables.rows() == {11: 1, 12: 1, 13: 2}


@pytest.mark.parametrize("parked", [False, pytest.param(True, marks=pytest.mark.long)])
def test_topic_that_has_lost_its_end_is_not_taken_for_another_one(
    feed: Feed, backend: DeltaBackend, tmp_path: Path, *, parked: bool
) -> None:
    """The broker has fewer records than were read, as after an unclean election of a leader; the id is the same."""
    table = feed.table(table_schema(feed.prefix, "t", INTEGER))
    other = feed.table(table_schema(feed.prefix, "other", INTEGER))
    run = BatchRunner(feed, table, backend, tmp_path)
    run.others.append(other)
    run.batch(table.change("c", None, row(1), pos=100), other.change("c", None, row(1), pos=100))
    if parked:
        topic_id = state(tmp_path, table.schema.topic)["topicId"]
        position = TablePosition(table.schema.topic, {"0": 50}, topic_id=topic_id)
        folder = tmp_path / "checkpoint" / "tailrace" / "parked"
        folder.mkdir(parents=True)
        (folder / f"{position.topic}.json").write_text(json.dumps(asdict(position)), encoding="utf-8")
        run.restart()
        run.retry()
    else:
        run.seek({0: 50})
    run.batch(table.change("c", None, row(2), pos=110), other.change("c", None, row(2), pos=110))

    found = run.parked()[table.schema.topic]
    assert found["reason"].startswith(f"topic {table.schema.topic} has lost its last records")
    assert "missing.topic.handling.mode=snapshot" in found["hint"]
    end = 2 if parked else 4
    assert (found["details"]["ends"], found["details"]["read_to"]) == (f"partition 0: {end}", "partition 0: 50")
    assert set(backend.rows(other.schema)) == {1, 2}


@pytest.mark.long
def test_splits_that_the_target_has_applied_are_not_reported_as_missing(
    feed: Feed, backend: DeltaBackend, tmp_path: Path
) -> None:
    """A checkpoint is deleted: the records of the splits are skipped, and so their certificates are not compared."""
    table = feed.table(table_schema(feed.prefix, "t", INTEGER))
    table.last_split = 0
    end = [table.snapshot(feed.prefix, 0, [row(1), row(2)], low=100, high=200)]
    end.append([table.end(feed.prefix, 0, high=200, rows=2)])
    BatchRunner(feed, table, backend, tmp_path / "first").batch(*end)
    run = BatchRunner(feed, table, backend, tmp_path / "second").from_beginning()

    with capture_logs() as logs:
        run.batch(table.change("c", None, row(3), pos=300))
        run.batch(table.change("c", None, row(4), pos=310))

    assert set(backend.rows(table.schema)) == {1, 2, 3, 4}
    assert not [entry for entry in logs if entry["log_level"] in {"warning", "error"}]
    assert [entry["splits"] for entry in logs if entry["event"].startswith("splits are not compared")] == [1]


def test_empty_checkpoint_begins_where_the_target_is(feed: Feed, backend: DeltaBackend, tmp_path: Path) -> None:
    """Kafka has removed what the target has applied, and no more; then also records of another partition."""
    table = feed.table(table_schema(feed.prefix, "t", INTEGER), partitions=2)
    topic, table.partitions, table.last_split = table.schema.topic, 1, 0
    first = BatchRunner(feed, table, backend, tmp_path / "first")
    first.batch(table.snapshot(feed.prefix, 0, [row(1)], low=1, high=9), [table.end(feed.prefix, 0, high=9, rows=1)])
    removed = int(first._end[topic]["0"])
    remove_before(feed.broker, topic, 0, removed)

    run = BatchRunner(feed, table, backend, tmp_path / "second")
    with capture_logs() as logs:
        run.batch(table.change("c", None, row(3), pos=300))

    assert set(backend.rows(table.schema)) == {1, 3}
    assert not [entry for entry in logs if entry["log_level"] in {"warning", "error"}]

    feed.write(replace(each, partition=1) for each in table.change("c", None, row(4), pos=310))
    remove_before(feed.broker, topic, 1, 1)
    table.partitions = 2
    other = BatchRunner(feed, table, backend, tmp_path / "third")
    other.seek({0: removed, 1: 1})
    with pytest.raises(IncompleteTopicError, match="has lost its beginning"):
        other.batch(replace(each, partition=1) for each in table.change("c", None, row(5), pos=320))
