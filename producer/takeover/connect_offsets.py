"""Reads what Kafka Connect stores about a connector: its last offset, and whether it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import orjson
from confluent_kafka import OFFSET_BEGINNING, Message

from tailrace.producer.errors import TakeoverError
from tailrace.producer.kafka.client import KafkaSettings
from tailrace.producer.kafka.topic_reader import messages, topic_consumer
from tailrace.producer.takeover.debezium_offset import ConnectorOffset, ConnectorPartition, read_offset, read_partition
from tailrace.producer.takeover.java_offset_file import read_offset_file

_ACTIVE: Final = frozenset({"RUNNING", "RESTARTING"})
_MAX_LISTED: Final = 20

_K = TypeVar("_K")


class _Last(NamedTuple):
    ts_ms: int
    value: bytes | None


def find_offset(kafka: KafkaSettings, topic: str, *, prefix: str, connector: str | None) -> ConnectorOffset:
    """Return the last offset of the connector that writes under ``prefix``, from the offset topic of its worker.

    Raises TakeoverError if there is none, it was deleted, or several connectors share the prefix and none is named.
    """
    last: dict[ConnectorPartition, _Last] = {}

    def take(message: Message) -> None:
        partition = read_partition(message.key())
        if partition is not None:
            _keep(last, partition, message)

    if not _read(kafka, topic, take):
        raise TakeoverError(
            f"the topic {topic} does not exist",
            hint="pass the worker's offset.storage.topic as --offset-topic; for a standalone worker, or an embedded "
            "engine, pass its file as --offset-file",
        )
    return _choose({partition: kept.value for partition, kept in last.items()}, f"the topic {topic}", prefix, connector)


def find_offset_in_file(path: Path, *, prefix: str, connector: str | None) -> ConnectorOffset:
    """Return the offset of the connector that writes under ``prefix``, from the file of a worker or an engine.

    Raises TakeoverError as ``find_offset`` does, and if the file is not an offset file.
    """
    owned = ((read_partition(key), value) for key, value in read_offset_file(path).items())
    return _choose({partition: value for partition, value in owned if partition}, f"the file {path}", prefix, connector)


def _choose(
    last: Mapping[ConnectorPartition, bytes | None], where: str, prefix: str, connector: str | None
) -> ConnectorOffset:
    found = {o: value for o, value in last.items() if o.prefix == prefix and connector in {None, o.connector}}
    if len(found) > 1:
        raise TakeoverError(
            f"several connectors have written under the prefix {prefix}",
            hint="pass the name of one as --connector",
            connectors=", ".join(sorted(partition.connector for partition in found)),
        )
    if not found:
        raise TakeoverError(
            f"{where} has no offset of a connector with topic.prefix={prefix}"
            + (f" and the name {connector}" if connector else ""),
            hint="take topic.prefix from the connector, and its worker's offset.storage.topic for --offset-topic, or "
            "offset.storage.file.filename for --offset-file",
            seen=", ".join(f"{o.connector} ({o.prefix})" for o in sorted(last)[:_MAX_LISTED]) or "nothing",
        )
    [(partition, value)] = found.items()
    if value is None:
        raise TakeoverError(
            "the connector's offset was deleted",
            hint="start `tailrace produce` without a takeover under another topic.prefix: it takes a snapshot",
            connector=partition.connector,
        )
    return read_offset(partition, value)


def running_tasks(kafka: KafkaSettings, topic: str, connector: str) -> list[str] | None:
    """Return the tasks of a connector whose last status is running; None if the topic does not exist.

    A worker that was killed leaves the last status of its tasks.
    """
    last: dict[str, _Last] = {}

    def take(message: Message) -> None:
        key = (message.key() or b"").decode(errors="replace")
        task = key.removeprefix(f"status-task-{connector}-")
        if key == f"status-connector-{connector}" or (task != key and task.isdigit()):
            _keep(last, key, message)

    if not _read(kafka, topic, take):
        return None
    return sorted(key for key, status in last.items() if key.startswith("status-task-") and _active(status.value))


def _active(value: bytes | None) -> bool:
    try:
        status = orjson.loads(value or b"null")
    except orjson.JSONDecodeError:
        return False
    return isinstance(status, dict) and status.get("state") in _ACTIVE


def _keep(last: dict[_K, _Last], key: _K, message: Message) -> None:
    """Keep the newest value of a key, by time: a key moves to another partition when the topic gets more of them."""
    _, ts_ms = message.timestamp()
    if key not in last or ts_ms >= last[key].ts_ms:
        last[key] = _Last(ts_ms, message.value())


def _read(kafka: KafkaSettings, topic: str, take: Callable[[Message], None]) -> bool:
    """Pass every committed record of a topic to ``take``; return False if the topic does not exist."""
    with topic_consumer(kafka, topic) as consumer:
        # Lists all topics: a request for one topic would create it if the broker creates topics automatically.
        known = consumer.list_topics(timeout=kafka.request_timeout_s).topics
        if topic not in known:
            return False
        starts = dict.fromkeys(sorted(known[topic].partitions), OFFSET_BEGINNING)
        for message in messages(consumer, topic, starts, kafka.request_timeout_s):
            take(message)
    return True
