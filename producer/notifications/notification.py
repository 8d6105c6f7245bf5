"""Notifications in Debezium's form: an aggregate, a type, and a map of texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from tailrace.producer.model.table import TableId
from tailrace.producer.serialization.envelope.json import Struct
from tailrace.schemas.connect import ConnectField, ConnectSchema

NOTIFICATION_KEY: Final = ConnectSchema(
    "struct",
    name="io.debezium.connector.common.NotificationKey",
    version=1,
    fields=(ConnectField("id", ConnectSchema("string")),),
)
_TEXTS: Final = ConnectSchema("map", optional=True, keys=ConnectSchema("string"), values=ConnectSchema("string"))
NOTIFICATION_VALUE: Final = ConnectSchema(
    "struct",
    name="io.debezium.connector.common.Notification",
    version=1,
    fields=(
        ConnectField("id", ConnectSchema("string")),
        ConnectField("type", ConnectSchema("string")),
        ConnectField("aggregate_type", ConnectSchema("string")),
        ConnectField("additional_data", _TEXTS),
        ConnectField("timestamp", ConnectSchema("int64")),
    ),
)


class AggregateType(StrEnum):
    """What a notification is about."""

    INITIAL = "Initial Snapshot"
    INCREMENTAL = "Incremental Snapshot"


class NotificationType(StrEnum):
    """What happened to it."""

    STARTED = "STARTED"
    IN_PROGRESS = "IN_PROGRESS"
    TABLE_SCAN_COMPLETED = "TABLE_SCAN_COMPLETED"
    COMPLETED = "COMPLETED"
    ABORTED = "ABORTED"
    SKIPPED = "SKIPPED"
    PAUSED = "PAUSED"
    RESUMED = "RESUMED"


@dataclass(frozen=True, slots=True)
class Notification:
    """One notification; ``id`` empty: a new one is made when it is sent."""

    aggregate: AggregateType
    kind: NotificationType
    data: Mapping[str, str] = field(default_factory=dict)
    id: str = ""

    def key(self) -> Struct:
        """Return a key of NOTIFICATION_KEY."""
        return {"id": self.id}

    def value(self, prefix: str, ts_ms: int) -> Struct:
        """Return a value of NOTIFICATION_VALUE; ``ts_ms`` is by our clock."""
        return {
            "id": self.id,
            "type": self.kind.value,
            "aggregate_type": self.aggregate.value,
            "additional_data": {**self.data, "connector_name": prefix},
            "timestamp": ts_ms,
        }


def names(tables: Iterable[TableId]) -> str:
    """Return a list of tables as one text."""
    return ",".join(map(str, tables))


def table_scan_data(tables: Iterable[TableId], table: TableId, rows: int, status: str) -> dict[str, str]:
    """Return what TABLE_SCAN_COMPLETED says."""
    return {
        "data_collections": names(tables),
        "scanned_collection": str(table),
        "total_rows_scanned": str(rows),
        "status": status,
    }


def chunk_data(tables: Iterable[TableId], table: TableId, greatest: list[Any] | None, last: list[Any] | None) -> Struct:
    """Return what IN_PROGRESS of an incremental snapshot says after a split; keys in the state's JSON form."""
    return {
        "data_collections": names(tables),
        "current_collection_in_progress": str(table),
        "maximum_key": _key(greatest),
        "last_processed_key": _key(last if last is not None else greatest),
    }


def _key(values: list[Any] | None) -> str:
    if values is None:
        return '"<null>"'
    return ",".join(str(value["hex"] if isinstance(value, dict) and "hex" in value else value) for value in values)
