"""Control topics are read in jobs only if they have something new."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tailrace.schemas.names import schemas_topic, watermarks_topic
from tailrace.schemas.sequence import Sequence
from tailrace.schemas.watermark import MariaDbPosition, Watermark
from tailrace.spark_consumer.errors import ControlTopicError
from tailrace.spark_consumer.source.control import ControlTopic
from tailrace.spark_consumer.source.kafka_admin import SharedAdmin
from tailrace.spark_consumer.source.watermarks import SnapshotRuns, SplitEnds
from tests.spark.records import Feed, Table, table_schema
from tests.spark.running import count_jobs
from tests.support.topics import read_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.embedded.kafka import KafkaBroker


@pytest.fixture
def admin(kafka_broker: KafkaBroker) -> Iterator[SharedAdmin]:
    """An admin client of the broker."""
    opened = SharedAdmin({"kafka.bootstrap.servers": kafka_broker.bootstrap})
    yield opened
    opened.close()


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_topic_without_new_records_is_not_read(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, admin: SharedAdmin, isolation: str
) -> None:
    """Records of an open transaction are found when it is committed."""
    feed = Feed(kafka_broker, prefix)
    client = {"kafka.bootstrap.servers": kafka_broker.bootstrap}
    topic = ControlTopic(schemas_topic(prefix), client, isolation, admin=admin)
    first, second = Table(table_schema(prefix, "a")), Table(table_schema(prefix, "b"))

    feed.write([first.published(prefix)])
    read_topic(kafka_broker.bootstrap, schemas_topic(prefix))  # the markers of the commit are there
    assert len(topic.poll(spark)) == 1
    jobs = count_jobs(spark)
    assert topic.poll(spark) == []
    assert count_jobs(spark) == jobs

    with feed.transaction([second.published(prefix)]):
        assert len(topic.poll(spark)) == (1 if isolation == "read_uncommitted" else 0)
    read_topic(kafka_broker.bootstrap, schemas_topic(prefix))  # the markers of the commit are there
    assert len(topic.poll(spark)) == (0 if isolation == "read_uncommitted" else 1)
    jobs = count_jobs(spark)
    assert topic.poll(spark) == []
    assert count_jobs(spark) == jobs


def test_a_topic_that_is_missing_is_an_error(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, admin: SharedAdmin
) -> None:
    """The error is that of the read, also if the end cannot be asked for."""
    client = {"kafka.bootstrap.servers": kafka_broker.bootstrap}
    topic = ControlTopic(schemas_topic(prefix), client, admin=admin)
    with pytest.raises(ControlTopicError, match="cannot be read") as caught:
        topic.poll(spark)
    assert "does not host this topic-partition" in str(caught.value.context["cause"])
    assert caught.value.hint == "start the producer of this prefix first, and allow this client to read the topic"
    Feed(kafka_broker, prefix).write([Table(table_schema(prefix, "a")).published(prefix)])
    assert len(topic.poll(spark)) == 1


def test_watermarks_of_mariadb_are_read(spark: SparkSession, kafka_broker: KafkaBroker, prefix: str) -> None:
    """Their positions are of another kind, with the same coordinates."""
    feed, table = Feed(kafka_broker, prefix), Table(table_schema(prefix, "a"))
    position = MariaDbPosition(2, "binlog.000012", 7, "0-1-5", "u")
    messages = [*table.snapshot(prefix, 0, [], low=1, high=7), table.end(prefix, 0, high=7, rows=0)]
    messages.append(table.created(prefix, pos=7))
    values = [replace(Watermark.from_json(each.value or b""), position=position).to_json() for each in messages]
    feed.write(replace(message, value=value) for message, value in zip(messages, values, strict=True))
    client = {"kafka.bootstrap.servers": kafka_broker.bootstrap}
    ends = SplitEnds(ControlTopic(watermarks_topic(prefix), client))
    runs = SnapshotRuns(ControlTopic(watermarks_topic(prefix), client))
    ends.refresh(spark)
    runs.refresh(spark)

    at, topic = Sequence.at(2, "binlog.000012", 7), table.schema.topic
    [end], first = ends.pending(topic).values(), runs.first(topic)
    assert first is not None
    assert (end.high, ends.created(topic), first.start) == (at, at, at)
