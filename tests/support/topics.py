"""Reads topics like a plain consumer: every committed record of a topic, in the order of partitions and offsets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

_EOF = KafkaError._PARTITION_EOF
_OPEN_S = 5.0
"""How long a reader waits for transactions. A commit returns before its markers are written, which is soon; the
transaction of a producer that was killed stays open until the next one starts."""
_NO_LEADER = frozenset({KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError._UNKNOWN_PARTITION})


class Read(NamedTuple):
    """One record."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]

    @property
    def json(self) -> Any:
        """The value, parsed; None for a tombstone."""
        return None if self.value is None else orjson.loads(self.value)


def read_topic(bootstrap: str, topic: str, *, committed: bool = True) -> list[Read]:
    """Return all records of a topic up to its current end, those of commits that have just returned included."""
    return sorted(_read(bootstrap, topic, committed=committed), key=lambda r: (r.partition, r.offset))


def _read(bootstrap: str, topic: str, *, committed: bool) -> Iterator[Read]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "tests",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        for partition in partitions:
            end_offset(consumer, TopicPartition(topic, partition))  # it has its leader
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
        ends: dict[int, int] = {}  # when the reader gets there: other records may follow meanwhile
        open_partitions, waiting = set(partitions), set[int]()
        deadline, patient_until = time.monotonic() + 300, time.monotonic() + _OPEN_S
        while open_partitions:
            assert time.monotonic() < deadline, f"{topic}: no end of partitions {open_partitions}"
            if time.monotonic() > patient_until:
                open_partitions -= waiting
            message = consumer.poll(0.1 if waiting else 0.5)
            if message is None:
                continue
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            if partition not in ends:
                # This end includes what is not committed. The broker's answer to this consumer does not.
                ends[partition] = consumer.get_watermark_offsets(TopicPartition(topic, partition), cached=True)[1]
            error = message.error()
            if error is not None:
                if error.code() != _EOF:
                    raise KafkaException(error)
                if offset is not None and offset < ends[partition]:
                    waiting.add(partition)
                else:
                    open_partitions.discard(partition)
                continue
            assert offset is not None
            if offset >= ends[partition]:
                open_partitions.discard(partition)
                continue
            headers = {str(name): _bytes(value) for name, value in list(message.headers() or [])}
            yield Read(topic, partition, offset, message.key(), message.value(), headers)
    finally:
        consumer.close()


def end_offset(consumer: Consumer, partition: TopicPartition) -> int:
    """Return the end of a partition. A new topic may not have its leader yet."""
    deadline = time.monotonic() + 60
    while True:
        try:
            _, high = consumer.get_watermark_offsets(partition, timeout=60)
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            transient = error.retriable() or error.code() in _NO_LEADER
            if not transient or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return int(high)


def _bytes(value: object) -> bytes:
    assert isinstance(value, bytes)
    return value


def last_rows(bootstrap: str, topic: str) -> dict[bytes, dict[str, Any]]:
    """Return the last row of each key of a topic with JSON records; a key whose last record is a delete has none."""
    rows: dict[bytes, dict[str, Any]] = {}
    for record in read_topic(bootstrap, topic):
        assert record.key is not None
        after = record.json and record.json["after"]
        if after:
            rows[record.key] = after
        else:
            rows.pop(record.key, None)
    return rows
