"""Reads partitions of a topic up to the end that they have when reading starts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

from tailrace.producer.kafka.client import KafkaSettings
from tailrace.producer.kafka.errors import NO_GROUP, NO_LEADER, PARTITION_EOF, UNKNOWN_PARTITION, translate
from tailrace.runtime.errors import KafkaUnavailableError

_PAUSE_S: Final = 0.1
_FETCH_WAIT_MS: Final = 10


@contextmanager
def topic_consumer(settings: KafkaSettings, topic: str, **options: str) -> Iterator[Consumer]:
    """Return a consumer for ``messages``; errors of the client are translated. ``options`` change its configuration."""
    # The broker holds a fetch at the end of a partition until records come, half a second by default.
    ending = {"enable.partition.eof": True, "fetch.wait.max.ms": _FETCH_WAIT_MS}
    consumer = Consumer({**settings.consumer(), **ending, **options})
    try:
        yield consumer
    except KafkaException as error:
        raise translate(error, f"reading {topic}") from error
    finally:
        consumer.close()


def end_offset(consumer: Consumer, topic: str, partition: int, timeout_s: float) -> int:
    """Return the end offset of a partition of a topic that exists.

    A broker can be late to know, or to lead, a topic that was created a moment ago: asks again until ``timeout_s`` has
    passed.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=timeout_s)[1])
        except KafkaException as error:
            if error.args[0].code() not in UNKNOWN_PARTITION | NO_LEADER or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_S)


def messages(
    consumer: Consumer, topic: str, starts: Mapping[int, int], timeout_s: float, ends: Mapping[int, int] | None = None
) -> Iterator[Message]:
    """Yield the messages from a Kafka offset per partition on, up to the end of each partition: by default the current.

    The client reports the end of a partition only after a fetch without records. A partition that is written all the
    time has no such fetch, so the end is also compared with the offsets. The report is still needed: transaction
    markers at the end are no messages. ``ends`` may be behind open transactions: those are waited for. Raises
    KafkaUnavailableError after ``timeout_s`` without progress.
    """
    if ends is None:
        ends = {partition: end_offset(consumer, topic, partition, timeout_s) for partition in starts}
    consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in starts.items()])
    unread = set(starts)
    deadline = time.monotonic() + timeout_s
    while unread:
        message = consumer.poll(0.5)
        error = message.error() if message is not None else None
        if error is not None and error.code() not in {NO_GROUP, PARTITION_EOF}:
            raise KafkaException(error)
        partition = message.partition() if message is not None else None
        if message is None or partition not in unread:
            if time.monotonic() > deadline:
                raise KafkaUnavailableError(
                    "reading a topic to its end made no progress",
                    hint="check that the brokers are up and no transaction of another producer is open on the topic",
                    topic=topic,
                )
            continue
        deadline = time.monotonic() + timeout_s
        offset = message.offset() or 0
        if error is not None:
            if error.code() == PARTITION_EOF and offset >= ends[partition]:
                unread.discard(partition)
            continue
        if offset >= ends[partition] - 1:
            unread.discard(partition)
        if offset < ends[partition]:
            yield message


def read_compacted(settings: KafkaSettings, topic: str) -> dict[bytes, bytes]:
    """Return the last value per key of partition 0; tombstones delete keys."""
    records: dict[bytes, bytes] = {}
    with topic_consumer(settings, topic) as consumer:
        for message in messages(consumer, topic, {0: OFFSET_BEGINNING}, settings.request_timeout_s):
            key, value = message.key() or b"", message.value()
            if value is None:
                records.pop(key, None)
            else:
                records[key] = value
    return records
