"""Topics that Kafka compacts: only the tombstone of a deleted row is left, and the query says what that means."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from structlog.testing import capture_logs

from tailrace.spark_consumer.source.kafka_admin import SharedAdmin, TopicPolicies
from tests.debezium_parity.topics import KafkaRecord
from tests.embedded.kafka import KafkaBroker
from tests.sinks.conformance import INTEGER, row
from tests.sinks.harness import BatchRunner
from tests.sinks.test_delta import DeltaBackend
from tests.spark.records import Feed, Message, Table, table_schema
from tests.spark.running import consume, settings, table_rows
from tests.spark.test_connector_topics import JSON, converters, envelope, record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1800)
COMPACTED = {"cleanup.policy": "compact"}


def tombstone(table: Table, key: int) -> list[Message]:
    """Return what is left of a delete."""
    return table.change("d", row(key), None, pos=1)[1:]


def compacted(feed: Feed, name: str) -> Table:
    """Return a table whose topic is compacted."""
    schema = table_schema(feed.prefix, name, INTEGER)
    feed.broker.create_topic(schema.topic, settings=COMPACTED)
    table = Table(schema)
    feed.write([table.published(feed.prefix)])
    return table


def append(broker: KafkaBroker, records: list[KafkaRecord]) -> None:
    """Write records as a connector does."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for each in records:
        producer.produce(each.topic, each.value, each.key, each.partition)
    assert producer.flush(60) == 0


def test_tombstone_without_its_delete_event_deletes_the_row(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    feed = Feed(kafka_broker, prefix)
    table, plain = compacted(feed, "t"), feed.table(table_schema(prefix, "plain", INTEGER))
    backend = DeltaBackend(spark, kafka_broker, tmp_path)
    run = BatchRunner(feed, table, backend, tmp_path)
    run.others.append(plain)
    with capture_logs() as logs:
        run.batch(
            tombstone(table, 9),  # nothing is before it
            *(table.change("c", None, row(key), pos=100 + key) for key in (1, 2, 3, 4)),
            plain.change("c", None, row(1), pos=100),
        )
        run.batch(tombstone(table, 4))
        alone = set(backend.rows(table.schema))
        run.batch(table.change("u", row(1), row(1, 1), pos=200), tombstone(table, 1), *[tombstone(table, 2)] * 2)
        several = set(backend.rows(table.schema))
        run.batch(table.change("d", row(3), None, pos=210), table.change("c", None, row(3, 5), pos=220))
        run.batch(tombstone(table, 2), table.change("c", None, row(1, 6), pos=230))
        run.batch(table.change("c", None, row(2, 7), pos=231))

    assert (alone, several) == ({1, 2, 3}, {3})
    assert backend.rows(table.schema) == {1: row(1, 6), 2: row(2, 7), 3: row(3, 5)}
    [warned] = [entry for entry in logs if entry["log_level"] == "warning"]
    assert warned["topics"] == [table.schema.topic]
    assert "cleanup.policy=delete" in warned["hint"]


@pytest.mark.long
def test_tombstone_of_a_connector_alone_deletes_the_row_also_after_a_start(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """The second query knows no schema, and its range has none."""
    topic = f"{prefix}.shop.t"
    kafka_broker.create_topic(topic, settings=COMPACTED)
    rows = {key: {"id": key, "v": key} for key in (1, 2)}
    given = settings(kafka_broker, prefix, tmp_path) | converters(JSON) | {"table.schema.shop.t": "id INT, v INT"}
    append(kafka_broker, [record(topic, each, envelope("c", None, each, pos=key)) for key, each in rows.items()])
    consume(spark, given)
    append(kafka_broker, [record(topic, rows[1], None)])
    consume(spark, given)
    deleted = table_rows(spark, tmp_path, "t")
    append(kafka_broker, [record(topic, rows[1], envelope("c", None, rows[1], pos=3))])
    consume(spark, given)

    assert deleted == {2: rows[2]}
    assert table_rows(spark, tmp_path, "t") == rows


def test_policy_that_kafka_does_not_tell_is_read_for_the_next_batch(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str
) -> None:
    """Until then the topic counts as compacted."""
    topic = f"{prefix}.shop.later"
    admin = SharedAdmin({"kafka.bootstrap.servers": kafka_broker.bootstrap})
    try:
        policies = TopicPolicies(admin)
        policies.read(spark, [topic])
        before = policies.is_compacted(topic)
        kafka_broker.create_topic(topic)
        policies.read(spark, [topic])
    finally:
        admin.close()

    assert (before, policies.is_compacted(topic)) == (True, False)
