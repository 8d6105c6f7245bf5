"""What the log reader knows of splits, and the verdict on a change of a key: the one-pass rules, without any I/O.

A table moves through::

    WAITING ──begin──> RANGING ──range known──> SNAPSHOT ──all splits ended──> LOG

    WAITING   changes are dropped: the table will be planned and selected later, behind the visibility barrier
    RANGING   changes are held: until the greatest key is known nobody can tell which changes no split will cover
    SNAPSHOT  a key above the greatest planned key is a plain change; others go by the state of their split
    LOG       plain changes, no look-up

and a split through::

    (unknown) ──open──> OPEN ──commit(LW, HW)──> COMMITTED ──log passes HW──> ENDED

    unknown    dropped: it will be selected later and will show the change
    OPEN       held
    COMMITTED  at or before LW dropped; at or before HW backfill of the split; after it plain
    ENDED      plain

A table whose changes have long been written may be read again, on demand::

    LOG ──read again──> AGAIN ──all splits ended──> LOG

    AGAIN      no change is ever dropped: readers of the topic count on every one
      unknown    plain: it is written before the split's rows, which will show it
      OPEN       held: its rows must not come after a change that they lack
      COMMITTED  at or before HW backfill of the split, LW or not; after it plain

A table that is dropped or renamed at the source leaves: its splits that were not read are abandoned, their changes
dropped. ``closed`` stands for a table whose snapshot is about to begin anew: no split is opened, those open go on.

Invariant: a key of a split has, in its partition, the snapshot row first and then every change after LW in log order.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from enum import Enum
from functools import cmp_to_key
from typing import Final

from tailrace.producer.model.binlog_events import TransactionBegin
from tailrace.producer.model.protocols import Offset
from tailrace.producer.model.split import Split
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.key_order import SortKey


class Phase(Enum):
    """Where a table stands."""

    WAITING = "waiting"
    RANGING = "ranging"
    SNAPSHOT = "snapshot"
    LOG = "log"
    INCREMENTAL = "incremental"


class ChangeDecision(Enum):
    """What to do with a change of one key."""

    DROP = "drop"
    HOLD = "hold"
    PLAIN = "plain"
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
    """Its table went away before it was read: it never will be."""
    _transaction: TransactionBegin | None = None
    _in_snapshot: bool = False

    def is_in_snapshot(self, transaction: TransactionBegin) -> bool:
        """Return whether a transaction is at or before LW; the answer is cached for the rest of the transaction."""
        if transaction is not self._transaction:
            assert self.low is not None
            self._transaction, self._in_snapshot = transaction, self.low.contains(transaction)
        return self._in_snapshot


@dataclass(slots=True)
class TrackedTable:
    """One table's splits, ordered by lower bound for look-up."""

    id: TableId
    phase: Phase = Phase.WAITING
    greatest: SortKey | None = None
    """Greatest planned key; None with phase SNAPSHOT: the splits are unbounded."""
    closed: bool = False
    """No split is opened any more: the table's snapshot is about to begin anew."""
    dropped: bool = False
    """The log has a DROP or RENAME of it, and no table of its name after that."""
    recreated: bool = False
    """The log has a DROP or RENAME of it, and after that a table of its name."""
    abandoned: bool = False
    """Its snapshot was given up, because the source no longer has it: no split is opened or committed any more."""
    opened: dict[str, TrackedSplit] = field(default_factory=dict)
    _lowers: list[SortKey] = field(default_factory=list)
    _ordered: list[TrackedSplit] = field(default_factory=list)

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
        """Return the opened split that holds the key, or None."""
        at = bisect_right(self._lowers, key) - 1
        if at < 0:
            return None
        tracked = self._ordered[at]
        return tracked if tracked.split.holds(key) else None

    def forget_splits(self) -> None:
        """Let the split list go."""
        self.opened.clear()
        self._lowers.clear()
        self._ordered.clear()


class SplitRegistry:
    """All tables under snapshot. Used by the log reader's thread alone, so it needs no lock."""

    def __init__(self) -> None:
        self.tables: dict[TableId, TrackedTable] = {}
        self._unended: dict[str, TrackedSplit] = {}
        self._all_read: set[TableId] = set()

    def track(self, table: TableId, phase: Phase) -> TrackedTable:
        """Start to know a table."""
        tracked = TrackedTable(table, phase)
        self.tables[table] = tracked
        return tracked

    def begin(self, table: TableId) -> None:
        """Hold the table's changes from here on: its greatest key is about to be read."""
        self._move(table, Phase.WAITING, Phase.RANGING)

    def set_range(self, table: TableId, greatest: SortKey | None) -> None:
        """The greatest key is known; None: splits are unbounded."""
        self._move(table, Phase.RANGING, Phase.SNAPSHOT)
        self.tables[table].greatest = greatest

    def start_incremental(self, table: TableId) -> None:
        """A table whose changes are written is read again, beside them."""
        self._move(table, Phase.LOG, Phase.INCREMENTAL)

    def open(self, split: Split) -> None:
        """A reader is about to take the split's low watermark."""
        table = self.tables[split.table]
        assert table.phase in {Phase.SNAPSHOT, Phase.INCREMENTAL}, (
            f"{split.id} opened while its table is {table.phase.value}"
        )
        self._unended[split.id] = table.add(split)

    def commit(self, split: Split, low: Offset, high: Offset, *, backfill: int = 0) -> None:
        """The split's rows are in Kafka."""
        tracked = self.tables[split.table].opened[split.id]
        assert tracked.high is None, f"split {split.id} committed twice"
        tracked.low, tracked.high, tracked.backfill = low, high, backfill

    def abandon_split(self, split: Split) -> None:
        """The split will never be read: its table is gone, and with it whatever its changes were."""
        self.tables[split.table].opened[split.id].abandoned = True
        del self._unended[split.id]

    def abandon(self, table: TableId) -> None:
        """The table's snapshot is given up; the splits that are committed go on to their ends."""
        tracked = self.tables[table]
        tracked.abandoned = True
        if tracked.phase is Phase.RANGING:
            self.set_range(table, None)

    def forget(self, table: TableId) -> list[TrackedSplit]:
        """Stop to know a table; return its committed splits that are not ended."""
        tracked = self.tables.pop(table)
        self._all_read.discard(table)
        open_backfills = [self._unended.pop(split) for split in tracked.opened if split in self._unended]
        return [split for split in open_backfills if split.high is not None]

    def decide(
        self, table: TrackedTable, key: SortKey, transaction: TransactionBegin, begin: Offset
    ) -> tuple[ChangeDecision, TrackedSplit | None]:
        """Return the decision for a change of ``key`` in ``transaction``, which begins at offset ``begin``."""
        if table.phase is Phase.LOG:
            return _PLAIN
        if table.phase is Phase.WAITING:
            return _DROP
        if table.phase is Phase.RANGING:
            return _HOLD
        tracked = table.find(key)
        if table.phase is Phase.INCREMENTAL:
            return self._decide_incremental(tracked, begin)
        if tracked is None:
            return _PLAIN if table.greatest is not None and key > table.greatest else _DROP
        if tracked.ended:
            return _PLAIN
        if tracked.high is None:
            return _DROP if tracked.abandoned else (ChangeDecision.HOLD, tracked)
        if tracked.is_in_snapshot(transaction):
            return _DROP
        # HW lies between transactions: a transaction is at or before HW exactly if it begins before HW.
        if begin.before(tracked.high):
            return ChangeDecision.BACKFILL, tracked
        return _PLAIN

    @staticmethod
    def _decide_incremental(tracked: TrackedSplit | None, begin: Offset) -> tuple[ChangeDecision, TrackedSplit | None]:
        if tracked is None or tracked.ended or tracked.abandoned:
            return _PLAIN
        if tracked.high is None:
            return ChangeDecision.HOLD, tracked
        return (ChangeDecision.BACKFILL, tracked) if begin.before(tracked.high) else _PLAIN

    def end_passed(self, offset: Offset) -> list[TrackedSplit]:
        """End the splits whose HW is at or before ``offset``; return them in order of HW."""
        done = [t for t in self._unended.values() if t.high is not None and not offset.before(t.high)]
        done.sort(key=cmp_to_key(_compare_high))
        for tracked in done:
            tracked.ended = True
            del self._unended[tracked.split.id]
        return done

    def mark_ended(self, split: Split) -> None:
        """The split's END was written before a restart."""
        self.tables[split.table].opened[split.id].ended = True
        del self._unended[split.id]

    @property
    def waiting_for_end(self) -> bool:
        """Tell whether any split is open or not yet ended."""
        return bool(self._unended)

    def open_backfills(self) -> dict[str, int]:
        """Return the backfill counts of committed splits that are not ended, by id."""
        return {i: t.backfill for i, t in self._unended.items() if t.high is not None}

    def mark_all_read(self, table: TableId) -> None:
        """The plan is finished and every split committed."""
        self._all_read.add(table)

    def finished_tables(self) -> list[TableId]:
        """Return tables that can go to LOG: everything read and ended."""
        if not self._all_read:
            return []
        open_backfills = {tracked.split.table for tracked in self._unended.values()}
        return [table for table in self._all_read if table not in open_backfills and not self.tables[table].closed]

    def finish_table(self, table: TableId) -> None:
        """Go to pure log mode and let the split list go."""
        tracked = self.tables[table]
        self._move(table, Phase.INCREMENTAL if tracked.phase is Phase.INCREMENTAL else Phase.SNAPSHOT, Phase.LOG)
        self._all_read.discard(table)
        for split in tracked.opened:
            self._unended.pop(split, None)
        tracked.forget_splits()

    def _move(self, table: TableId, before: Phase, after: Phase) -> None:
        tracked = self.tables[table]
        assert tracked.phase is before, f"{table}: {tracked.phase.value} -> {after.value} is no legal step"
        tracked.phase = after


def _compare_high(one: TrackedSplit, other: TrackedSplit) -> int:
    assert one.high is not None
    assert other.high is not None
    return -1 if one.high.before(other.high) else int(other.high.before(one.high))


_PLAIN: Final = (ChangeDecision.PLAIN, None)
_DROP: Final = (ChangeDecision.DROP, None)
_HOLD: Final = (ChangeDecision.HOLD, None)
