"""The tables and splits that the stream knows, and the decision on a change of a key: the one-pass rules, without I/O.

The mode of a table (``model/table_mode.py``) decides first. In an initial snapshot (mode SNAPSHOT) a change of a key
above the greatest planned key is emitted; for other keys the split decides::

    (not opened) ──open──> OPEN ──commit(LW, HW)──> COMMITTED ──binlog passes HW──> ENDED

    not opened  skip: the split will be read later, and its rows will contain the change
    OPEN        hold
    COMMITTED   up to LW skip, up to HW backfill of the split, after HW emit
    ENDED       emit

In an incremental snapshot (mode INCREMENTAL) no change is ever skipped, because readers of the topic rely on each one::

    not opened  emit: the change precedes the split's rows, which will contain it
    OPEN        hold: the rows must not follow a change that they do not contain
    COMMITTED   up to HW backfill of the split, even up to LW; after HW emit
    ENDED       emit

If readers no longer find a table, its unread splits are abandoned: an initial snapshot skips their changes.

Invariant: within its partition, a key of a split has the snapshot row first and then every change after LW, in binlog
order.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from enum import Enum
from functools import cmp_to_key
from typing import Final

from tailrace.producer.model.binlog_events import TransactionBegin
from tailrace.producer.model.protocols import KeyOrdering, Offset
from tailrace.producer.model.split import SortKey, Split
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableMode, TablePresence, check_transition


class ChangeDecision(Enum):
    """What to do with a change of one key."""

    SKIP = "skip"
    HOLD = "hold"
    EMIT = "emit"
    BACKFILL = "backfill"


@dataclass(slots=True)
class TrackedSplit:
    """A split that has been opened."""

    split: Split
    low: Offset | None = None
    high: Offset | None = None
    ended: bool = False
    backfill: int = 0
    """Change records written with the split's header so far, tombstones not counted."""
    abandoned: bool = False
    """The split will not be read: its table is missing."""
    _transaction: TransactionBegin | None = None
    _in_snapshot: bool = False

    @property
    def being_read(self) -> bool:
        """Whether a reader is active on the split."""
        return self.high is None and not self.abandoned

    def is_in_snapshot(self, transaction: TransactionBegin) -> bool:
        """Whether a transaction is at or before LW; the answer is cached for the rest of the transaction."""
        if transaction is not self._transaction:
            assert self.low is not None
            self._transaction, self._in_snapshot = transaction, self.low.contains(transaction)
        return self._in_snapshot


@dataclass(slots=True)
class TrackedTable:
    """One table and its opened splits, ordered by lower bound for look-up."""

    id: TableId
    mode: TableMode
    presence: TablePresence = TablePresence.PRESENT
    greatest: SortKey | None = None
    """Greatest planned key; None in mode SNAPSHOT: the splits are unbounded."""
    order: KeyOrdering | None = None
    """How the table's keys compare; None unless a snapshot of the table is running."""
    opened: dict[str, TrackedSplit] = field(default_factory=dict)
    _lowers: list[SortKey] = field(default_factory=list)
    _ordered: list[TrackedSplit] = field(default_factory=list)

    def move_to(self, mode: TableMode) -> None:
        """Change the mode. Raises IllegalTransitionError if the step is not allowed."""
        check_transition(self.id, self.mode, mode)
        self.mode = mode

    @property
    def being_read(self) -> bool:
        """Whether the table is being planned, or a reader is active on one of its splits."""
        return self.mode is TableMode.PLANNING or any(split.being_read for split in self.opened.values())

    def add(self, split: Split) -> TrackedSplit:
        """Open a split; opening one twice is an error in the caller."""
        assert split.id not in self.opened, f"split {split.id} opened twice"
        tracked = TrackedSplit(split)
        self.opened[split.id] = tracked
        lower = split.lower_order if split.lower_order is not None else ()  # () sorts before every key
        at = bisect_right(self._lowers, lower)
        self._lowers.insert(at, lower)
        self._ordered.insert(at, tracked)
        return tracked

    def find(self, key: SortKey) -> TrackedSplit | None:
        """Return the opened split that contains the key, or None."""
        at = bisect_right(self._lowers, key) - 1
        if at < 0:
            return None
        tracked = self._ordered[at]
        return tracked if tracked.split.holds(key) else None

    def end_snapshot(self) -> None:
        """Forget the snapshot that is complete or cancelled."""
        self.presence = TablePresence.PRESENT
        self.order = None
        self.opened.clear()
        self._lowers.clear()
        self._ordered.clear()


class SplitRegistry:
    """All captured tables. Used by the stream's thread only, so it needs no lock."""

    def __init__(self) -> None:
        self.tables: dict[TableId, TrackedTable] = {}
        self._open_splits: dict[str, TrackedSplit] = {}
        self._all_read: set[TableId] = set()

    # -- tables ------------------------------------------------------------------------------------------------------

    def track(self, table: TableId, mode: TableMode) -> TrackedTable:
        """Track a table from here on."""
        check_transition(table, None, mode)
        tracked = TrackedTable(table, mode)
        self.tables[table] = tracked
        return tracked

    def start_planning(self, table: TableId) -> None:
        """Hold the table's changes from here on: its greatest key is about to be read."""
        self.tables[table].move_to(TableMode.PLANNING)

    def set_range(self, table: TableId, greatest: SortKey | None) -> None:
        """Set the greatest planned key; None: the splits are unbounded."""
        self.tables[table].move_to(TableMode.SNAPSHOT)
        self.tables[table].greatest = greatest

    def start_incremental(self, table: TableId) -> None:
        """Start an incremental snapshot of a streaming table."""
        self.tables[table].move_to(TableMode.INCREMENTAL)

    def restart(self, table: TableId) -> None:
        """Open no more splits: the initial snapshot of the table restarts when its open splits are committed."""
        self.tables[table].move_to(TableMode.RESTARTING)

    def mark_all_read(self, table: TableId) -> None:
        """The plan is finished and every split is committed."""
        self._all_read.add(table)

    def finished_tables(self) -> list[TableId]:
        """Return the tables whose snapshot is complete: everything is read and ended."""
        if not self._all_read:
            return []
        open_splits = {tracked.split.table for tracked in self._open_splits.values()}
        running = {TableMode.SNAPSHOT, TableMode.INCREMENTAL}
        return [table for table in self._all_read if table not in open_splits and self.tables[table].mode in running]

    def finish_table(self, table: TableId) -> None:
        """Only stream the table from here on, and forget its splits."""
        tracked = self.tables[table]
        tracked.move_to(TableMode.STREAMING)
        self._all_read.discard(table)
        for split in tracked.opened:
            self._open_splits.pop(split, None)
        tracked.end_snapshot()

    def abandon(self, table: TableId) -> None:
        """Leave out the rest of a missing table's snapshot; committed splits continue to their ends."""
        if self.tables[table].mode is TableMode.PLANNING:
            self.set_range(table, None)

    def forget(self, table: TableId) -> list[TrackedSplit]:
        """Track a table no longer; return its committed splits that have not ended."""
        tracked = self.tables.pop(table)
        self._all_read.discard(table)
        open_splits = [self._open_splits.pop(split) for split in tracked.opened if split in self._open_splits]
        return [split for split in open_splits if split.high is not None]

    # -- splits ------------------------------------------------------------------------------------------------------

    def open(self, split: Split) -> None:
        """Hold the split's changes: a reader is about to take its low watermark."""
        table = self.tables[split.table]
        assert table.mode in {TableMode.SNAPSHOT, TableMode.INCREMENTAL}, f"{split.id} opened in mode {table.mode}"
        self._open_splits[split.id] = table.add(split)

    def commit(self, split: Split, low: Offset, high: Offset, *, backfill: int = 0) -> None:
        """The split's rows are in Kafka."""
        tracked = self.tables[split.table].opened[split.id]
        assert tracked.high is None, f"split {split.id} committed twice"
        tracked.low, tracked.high, tracked.backfill = low, high, backfill

    def abandon_split(self, split: Split) -> None:
        """The split will not be read: its table is missing."""
        self.tables[split.table].opened[split.id].abandoned = True
        del self._open_splits[split.id]

    def end_passed(self, offset: Offset) -> list[TrackedSplit]:
        """End the splits whose HW is at or before ``offset``; return them in order of HW."""
        done = [t for t in self._open_splits.values() if t.high is not None and not offset.before(t.high)]
        done.sort(key=cmp_to_key(_compare_high))
        for tracked in done:
            tracked.ended = True
            del self._open_splits[tracked.split.id]
        return done

    def mark_ended(self, split: Split) -> None:
        """The split's END was written before a restart."""
        self.tables[split.table].opened[split.id].ended = True
        del self._open_splits[split.id]

    @property
    def waiting_for_end(self) -> bool:
        """Whether any split has not ended."""
        return bool(self._open_splits)

    def open_backfills(self) -> dict[str, int]:
        """Return the backfill counts of committed splits that have not ended, by id."""
        return {i: t.backfill for i, t in self._open_splits.items() if t.high is not None}

    # -- changes -----------------------------------------------------------------------------------------------------

    def decide(
        self, table: TrackedTable, key: SortKey, transaction: TransactionBegin, begin: Offset
    ) -> tuple[ChangeDecision, TrackedSplit | None]:
        """Return the decision for a change of ``key`` in ``transaction``, which begins at offset ``begin``."""
        match table.mode:
            case TableMode.STREAMING:
                return _EMIT
            case TableMode.WAITING:
                return _SKIP
            case TableMode.PLANNING:
                return _HOLD
            case TableMode.INCREMENTAL:
                return self._decide_incremental(table.find(key), begin)
            case TableMode.SNAPSHOT | TableMode.RESTARTING:
                return self._decide_snapshot(table, key, transaction, begin)

    @staticmethod
    def _decide_snapshot(
        table: TrackedTable, key: SortKey, transaction: TransactionBegin, begin: Offset
    ) -> tuple[ChangeDecision, TrackedSplit | None]:
        tracked = table.find(key)
        if tracked is None:
            return _EMIT if table.greatest is not None and key > table.greatest else _SKIP
        if tracked.ended:
            return _EMIT
        if tracked.high is None:
            return _SKIP if tracked.abandoned else (ChangeDecision.HOLD, tracked)
        if tracked.is_in_snapshot(transaction):
            return _SKIP
        # HW lies between transactions: a transaction is at or before HW exactly if it begins before HW.
        return (ChangeDecision.BACKFILL, tracked) if begin.before(tracked.high) else _EMIT

    @staticmethod
    def _decide_incremental(tracked: TrackedSplit | None, begin: Offset) -> tuple[ChangeDecision, TrackedSplit | None]:
        if tracked is None or tracked.ended or tracked.abandoned:
            return _EMIT
        if tracked.high is None:
            return ChangeDecision.HOLD, tracked
        return (ChangeDecision.BACKFILL, tracked) if begin.before(tracked.high) else _EMIT


def _compare_high(one: TrackedSplit, other: TrackedSplit) -> int:
    assert one.high is not None
    assert other.high is not None
    return -1 if one.high.before(other.high) else int(other.high.before(one.high))


_EMIT: Final = (ChangeDecision.EMIT, None)
_SKIP: Final = (ChangeDecision.SKIP, None)
_HOLD: Final = (ChangeDecision.HOLD, None)
