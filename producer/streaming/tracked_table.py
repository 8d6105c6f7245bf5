"""One table in the registry: its splits without END certificate, and the ranges of those that have one.

They cut the keys of the table into spans, each with one decision on its changes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from tailrace.producer.model.binlog_events import TransactionBegin
from tailrace.producer.model.protocols import KeyOrdering, Offset
from tailrace.producer.model.split import EndedRange, SortKey, Split
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableFault, TableMode, TablePresence, check_transition
from tailrace.schemas.names import INCREMENTAL_HEADER, SPLIT_HEADER

if TYPE_CHECKING:
    from tailrace.producer.native.codec import KeyCover


class ChangeDecision(Enum):
    """What to do with a change of one key."""

    SKIP = "skip"
    HOLD = "hold"
    EMIT = "emit"
    BACKFILL = "backfill"


class HasPosition(Protocol):
    """Something with an offset that is made when it is asked for."""

    @property
    def position(self) -> Offset:
        """Return the offset."""


Decision = tuple[ChangeDecision, "TrackedSplit | None"]
"""With the split that a change is held for, or whose backfill it is."""

EMIT: Final[Decision] = (ChangeDecision.EMIT, None)
SKIP: Final[Decision] = (ChangeDecision.SKIP, None)

WITH_SPLITS: Final = (TableMode.SNAPSHOT, TableMode.RESTARTING, TableMode.INCREMENTAL)
"""The modes in which the splits of a table decide on its changes."""


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
    """The split will not be read: its table is missing, or it will be opened again."""
    _transaction: TransactionBegin | None = None
    _decision: Decision | None = None
    """On the changes of ``_transaction``; None: backfill of the split, which must not refer to itself."""

    @property
    def header(self) -> tuple[str, bytes]:
        return INCREMENTAL_HEADER if self.split.incremental else SPLIT_HEADER, self.id.encode()

    @property
    def being_read(self) -> bool:
        return self.high is None and not self.abandoned

    def decide_committed(self, transaction: TransactionBegin, begin: HasPosition, *, incremental: bool) -> Decision:
        """Return the decision on the changes of a transaction that begins at the position of ``begin``.

        It is kept for the rest of the transaction. The split is committed, in a snapshot of one kind.
        """
        if transaction is not self._transaction:
            assert self.low is not None
            assert self.high is not None
            self._transaction = transaction
            if not incremental and self.low.contains(transaction):
                self._decision = SKIP
            # HW lies between transactions: a transaction is at or before HW exactly if it begins before HW.
            elif begin.position.before(self.high):
                self._decision = None
            else:
                self._decision = EMIT
        return self._decision or (ChangeDecision.BACKFILL, self)


Span = Decision | TrackedSplit
"""What decides on the changes of neighboring keys: a committed split decides for each transaction."""

Start = tuple[SortKey, int]
"""Where a span begins: at a key (0), or behind it (1)."""

_LEAST: Final[Start] = ((), 0)
"""Before every key."""


@dataclass(slots=True, eq=False)
class KeySpans:
    """The keys of a table under snapshot, cut where the decisions differ."""

    starts: list[Start]
    spans: list[Span]
    cover: KeyCover | None = None
    """The same for the compiled extension (``change_emitter.py``), if it was asked for."""

    def begin(self, start: Start, span: Span) -> None:
        """Begin a span; it replaces those that begin there or later."""
        while self.starts and not self.starts[-1] < start:
            self.starts.pop()
            self.spans.pop()
        self.starts.append(start)
        self.spans.append(span)

    def find(self, key: SortKey) -> Span:
        return self.spans[bisect_right(self.starts, (key, 0)) - 1]


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
    fault: TableFault | None = None
    """Why the table is in error, if it has been captured; kept while it is read again, which may not be completed."""
    opened: dict[str, TrackedSplit] = field(default_factory=dict)
    """Splits that are being read, or committed without END."""
    _above: TrackedSplit | None = None
    """The split of the keys above the greatest planned one; None after its END."""
    _spans: KeySpans | None = None
    """None: not made since the table changed."""
    _lowers: list[SortKey] = field(default_factory=list)
    _ordered: list[TrackedSplit | EndedRange] = field(default_factory=list)

    def move_to(self, mode: TableMode) -> None:
        """Change the mode. Raises IllegalTransitionError if the step is not allowed."""
        check_transition(self.id, self.mode, mode)
        self.mode = mode
        self._spans = None

    def plan(self, greatest: SortKey | None) -> None:
        self.greatest = greatest
        self._spans = None

    def compare_by(self, order: KeyOrdering) -> None:
        self.order = order
        self._spans = None

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
        self._spans = None
        if split.range.lower_open:
            self._above = tracked
        else:
            self._insert(tracked, split.lower_order)
        return tracked

    def add_ended(self, ended: EndedRange) -> None:
        """Restore a range whose splits had ended before a restart."""
        self._insert(ended, ended.lower_order)

    def commit(self, split_id: str, low: Offset, high: Offset, *, rows: int, backfill: int) -> TrackedSplit:
        """The rows of an opened split are in Kafka."""
        tracked = self.opened[split_id]
        assert tracked.high is None, f"split {split_id} committed twice"
        tracked.low, tracked.high, tracked.rows, tracked.backfill = low, high, rows, backfill
        self._spans = None
        return tracked

    def abandon(self, split_id: str) -> None:
        """An opened split will not be read: the table is missing."""
        self.opened.pop(split_id).abandoned = True
        self._spans = None

    def close(self, split_id: str) -> None:
        """An opened split could not be read yet: nothing of it is in Kafka, and it will be opened again."""
        tracked = self.opened.pop(split_id)
        tracked.abandoned = True  # who waits for this reader waits no longer
        at = self._ordered.index(tracked)
        del self._lowers[at], self._ordered[at]
        self._spans = None

    def _insert(self, covers: TrackedSplit | EndedRange, lower: SortKey | None) -> None:
        lower = lower if lower is not None else ()  # () sorts before every key
        at = bisect_right(self._lowers, lower)
        self._lowers.insert(at, lower)
        self._ordered.insert(at, covers)
        self._spans = None

    def end(self, tracked: TrackedSplit) -> tuple[EndedRange | None, EndedRange | None]:
        """Join an ended split with the ended ranges that it touches; return the new range and one that it absorbed.

        The new range keeps the number of a range that it replaces, the absorbed one's number is free. None for the
        split above the greatest key: changes there need no range to be emitted.
        """
        del self.opened[tracked.id]
        self._spans = None
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

    @property
    def spans(self) -> KeySpans | None:
        """The spans of the table's keys; None: no splits decide on its changes."""
        if self._spans is None and self.mode in WITH_SPLITS:
            self._spans = self._cut()
        return self._spans

    def _cut(self) -> KeySpans:
        unread = EMIT if self.mode is TableMode.INCREMENTAL else SKIP
        found = KeySpans([_LEAST], [unread])
        for lower, each in zip(self._lowers, self._ordered, strict=True):
            covers = each.split if isinstance(each, TrackedSplit) else each
            found.begin((lower, 0), _span(each, unread))
            if covers.upper_order is not None:
                found.begin((covers.upper_order, int(covers.range.closed)), unread)
        if self.greatest is not None:
            found.begin((self.greatest, 1), EMIT if self._above is None else _span(self._above, unread))
        return found

    def end_snapshot(self) -> None:
        """Forget the snapshot that is complete or cancelled."""
        self.presence = TablePresence.PRESENT
        self.order = self.greatest = self._above = self._spans = None
        self.opened.clear()
        self._lowers.clear()
        self._ordered.clear()


def _span(covers: TrackedSplit | EndedRange, unread: Decision) -> Span:
    if isinstance(covers, EndedRange):
        return EMIT
    if covers.high is not None:
        return covers
    return unread if covers.abandoned else (ChangeDecision.HOLD, covers)
