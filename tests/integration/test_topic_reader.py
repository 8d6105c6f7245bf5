"""The readers of whole topics, which most tests compare with: they miss no record whose commit has returned."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

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
