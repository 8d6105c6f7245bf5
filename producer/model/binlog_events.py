"""What the binlog stream yields: the few events that a capture acts on, as light values.

``pos`` is the offset of the event's first byte in ``file``, ``end`` that of the byte after it; both 64-bit, unlike the
header's own field. ``ts`` is the header's time in whole seconds.
"""

from __future__ import annotations

from typing import NamedTuple

from tailrace.producer.model.table import Column, TableId


class TransactionBegin(NamedTuple):
    """A transaction starts (GTID event and BEGIN together)."""

    gtid: str
    """``uuid:n``."""
    file: str
    pos: int
    """Offset of the GTID event: where a restart re-reads this transaction."""
    end: int
    ts: int
    commit_ts_us: int
    """The original commit time in microseconds since the epoch, 0 where the server does not send it (before 8.0.1)."""
    thread: int | None
    """Connection id of the BEGIN, or None where there was none."""
    server_id: int


class TableVersion(NamedTuple):
    """A table version as a TABLE_MAP event with FULL metadata describes it; one object per distinct definition."""

    id: TableId
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    fingerprint: bytes
    """Equal for equal definitions; a dictionary key for compiled codecs."""


class RowsEvent(NamedTuple):
    """Row images of one rows event of a wanted table; every column present in every image (checked)."""

    op: str
    """c, u or d."""
    table: TableVersion
    data: bytes
    start: int
    stop: int
    """The images are ``data[start:stop]``, checksum excluded."""
    file: str
    pos: int
    end: int
    ts: int
    server_id: int
    query: str | None = None
    """Original SQL where binlog_rows_query_log_events is on."""


class TransactionCommit(NamedTuple):
    """A transaction is complete: its GTID now counts as seen."""

    gtid: str
    file: str
    end: int
    ts: int


class QueryEvent(NamedTuple):
    """A statement logged as text that is a transaction of its own: DDL and its like."""

    gtid: str
    database: str
    sql: str
    file: str
    pos: int
    end: int
    ts: int
    server_id: int
    thread: int | None
    within: bool = False
    """Part of a transaction that goes on (CREATE TABLE … SELECT from 8.0.21 on): its GTID counts only at the Commit."""
    commit_ts_us: int = 0
    """As in ``TransactionBegin``."""
    query_pos: int = 0
    """Offset of the statement's own event, behind that of its GTID."""


class PositionAdvanced(NamedTuple):
    """The log moved on without anything to capture: rotation, heartbeat, filtered events."""

    file: str
    end: int
    ts: int
    """0 where the event carries no time."""


Event = TransactionBegin | RowsEvent | TransactionCommit | QueryEvent | PositionAdvanced
