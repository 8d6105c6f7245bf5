"""Split: a half-open range of a table's key that one snapshot reader reads in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tailrace.producer.model.codec import KeyTuple
from tailrace.producer.model.table import Column, TableId
from tailrace.runtime.errors import SchemaError

SortKey = tuple[Any, ...]
"""Comparable with ``<``; equal exactly if the source considers the keys equal."""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column that splits are cut by, with what its order depends on."""

    column: Column
    collation: str = ""
    pads: bool = False
    """The collation ignores trailing blanks (PAD SPACE)."""
    is_integer: bool = False
    """Arithmetic on key values gives bounds."""

    @property
    def definition(self) -> str:
        """Return all that the order of the column depends on, and that a change of could move a row in it.

        Stored with a plan: its bounds mean other rows under another definition.
        """
        column = self.column
        size = {"binary": column.length, "bit": column.length, "decimal": column.scale}.get(
            column.data_type, column.fsp
        )
        parts = (
            column.name,
            "integer" if self.is_integer else f"{column.data_type}({size})" if size else column.data_type,
            "unsigned" if column.unsigned else "",
            column.charset,
            self.collation,
            ",".join(column.enum_values),
        )
        return " ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Range:
    """``[lower, upper)`` of the splitting key. None means unbounded.

    ``closed`` includes ``upper``; ``lower_open`` excludes ``lower``: the keys above the greatest planned one.
    """

    lower: KeyTuple | None
    upper: KeyTuple | None
    closed: bool = False
    lower_open: bool = False


WHOLE = Range(None, None)
"""Every key: for an empty table, or one whose key cannot be cut."""


@dataclass(frozen=True, slots=True)
class Split:
    """One split of one snapshot run of a table, with the sort keys of its bounds."""

    table: TableId
    snapshot: str
    number: int
    range: Range
    lower_order: SortKey | None
    upper_order: SortKey | None
    incremental: bool = False
    """The split belongs to an incremental snapshot: the changes of its table are in the topic already."""

    @property
    def id(self) -> str:
        """Return the id that records carry in their header; opaque to readers."""
        return f"{self.table.database}.{self.table.table}:{self.snapshot}:{self.number}"


@dataclass(frozen=True, slots=True)
class EndedRange:
    """Neighboring splits of one snapshot run whose END is written, as one range: all that is kept of them."""

    table: TableId
    snapshot: str
    number: int
    """Identifies the range within the run: the number of one of its splits."""
    next_number: int
    """Greater than the number of each of its splits."""
    range: Range
    lower_order: SortKey | None
    upper_order: SortKey | None
    splits: int
    rows: int

    @property
    def id(self) -> str:
        """Return what names the range in the state."""
        return f"{self.table.database}.{self.table.table}:{self.snapshot}:{self.number}"

    @classmethod
    def of(cls, split: Split, rows: int) -> EndedRange:
        """Return the range of one split."""
        number = split.number
        orders = split.lower_order, split.upper_order
        return cls(split.table, split.snapshot, number, number + 1, split.range, *orders, splits=1, rows=rows)

    def touches(self, above: EndedRange) -> bool:
        """Whether ``above`` begins where this range ends."""
        return self.upper_order is not None and not self.range.closed and self.upper_order == above.lower_order

    def joined(self, above: EndedRange, *, number: int) -> EndedRange:
        """Return this range and the one that it touches as one range."""
        return EndedRange(
            self.table,
            self.snapshot,
            number,
            max(self.next_number, above.next_number),
            Range(self.range.lower, above.range.upper, above.range.closed),
            self.lower_order,
            above.upper_order,
            splits=self.splits + above.splits,
            rows=self.rows + above.rows,
        )


def key_to_json(key: KeyTuple | None) -> list[Any] | None:
    """Return a bound for a watermark or state record: binary as ``{"hex": …}``, decimals as ``{"decimal": …}``."""
    if key is None:
        return None
    return [
        {"hex": v.hex()} if isinstance(v, bytes) else {"decimal": str(v)} if isinstance(v, Decimal) else v for v in key
    ]


def key_from_json(bound: list[Any] | None) -> KeyTuple | None:
    """Read what ``key_to_json`` returned."""
    if bound is None:
        return None
    return tuple(
        (bytes.fromhex(v["hex"]) if "hex" in v else Decimal(v["decimal"])) if isinstance(v, dict) else v for v in bound
    )


def key_changed(table: TableId, was: Sequence[str], now: Sequence[str]) -> SchemaError:
    """Return the error for a table whose key is no longer the one that its splits were cut by."""
    return SchemaError(
        f"the key of {table}, its type or its collation changed during its snapshot",
        hint="restore the definition of the key until the snapshot is complete, if no row was changed since; or repeat "
        "the snapshot of this table: exclude it, start, stop, include it, start (its topic keeps the rows that are "
        "deleted meanwhile)",
        was=", ".join(was),
        now=", ".join(now),
    )
