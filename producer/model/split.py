"""Split: a half-open range of a table's key, read in one piece."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.producer.model.codec import KeyTuple
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.key_order import SortKey


@dataclass(frozen=True, slots=True)
class Range:
    """``[lower, upper)`` of the splitting key; None is open, ``closed`` takes ``upper`` in."""

    lower: KeyTuple | None
    upper: KeyTuple | None
    closed: bool = False


WHOLE = Range(None, None)
"""Every key there is: an empty table, or one whose key cannot be cut."""


@dataclass(frozen=True, slots=True)
class Split:
    """One split of one snapshot run of a table, with the order of its bounds."""

    table: TableId
    snapshot: str
    number: int
    range: Range
    lower_order: SortKey | None
    upper_order: SortKey | None
    incremental: bool = False
    """The table's changes are in the topic from before."""

    @property
    def id(self) -> str:
        """Return the id that records carry in their header; opaque to readers."""
        return f"{self.table.database}.{self.table.table}:{self.snapshot}:{self.number}"

    def holds(self, key: SortKey) -> bool:
        """Tell whether a key lies in the range."""
        if self.lower_order is not None and key < self.lower_order:
            return False
        if self.upper_order is None:
            return True
        return key < self.upper_order or (self.range.closed and key == self.upper_order)
