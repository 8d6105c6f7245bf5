"""Heartbeat records: that the log is followed, said even when nothing changes."""

from __future__ import annotations

from producer.envelope.plain_json import Struct


def heartbeat_key(prefix: str) -> Struct:
    """Return the key: ``io.debezium.connector.common.ServerNameKey`` version 1."""
    return {"serverName": prefix}


def heartbeat_value(ts_ms: int) -> Struct:
    """Return the value, ``ts_ms`` by our clock: ``io.debezium.connector.common.Heartbeat`` version 1."""
    return {"ts_ms": ts_ms}
