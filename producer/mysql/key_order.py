"""Order of keys as the server sees it: raw key values become tuples that Python compares the way MySQL does.

Numbers, binary strings and dates compare alike on both sides. Text does not: its order belongs to the column's
collation, so the server is asked for sort keys (WEIGHT_STRING), a batch at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from tailrace.producer.model.codec import KeyTuple, KeyValue
from tailrace.producer.model.table import Column, TableId, quote
from tailrace.runtime.errors import SchemaError

SortKey = tuple[Any, ...]
"""Comparable with ``<``; equal exactly where the server holds the keys equal."""

QueryServer = Callable[[str], tuple[Any, ...]]
"""Runs a one-row SELECT and returns the row."""

_NUMERIC: Final = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "year", "decimal"})
_BINARY: Final = frozenset({"binary", "varbinary"})
_TEXT: Final = frozenset({"char", "varchar"})
_TEMPORAL: Final = frozenset({"date", "datetime", "timestamp"})
_EXPRESSIONS_PER_QUERY: Final = 400
_FULL_TEMPORAL: Final = len("2024-01-02 03:04:05.000006")

INTEGERS: Final = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})


def can_split_on(column: Column) -> bool:
    """Tell whether ranges of this column can be cut and compared; other kinds end the usable part of a key."""
    if column.nullable:
        return False
    return column.data_type in _NUMERIC | _BINARY | _TEXT | _TEMPORAL


def literal(column: Column, collation: str, value: KeyValue) -> str:
    """Return a key value as an SQL literal that compares in the column's own collation."""
    if column.data_type in _TEXT and isinstance(value, bytes):
        return f"_{column.charset} x'{value.hex()}' COLLATE {collation}"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, str):
        return f"'{value}'"
    if isinstance(value, Decimal):
        return f"{value:f}"
    return str(value)


def select_key(column: Column) -> str:
    """Return the SQL expression that yields a key value for ``from_select``."""
    name = quote(column.name)
    if column.data_type in _TEXT | _BINARY:
        return f"HEX({name})"
    if column.data_type in _NUMERIC:
        return f"{name}+0"
    return f"CAST({name} AS CHAR)"


def from_select(column: Column, value: Any) -> KeyValue:
    """Return the raw key value for what ``select_key`` yielded through the driver."""
    if value is None:
        raise SchemaError(
            "a key column holds NULL",
            hint="choose key columns that are NOT NULL in message.key.columns",
            column=column.name,
        )
    if column.data_type in _TEXT | _BINARY:
        return bytes.fromhex(value if isinstance(value, str) else value.decode("ascii"))
    if column.data_type in _NUMERIC:
        return Decimal(value) if column.data_type == "decimal" else int(value)
    return value if isinstance(value, str) else str(value, "ascii")


def to_json(key: KeyTuple | None) -> list[Any] | None:
    """Return a bound for a watermark or state record: binary as ``{"hex": …}``, decimals as ``{"decimal": …}``."""
    if key is None:
        return None
    return [
        {"hex": v.hex()} if isinstance(v, bytes) else {"decimal": str(v)} if isinstance(v, Decimal) else v for v in key
    ]


def from_json(bound: list[Any] | None) -> KeyTuple | None:
    """Read what ``to_json`` wrote."""
    if bound is None:
        return None
    return tuple(
        (bytes.fromhex(v["hex"]) if "hex" in v else Decimal(v["decimal"])) if isinstance(v, dict) else v for v in bound
    )


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A key column with what its order depends on."""

    column: Column
    collation: str = ""
    pads: bool = False
    """The collation ignores trailing blanks (PAD SPACE)."""
    max_chars: int = 0
    """Declared length in characters, for text."""

    @property
    def is_text(self) -> bool:
        """Tell whether only the server can order this column."""
        return self.column.data_type in _TEXT

    def weight_string(self, value: bytes) -> str:
        """Return the SQL expression of the sort key of one text value."""
        # Under PAD SPACE 'a' sorts after 'a\t': only weights padded to one length compare bytewise as the server does.
        padded = f" AS CHAR({self.max_chars})" if self.pads else ""
        return f"WEIGHT_STRING({literal(self.column, self.collation, value)}{padded})"


def _order_of(column: Column) -> tuple[object, ...]:
    """Return what a column's raw values are ordered by."""
    kind = "int" if column.data_type in _INTEGERS else column.data_type
    return column.name, kind, column.unsigned, column.charset, column.enum_values


_INTEGERS: Final = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})


def key_changed(table: TableId, was: Sequence[str], now: Sequence[str]) -> SchemaError:
    """Return the error for a key that is no longer the one that the table's splits were cut by."""
    return SchemaError(
        f"the key of {table}, its type or its collation changed while its snapshot was under way",
        hint="take the snapshot of this table again: exclude it, start, stop, include it, start",
        was=", ".join(was),
        now=", ".join(now),
    )


class KeyOrder:
    """Places keys of one table; the splitting prefix of its key columns decides."""

    def __init__(self, columns: Sequence[KeyColumn], ask: QueryServer) -> None:
        self.columns = tuple(columns)
        self._ask = ask
        self._text = tuple(i for i, c in enumerate(self.columns) if c.is_text)
        self._temporal = tuple(i for i, c in enumerate(self.columns) if c.column.data_type in _TEMPORAL)
        self._plain = not self._text and not self._temporal
        self._width = len(self.columns)

    def require_same_key(self, table: TableId, key: Sequence[Column]) -> None:
        """Raise SchemaError where the table's key no longer begins with these columns: no key could be placed."""
        own = [_order_of(c.column) for c in self.columns]
        if [_order_of(column) for column in key[: self._width]] != own:
            raise key_changed(table, [c.column.name for c in self.columns], [column.name for column in key])

    def place(self, keys: Sequence[KeyTuple]) -> list[SortKey]:
        """Return the order of each key; asks the server once per some hundred text values."""
        width = self._width
        if self._plain:
            return [key[:width] for key in keys]
        placed = [list(key[:width]) for key in keys]
        for i in self._temporal:
            for key in placed:
                key[i] = _full_temporal(str(key[i]))
        if self._text:
            self._weigh(placed)
        return [tuple(key) for key in placed]

    def _weigh(self, placed: list[list[Any]]) -> None:
        cells = [(key, i) for key in placed for i in self._text]
        for at in range(0, len(cells), _EXPRESSIONS_PER_QUERY):
            part = cells[at : at + _EXPRESSIONS_PER_QUERY]
            weights = self._ask("SELECT " + ", ".join(self.columns[i].weight_string(key[i]) for key, i in part))
            for (key, i), weight_string in zip(part, weights, strict=True):
                key[i] = weight_string


def _full_temporal(text: str) -> str:
    """Return ISO text with six fraction digits, so that text of any precision sorts."""
    text = text.replace("T", " ")
    if len(text) == len("2024-01-02"):
        return text
    return text.ljust(_FULL_TEMPORAL, "0") if "." in text else (text + ".").ljust(_FULL_TEMPORAL, "0")
