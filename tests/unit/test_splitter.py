"""Bounds of splits without a server: what the chunk splitter asks for."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

from tailrace.producer.model.split import EndedRange, KeyColumn, Range
from tailrace.producer.model.table import Column, TableId
from tailrace.producer.mysql.key_order import KeyOrder
from tailrace.producer.snapshot.splitter import ChunkSplitter, SplitterSettings

TABLE = TableId("shop", "orders")
NAME = KeyColumn(Column("name", "varchar", nullable=False, charset="utf8mb4"), "utf8mb4_bin", max_chars=20)


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
    return ChunkSplitter(session, TABLE, (NAME,), SplitterSettings(10, 100.0, 0.05))


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
