"""One table in the registry: its splits without END certificate, and the ranges of those that have one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

from tailrace.producer.model.binlog_events import TransactionBegin
from tailrace.producer.model.protocols import KeyOrdering, Offset
from tailrace.producer.model.split import EndedRange, SortKey, Split
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableMode, TablePresence, check_transition


@dataclass(slots=True, eq=False)
class TrackedSplit:
    """A split that has been opened and has not ended."""

    split: Split
    id: str
    """The split's id, computed once."""
    low: Offset | None = None
    high: Offset | None = None
    rows: int = 0
    backfill: int = 0
    """Change records written with the split's header so far, tombstones not counted."""
    abandoned: bool = False
    """The split will not be read: its table is missing."""
    _transaction: TransactionBegin | None = None
    _in_snapshot: bool = False

    def holds(self, key: SortKey) -> bool:
        """Return whether a key lies in the split."""
        return self.split.holds(key)

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


@dataclass(slots=True, eq=False)
class TrackedTable:
    """One table. What covers a key is found by the lower bounds of splits and ended ranges, which are disjoint."""

    id: TableId
    mode: TableMode
    presence: TablePresence = TablePresence.PRESENT
    greatest: SortKey | None = None
    """Greatest planned key; None in mode SNAPSHOT: the splits are unbounded."""
    order: KeyOrdering | None = None
    """How the table's keys compare; None unless a snapshot of the table is running."""
    opened: dict[str, TrackedSplit] = field(default_factory=dict)
    """Splits that are being read, or committed without END."""
    _above: TrackedSplit | None = None
    """The split of the keys above the greatest planned one; None after its END."""
    _lowers: list[SortKey] = field(default_factory=list)
    _ordered: list[TrackedSplit | EndedRange] = field(default_factory=list)

    def move_to(self, mode: TableMode) -> None:
        """Change the mode. Raises IllegalTransitionError if the step is not allowed."""
        check_transition(self.id, self.mode, mode)
        self.mode = mode

    @property
    def being_read(self) -> bool:
        """Whether the table is being planned, or a reader is active on one of its splits."""
        return self.mode is TableMode.PLANNING or any(split.being_read for split in self.opened.values())

    @property
    def ended_ranges(self) -> list[EndedRange]:
        """The ranges of ended splits, in key order."""
        return [each for each in self._ordered if isinstance(each, EndedRange)]

    def add(self, split: Split) -> TrackedSplit:
        """Open a split; opening one twice is an error in the caller."""
        tracked = TrackedSplit(split, split.id)
        assert tracked.id not in self.opened, f"split {tracked.id} opened twice"
        self.opened[tracked.id] = tracked
        if split.range.lower_open:
            self._above = tracked
        else:
            self._insert(tracked, split.lower_order)
        return tracked

    def add_ended(self, ended: EndedRange) -> None:
        """Restore a range whose splits had ended before a restart."""
        self._insert(ended, ended.lower_order)

    def _insert(self, covers: TrackedSplit | EndedRange, lower: SortKey | None) -> None:
        lower = lower if lower is not None else ()  # () sorts before every key
        at = bisect_right(self._lowers, lower)
        self._lowers.insert(at, lower)
        self._ordered.insert(at, covers)

    def end(self, tracked: TrackedSplit) -> tuple[EndedRange | None, EndedRange | None]:
        """Join an ended split with the ended ranges that it touches; return the new range and one that it absorbed.

        The new range keeps the number of a range that it replaces, the absorbed one's number is free. None for the
        split above the greatest key: changes there need no range to be emitted.
        """
        del self.opened[tracked.id]
        if tracked is self._above:
            self._above = None
            return None, None
        at = bisect_left(self._lowers, tracked.split.lower_order or ())
        assert self._ordered[at] is tracked
        merged, absorbed = EndedRange.of(tracked.split, tracked.rows), None
        before = self._ordered[at - 1] if at > 0 else None
        after = self._ordered[at + 1] if at + 1 < len(self._ordered) else None
        if isinstance(after, EndedRange) and merged.touches(after):
            merged = merged.joined(after, number=after.number)
            del self._lowers[at + 1], self._ordered[at + 1]
        else:
            after = None
        if isinstance(before, EndedRange) and before.touches(merged):
            merged, absorbed = before.joined(merged, number=before.number), after
            del self._lowers[at], self._ordered[at]
            at -= 1
        self._ordered[at] = merged
        return merged, absorbed

    def find(self, key: SortKey) -> TrackedSplit | EndedRange | None:
        """Return the opened split or the ended range that contains the key, or None."""
        if self.greatest is not None and key > self.greatest:
            return self._above
        at = bisect_right(self._lowers, key) - 1
        if at < 0:
            return None
        found = self._ordered[at]
        return found if found.holds(key) else None

    def end_snapshot(self) -> None:
        """Forget the snapshot that is complete or cancelled."""
        self.presence = TablePresence.PRESENT
        self.order = self.greatest = self._above = None
        self.opened.clear()
        self._lowers.clear()
        self._ordered.clear()
