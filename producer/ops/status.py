"""The status of the producer: updated by its threads, read as a whole by the HTTP server."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import asdict
from enum import StrEnum
from typing import Any, Final

from tailrace.producer.model.protocols import LogDistance
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.ops.counts import StreamStatus, TableStatus
from tailrace.runtime.errors import TailraceError
from tailrace.runtime.versions import program_version
from tailrace.runtime.webhook import Webhook, WebhookEvent
from tailrace.schemas.rowkind import Op
from tailrace.schemas.watermark import MariaDbPosition

LOOP_TIMEOUT_S: Final = 900.0
"""Above every timeout of a query and of a Kafka request, so that a loop which waits for one still counts as live."""


class Phase(StrEnum):
    """What the process as a whole is doing.

    ::

        STARTING --> SNAPSHOT --> STREAMING --> STOPPED
            ^            |            |
            +------------+------------+   after a failure, from the state in Kafka
    """

    STARTING = "starting"
    """Checks the source and restores the state; no change has been read yet."""
    SNAPSHOT = "snapshot"
    """Reads tables, initially or incrementally, while it streams the binlog."""
    STREAMING = "streaming"
    """Streams the binlog; no snapshot is running."""
    STOPPED = "stopped"


FAULT_REMEDY: Final = (
    "remove the cause, which the log has with its hint; if the table is not captured again by itself, run tailrace "
    "snapshot with it, or send the signal execute-snapshot"
)
"""Of a table in error."""

CONFIRMED_S: Final = 5.0
"""For how long the end of the binlog counts as reached without another heartbeat; the source sends one a second."""

_DONE = frozenset({TableMode.STREAMING, TableMode.ERROR})
"""No snapshot of the table is running or to come."""

_COUNTER = {Op.CREATE: "creates", Op.UPDATE: "updates", Op.DELETE: "deletes"}


class Status:
    """Thread-safe; an update costs well below a microsecond, so the stream may make one for each rows event."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self._started_at = time.monotonic()
        self._lock = threading.Lock()
        self._phase = Phase.STARTING
        self._connected = False
        self._last_error: dict[str, object] | None = None
        self._waiting = False
        self._tables: dict[TableId, TableStatus] = {}
        self._stream = StreamStatus()
        self._looped_at = time.monotonic()
        self._received_at: float | None = None
        """When the source last sent something. What is said of the past is measured by ``time.monotonic``: no clock
        must hide an outage, neither one of this host that is set back nor one of the source that is ahead."""
        self._through_at = -math.inf
        """What the source committed until this moment is in Kafka; -inf: not known."""
        self._at_end = False
        """Whether the source had nothing more when ``_through_at`` was set."""
        self._log: tuple[LogDistance, float, float] | None = None
        """The last measured distance to the end of the log, when that was, and for how long its counts are told."""
        self._held: tuple[TableId, float] | None = None
        """The table for which the stream waits, and since when."""
        self.signals: Callable[[], Mapping[str, Any]] = dict
        """Returns what the session knows of signals, which sets it."""
        self.webhook = Webhook()

    # -- the process --

    def phase(self, phase: Phase) -> None:
        with self._lock:
            self._phase = phase

    def connected(self, prefix: str) -> None:
        """The stream is connected. Tables under snapshot are forgotten: the session counts their splits from 0."""
        with self._lock:
            self.prefix = prefix
            self._connected = True
            self._looped_at = time.monotonic()
            self._phase = Phase.SNAPSHOT
            self._tables = {table: s for table, s in self._tables.items() if s.mode in _DONE}

    def disconnected(self) -> None:
        with self._lock:
            self._stream.disconnects += self._connected
            self._connected = self._waiting = False

    def moved(self) -> None:
        """A signal has set the position: the session ends, without a failure and without a lost connection."""
        with self._lock:
            self._stream.moves += 1
            self._connected, self._phase = False, Phase.STARTING

    def failed(self, error: TailraceError) -> None:
        """A session has ended, or cannot begin; the error is told until there is another one."""
        with self._lock:
            self._phase = Phase.STARTING
            self._last_error = error.fields() | {"ts_ms": time.time_ns() // 1_000_000}

    def _current_phase(self) -> Phase:
        """Return the phase; a snapshot is complete when its last table is."""
        if self._phase is Phase.SNAPSHOT and all(s.mode in _DONE for s in self._tables.values()):
            return Phase.STREAMING
        return self._phase

    # -- tables --

    def table_mode(self, table: TableId, mode: TableMode) -> None:
        with self._lock:
            status = self._table(table)
            status.mode, status.error, status.failed_at = mode, "", {}

    def table_failed(self, table: TableId, reason: str, at: Mapping[str, Any] | None = None) -> bool:
        """A table cannot be captured, from ``at`` on; return whether the reason is a new one."""
        with self._lock:
            status = self._table(table)
            changed = (status.mode, status.error) != (TableMode.ERROR, reason)
            status.mode, status.error, status.failed_at = TableMode.ERROR, reason, dict(at or {})
        if changed:
            details = {name: str(value) for name, value in (at or {}).items()}
            self.webhook.post(WebhookEvent(self.prefix, "TableInError", str(table), reason, FAULT_REMEDY, details))
        return changed

    def table_put_off(self, table: TableId, reason: str) -> None:
        """The snapshot of a table waits; empty: no more. The table may be removed by now."""
        with self._lock:
            if table in self._tables:
                self._tables[table].put_off = reason

    def change_skipped(self, table: TableId) -> None:
        with self._lock:
            self._table(table).changes_skipped += 1

    def table_started(self, table: TableId, *, estimated_rows: int) -> None:
        with self._lock:
            self._table(table).rows_estimated = estimated_rows

    def split_planned(self, table: TableId) -> None:
        """Count a split that will be read, or that was committed before the session."""
        with self._lock:
            self._table(table).splits_planned += 1

    def splits_restored(self, table: TableId, splits: int, *, rows: int, ended: int = 0) -> None:
        """Count splits that were committed before the session, and how many of them had ended."""
        with self._lock:
            status = self._table(table)
            status.splits_planned += splits
            status.splits_done += splits
            status.splits_ended += ended
            status.rows_read += rows

    def snapshot_waits_for_stream(self, waiting: bool) -> None:
        """Set whether no split is started because too many wait for the binlog reader."""
        with self._lock:
            self._waiting = waiting

    def split_read(self, table: TableId, *, rows: int) -> None:
        with self._lock:
            status = self._table(table)
            status.splits_done += 1
            status.rows_read += rows

    def split_ended(self, table: TableId) -> None:
        with self._lock:
            self._table(table).splits_ended += 1

    def table_removed(self, table: TableId) -> None:
        with self._lock:
            self._tables.pop(table, None)

    def _table(self, table: TableId, mode: TableMode = TableMode.WAITING) -> TableStatus:
        status = self._tables.get(table)
        if status is None:
            status = self._tables[table] = TableStatus(mode)
        return status

    # -- the stream --

    def stream_loop(self) -> None:
        self._looped_at = time.monotonic()
        if self._held is not None:
            with self._lock:
                self._end_hold()

    def stream_held(self, table: TableId) -> float:
        """The stream waits for the snapshot of a table, until its loop goes round; return for how many seconds now."""
        self._looped_at = now = time.monotonic()
        with self._lock:
            if self._held is None or self._held[0] != table:
                self._end_hold()
                self._held = table, now
            return now - self._held[1]

    def _end_hold(self) -> None:
        if self._held is not None:
            table, since = self._held
            self._held = None
            if table in self._tables:
                self._tables[table].held_ms += round((time.monotonic() - since) * 1000)

    def stream_rows(self, table: TableId, op: str, records: int, *, events: int = 1, skipped: int = 0) -> None:
        """Count rows events of one operation (c, u or d), their records, and the events without records."""
        with self._lock:
            stream = self._stream
            stream.events += events
            stream.events_skipped += skipped
            if records:
                counter = _COUNTER[Op(op)]
                setattr(stream, counter, getattr(stream, counter) + records)
                # A table without a reported mode was created after the start: it only streams.
                self._table(table, TableMode.STREAMING).records += records

    def values_replaced(self, table: TableId, count: int) -> None:
        """Count values of a table that the modes cannot represent and that were replaced."""
        with self._lock:
            self._table(table, TableMode.STREAMING).values_replaced += count

    def change_refused(self) -> None:
        """Count an event that was skipped, and whose tables are read again."""
        with self._lock:
            self._stream.refused += 1

    def stream_transaction(self, *, ts_us: int, count: int = 1) -> None:
        """Count transactions of the source; the last one was committed there at ``ts_us``."""
        with self._lock:
            self._stream.transactions += count
            self._stream.source_ts_us = ts_us
            self._at_end = False

    def stream_received(self, received_at: float, *, complete: bool) -> None:
        """The source last sent something at ``received_at``; ``complete``: all that it has sent is in Kafka."""
        with self._lock:
            self._received_at = received_at
            if complete:
                self._through_at, self._at_end = received_at, True

    def stream_committed(self, position: Mapping[str, Any]) -> None:
        """Set the position (the JSON form of an offset) that is stored in Kafka with everything before it."""
        with self._lock:
            stream = self._stream
            stream.file, stream.pos, stream.gtids = position["file"], position["pos"], position["gtids"]
            by_list = stream.gtids is None or position.get("kind") == MariaDbPosition.KIND
            stream.barrier = "innodb_trx" if by_list else "gtid_executed"
            stream.commits += 1
            stream.committed_ts_us = now_us = time.time_ns() // 1000
            committed_at = time.monotonic() - max(0, now_us - stream.source_ts_us) / 1_000_000
            self._through_at = max(committed_at, self._through_at)

    def log_measured(self, distance: LogDistance, *, valid_s: float) -> None:
        """The stored position is ``distance`` behind the end of the log; another measure follows in ``valid_s``."""
        with self._lock:
            now = time.monotonic()
            self._log = distance, now, now + valid_s

    # -- reading --

    @property
    def live(self) -> bool:
        """Whether the stream's loop goes round; a start has no loop, and each of its steps has a timeout."""
        with self._lock:
            started = self._phase in {Phase.SNAPSHOT, Phase.STREAMING}
            return not started or time.monotonic() - self._looped_at < LOOP_TIMEOUT_S

    @property
    def ready(self) -> bool:
        with self._lock:
            return self._connected and self._phase in {Phase.SNAPSHOT, Phase.STREAMING}

    def _lag_ms(self, now: float) -> int | None:
        """Return how far Kafka is behind the source: a function of time, so that it grows when nothing is processed.

        It is 0 only while the source confirms that it has nothing more. None: nothing is known yet.
        """
        if self._through_at == -math.inf:
            return None
        behind_s = now - self._through_at
        return 0 if self._at_end and behind_s <= CONFIRMED_S else int(behind_s * 1000)

    def _log_status(self, now: float) -> dict[str, Any]:
        """Return how far the stored position is behind; what is not known is None.

        While the source does not answer, the counts are not known, and the time that is left goes on to run out.
        """
        distance, measured_at, until = self._log or (None, now, now)
        counts = distance if now <= until else None
        left_s = None if distance is None else distance.purge_left_s
        return {
            "log_files_behind": counts and counts.files,
            "log_bytes_behind": counts and counts.bytes,
            "log_transactions_behind": counts and counts.transactions,
            "row_metadata": counts and counts.row_metadata,
            "log_measured_ts_us": 0 if distance is None else _unix_us(measured_at),
            "purge_left_s": None if left_s is None else max(0, round(left_s - (now - measured_at))),
        }

    def snapshot(self) -> dict[str, Any]:
        """Return everything at one moment as plain values: the JSON of /status."""
        with self._lock:
            now = time.monotonic()
            copies = [(table, copy(status)) for table, status in self._tables.items()]  # the stream waits meanwhile
            stream = asdict(self._stream) | {"lag_ms": self._lag_ms(now)} | self._log_status(now)
            held, since = self._held or (None, 0.0)
            received_at = self._received_at
            phase, last_error, connected = self._current_phase().value, self._last_error, self._connected
            waiting = self._waiting
        tables = {str(table): asdict(status) for table, status in sorted(copies, key=lambda item: item[0])}
        stream["held_by"] = str(held or "")
        stream["held_ms"] = held_ms = round((now - since) * 1000) if held else 0
        if stream["held_by"] in tables:
            tables[stream["held_by"]]["held_ms"] += held_ms
        stream["received_ts_us"] = 0 if received_at is None else _unix_us(received_at)
        stream["idle_ms"] = None if received_at is None else int((now - received_at) * 1000)
        return {
            "prefix": self.prefix,
            "version": program_version(),
            "phase": phase,
            "last_error": last_error,
            "connected": connected,
            "live": self.live,
            "uptime_ms": round((now - self._started_at) * 1000),
            "snapshot": {
                "tables": len(tables),
                "tables_remaining": sum(status["mode"] not in _DONE for status in tables.values()),
                "tables_in_error": sum(status["mode"] is TableMode.ERROR for status in tables.values()),
                "rows_read": sum(status["rows_read"] for status in tables.values()),
                "splits_planned": sum(status["splits_planned"] for status in tables.values()),
                "splits_done": sum(status["splits_done"] for status in tables.values()),
                "splits_waiting": sum(status["splits_done"] - status["splits_ended"] for status in tables.values()),
                "waits_for_stream": waiting,
            },
            "stream": stream,
            "signals": self.signals(),
            "webhook": self.webhook.as_status(),
            "tables": tables,
        }


def _unix_us(at: float) -> int:
    """Return a moment of ``time.monotonic`` in microseconds since 1970."""
    return time.time_ns() // 1000 - int((time.monotonic() - at) * 1_000_000)
