"""The tables and splits that the stream knows, and the decision on a change of a key: the one-pass rules, without I/O.

The mode of a table (``model/table_mode.py``) decides first. In an initial snapshot (mode SNAPSHOT) the split of the
key decides. The keys above the greatest planned one are a split too: without rows, committed when the plan starts::

    (not opened) ──open──> OPEN ──commit(LW, HW)──> COMMITTED ──binlog passes HW──> ENDED
                 <──close──   (its reader could not read it, nothing of it is in Kafka)

    not opened  skip: the split will be read later, and its rows will contain the change
    OPEN        hold; what is held when the split is closed is skipped, see the invariant
    COMMITTED   up to LW skip, up to HW backfill of the split, after HW emit
    ENDED       emit

In an incremental snapshot (mode INCREMENTAL) no change is ever skipped, because readers of the topic rely on each one::

    not opened  emit: the change precedes the split's rows, which will contain it
    OPEN        hold: the rows must not follow a change that they do not contain
    COMMITTED   up to HW backfill of the split, even up to LW; after HW emit
    ENDED       emit

If readers no longer find a table, its unread splits are abandoned: an initial snapshot skips their changes.

Ended splits that touch are kept as one range, and committed ones in a heap by HW, so that neither memory nor the work
per transaction grows with the number of splits.

Invariant: within its partition, a key of a split has the snapshot row first and then every change after LW, in binlog
order.

Invariant: a change that is skipped is contained in every LW that its split can still get. Each opening, and each plan,
takes a barrier which includes the transaction that the stream is in, so what was skipped or emitted before is visible
to the SELECT. Closing a split or giving up a plan is therefore the same as never having begun it: no change of it was
passed while it was open, since each was held. The keys above the greatest one need no rule of their own: a plan that is
given up has no greatest key, and the next one takes LW, greatest key and HW again, behind a barrier that includes what
was held.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from tailrace.producer.model.binlog_events import QueryEvent, TransactionBegin, TransactionCommit
from tailrace.producer.model.protocols import Offset
from tailrace.producer.model.split import EndedRange, SortKey, Split
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableMode, check_transition
from tailrace.producer.streaming.tracked_table import (
    EMIT,
    SKIP,
    ChangeDecision,
    Decision,
    HasPosition,
    TrackedSplit,
    TrackedTable,
)


class Ending(NamedTuple):
    """A split that has ended, and what that changes in the ranges of ended splits."""

    split: TrackedSplit
    merged: EndedRange | None
    """The range that now contains the split; None: the split of the keys above the greatest planned one."""
    absorbed: EndedRange | None
    """A former range that ``merged`` contains too and whose number it does not have."""


class _ByHigh:
    """Orders committed splits by HW, for the heap."""

    __slots__ = ("high", "tracked")

    def __init__(self, tracked: TrackedSplit) -> None:
        assert tracked.high is not None
        self.tracked = tracked
        self.high = tracked.high

    def __lt__(self, other: _ByHigh) -> bool:
        return self.high.before(other.high)


class SplitRegistry:
    """All captured tables. Used by the stream's thread only, so it needs no lock."""

    def __init__(self) -> None:
        self.tables: dict[TableId, TrackedTable] = {}
        self.former: set[str] = set()
        """Names of former tables whose rows are in their topics (``former_tables.py``)."""
        self._all_read: set[TableId] = set()
        self._complete: set[TableId] = set()
        """Tables in ``_all_read`` without opened splits."""
        self._committed: list[_ByHigh] = []
        """Heap of the committed splits that have not ended, the least HW first."""
        self._uncounted: dict[str, TrackedSplit] = {}
        """Splits whose backfill count changed since it was stored."""

    # -- tables ------------------------------------------------------------------------------------------------------

    def track(self, table: TableId, mode: TableMode) -> TrackedTable:
        check_transition(table, None, mode)
        tracked = TrackedTable(table, mode)
        self.tables[table] = tracked
        return tracked

    def start_planning(self, table: TableId) -> None:
        """Hold the table's changes from here on: its greatest key is about to be read."""
        self.tables[table].move_to(TableMode.PLANNING)

    def stop_planning(self, table: TableId) -> None:
        """Skip the table's changes again, those that are held too: it will be planned behind a later barrier."""
        self.tables[table].move_to(TableMode.WAITING)

    def set_range(self, table: TableId, greatest: SortKey | None) -> None:
        """Set the greatest planned key; None: the splits are unbounded."""
        self.tables[table].move_to(TableMode.SNAPSHOT)
        self.tables[table].plan(greatest)

    def start_incremental(self, table: TableId) -> None:
        self.tables[table].move_to(TableMode.INCREMENTAL)

    def restart(self, table: TableId) -> None:
        """Open no more splits: the initial snapshot of the table restarts when its open splits are committed."""
        self.tables[table].move_to(TableMode.RESTARTING)

    def mark_all_read(self, table: TableId) -> None:
        self._all_read.add(table)
        self._check_complete(self.tables[table])

    def _check_complete(self, table: TrackedTable) -> None:
        if not table.opened and table.id in self._all_read:
            self._complete.add(table.id)

    def finished_tables(self) -> list[TableId]:
        """Return the tables whose snapshot is complete: everything is read and ended."""
        running = {TableMode.SNAPSHOT, TableMode.INCREMENTAL}
        return [table for table in self._complete if self.tables[table].mode in running]

    def finish_table(self, table: TableId) -> None:
        """Only stream the table from here on, and forget its splits."""
        tracked = self.tables[table]
        tracked.move_to(TableMode.STREAMING)
        self._drop_splits(tracked)
        tracked.end_snapshot()

    def abandon(self, table: TableId) -> None:
        """Leave out the rest of a missing table's snapshot; committed splits continue to their ends."""
        if self.tables[table].mode is TableMode.PLANNING:
            self.set_range(table, None)

    def forget(self, table: TableId) -> list[TrackedSplit]:
        """Track a table no longer; return its committed splits that have not ended."""
        tracked = self.tables.pop(table)
        self._drop_splits(tracked)
        return [split for split in tracked.opened.values() if split.high is not None]

    def _drop_splits(self, table: TrackedTable) -> None:
        """Let nothing refer to the splits of a table."""
        self._all_read.discard(table.id)
        self._complete.discard(table.id)
        if table.opened:
            self._committed = [each for each in self._committed if each.tracked.split.table != table.id]
            heapify(self._committed)
            for split_id in table.opened:
                self._uncounted.pop(split_id, None)

    # -- splits ------------------------------------------------------------------------------------------------------

    def open(self, split: Split) -> None:
        """Hold the split's changes: a reader is about to take its low watermark."""
        table = self.tables[split.table]
        assert table.mode in {TableMode.SNAPSHOT, TableMode.INCREMENTAL}, f"{split.id} opened in mode {table.mode}"
        table.add(split)

    def commit(self, split: Split, low: Offset, high: Offset, *, rows: int = 0, backfill: int = 0) -> None:
        """The split's rows are in Kafka."""
        tracked = self.tables[split.table].commit(split.id, low, high, rows=rows, backfill=backfill)
        heappush(self._committed, _ByHigh(tracked))

    def abandon_split(self, split: Split) -> None:
        """The split will not be read: its table is missing."""
        table = self.tables[split.table]
        table.abandon(split.id)
        self._check_complete(table)

    def close(self, split: Split) -> None:
        """The split will be opened again later, behind a later barrier: its reader has aborted its transaction."""
        self.tables[split.table].close(split.id)

    def end_passed(self, offset: Offset) -> list[Ending]:
        """End the splits whose HW is at or before ``offset``; return them in order of HW."""
        heap = self._committed
        passed = []
        while heap and not offset.before(heap[0].high):
            passed.append(self._end(heappop(heap).tracked))
        return passed

    def _end(self, tracked: TrackedSplit) -> Ending:
        table = self.tables[tracked.split.table]
        self._uncounted.pop(tracked.id, None)
        merged, absorbed = table.end(tracked)
        self._check_complete(table)
        return Ending(tracked, merged, absorbed)

    def restore_ended(self, ended: EndedRange) -> None:
        self.tables[ended.table].add_ended(ended)

    def reaches_end(self, event: TransactionCommit | QueryEvent) -> bool:
        """Return whether a split ends with a transaction that has just been passed, or a table is to be finished."""
        return bool(self._complete) or (bool(self._committed) and self._committed[0].high.reached_by(event))

    @property
    def may_end(self) -> bool:
        """Whether ``reaches_end`` must be asked at each commit."""
        return bool(self._complete) or bool(self._committed)

    @property
    def waiting_for_end(self) -> int:
        return len(self._committed)

    def count_backfill(self, split: TrackedSplit, records: int = 1) -> None:
        split.backfill += records
        self._uncounted[split.id] = split

    def take_backfill_counts(self) -> dict[str, int]:
        """Return the backfill counts that changed since the last call, by split id."""
        counts = {split_id: tracked.backfill for split_id, tracked in self._uncounted.items()}
        self._uncounted.clear()
        return counts

    # -- changes -----------------------------------------------------------------------------------------------------

    def decide(self, table: TrackedTable, key: SortKey, transaction: TransactionBegin, begin: HasPosition) -> Decision:
        """Return the decision for a change of ``key`` in a transaction, which begins at the position of ``begin``."""
        mode, spans = table.mode, table.spans
        if spans is not None:
            span = spans.find(key)
            if isinstance(span, TrackedSplit):
                return span.decide_committed(transaction, begin, incremental=mode is _INCREMENTAL)
            return span
        if mode is TableMode.PLANNING:
            return _HOLD
        return EMIT if mode is TableMode.STREAMING else SKIP


_HOLD: Final = (ChangeDecision.HOLD, None)
_INCREMENTAL: Final = TableMode.INCREMENTAL
