"""The waits of the stream for a table whose snapshot is being read.

No table is written until a held change may pass, since the offset says of all tables at once what is done. So each wait
is reported: in the status, in metrics, and in the log if it takes long.

Invariant: a split holds the stream for at most ``tailrace.snapshot.max.hold.ms``, plus the time for ending its reader.
Then its id is in ``overdue``. The thread that takes the results of readers ends the process of that reader, whatever it
waits for, and closes the split, unless its rows were in Kafka already. A reader says before its commit that it commits;
if one is ended between that and its result, nobody knows what became of its transaction, and the session starts again
from the stored state. A plan holds the stream for at most the times of its two steps (``table_planner.py``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

import structlog

from tailrace.producer.model.table import TableId
from tailrace.producer.streaming.context import StreamContext
from tailrace.producer.streaming.mailbox import CaptureStoppedError

log = structlog.get_logger(__name__)

T = TypeVar("T")

_REPORT_S: Final = 5.0
_REPEAT_S: Final = 60.0
"""After how long a wait of the stream is reported, and after how long again."""


class StreamHold:
    """Waits on the stream's thread, which runs what other threads submit meanwhile."""

    def __init__(self, context: StreamContext, end_splits: Callable[[], None]) -> None:
        """``end_splits`` is called after each submitted function."""
        self.overdue: frozenset[str] = frozenset()
        """The splits that have held the stream for too long; any thread may read this."""
        self._context = context
        self._end_splits = end_splits
        self._next_report_s = _REPORT_S

    def wait_for(self, ready: Callable[[], T | None], table: TableId) -> T:
        """Wait until ``ready`` returns something true, and return that; commits when due.

        ``table`` is the one that is waited for. Raises CaptureStoppedError on a stop.
        """
        mailbox, since = self._context.mailbox, time.monotonic()
        try:
            while not (found := ready()):
                self._report(table, since)
                while not mailbox.wait(0.05):
                    if mailbox.stopped:
                        raise CaptureStoppedError
                    self._report(table, since)
                    self._context.transaction.commit_if_due()
                self._end_splits()
        finally:
            self.overdue = frozenset()
        return found

    def _report(self, table: TableId, since: float) -> None:
        seconds = self._context.status.stream_held(table)
        tracked = self._context.registry.tables.get(table)
        splits = [] if tracked is None else [split.id for split in tracked.opened.values() if split.being_read]
        if time.monotonic() - since >= self._context.settings.max_hold_s:
            self.overdue = frozenset(splits)
        if seconds < _REPORT_S:
            self._next_report_s = _REPORT_S
        if seconds < self._next_report_s:
            return
        self._next_report_s = seconds + _REPEAT_S
        log.warning(
            "the stream waits for a table whose snapshot is being read: no table is written meanwhile",
            hint="read a table whose key cannot be cut, which is one split, while few changes are made, or leave it "
            "out of the snapshot with snapshot.include.collection.list",
            table=str(table),
            splits=", ".join(splits[:5]) or "the greatest key is being read",
            held_s=round(seconds),
        )
