"""Notifications in Debezium's form: an aggregate type, a type, and a map of strings."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import structlog

from tailrace.producer.model.table import TableId
from tailrace.producer.serialization.envelope.json import Struct
from tailrace.producer.serialization.record_converter import TopicConverter
from tailrace.producer.streaming.stream_transaction import StreamTransaction
from tailrace.runtime.webhook import WebhookEvent
from tailrace.schemas.connect import ConnectField, ConnectSchema

log = structlog.get_logger(__name__)

NOTIFICATION_KEY: Final = ConnectSchema(
    "struct",
    name="io.debezium.connector.common.NotificationKey",
    version=1,
    fields=(ConnectField("id", ConnectSchema("string")),),
)
_STRING_MAP: Final = ConnectSchema("map", optional=True, keys=ConnectSchema("string"), values=ConnectSchema("string"))
NOTIFICATION_VALUE: Final = ConnectSchema(
    "struct",
    name="io.debezium.connector.common.Notification",
    version=1,
    fields=(
        ConnectField("id", ConnectSchema("string")),
        ConnectField("type", ConnectSchema("string")),
        ConnectField("aggregate_type", ConnectSchema("string")),
        ConnectField("additional_data", _STRING_MAP),
        ConnectField("timestamp", ConnectSchema("int64")),
    ),
)

MAX_NAMES: Final = 65_536
"""Characters of table names in one notification: with thousands of tables, Kafka would refuse its record."""


class AggregateType(StrEnum):
    """What a notification reports on."""

    INITIAL = "Initial Snapshot"
    INCREMENTAL = "Incremental Snapshot"
    BINLOG = "Binlog Position"


class NotificationType(StrEnum):
    """The reported event."""

    STARTED = "STARTED"
    IN_PROGRESS = "IN_PROGRESS"
    TABLE_SCAN_COMPLETED = "TABLE_SCAN_COMPLETED"
    COMPLETED = "COMPLETED"
    ABORTED = "ABORTED"
    SKIPPED = "SKIPPED"
    PAUSED = "PAUSED"
    RESUMED = "RESUMED"
    MOVED = "MOVED"
    """The stream begins where a signal has set it."""
    LOST = "LOST"
    """The stream begins at the end of the binlog: the changes before are lost."""


@dataclass(frozen=True, slots=True)
class Notification:
    """One notification."""

    aggregate_type: AggregateType
    type: NotificationType
    additional_data: Mapping[str, str]
    id: str

    def key(self) -> Struct:
        """Return a key of NOTIFICATION_KEY."""
        return {"id": self.id}

    def value(self, connector_name: str, ts_ms: int) -> Struct:
        """Return a value of NOTIFICATION_VALUE; ``ts_ms`` is the producer's clock."""
        return {
            "id": self.id,
            "type": self.type.value,
            "aggregate_type": self.aggregate_type.value,
            "additional_data": {**self.additional_data, "connector_name": connector_name},
            "timestamp": ts_ms,
        }


def data_collections(tables: Sequence[TableId]) -> dict[str, str]:
    """Return the names of tables, separated by commas; of many, as many as have room, and the number of the others."""
    names: list[str] = []
    room = MAX_NAMES
    for table in tables:
        name = str(table)
        room -= len(name) + 1
        if room < 0:
            break
        names.append(name)
    data = {"data_collections": ",".join(names)}
    if len(names) < len(tables):
        data["data_collections_omitted"] = str(len(tables) - len(names))
    return data


def table_scan_data(tables: Sequence[TableId], table: TableId, rows: int, status: str) -> dict[str, str]:
    """Return the data of TABLE_SCAN_COMPLETED."""
    return {
        **data_collections(tables),
        "scanned_collection": str(table),
        "total_rows_scanned": str(rows),
        "status": status,
    }


def chunk_data(
    tables: Sequence[TableId], table: TableId, max_key: list[Any] | None, split_end: list[Any] | None
) -> dict[str, str]:
    """Return the data of IN_PROGRESS after a split of an incremental snapshot.

    Keys are in the JSON form of the state topic. ``split_end`` None: the split has no upper bound.
    """
    return {
        **data_collections(tables),
        "current_collection_in_progress": str(table),
        "maximum_key": _key_text(max_key),
        "last_processed_key": _key_text(split_end if split_end is not None else max_key),
    }


def _key_text(values: list[Any] | None) -> str:
    if values is None:
        return '"<null>"'
    return ",".join(str(value["hex"] if isinstance(value, dict) and "hex" in value else value) for value in values)


class NotificationService:
    """Sends notifications to the configured channels; used on the stream's thread.

    Records go into the stream's open Kafka transaction. So a notification is visible exactly if what it reports was
    committed, also after a crash. The webhook is posted to when the record is written: after a crash perhaps again.
    """

    def __init__(self, transaction: StreamTransaction, *, topic: TopicConverter | None, to_log: bool) -> None:
        """``topic`` None: the channel ``sink`` is off."""
        self._transaction = transaction
        self._topic = topic
        self._to_log = to_log

    def send(
        self,
        aggregate_type: AggregateType,
        notification_type: NotificationType,
        data: Mapping[str, str] | None = None,
        *,
        correlation_id: str = "",
    ) -> None:
        """Send one notification; its id is that of the signal that caused it, or a new one."""
        found = data or {}
        if notification_type is not NotificationType.IN_PROGRESS:  # not for a person: one for each split
            table, reason = found.get("scanned_collection", ""), found.get("reason", "")
            event = WebhookEvent(
                self._transaction.prefix, f"{aggregate_type} {notification_type}", table, reason, details=found
            )
            self._transaction.status.webhook.post(event)
        if self._topic is None and not self._to_log:
            return
        notification = Notification(aggregate_type, notification_type, found, correlation_id or str(uuid.uuid4()))
        value = notification.value(self._transaction.prefix, time.time_ns() // 1_000_000)
        if self._topic is not None:
            key, body = self._topic.record(notification.key(), value)
            self._transaction.tell(self._topic.name, key, body, notification=f"{aggregate_type} {notification_type}")
        if self._to_log:
            log.info("notification", **{name: content for name, content in value.items() if name != "timestamp"})
