"""Chunk splitter: divides the key range of a table into splits, lazily, one query at a time.

Dense numbers, integer or DECIMAL, are divided by arithmetic (evenly); for other keys the server returns the next bound
(unevenly). The methods and the distribution factor, (max - min + 1) / rows, follow Flink CDC. Statistics may be stale,
so they only choose the method, and a probe of the first bound must agree with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from tailrace.producer.model.codec import KeyTuple
from tailrace.producer.model.protocols import SnapshotSession, TableSize
from tailrace.producer.model.split import WHOLE, EndedRange, KeyColumn, Range, SortKey, Split
from tailrace.producer.model.table import TableId

_MOST_SCANS: Final = 100
"""Splits for each of which a table may be read completely."""
_PROBE_TOLERANCE: Final = 4
"""An even step is accepted if the probe finds between a quarter of and four times the requested rows in it."""


@dataclass(frozen=True, slots=True)
class SplitterSettings:
    """How to split."""

    size: int
    """Requested rows of a split."""
    max_bytes: int
    """Bytes of a split at most, by the average row of its table."""
    even_upper: float
    even_lower: float
    """Bounds of the distribution factor of evenly distributed keys."""


class ChunkSplitter:
    """Splits one table. Queries do not share a snapshot; rows above ``max_key`` are left to the stream."""

    def __init__(
        self,
        session: SnapshotSession,
        table: TableId,
        columns: Sequence[KeyColumn],
        settings: SplitterSettings,
    ) -> None:
        """``columns`` are the splitting columns of the table."""
        self._session = session
        self._table = table
        self._columns = tuple(columns)
        self._order = session.key_ordering(self._columns)
        self._settings = settings

    def max_key(self, table: TableSize) -> KeyTuple | None:
        """Return the current greatest key, or None: the table is empty or cannot be split on its key.

        Raises SourceError if the table has many splits, each of which would read all of it.
        """
        if not self._columns:
            return None
        if table.rows > _MOST_SCANS * self._settings.size:
            self._session.require_index(self._table, self._columns)
        return self._session.max_key(self._table, self._columns)

    def ranges(self, unread_ranges: Sequence[Range], table: TableSize) -> Iterator[Range]:
        """Yield ranges that cover ``unread_ranges`` exactly, each in key order."""
        size = min(self._settings.size, max(1, self._settings.max_bytes // max(1, table.row_bytes)))
        for unread in unread_ranges:
            if unread == WHOLE or not self._columns:
                yield unread
                continue
            step = self._even_step(unread, table.rows, size)
            yield from self._uneven(unread, size) if step is None else self._even(unread, step)

    def splits(
        self, ranges: Iterator[Range], snapshot: str, first_number: int, *, incremental: bool = False
    ) -> Iterator[Split]:
        """Yield numbered splits with the sort keys of their bounds."""
        for number, span in enumerate(ranges, first_number):
            lower, upper = self.sort_keys([span.lower, span.upper])
            yield Split(self._table, snapshot, number, span, lower, upper, incremental)

    def sort_key(self, key: KeyTuple | None) -> SortKey | None:
        return self.sort_keys([key])[0]

    def sort_keys(self, keys: Sequence[KeyTuple | None]) -> list[SortKey | None]:
        """Return the sort key of each bound; None for an open one."""
        found = iter(self._order.sort_keys([key for key in keys if key is not None]))
        return [None if key is None else next(found) for key in keys]

    def unread_ranges(self, greatest: KeyTuple | None, finished: Sequence[EndedRange]) -> list[Range]:
        """Return the ranges that these finished ones do not cover."""
        if greatest is None:
            return [] if finished else [WHOLE]
        unread: list[Range] = []
        edge: KeyTuple | None = None
        started = False
        for span in (each.range for each in sorted(finished, key=lambda each: each.lower_order or ())):
            if not started:
                if span.lower is not None:
                    unread.append(Range(None, span.lower))
            elif span.lower != edge:
                unread.append(Range(edge, span.lower))
            started, edge = True, span.upper
            if span.closed or span.upper is None:
                return unread
        return [*unread, Range(edge, greatest, closed=True)]

    def _even_step(self, unread: Range, estimated_rows: int, size: int) -> int | None:
        settings = self._settings
        if len(self._columns) != 1 or not _is_number(self._columns[0]) or unread.upper is None:
            return None
        least = unread.lower or self._session.min_key(self._table, self._columns, unread)
        if least is None or estimated_rows <= size:
            return None
        low, high = _units(least), _units(unread.upper)
        factor = (high - low + 1) / estimated_rows
        if not settings.even_lower <= factor <= settings.even_upper:
            return None
        step = max(1, round(factor * size))
        probe = self._session.next_bound(self._table, self._columns, unread, size)
        if probe is None:
            return None
        width = _units(probe) - low
        return step if width / _PROBE_TOLERANCE <= step <= width * _PROBE_TOLERANCE else None

    def _even(self, unread: Range, step: int) -> Iterator[Range]:
        assert unread.upper is not None
        least = unread.lower or self._session.min_key(self._table, self._columns, unread)
        high = _units(unread.upper)
        # Python's integers do not overflow, so the loop may compare with the last bound and needs no limit of the type.
        bound = (high if least is None else _units(least)) + step
        lower = unread.lower
        while bound < high:
            key = self._key(bound)
            yield Range(lower, key)
            lower, bound = key, bound + step
        yield Range(lower, unread.upper, unread.closed)

    def _key(self, units: int) -> KeyTuple:
        column = self._columns[0]
        return (units if column.is_integer else Decimal(f"{units}e-{column.column.scale}"),)

    def _uneven(self, unread: Range, size: int) -> Iterator[Range]:
        rest = unread
        while True:
            bound = self._session.next_bound(self._table, self._columns, rest, size)
            if bound is not None and rest.lower is not None and self.sort_key(bound) == self.sort_key(rest.lower):
                bound = self._session.bound_after(self._table, self._columns, bound, rest)
            # No row: the range has fewer rows than requested, or has lost them since. The rest is one split.
            if bound is None or (rest.upper is not None and self._reaches(bound, rest)):
                yield rest
                return
            yield Range(rest.lower, bound)
            rest = Range(bound, rest.upper, rest.closed)

    def _reaches(self, bound: KeyTuple, rest: Range) -> bool:
        """Whether a bound is at the end of the range: a split there would leave an empty rest."""
        return not rest.closed and self.sort_key(bound) == self.sort_key(rest.upper)


def _is_number(column: KeyColumn) -> bool:
    return column.is_integer or column.column.data_type == "decimal"


def _units(key: KeyTuple) -> int:
    """Return a number in units of its last digit; all values of a DECIMAL column have the same number of digits."""
    value = key[0]
    if isinstance(value, Decimal):
        return int(f"{value:f}".replace(".", ""))
    assert isinstance(value, int)
    return value
