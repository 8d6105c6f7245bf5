"""Reads the producer's topics as a read_committed consumer: when records become readable."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final, Self

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from tailrace.producer.kafka.state_store import OFFSET_KEY
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.schemas.names import state_topic, watermarks_topic
from tailrace.schemas.watermark import Watermark, WatermarkKind
from tests.bench.stack import PREFIX, TOPIC, Program
from tests.support import topics as support

_DEADLINE_S: Final = 3600.0


class Follower:
    """Reads a topic with one partition from an offset on."""

    def __init__(self, bootstrap: str, topic: str, offset: int = OFFSET_BEGINNING) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "bench",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 20,
                "fetch.error.backoff.ms": 20,
                "allow.auto.create.topics": False,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, offset)])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def next(self, timeout_s: float) -> Message | None:
        """Return the next record, or None after the timeout or if the topic does not exist yet."""
        message = self._consumer.poll(timeout_s)
        return None if message is None or message.error() else message


def end_offset(bootstrap: str, topic: str = TOPIC, partitions: int = 1) -> int:
    """Return the sum of the end offsets of a topic's partitions."""
    with_group: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": "bench", "log_level": 0}
    consumer = Consumer(with_group)
    try:
        return sum(support.end_offset(consumer, TopicPartition(topic, number)) for number in range(partitions))
    finally:
        consumer.close()


def sent_at(bootstrap: str, offset: int, topic: str = TOPIC) -> float:
    """Return the timestamp of the record at an offset, or of the first one after it, in wall time."""
    with Follower(bootstrap, topic, offset) as follower:
        message = follower.next(120)
    if message is None:
        raise TimeoutError(f"no record of {topic} at offset {offset} or after it")
    return int(message.timestamp()[1]) / 1000


def wait_snapshot(bootstrap: str, rows: int, producer: Program) -> tuple[float, float, int]:
    """Wait until END of all splits is readable. Return the wall times of the first LOW and of now, and the splits."""
    topic = watermarks_topic(PREFIX)
    _wait_topic(bootstrap, topic, producer)
    first_low = float("inf")
    done = splits = 0
    with Follower(bootstrap, topic) as follower:
        for message in _messages(follower, producer):
            mark = Watermark.from_json(message.value() or b"")
            if mark.kind is WatermarkKind.LOW:
                first_low = min(first_low, mark.ts_us / 1e6)
            elif mark.kind is WatermarkKind.END:
                done, splits = done + mark.rows, splits + 1
                if done >= rows:
                    return first_low, time.time(), splits
    raise AssertionError("unreachable")


def wait_stream(bootstrap: str, gtids: str, producer: Program, *, start: int) -> float:
    """Wait until a stored stream offset that contains ``gtids`` is readable. Return its wall time."""
    wanted = GtidSet.parse(gtids)
    with Follower(bootstrap, state_topic(PREFIX), start) as follower:
        for message in _messages(follower, producer):
            if message.key() != OFFSET_KEY:
                continue
            seen = GtidSet.parse(orjson.loads(message.value() or b"")["position"]["gtids"])
            if seen.contains(wanted):
                return time.time()
    raise AssertionError("unreachable")


def exists(bootstrap: str, topic: str) -> bool:
    """Return whether a topic exists."""
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": "bench", "log_level": 0}
    consumer = Consumer(settings)
    try:
        return topic in consumer.list_topics(timeout=60).topics
    finally:
        consumer.close()


def _wait_topic(bootstrap: str, topic: str, producer: Program) -> None:
    while not exists(bootstrap, topic):
        producer.check()
        time.sleep(0.05)


def _messages(follower: Follower, producer: Program) -> Iterator[Message]:
    until = time.monotonic() + _DEADLINE_S
    while time.monotonic() < until:
        message = follower.next(0.2)
        if message is None:
            producer.check()
        else:
            yield message
    raise TimeoutError(f"the producer did not finish within {_DEADLINE_S:.0f} s{producer.tail()}")
