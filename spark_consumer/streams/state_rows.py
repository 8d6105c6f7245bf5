"""The rows that the operators keep of a key, and what changelog entries change in them, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from tailrace.schemas.rowkind import RowKind


def is_late(order: list[int], known: list[int], *, is_add: bool) -> bool:
    """Return whether an entry is about an older version than the one that is known, by the orders of both.

    A retract precedes the add of its order.
    """
    return order < known or (order == known and not is_add)


class KeptRow(NamedTuple):
    """A row of the list."""

    order: list[int]
    """That of the entry that added it."""
    upsert_key: str
    """Empty if the stream has no upsert key: the row identifies itself."""
    row: str


class RowEntry(NamedTuple):
    """A changelog entry. Entries sort by ``order``; the retract of an update comes before its add."""

    order: list[int]
    is_add: bool
    upsert_key: str
    row: str


class KeptRows:
    """The list of one target key: the rows that were added and not retracted, the last one is in the target.

    With ``ignore_late``, an entry whose order is not later than that of the row it would change is ignored.
    """

    def __init__(self, rows: Iterable[KeptRow], *, keyed: bool, ignore_late: bool = False) -> None:
        self.rows = list(rows)
        self._keyed = keyed
        self._ignore_late = ignore_late
        self.unmatched = 0
        """Retracts without a matching row."""

    @property
    def last(self) -> str | None:
        """The row that the target has, None if it has no row of this key."""
        return self.rows[-1].row if self.rows else None

    def apply(self, entries: Iterable[RowEntry]) -> None:
        """Apply the entries of a micro-batch in their order."""
        for entry in sorted(entries):
            at = self._find(entry)
            if at is not None and self._ignore_late and is_late(entry.order, self.rows[at].order, is_add=entry.is_add):
                continue
            if entry.is_add:
                # Without an upsert key, two equal rows are two rows: each has its own retract.
                if self._keyed and at is not None:
                    del self.rows[at]
                self.rows.append(KeptRow(entry.order, entry.upsert_key, entry.row))
            elif at is not None:
                del self.rows[at]
            else:
                self.unmatched += 1

    def _find(self, entry: RowEntry) -> int | None:
        for at, kept in enumerate(self.rows):
            if kept.upsert_key == entry.upsert_key if self._keyed else kept.row == entry.row:
                return at
        return None


class SideRow(NamedTuple):
    """The present version of a row."""

    order: list[int]
    row: str


class SideEntry(NamedTuple):
    """A changelog entry of one side. Entries sort by ``order``; the retract of an update comes before its add."""

    order: list[int]
    is_add: bool
    is_left: bool
    key: str
    """The key of the row in its table."""
    ignore_late: bool
    """Whether the entry is ignored if the row has a later order."""
    kind: str
    row: str


class JoinChange(NamedTuple):
    """A changelog entry of the join."""

    kind: str
    left: str
    right: str
    order: list[int]


class StoredRows(Protocol):
    """The rows of one side in the state store."""

    def get(self, key: str) -> SideRow | None:
        """Return a row."""

    def items(self) -> Iterable[tuple[str, SideRow]]:
        """Return all rows with their keys."""

    def put(self, key: str, row: SideRow) -> None:
        """Store a row."""

    def remove(self, key: str) -> None:
        """Remove a row, if it is there."""


class JoinedSide:
    """One side: what is stored, with the changes of the micro-batch over it."""

    def __init__(self, stored: StoredRows) -> None:
        self._stored = stored
        self._changed: dict[str, SideRow | None] = {}
        self._all: dict[str, SideRow] | None = None
        """What is stored, once the other side has needed all of it."""

    def get(self, key: str) -> SideRow | None:
        """Return a row by its key."""
        if key in self._changed:
            return self._changed[key]
        return self._stored.get(key) if self._all is None else self._all.get(key)

    def set(self, key: str, row: SideRow | None) -> None:
        """Replace a row, or remove it."""
        self._changed[key] = row

    def rows(self) -> list[str]:
        """Return all rows."""
        if self._all is None:
            self._all = dict(self._stored.items())
        return [row.row for row in {**self._all, **self._changed}.values() if row is not None]

    def store(self) -> None:
        """Write the changes."""
        for key, row in self._changed.items():
            if row is not None:
                self._stored.put(key, row)
            else:
                self._stored.remove(key)


class JoinedRows:
    """Both sides of one join key."""

    def __init__(self, left: StoredRows, right: StoredRows) -> None:
        self._left, self._right = JoinedSide(left), JoinedSide(right)
        self.unmatched = 0
        """Retracts without a matching row."""

    def apply(self, entries: Iterable[SideEntry]) -> Iterator[JoinChange]:
        """Apply the entries of a micro-batch in their order and yield what changes; at the end the state is written."""
        for entry in sorted(entries):
            side = self._left if entry.is_left else self._right
            known = side.get(entry.key)
            if known is not None and entry.ignore_late and is_late(entry.order, known.order, is_add=entry.is_add):
                continue
            if entry.is_add:
                if known is not None:
                    yield from self._changes(entry, RowKind.UPDATE_BEFORE.value, known.row)
                side.set(entry.key, SideRow(entry.order, entry.row))
                yield from self._changes(entry, entry.kind, entry.row)
            elif known is not None:
                side.set(entry.key, None)
                yield from self._changes(entry, entry.kind, known.row)
            else:
                self.unmatched += 1
        self._left.store()
        self._right.store()

    def _changes(self, entry: SideEntry, kind: str, row: str) -> Iterator[JoinChange]:
        for other in (self._right if entry.is_left else self._left).rows():
            left, right = (row, other) if entry.is_left else (other, row)
            yield JoinChange(kind, left, right, entry.order)
