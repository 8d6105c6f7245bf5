"""Watches how far the stored position is behind the end of the log, and for how long the source still keeps it.

It has its own thread and session, so a slow source does not delay the stream.
"""

from __future__ import annotations

import threading
import time
from typing import Final

import structlog

from tailrace.producer.model.protocols import LogDistance, LogMonitor
from tailrace.producer.ops.status import Status
from tailrace.producer.streaming.stream_transaction import StreamTransaction
from tailrace.runtime.errors import TailraceError

log = structlog.get_logger(__name__)

_VALID_INTERVALS: Final = 2.5
"""Intervals after which the counts of a measure are not told any more: one may fail."""
_LOW: Final = 0.5
"""Share of the retention below which the time that is left is a warning."""
_REPEAT_S: Final = 3600.0


class LogWatch:
    """Measures at an interval until it is closed."""

    def __init__(
        self, monitor: LogMonitor, transaction: StreamTransaction, status: Status, *, interval_s: float
    ) -> None:
        self._monitor = monitor
        self._transaction = transaction
        self._status = status
        self._interval_s = interval_s
        self._closing = threading.Event()
        self._failed = False
        self._warned_at = -_REPEAT_S
        self._thread = threading.Thread(target=self._run, name="log-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; a running query is interrupted by closing its session."""
        self._closing.set()
        self._thread.join(timeout=0.1)
        self._monitor.close()
        self._thread.join(timeout=1)

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                distance = self._monitor.distance(self._transaction.stored)
            except TailraceError as error:
                if not self._closing.is_set() and not self._failed:
                    self._failed = True
                    log.warning("the binlog of the source cannot be measured", error=error)
            else:
                self._failed = False
                if distance is not None:
                    self._status.log_measured(distance, valid_s=self._interval_s * _VALID_INTERVALS)
                    self._warn(distance)
            self._closing.wait(self._interval_s)
        self._monitor.close()  # the query that was interrupted may have connected once more

    def _warn(self, distance: LogDistance) -> None:
        left, now = distance.purge_left_s, time.monotonic()
        if left is None or distance.retention_s is None or left >= distance.retention_s * _LOW:
            self._warned_at = -_REPEAT_S
            return
        if now - self._warned_at < _REPEAT_S:
            return
        self._warned_at = now
        log.warning(
            "the source may purge the binlog that is still to be read",
            hint="keep binlog files longer (binlog_expire_logs_seconds, expire_logs_days of MySQL 5.7), and look why "
            "the producer is behind",
            purge_left_s=round(left),
            files_behind=distance.files,
            bytes_behind=distance.bytes,
            transactions_behind=distance.transactions,
        )
