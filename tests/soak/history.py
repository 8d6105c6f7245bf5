"""The changes of a table as the binlog tells them, by key, with the rows that a key had between them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from tests.soak.tables import Row, key_text


class Change(NamedTuple):
    """A change of one key; an update of the key is a delete and an insert."""

    gtid: str
    op: str
    before: Row | None
    after: Row | None


@dataclass
class KeyHistory:
    """The changes of a key; ``states[n]`` are the rows that the key had after ``n`` changes.

    A key has several rows between two changes if a statement without row events replaced or removed it.
    """

    changes: list[Change] = field(default_factory=list)
    states: list[list[Row | None]] = field(default_factory=lambda: [[None]])
    segments: list[int] = field(default_factory=lambda: [0])
    """Where the changes after each TRUNCATE begin."""
    numbers: list[int] = field(default_factory=list)
    """The number of each change among all changes of the table."""

    @property
    def row(self) -> Row | None:
        """The row now."""
        return self.states[-1][-1]

    def add(self, change: Change, number: int) -> None:
        """Add a change."""
        self.changes.append(change)
        self.numbers.append(number)
        self.states.append([change.after])

    def replace(self, row: Row | None) -> None:
        """A statement without row events has replaced the row."""
        if self.row != row:
            self.states[-1].append(row)


class TableHistory:
    """The changes of everything that had one name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.keys: defaultdict[str, KeyHistory] = defaultdict(KeyHistory)
        self.truncates: list[str] = []
        """GTIDs of TRUNCATE."""
        self.drops: list[tuple[int, str]] = []
        """Each DROP or RENAME of a table with this name: the number of changes before it, and its GTID."""
        self._count = 0

    @property
    def left(self) -> bool:
        """Whether a table with this name was dropped or renamed: its topic keeps what it had."""
        return bool(self.drops)

    def add(self, gtid: str, before: Row | None, after: Row | None) -> None:
        """Add a row of an event."""
        if before is not None and after is not None and key_text(self.name, before) != key_text(self.name, after):
            self._add(gtid, "d", before, None)
            self._add(gtid, "c", None, after)
        else:
            self._add(gtid, "c" if before is None else "u" if after is not None else "d", before, after)

    def truncate(self, gtid: str) -> None:
        """Remove all rows, with a record in the topic."""
        self.truncates.append(gtid)
        for history in self.keys.values():
            history.replace(None)

    def leave(self, gtid: str) -> dict[str, Row]:
        """Remove all rows without a record: the table is dropped or renamed. Return the rows."""
        self.drops.append((self._count, gtid))
        rows = {key: history.row for key, history in self.keys.items() if history.row is not None}
        for history in self.keys.values():
            history.replace(None)
        return rows

    def arrive(self, rows: dict[str, Row]) -> None:
        """Get rows by a RENAME."""
        for key, row in rows.items():
            self.keys[key].replace(row)

    def segment(self, key: str) -> list[list[Change]]:
        """Return the changes of a key, cut at each TRUNCATE."""
        history = self.keys.get(key)
        changes = [] if history is None else history.changes
        starts = [] if history is None else history.segments
        edges = [*starts, *[len(changes)] * (len(self.truncates) + 2 - len(starts))]
        return [changes[start:stop] for start, stop in pairwise(edges)][: len(self.truncates) + 1]

    def _add(self, gtid: str, op: str, before: Row | None, after: Row | None) -> None:
        row = after if after is not None else before
        assert row is not None
        history = self.keys[key_text(self.name, row)]
        while len(history.segments) < len(self.truncates) + 1:
            history.segments.append(len(history.changes))
        history.add(Change(gtid, op, before, after), self._count)
        self._count += 1
