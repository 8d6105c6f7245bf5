"""Small ranges of several topics that the driver reads with one consumer: the records are those of Spark's source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import functions as fn
from structlog.testing import capture_logs

from tailrace.spark_consumer import in_driver
from tailrace.spark_consumer.in_driver import RowFunction, rows_of_type
from tailrace.spark_consumer.source import group_reader
from tailrace.spark_consumer.source.group_reader import (
    MOST_BYTES,
    GroupReader,
    GroupReaders,
    RawRows,
    SharedReads,
    StalledReadError,
)
from tailrace.spark_consumer.source.kafka import range_options, read_raw, select_raw
from tailrace.spark_consumer.source.ranges import EARLIEST, OffsetRange, TopicRange
from tests.embedded.kafka import KafkaBroker
from tests.spark.driver_batches import rows_by_topic
from tests.spark.records import Feed, Message, Table, table_schema
from tests.spark.running import count_jobs
from tests.support.topics import end_offset, read_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


class Topics:
    """Two topics with two partitions each and one with one: transactions, an aborted one, tombstones, gaps."""

    def __init__(self, broker: KafkaBroker, prefix: str) -> None:
        self.feed = Feed(broker, prefix)
        self.broker = broker
        partitions = (2, 2, 1)
        self.tables = [self.feed.table(table_schema(prefix, f"t{n}"), partitions=c) for n, c in enumerate(partitions)]
        for number in range(4):
            self.feed.write(self.changes(number), commit=number != 1)
        for table in self.tables:
            read_topic(broker.bootstrap, table.schema.topic)  # a commit returns before all markers are written

    def changes(self, number: int, count: int = 12) -> list[Message]:
        """Return some changes of all tables, each with deletes."""
        found: list[Message] = []
        for table in self.tables:
            for key in range(count):
                pos, row = 1000 * number + key, {"id": key, "name": f"{number} {'ä' * key}"}
                found += table.change("c", None, row, pos=pos)
                if key % 3 == 0:
                    found += table.change("d", row, None, pos=pos, row=1)
        return found

    def whole(self, table: Table) -> TopicRange:
        """Return the range of all that a topic has."""
        topic = table.schema.topic
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": "tests"})
        try:
            ends = [end_offset(consumer, TopicPartition(topic, number)) for number in range(table.partitions)]
        finally:
            consumer.close()
        return TopicRange(topic, {number: OffsetRange(0, end) for number, end in enumerate(ends)})


@pytest.fixture(name="topics", scope="module")
def topics_with_records(kafka_broker: KafkaBroker) -> Topics:
    return Topics(kafka_broker, "groupreader")


def options(broker: KafkaBroker, **client: str) -> dict[str, str]:
    given = {f"kafka.{name.replace('_', '.')}": value for name, value in client.items()}
    # Spark keeps one consumer of a group for a partition, with the options of the first read.
    query_id = "-".join(("q", *client.values()))
    return range_options(client={"kafka.bootstrap.servers": broker.bootstrap, **given}, query_id=query_id, extra={})


def as_text(spark: SparkSession, found: Mapping[str, RawRows]) -> dict[str, list[str]]:
    """Return records by topic, in an order of their own."""
    texts = {}
    for topic, raw in found.items():
        columns = (fn.hex(name).alias(name) if name in {"key", "value"} else name for name in raw.type.names)
        text = RowFunction(rows_of_type(spark, raw.type).select(fn.to_json(fn.struct(*columns))))
        texts[topic] = sorted(map(str, text.json(raw.rows)))
    return texts


def by_job(spark: SparkSession, source: dict[str, str], ranges: Sequence[TopicRange]) -> dict[str, RawRows]:
    """Return the records as Spark's source reads them."""
    records = select_raw(read_raw(spark, source, *ranges)).coalesce(1).persist()
    try:
        records.count()
        return rows_by_topic(records)
    finally:
        records.unpersist()


def parts(topics: Topics) -> list[list[TopicRange]]:
    """Return groups of ranges: everything, parts at each offset, and ranges that end where more records follow."""
    whole = [topics.whole(table) for table in topics.tables]
    groups = [whole, whole[1:], whole]
    return groups + [[part(each, first, 2 * first + 1) for each in whole] for first in range(0, 20, 6)]


def part(whole: TopicRange, start: int, length: int) -> TopicRange:
    """Return a part of each partition, or less where there is not so much."""
    found = {n: OffsetRange(min(start, r.end), min(start + length, r.end)) for n, r in whole.partitions.items()}
    return TopicRange(whole.topic, found)


@pytest.mark.parametrize("client", [{}, {"max_poll_records": "5"}, {"fetch_max_bytes": "100"}])
def test_as_spark_reads_them(
    spark: SparkSession, kafka_broker: KafkaBroker, topics: Topics, client: dict[str, str]
) -> None:
    """One reader for several groups, also with topics that it has read before; and no job."""
    source = options(kafka_broker, **client)
    reader = GroupReader(spark, source, MOST_BYTES)
    for ranges in parts(topics):
        expected = by_job(spark, source, ranges)
        before = count_jobs(spark)
        found = reader.read(spark, ranges)
        assert count_jobs(spark) == before
        assert as_text(spark, found) == as_text(spark, expected)
        # A decoder is planned for a type once: it takes records of both.
        assert {str(raw.type.json()) for raw in found.values()} == {str(raw.type.json()) for raw in expected.values()}
    assert sum(map(len, as_text(spark, reader.read(spark, parts(topics)[0])).values())) == 3 * 3 * 16
    reader.close()


def test_a_range_that_ends_with_a_marker_only(spark: SparkSession, kafka_broker: KafkaBroker, topics: Topics) -> None:
    """No record tells that it was read."""
    reader = GroupReader(spark, options(kafka_broker), MOST_BYTES)
    last = [
        TopicRange(each.topic, {n: OffsetRange(r.end - 1, r.end) for n, r in each.partitions.items()})
        for each in map(topics.whole, topics.tables)
    ]
    assert reader.read(spark, last) == {}
    reader.close()


def test_records_that_are_too_large(spark: SparkSession, kafka_broker: KafkaBroker, topics: Topics) -> None:
    whole = [topics.whole(table) for table in topics.tables]
    readers = GroupReaders(options(kafka_broker), 1000)
    assert readers.read(spark, whole) == {}
    small = [TopicRange(each.topic, {0: OffsetRange(0, 1)}) for each in whole]
    assert len(readers.read(spark, small)) == 3
    readers.close()


def test_an_earliest_offset_is_left_to_jobs(spark: SparkSession, kafka_broker: KafkaBroker, topics: Topics) -> None:
    first, second, third = (topics.whole(table) for table in topics.tables)
    fresh = TopicRange(first.topic, {**first.partitions, 1: OffsetRange(EARLIEST, first.partitions[1].end)})
    readers = GroupReaders(options(kafka_broker), MOST_BYTES)
    found = readers.read(spark, [fresh, second, third])
    assert found.keys() == {second.topic, third.topic}
    readers.close()


def test_lost_records(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queries read instead, and have the error; after a pause the driver reads again."""
    topics = Topics(kafka_broker, prefix)
    whole = [topics.whole(table) for table in topics.tables]
    lost = whole[2]
    admin = kafka_broker.admin()
    for done in admin.delete_records([TopicPartition(lost.topic, 0, 6)]).values():
        done.result(120)
    for pause_s in (3600.0, 0.0):
        monkeypatch.setattr(in_driver, "PAUSE_S", pause_s)
        shared = SharedReads(options(kafka_broker))
        with capture_logs() as logs, shared.of(spark, whole):
            assert shared.in_driver(whole[0]) is None
            assert shared.records(whole[0]) is None
        found = [line["event"] for line in logs]
        assert found == ["topics are read by jobs for a while", "topics are read one by one"]
        with shared.of(spark, whole[:2]):
            assert (shared.in_driver(whole[0]) is None) == bool(pause_s)
        shared.close()


def test_groups_that_queries_need_too(spark: SparkSession, kafka_broker: KafkaBroker, topics: Topics) -> None:
    """One job reads for the tables that queries process, one consumer for the others."""
    whole = [topics.whole(table) for table in topics.tables]
    shared = SharedReads(options(kafka_broker))
    with shared.of(spark, whole):
        records = shared.records(whole[1])
        assert records is not None
        expected = as_text(spark, rows_by_topic(records))
        before = count_jobs(spark)
        own: Any = shared.in_driver(whole[1])
        assert as_text(spark, {whole[1].topic: own}) == expected
        assert shared.records(whole[2]) is not None
        assert shared.in_driver(whole[0]) is not None
        assert count_jobs(spark) == before
    assert shared.in_driver(whole[0]) is None
    shared.close()
    with shared.of(spark, whole):
        assert shared.in_driver(whole[0]) is None


def test_deleted_topic_is_not_created(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a broker that creates what clients ask for: the producer tells a deleted topic by its absence."""
    monkeypatch.setattr(group_reader, "_MOST_WAIT_S", 2)
    with KafkaBroker(settings={"auto.create.topics.enable": "true"}) as broker:
        broker.create_topic("there")
        reader = GroupReader(spark, options(broker), MOST_BYTES)
        gone = [TopicRange(name, {0: OffsetRange(0, 5)}) for name in ("deleted", "missing")]
        with pytest.raises(StalledReadError, match="deleted, missing"):
            reader.read(spark, gone)
        reader.close()
        assert {name for name in broker.admin().list_topics(timeout=30).topics if "_" not in name} == {"there"}
