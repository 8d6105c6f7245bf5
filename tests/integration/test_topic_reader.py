"""The readers of whole topics, which most tests compare with: they miss no record whose commit has returned."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer

from tailrace.producer.kafka.client import KafkaSettings
from tailrace.producer.kafka.topic_reader import end_offset, messages, topic_consumer
from tests.debezium_parity.topics import read_topics
from tests.support.topics import read_topic

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker


@pytest.mark.parametrize("read", [read_topic, lambda bootstrap, topic: list(read_topics(bootstrap, [topic]))])
def test_reader_waits_for_the_markers_of_a_commit(
    read: Callable[[str, str], Sequence[Any]], kafka_broker: KafkaBroker, prefix: str
) -> None:
    """A transaction that is still open looks like one whose commit has returned but has no markers yet."""
    kafka_broker.create_topic(prefix, partitions=2)
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap, "transactional.id": prefix})
    producer.init_transactions()
    for partition in (0, 1):
        producer.begin_transaction()
        producer.produce(prefix, key=b"k", value=b"committed", partition=partition)
        producer.commit_transaction()
    producer.begin_transaction()
    producer.produce(prefix, key=b"k", value=b"open", partition=1)
    producer.flush()
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.extend(read(kafka_broker.bootstrap, prefix)))
    reader.start()
    reader.join(1)
    assert reader.is_alive()
    producer.commit_transaction()
    reader.join(60)

    assert [(record.partition, record.value) for record in sorted(found, key=lambda each: each.partition)] == [
        (0, b"committed"),
        (1, b"committed"),
        (1, b"open"),
    ]


def test_reader_ends_although_a_transaction_stays_open(kafka_broker: KafkaBroker, prefix: str) -> None:
    """That of a killed producer does."""
    kafka_broker.create_topic(prefix)
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap, "transactional.id": prefix})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(prefix, value=b"open")
    producer.flush()

    assert read_topic(kafka_broker.bootstrap, prefix) == []
    producer.abort_transaction()


def test_an_end_behind_an_open_transaction_is_waited_for(kafka_broker: KafkaBroker, prefix: str) -> None:
    """Without a given end the reading stops before the transaction."""
    kafka_broker.create_topic(prefix)
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap, "transactional.id": prefix})
    producer.init_transactions()
    for value in (b"committed", b"open"):
        producer.begin_transaction()
        producer.produce(prefix, value=value)
        if value == b"committed":
            producer.commit_transaction()
    producer.flush()
    found: list[bytes | None] = []

    def read(ends: Mapping[int, int] | None) -> None:
        settings = KafkaSettings(kafka_broker.bootstrap, {}, 60_000)
        with topic_consumer(settings, prefix) as consumer:
            found.extend(each.value() for each in messages(consumer, prefix, {0: OFFSET_BEGINNING}, 30, ends))

    read(None)
    assert found == [b"committed"]
    reader = threading.Thread(target=read, args=({0: 3},))
    reader.start()
    reader.join(1)
    assert reader.is_alive()
    producer.commit_transaction()
    reader.join(60)
    assert found == [b"committed", b"committed", b"open"]


def test_topic_that_the_broker_does_not_know_yet(kafka_broker: KafkaBroker, prefix: str) -> None:
    """A broker answers with an error until it has heard of a topic that was created a moment ago."""
    refused: list[str] = []

    class LateTopic(Consumer):
        def get_watermark_offsets(self, *arguments: Any, **options: Any) -> Any:
            try:
                return super().get_watermark_offsets(*arguments, **options)
            except KafkaException as error:
                if not refused:
                    kafka_broker.create_topic(prefix)
                refused.append(error.args[0].name())
                raise

    client = LateTopic({"bootstrap.servers": kafka_broker.bootstrap, "group.id": prefix})
    try:
        assert end_offset(client, prefix, 0, timeout_s=30) == 0
    finally:
        client.close()
    assert refused


def test_topic_whose_leader_is_not_ready(kafka_broker: KafkaBroker, prefix: str) -> None:
    """A broker that was told a moment ago to lead a partition refuses requests at first."""
    kafka_broker.create_topic(prefix)
    refusals = [KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION), KafkaError(KafkaError.LEADER_NOT_AVAILABLE)]

    class NewLeader(Consumer):
        def get_watermark_offsets(self, *arguments: Any, **options: Any) -> Any:
            if refusals:
                raise KafkaException(refusals.pop())
            return super().get_watermark_offsets(*arguments, **options)

    client = NewLeader({"bootstrap.servers": kafka_broker.bootstrap, "group.id": prefix})
    try:
        assert end_offset(client, prefix, 0, timeout_s=30) == 0
    finally:
        client.close()


def test_topic_that_does_not_exist(kafka_broker: KafkaBroker, prefix: str) -> None:
    """The wait ends with the error of the broker."""
    client = Consumer({"bootstrap.servers": kafka_broker.bootstrap, "group.id": prefix})
    try:
        with pytest.raises(KafkaException, match=r"Unknown (partition|topic)"):
            end_offset(client, prefix, 0, timeout_s=1)
    finally:
        client.close()
