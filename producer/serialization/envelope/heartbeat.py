"""Heartbeat records, written regularly even if nothing changes."""

from __future__ import annotations

from typing import Final

from tailrace.producer.serialization.envelope.json import Struct
from tailrace.schemas.connect import ConnectField, ConnectSchema

HEARTBEAT_KEY: Final = ConnectSchema(
    "struct",
    name="io.debezium.connector.common.ServerNameKey",
    version=1,
    fields=(ConnectField.of("serverName", "string"),),
)
HEARTBEAT_VALUE: Final = ConnectSchema(
    "struct",
    name="io.debezium.connector.common.Heartbeat",
    version=1,
    fields=(ConnectField.of("ts_ms", "int64"),),
)


def heartbeat_key(prefix: str) -> Struct:
    """Return a key of HEARTBEAT_KEY."""
    return {"serverName": prefix}


def heartbeat_value(ts_ms: int) -> Struct:
    """Return a value of HEARTBEAT_VALUE; ``ts_ms`` is the time of the producer."""
    return {"ts_ms": ts_ms}
