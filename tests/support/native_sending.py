"""Producers that send by the compiled extension or by Python's binding, and what they have committed."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tailrace.producer.kafka.client import KafkaSettings
from tailrace.producer.kafka.transactional_producer import TransactionalProducer
from tailrace.producer.native.loader import SWITCH
from tests.embedded.kafka import KafkaBroker

PARTITIONS = 3


def sending_settings(broker: KafkaBroker, **overrides: str) -> KafkaSettings:
    """Return settings with properties of librdkafka, whose dots are underscores here."""
    options = {name.replace("_", "."): value for name, value in overrides.items()}
    return KafkaSettings(broker.bootstrap, options, transaction_timeout_ms=60_000)


def sending_producer(settings: KafkaSettings, name: str, *, native: bool = True) -> TransactionalProducer:
    """Return a registered producer; ``native``: the extension sends."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(SWITCH, "1" if native else "0")
        producer = TransactionalProducer(settings, name)
    assert (producer._sender is not None) is native
    producer.init_transactions()
    return producer


def read_committed(
    broker: KafkaBroker, topic: str, count: int, *, partitions: int = PARTITIONS
) -> list[list[tuple[Any, ...]]]:
    """Return key, value, headers and kind of timestamp of the committed records of each partition."""
    found: list[list[tuple[Any, ...]]] = [[] for _ in range(partitions)]
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "isolation.level": "read_committed"}
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, i, OFFSET_BEGINNING) for i in range(partitions)])
        for _ in range(count):
            message = consumer.poll(60)
            assert message is not None, f"{sum(map(len, found))} of {count} records"
            assert not message.error()
            kind, stamp = message.timestamp()
            record = message.key(), message.value(), message.headers(), kind, stamp > 0
            found[message.partition() or 0].append(record)
    return found
