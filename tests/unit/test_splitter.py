"""Bounds of splits without a server: what the chunk splitter asks for."""

from __future__ import annotations

import re
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.producer.model.protocols import TableSize
from tailrace.producer.model.split import EndedRange, KeyColumn, Range
from tailrace.producer.model.table import Column, TableId
from tailrace.producer.mysql.key_order import KeyOrder
from tailrace.producer.snapshot.splitter import ChunkSplitter, SplitterSettings

TABLE = TableId("shop", "orders")
NAME = KeyColumn(Column("name", "varchar", nullable=False, charset="utf8mb4"), "utf8mb4_bin")


class Session:
    """Answers for the weights of text, as a binary collation has them, and counts the requests."""

    def __init__(self) -> None:
        self.requests = 0

    def key_ordering(self, columns: tuple[KeyColumn, ...]) -> KeyOrder:
        """Return an order that asks this session."""
        return KeyOrder(columns, self._query)

    def _query(self, sql: str) -> tuple[Any, ...]:
        self.requests += 1
        return tuple(bytes.fromhex(text) for text in re.findall(r"x'([0-9a-f]*)'", sql))


def _splitter(session: Any) -> ChunkSplitter:
    return ChunkSplitter(session, TABLE, (NAME,), SplitterSettings(10, 1000, 100.0, 0.05))


def test_the_bounds_of_many_splits_are_ordered_in_few_requests() -> None:
    """A restart orders every stored bound of a text key."""
    session = Session()
    bounds = [None, *((f"k{n:04d}".encode(),) for n in range(1000)), None]

    orders = _splitter(session).sort_keys(bounds)

    assert session.requests == 3
    assert orders == bounds


def test_unread_ranges_are_the_gaps_between_ended_ranges() -> None:
    splitter = _splitter(SimpleNamespace(key_ordering=lambda _columns: None))

    def ended(lower: bytes | None, upper: bytes) -> EndedRange:
        low, high = (lower,) if lower is not None else None, (upper,)
        return EndedRange(TABLE, "s", 0, 9, Range(low, high), low, high, splits=3, rows=30)

    assert splitter.unread_ranges((b"z",), []) == [Range(None, (b"z",), closed=True)]
    assert splitter.unread_ranges((b"z",), [ended(b"f", b"k"), ended(None, b"c")]) == [
        Range((b"c",), (b"f",)),
        Range((b"k",), (b"z",), closed=True),
    ]


@pytest.mark.parametrize(("row_bytes", "rows"), [(0, 10), (100, 10), (101, 9), (400, 2), (5000, 1)])
@pytest.mark.parametrize("even", [True, False])
def test_a_split_of_wide_rows_has_fewer_of_them(row_bytes: int, rows: int, even: bool) -> None:
    """The rest of a plan that was begun with other sizes is covered as well."""
    keys = range(100) if even else [n * n for n in range(100)]
    greatest = (keys[-1],)

    def next_bound(_table: TableId, _columns: object, within: Range, size: int) -> tuple[int] | None:
        found = [key for key in keys if within.lower is None or (key,) >= within.lower]
        return (found[size],) if size < len(found) else None

    session = SimpleNamespace(
        key_ordering=lambda columns: KeyOrder(columns, Session()._query),
        min_key=lambda *_: (0,),
        next_bound=next_bound,
    )
    number = KeyColumn(Column("id", "int", nullable=False), is_integer=True)
    splitter = ChunkSplitter(session, TABLE, (number,), SplitterSettings(10, 1000, 1.5, 0.05))
    read = EndedRange(TABLE, "s", 0, 9, Range(None, (keys[30],)), None, (keys[30],), splits=3, rows=30)

    finished: list[list[EndedRange]] = [[], [read]]
    for ended in finished:
        unread = splitter.unread_ranges(greatest, ended)
        ranges = [*splitter.ranges(unread, TableSize(100 - 30 * len(ended), row_bytes))]
        begins = [len([key for key in keys if each.lower and (key,) < each.lower]) for each in ranges]
        assert {right - left for left, right in pairwise(begins)} == {rows}
        assert 0 < 100 - begins[-1] <= rows + even
        assert ranges[0].lower == unread[0].lower
        assert (ranges[-1].upper, ranges[-1].closed) == (greatest, True)
        assert all(left.upper == right.lower for left, right in pairwise(ranges))
