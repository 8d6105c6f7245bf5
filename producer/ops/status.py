"""What the producer is doing now, for people and machines: updated by its threads, read whole by the HTTP port."""

from __future__ import annotations

import threading
import time
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from producer.database.table import TableId


class Phase(StrEnum):
    """Where the process stands.

    ::

        STARTING --> SNAPSHOT --> LOG --> STOPPED
              \\________________^  (nothing to read)
        any --> FAILED
    """

    STARTING = "starting"
    SNAPSHOT = "snapshot"
    """Tables are being read; the log is followed at the same time."""
    LOG = "log"
    """Only the log is followed."""
    STOPPED = "stopped"
    FAILED = "failed"


class TableState(StrEnum):
    """Where one table stands."""

    WAITING = "waiting"
    """Nothing of it has been read."""
    READING = "reading"
    """Some splits are not in Kafka yet."""
    CATCHING_UP = "catching up"
    """Every split is in Kafka; the log has not passed the greatest high watermark."""
    LOG_ONLY = "log only"
    """Every change goes through without a look at splits."""


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One table. ``rows_estimated`` is the server's statistics, ``rows_read`` counts rows in Kafka."""

    state: TableState = TableState.WAITING
    rows_estimated: int = 0
    rows_read: int = 0
    splits_planned: int = 0
    splits_done: int = 0
    planned_whole: bool = False
    """No split of the table remains to be planned."""


@dataclass(frozen=True, slots=True)
class LogStatus:
    """How far the log is in Kafka. Counts are since the start of the process; ``events`` counts row changes."""

    connected: bool = False
    file: str = ""
    pos: int = 0
    gtids: str = ""
    source_ts_us: int = 0
    """When the source made the last change handled, µs since the epoch; 0 before the first."""
    seen_ts_us: int = 0
    """When something last came from the log, by our clock; 0 before the first."""
    events: int = 0
    creates: int = 0
    updates: int = 0
    deletes: int = 0
    events_dropped: int = 0
    """Row changes left out because a split will read them, or has."""
    transactions: int = 0
    disconnects: int = 0
    lag_ms: int = -1
    """Age of the last change when it was handled; -1 before the first."""


@dataclass(slots=True)
class _State:
    phase: Phase = Phase.STARTING
    error: str = ""
    tables: dict[TableId, TableStatus] = field(default_factory=dict)
    log: LogStatus = field(default_factory=LogStatus)
    splits_in_flight: int = 0
    kafka_transactions: int = 0
    records: int = 0
    bytes: int = 0


class Status:
    """Thread-safe. Updates cost about a microsecond: call them for each batch or split, not for each row."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self.started_us = time.time_ns() // 1000
        self._lock = threading.Lock()
        self._state = _State()

    def phase(self, phase: Phase, *, error: str = "") -> None:
        """Set where the process stands; ``error`` says why it FAILED."""
        with self._lock:
            self._state.phase, self._state.error = phase, error

    def table(self, table: TableId, **changes: Any) -> None:
        """Set attributes of a table's TableStatus; the table is added when it is new."""
        with self._lock:
            self._state.tables[table] = replace(self._state.tables.get(table, TableStatus()), **changes)

    def split_done(self, table: TableId, rows: int) -> None:
        """Count a split whose Kafka transaction is committed."""
        with self._lock:
            now = self._state.tables.get(table, TableStatus())
            self._state.tables[table] = replace(now, rows_read=now.rows_read + rows, splits_done=now.splits_done + 1)

    def forget(self, table: TableId) -> None:
        """Leave out a table that is not captured any more."""
        with self._lock:
            self._state.tables.pop(table, None)

    def log(self, **changes: Any) -> None:
        """Set attributes of LogStatus; counts are totals."""
        with self._lock:
            self._state.log = replace(self._state.log, **changes)

    def log_committed(
        self,
        *,
        creates: int = 0,
        updates: int = 0,
        deletes: int = 0,
        dropped: int = 0,
        transactions: int = 0,
        source_ts_us: int = 0,
        **changes: Any,
    ) -> None:
        """Add the counts of one committed batch of the log, and set the position (``file``, ``pos``, ``gtids``)."""
        now_us = time.time_ns() // 1000
        with self._lock:
            log = self._state.log
            if source_ts_us:
                changes |= {"source_ts_us": source_ts_us, "lag_ms": max(0, now_us - source_ts_us) // 1000}
            self._state.log = replace(
                log,
                events=log.events + creates + updates + deletes,
                creates=log.creates + creates,
                updates=log.updates + updates,
                deletes=log.deletes + deletes,
                events_dropped=log.events_dropped + dropped,
                transactions=log.transactions + transactions,
                seen_ts_us=now_us,
                **changes,
            )

    def disconnected(self) -> None:
        """Count a lost connection of the log reader."""
        with self._lock:
            self._state.log = replace(self._state.log, connected=False, disconnects=self._state.log.disconnects + 1)

    def in_flight(self, splits: int) -> None:
        """Set how many splits are being read."""
        with self._lock:
            self._state.splits_in_flight = splits

    def published(self, *, records: int, size: int = 0, transactions: int = 1) -> None:
        """Count what a committed Kafka transaction held; ``size`` in bytes."""
        with self._lock:
            self._state.kafka_transactions += transactions
            self._state.records += records
            self._state.bytes += size

    @property
    def ready(self) -> bool:
        """Tell whether the log is being followed: the process does its work."""
        with self._lock:
            return self._state.phase in {Phase.SNAPSHOT, Phase.LOG} and self._state.log.connected

    @property
    def live(self) -> bool:
        """Tell whether the process has not failed."""
        with self._lock:
            return self._state.phase is not Phase.FAILED

    def snapshot(self) -> dict[str, Any]:
        """Return everything as plain values, consistent in itself; the JSON of /status."""
        now_us = time.time_ns() // 1000
        with self._lock:
            state = self._state
            tables = {str(table): asdict(status) for table, status in sorted(state.tables.items())}
            log = asdict(state.log)
            plain = {
                "prefix": self.prefix,
                "phase": state.phase.value,
                "error": state.error,
                "uptime_ms": (now_us - self.started_us) // 1000,
                "splits_in_flight": state.splits_in_flight,
                "kafka": {
                    "transactions": state.kafka_transactions,
                    "records": state.records,
                    "bytes": state.bytes,
                },
            }
        states = [status["state"] for status in tables.values()]
        plain["snapshot"] = {
            "tables": len(tables),
            "tables_remaining": sum(s in {TableState.WAITING, TableState.READING} for s in states),
            "rows_read": sum(status["rows_read"] for status in tables.values()),
        }
        log["idle_ms"] = (now_us - log["seen_ts_us"]) // 1000 if log["seen_ts_us"] else -1
        return {**plain, "log": log, "tables": tables}
