"""The rows of one target key, as the upsert materializer keeps them: the list and its changes, without Spark."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tailrace.spark_consumer.streams.row_version import is_late


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
