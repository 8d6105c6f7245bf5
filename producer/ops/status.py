"""What the producer is doing now, for people and machines: updated by its threads, read whole by the HTTP port."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from tailrace.producer.model.table import TableId


class Phase(StrEnum):
    """Where the process stands.

    ::

        STARTING --> SNAPSHOT --> LOG --> STOPPED
            ^            |         |
            +------------+---------+   something broke: again from the state in Kafka
    """

    STARTING = "starting"
    """Checks, and taking over from the process before; no change has been seen yet."""
    SNAPSHOT = "snapshot"
    """Tables are being read; the log is followed at the same time."""
    LOG = "log"
    """Only the log is followed."""
    STOPPED = "stopped"


class TableState(StrEnum):
    """Where one table stands."""

    WAITING = "waiting"
    """Nothing of it has been read."""
    READING = "reading"
    """Splits are being read, or the log has not passed the greatest high watermark."""
    LOG = "log"
    """Every change goes through without a look at splits."""


@dataclass(slots=True)
class TableStatus:
    """One table. ``rows_estimated`` is the server's statistics, ``rows_read`` counts rows that are in Kafka."""

    state: TableState = TableState.WAITING
    rows_estimated: int = 0
    rows_read: int = 0
    splits_planned: int = 0
    splits_done: int = 0
    """Their rows are in Kafka."""
    splits_ended: int = 0
    """The log has passed their high watermark: their certificate is written."""
    records: int = 0
    """Records of changes from the log, tombstones included."""


@dataclass(slots=True)
class StreamStatus:
    """How far the log is in Kafka. Counts are since the start of the process."""

    file: str = ""
    pos: int = 0
    gtids: str = ""
    source_ts_us: int = 0
    """When the source committed the last transaction seen, µs since the epoch; 0 before the first."""
    seen_ts_us: int = 0
    """When something was last heard from the log, by our clock; 0 before the first."""
    lag_ms: int = -1
    """Age of the last transaction when it was handled, 0 once the end of the log is reached; -1 before the first."""
    events: int = 0
    """Rows events of captured tables."""
    events_dropped: int = 0
    """Those that wrote nothing, because a split will read their rows, or has."""
    creates: int = 0
    updates: int = 0
    deletes: int = 0
    """Records written, by the operation of their event; tombstones included."""
    transactions: int = 0
    """Transactions of the source."""
    commits: int = 0
    """Kafka transactions of the log reader."""
    disconnects: int = 0


_COUNTER = {"c": "creates", "u": "updates", "d": "deletes"}


class Status:
    """Thread-safe; an update costs well below a microsecond and may be made for each rows event."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self.started_us = time.time_ns() // 1000
        self._lock = threading.Lock()
        self._phase = Phase.STARTING
        self._connected = False
        self._error = ""
        self._tables: dict[TableId, TableStatus] = {}
        self._log = StreamStatus()

    # -- the process --

    def phase(self, phase: Phase, *, error: str = "") -> None:
        """Set where the process stands; ``error`` is why the last attempt ended, shown until the log is followed."""
        with self._lock:
            self._phase = phase
            self._error = error or self._error

    def connected(self, prefix: str) -> None:
        """Set that the log of this prefix is being followed.

        Tables under snapshot are forgotten: their splits are counted anew.
        """
        with self._lock:
            self.prefix = prefix
            self._connected, self._error = True, ""
            self._phase = Phase.SNAPSHOT
            self._tables = {table: s for table, s in self._tables.items() if s.state is TableState.LOG}

    def disconnected(self) -> None:
        """Set that the log is not followed any more, by a failure or at the end."""
        with self._lock:
            self._log.disconnects += self._connected
            self._connected = False

    def failed(self, error: str) -> None:
        """Set that an attempt failed; another one follows."""
        self.phase(Phase.STARTING, error=error)

    def _now(self) -> Phase:
        """Return the phase; a snapshot is over when its last table is."""
        if self._phase is Phase.SNAPSHOT and all(status.state is TableState.LOG for status in self._tables.values()):
            return Phase.LOG
        return self._phase

    # -- tables --

    def table_waiting(self, table: TableId) -> None:
        """Add a table that will be read."""
        with self._lock:
            self._table(table)

    def table_begun(self, table: TableId, *, estimated_rows: int) -> None:
        """Set that a table is being planned and read."""
        with self._lock:
            status = self._table(table)
            status.state, status.rows_estimated = TableState.READING, estimated_rows

    def split_planned(self, table: TableId) -> None:
        """Count a split that will be read, or that was finished before the start."""
        with self._lock:
            self._table(table).splits_planned += 1

    def split_read(self, table: TableId, *, rows: int) -> None:
        """Count a split whose Kafka transaction is committed."""
        with self._lock:
            status = self._table(table)
            status.splits_done += 1
            status.rows_read += rows

    def split_ended(self, table: TableId) -> None:
        """Count a split whose high watermark the log has passed."""
        with self._lock:
            self._table(table).splits_ended += 1

    def table_finished(self, table: TableId) -> None:
        """Set that a table is in pure log mode."""
        with self._lock:
            self._table(table).state = TableState.LOG

    def forget(self, table: TableId) -> None:
        """Leave out a table that is not captured any more."""
        with self._lock:
            self._tables.pop(table, None)

    def _table(self, table: TableId, state: TableState = TableState.WAITING) -> TableStatus:
        status = self._tables.get(table)
        if status is None:
            status = self._tables[table] = TableStatus(state)
        return status

    # -- the log --

    def log_rows(self, table: TableId, op: str, records: int, *, events: int = 1) -> None:
        """Count rows events of one operation (c, u or d) and the records they gave."""
        with self._lock:
            log = self._log
            log.events += events
            if records:
                counter = _COUNTER[op]
                setattr(log, counter, getattr(log, counter) + records)
                # A table that was never begun as a snapshot is one that is only followed.
                self._table(table, TableState.LOG).records += records
            else:
                log.events_dropped += events

    def log_transaction(self, *, ts_us: int, count: int = 1) -> None:
        """Count transactions of the source, the last one committed there at ``ts_us``."""
        now_us = time.time_ns() // 1000
        with self._lock:
            log = self._log
            log.transactions += count
            log.source_ts_us, log.seen_ts_us = ts_us, now_us
            log.lag_ms = max(0, now_us - ts_us) // 1000

    def log_caught_up(self) -> None:
        """Set that nothing is left to read: the lag is none, however old the last change is."""
        with self._lock:
            self._log.lag_ms = 0
            self._log.seen_ts_us = time.time_ns() // 1000

    def log_committed(self, position: Mapping[str, Any]) -> None:
        """Set the position (the JSON form of an offset) that is stored in Kafka with everything before it."""
        with self._lock:
            log = self._log
            log.file, log.pos, log.gtids = position["file"], position["pos"], position["gtids"]
            log.commits += 1

    # -- reading --

    @property
    def ready(self) -> bool:
        """Tell whether the log is being followed: the process does its work."""
        with self._lock:
            return self._connected and self._phase in {Phase.SNAPSHOT, Phase.LOG}

    def snapshot(self) -> dict[str, Any]:
        """Return everything as plain values, consistent in itself; the JSON of /status."""
        now_us = time.time_ns() // 1000
        with self._lock:
            tables = {str(table): asdict(status) for table, status in sorted(self._tables.items())}
            log = asdict(self._log)
            phase, error, connected = self._now().value, self._error, self._connected
        log["idle_ms"] = (now_us - log["seen_ts_us"]) // 1000 if log["seen_ts_us"] else -1
        return {
            "prefix": self.prefix,
            "phase": phase,
            "error": error,
            "connected": connected,
            "uptime_ms": (now_us - self.started_us) // 1000,
            "snapshot": {
                "tables": len(tables),
                "tables_remaining": sum(status["state"] != TableState.LOG for status in tables.values()),
                "rows_read": sum(status["rows_read"] for status in tables.values()),
                "splits_planned": sum(status["splits_planned"] for status in tables.values()),
                "splits_done": sum(status["splits_done"] for status in tables.values()),
            },
            "log": log,
            "tables": tables,
        }
