"""Planner: cuts the key ranges of one table into splits, lazily, a query at a time.

Integer keys that lie densely are cut by arithmetic (even); all others by asking the server for the next bound (uneven).
The methods and the distribution factor, (max - min + 1) / rows, follow Flink CDC. Statistics may be stale, so they only
choose the method, and a probe of the first bound must agree with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tailrace.producer.model.codec import KeyTuple
from tailrace.producer.model.split import WHOLE, Range, Split
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql import split_sql
from tailrace.producer.mysql.key_order import INTEGERS, KeyColumn, KeyOrder, from_select

RunQuery = Callable[[str], Sequence[tuple[Any, ...]]]

_PROBE_TOLERANCE: Final = 4
"""An even step is believed when the probe finds between a quarter of and four times the wanted rows in it."""


@dataclass(frozen=True, slots=True)
class SplitterSettings:
    """How to cut."""

    size: int = 8192
    """Wanted rows of a split."""
    even_upper: float = 100.0
    even_lower: float = 0.05
    """Bounds of the distribution factor within which a key counts as evenly distributed."""


class ChunkSplitter:
    """Plans one table. Every query sees its own moment; rows above ``greatest`` are the log's business."""

    def __init__(self, table: TableId, order: KeyOrder, run: RunQuery, settings: SplitterSettings) -> None:
        self._table = table
        self._order = order
        self._columns: tuple[KeyColumn, ...] = order.columns
        self._run = run
        self._settings = settings

    def greatest(self) -> KeyTuple | None:
        """Return the greatest key now, or None: the table is empty or its key cannot be cut."""
        if not self._columns:
            return None
        return self._one(split_sql.greatest_key(self._table, self._columns))

    def ranges(self, unread_ranges: Sequence[Range], estimated_rows: int) -> Iterator[Range]:
        """Yield ranges that cover the gaps exactly, in key order within each."""
        for gap in unread_ranges:
            if gap == WHOLE or not self._columns:
                yield gap
                continue
            step = self._even_step(gap, estimated_rows)
            yield from self._uneven(gap) if step is None else self._even(gap, step)

    def splits(
        self, ranges: Iterator[Range], snapshot: str, first_number: int, *, incremental: bool = False
    ) -> Iterator[Split]:
        """Yield numbered splits with the order of their bounds."""
        for number, span in enumerate(ranges, first_number):
            lower, upper = self.place(span.lower), self.place(span.upper)
            yield Split(self._table, snapshot, number, span, lower, upper, incremental)

    def place(self, key: KeyTuple | None) -> tuple[Any, ...] | None:
        """Return the order of one bound."""
        return None if key is None else self._order.place([key])[0]

    def unread_ranges(self, greatest: KeyTuple | None, finished: Sequence[Split]) -> list[Range]:
        """Return what is left of the plan when these splits are done: the complement of their ranges."""
        if greatest is None:
            return [] if finished else [WHOLE]
        left: list[Range] = []
        edge: KeyTuple | None = None
        started = False
        for split in sorted(finished, key=lambda s: s.lower_order or ()):
            if not started:
                if split.range.lower is not None:
                    left.append(Range(None, split.range.lower))
            elif split.range.lower != edge:
                left.append(Range(edge, split.range.lower))
            started, edge = True, split.range.upper
            if split.range.closed or split.range.upper is None:
                return left
        return [*left, Range(edge, greatest, closed=True)]

    def _even_step(self, gap: Range, estimated_rows: int) -> int | None:
        settings = self._settings
        if len(self._columns) != 1 or self._columns[0].column.data_type not in INTEGERS or gap.upper is None:
            return None
        least = gap.lower or self._one(split_sql.least_key(self._table, self._columns, gap))
        if least is None or estimated_rows <= settings.size:
            return None
        low, high = _integer(least), _integer(gap.upper)
        factor = (high - low + 1) / estimated_rows
        if not settings.even_lower <= factor <= settings.even_upper:
            return None
        step = max(1, round(factor * settings.size))
        probe = self._one(split_sql.next_bound(self._table, self._columns, gap, settings.size))
        if probe is None:
            return None
        width = _integer(probe) - low
        return step if width / _PROBE_TOLERANCE <= step <= width * _PROBE_TOLERANCE else None

    def _even(self, gap: Range, step: int) -> Iterator[Range]:
        assert gap.upper is not None
        least = gap.lower or self._one(split_sql.least_key(self._table, self._columns, gap))
        high = _integer(gap.upper)
        # Python's integers do not overflow, and the loop ends by comparing with the last bound, not with a type's edge.
        cut = (high if least is None else _integer(least)) + step
        lower = gap.lower
        while cut < high:
            yield Range(lower, (cut,))
            lower, cut = (cut,), cut + step
        yield Range(lower, gap.upper, gap.closed)

    def _uneven(self, gap: Range) -> Iterator[Range]:
        rest = gap
        while True:
            bound = self._one(split_sql.next_bound(self._table, self._columns, rest, self._settings.size))
            if bound is not None and rest.lower is not None and self.place(bound) == self.place(rest.lower):
                bound = self._one(split_sql.bound_after(self._table, self._columns, bound, rest))
            # No row means the range has fewer rows than wanted (or lost them since): what is left is one split.
            if bound is None or (rest.upper is not None and self._reaches(bound, rest)):
                yield rest
                return
            yield Range(rest.lower, bound)
            rest = Range(bound, rest.upper, rest.closed)

    def _reaches(self, bound: KeyTuple, rest: Range) -> bool:
        """Tell whether a bound is at the end of the range, so that a cut there would leave an empty rest."""
        return not rest.closed and self.place(bound) == self.place(rest.upper)

    def _one(self, sql: str) -> KeyTuple | None:
        rows = self._run(sql)
        if not rows:
            return None
        return tuple(from_select(c.column, value) for c, value in zip(self._columns, rows[0], strict=True))


def _integer(key: KeyTuple) -> int:
    value = key[0]
    assert isinstance(value, int)
    return value
