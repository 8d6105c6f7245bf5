"""Reads the records of whole topics from Kafka."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

_NOT_READY: Final = {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE}


class KafkaRecord(NamedTuple):
    """A record with the bytes of its key, value and headers."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def heartbeat_topic(prefix: str) -> str:
    """Return the heartbeat topic of a prefix."""
    return f"__debezium-heartbeat.{prefix}"


def topics_of(bootstrap: str, prefix: str) -> list[str]:
    """Return all topics of a prefix."""
    consumer = _consumer(bootstrap)
    try:
        names = consumer.list_topics(timeout=60).topics
    finally:
        consumer.close()
    return sorted(name for name in names if name in {prefix, heartbeat_topic(prefix)} or name.startswith(f"{prefix}."))


def read_topics(bootstrap: str, topics: list[str], *, deadline_s: float = 300) -> Iterator[KafkaRecord]:
    """Yield all records up to the current ends, in order within each partition; wait until they are committed.

    A commit returns before its markers are written, so an end that leaves them out could miss a record.
    """
    consumer, everything = _consumer(bootstrap), _consumer(bootstrap, isolation="read_uncommitted")
    end_at = time.monotonic() + deadline_s
    try:
        known = consumer.list_topics(timeout=60).topics
        assigned, left = [], {}
        for topic in topics:
            for partition in known[topic].partitions if topic in known else ():
                low, high = _ends(everything, TopicPartition(topic, partition), end_at)
                if high > low:
                    assigned.append(TopicPartition(topic, partition, low))
                    left[topic, partition] = high
        consumer.assign(assigned)
        while left:
            if time.monotonic() > end_at:
                raise TimeoutError(f"the records of {sorted(left)} did not arrive within {deadline_s:g} s")
            message = consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is None:
                yield _record(message)
            elif error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            # Transaction markers have offsets but no messages, so only the position shows the end of a partition.
            for position in consumer.position([TopicPartition(*at) for at in left]):
                if position.offset >= left[position.topic, position.partition]:
                    del left[position.topic, position.partition]
    finally:
        everything.close()
        consumer.close()


def _ends(consumer: Consumer, position: TopicPartition, end_at: float) -> tuple[int, int]:
    """Return the first and the next offset of a partition; wait until a new partition is ready."""
    while True:
        try:
            low, high = consumer.get_watermark_offsets(position, timeout=60)
        except KafkaException as error:
            if error.args[0].code() not in _NOT_READY or time.monotonic() > end_at:
                raise
            consumer.poll(0.1)
        else:
            return low, high


def _record(message: Message) -> KafkaRecord:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if topic is None or partition is None or offset is None:
        raise ValueError(f"a message has no topic, partition or offset: {message!r}")
    headers = message.headers() or []
    pairs = headers.items() if isinstance(headers, dict) else headers
    bare = tuple((name, value.encode() if isinstance(value, str) else value) for name, value in pairs)
    return KafkaRecord(topic, partition, offset, message.key(), message.value(), bare)


def _consumer(bootstrap: str, isolation: str = "read_committed") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "parity",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
