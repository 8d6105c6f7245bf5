"""Notifications in Debezium's form: an aggregate type, a type, and a map of strings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
