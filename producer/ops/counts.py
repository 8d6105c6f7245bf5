"""What the status counts: of one table, and of the stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tailrace.producer.model.table_mode import TableMode


@dataclass(slots=True)
class TableStatus:
    """One table."""

    mode: TableMode = TableMode.WAITING
    rows_estimated: int = 0
    """From the server's statistics."""
    rows_read: int = 0
    """Rows of the snapshot that are in Kafka."""
    splits_planned: int = 0
    splits_done: int = 0
    """Splits whose rows are in Kafka."""
    splits_ended: int = 0
    """Splits whose high watermark the binlog has passed: their certificate is written."""
    records: int = 0
    """Records of changes, tombstones included."""
    error: str = ""
    """Why the table is not captured, in mode ``error``."""
    failed_at: dict[str, Any] = field(default_factory=dict)
    """Where the first change is that was not written, in mode ``error``: of a table that was captured before."""
    put_off: str = ""
    """Why the snapshot of the table waits while those of others go on."""
    changes_skipped: int = 0
    """Rows events in mode ``error``."""
    values_replaced: int = 0
    """Values that the modes cannot represent (event.converting.failure.handling.mode=warn)."""
    held_ms: int = 0
    """Time for which the stream has waited for the snapshot of the table; no table was written meanwhile."""


@dataclass(slots=True)
class StreamStatus:
    """How far the binlog is in Kafka. Counts start with the process."""

    file: str = ""
    pos: int = 0
    gtids: str | None = ""
    """None: the offset is file and position alone."""
    barrier: str = ""
    """What a snapshot reader waits for: "gtid_executed", "innodb_trx" (MariaDB, no GTIDs), "" before a commit."""
    source_ts_us: int = 0
    """Commit time of the last transaction at the source, microseconds since the epoch; 0 before the first."""
    committed_ts_us: int = 0
    """Time of the last Kafka transaction of the stream by the producer's clock; 0 before the first."""
    events: int = 0
    """Rows events of captured tables."""
    events_skipped: int = 0
    """Rows events without records, because the rows of a split contain the changes."""
    refused: int = 0
    """Events that could not be written (event.processing.failure.handling.mode)."""
    creates: int = 0
    updates: int = 0
    deletes: int = 0
    """Records by the operation of their event, tombstones included."""
    transactions: int = 0
    """Transactions of the source."""
    commits: int = 0
    """Kafka transactions of the stream."""
    disconnects: int = 0
    moves: int = 0
    """Times that a signal has set the position."""
