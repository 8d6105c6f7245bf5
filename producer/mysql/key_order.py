"""The order of keys as the server defines it: raw key values become sort keys that Python compares as MySQL does.

Numbers, binary strings and dates compare alike on both sides. The order of text belongs to the collation of its
column, so the server is asked for sort keys (WEIGHT_STRING), a batch at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

from tailrace.producer.model.codec import KeyTuple, KeyValue, RowKeys
from tailrace.producer.model.protocols import SortedKeys
from tailrace.producer.model.split import KeyColumn, SortKey, key_changed
from tailrace.producer.model.table import CatalogTable, Column, TableId, quote
from tailrace.producer.mysql.types.base import KeyKind
from tailrace.producer.mysql.types.registry import family_of
from tailrace.runtime.errors import SchemaError

QueryServer = Callable[[str], tuple[Any, ...]]
"""Runs a one-row SELECT and returns the row."""

_EXPRESSIONS_PER_QUERY: Final = 400
_BYTES: Final = frozenset({KeyKind.TEXT, KeyKind.BINARY})
_NUMBERS: Final = frozenset({KeyKind.INTEGER, KeyKind.NUMBER, KeyKind.DECIMAL})
NOT_SORTABLE: Final = frozenset({"big5_chinese_ci", "cp1250_czech_cs", "tis620_thai_ci"})
"""Collations whose comparison is another one than that of their weights; keys are not split on their columns."""
_BELOW: Final = b"\x00"
_ENDLESS: Final = b"\x80"
_ABOVE: Final = b"\xff"
_FULL_TEMPORAL: Final = len("2024-01-02 03:04:05.000006")


def _kind(column: Column) -> KeyKind | None:
    return family_of(column.data_type).key_kinds.get(column.data_type)


def can_split_on(column: Column) -> bool:
    """Return whether ranges of this column can be cut and compared; other types end the usable part of a key."""
    return not column.nullable and _kind(column) is not None


def splitting_columns(found: CatalogTable, key: Sequence[str]) -> tuple[KeyColumn, ...]:
    """Return the columns whose ranges cut the table: the usable prefix of its key; empty: it is read in one split.

    Splits must be ranges of an index that identifies rows: a record key that is chosen by message.key.columns, or that
    consists of the whole row, is cut if such an index begins with its columns.
    """
    if not any(tuple(key) == index[: len(key)] for index in (found.index_key, *found.unique_keys)):
        return ()
    usable: list[KeyColumn] = []
    for name in key:
        column = replace(found.table.column(name), catalog=None)
        if name in found.prefix_columns or not can_split_on(column):
            break
        order = found.collations.get(name)
        if order is not None and order.name in NOT_SORTABLE:
            break
        is_integer = _kind(column) is KeyKind.INTEGER
        if order is None:
            usable.append(KeyColumn(column, is_integer=is_integer))
        else:
            usable.append(KeyColumn(column, order.name, order.pads))
    return tuple(usable)


def literal(column: Column, collation: str, value: KeyValue) -> str:
    """Return a key value as an SQL literal that compares in the column's own collation."""
    if _kind(column) is KeyKind.TEXT and isinstance(value, bytes):
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
    if _kind(column) in _BYTES:
        return f"HEX({name})"
    if _kind(column) in _NUMBERS:
        return f"{name}+0"
    return f"CAST({name} AS CHAR)"


def from_select(column: Column, value: Any) -> KeyValue:
    """Return the raw key value of what ``select_key`` yielded through the driver."""
    if value is None:
        raise SchemaError(
            "a key column holds NULL",
            hint="choose key columns that are NOT NULL in message.key.columns",
            column=column.name,
        )
    if _kind(column) in _BYTES:
        return bytes.fromhex(value if isinstance(value, str) else value.decode("ascii"))
    if _kind(column) in _NUMBERS:
        return Decimal(value) if _kind(column) is KeyKind.DECIMAL else int(value)
    return value if isinstance(value, str) else str(value, "ascii")


def weight_string(column: KeyColumn, value: bytes) -> str:
    """Return the SQL expression of the weights of one text value."""
    # AS CHAR would pad by the number of characters, not of weights: keys that are equal would get unequal weights.
    return f"WEIGHT_STRING({literal(column.column, column.collation, value)})"


def padded_order(weights: bytes, blank: bytes) -> bytes:
    """Return a key that compares as the weights do if blanks without end follow them.

    Under PAD SPACE 'a' equals 'a ' and sorts after 'a\t'. What follows the first blank of a run decides, so the key has
    a mark there: the run ends with a weight below the blank, it has no end, or it ends with a weight above the blank.
    """
    if blank not in weights:
        return weights + blank + _ENDLESS
    width = len(blank)
    units = [weights[at : at + width] for at in range(0, len(weights), width)]
    while units and units[-1] == blank:
        units.pop()
    found: list[bytes] = []
    in_run = False
    for at, unit in enumerate(units):
        found.append(unit)
        if unit != blank:
            in_run = False
        elif not in_run:
            in_run = True
            after = next(each for each in units[at:] if each != blank)
            found.append(_ABOVE if after > blank else _BELOW)
    return b"".join((*found, blank, _ENDLESS))


class KeyOrder:
    """The order of the keys of one table; the splitting prefix of its key columns decides."""

    def __init__(self, columns: Sequence[KeyColumn], query_server: QueryServer) -> None:
        self._columns = tuple(columns)
        self._query_server = query_server
        self._text = tuple(i for i, c in enumerate(self._columns) if _kind(c.column) is KeyKind.TEXT)
        self._temporal = tuple(i for i, c in enumerate(self._columns) if _kind(c.column) is KeyKind.TEMPORAL)
        self._compares_as_is = not self._text and not self._temporal
        self._width = len(self._columns)
        self._blanks: dict[int, bytes] = {}

    @property
    def columns(self) -> tuple[KeyColumn, ...]:
        """Return the splitting columns."""
        return self._columns

    def require_same_key(self, table: TableId, key: Sequence[Column]) -> None:
        """Raise SchemaError if the key of the table no longer begins with these columns."""
        own = [_comparison(c.column) for c in self._columns]
        if [_comparison(column) for column in key[: self._width]] != own:
            raise key_changed(table, [c.column.name for c in self._columns], [column.name for column in key])

    def sort_keys(self, keys: Sequence[KeyTuple]) -> list[SortKey]:
        """Return the sort key of each key; queries the server once per some hundred text values."""
        width = self._width
        if self._compares_as_is:
            return [key[:width] for key in keys]
        cells = [list(key[:width]) for key in keys]
        for i in self._temporal:
            for key in cells:
                key[i] = _full_temporal(str(key[i]))
        if self._text:
            self._replace_text_by_weights(cells)
        return [tuple(key) for key in cells]

    def sort_rows(self, keys: RowKeys) -> SortedKeys:
        """Return the sort keys of the rows of an event; queries the server as ``sort_keys`` does."""
        if self._compares_as_is:
            width = self._width
            first = next((key for pair in keys for key in pair if key is not None), ())
            return keys if len(first) == width else [(old and old[:width], new and new[:width]) for old, new in keys]
        distinct = list(dict.fromkeys(key for pair in keys for key in pair if key is not None))
        found = dict(zip(distinct, self.sort_keys(distinct), strict=True))
        return [(None if old is None else found[old], None if new is None else found[new]) for old, new in keys]

    def _blank(self, i: int) -> bytes:
        """Return the weight of a blank in a column that pads."""
        found = self._blanks.get(i)
        if found is None:
            column = self._columns[i]
            sql = f"WEIGHT_STRING(CONVERT(' ' USING {column.column.charset}) COLLATE {column.collation})"
            (found,) = self._query_server(f"SELECT {sql}")
            self._blanks[i] = found
        return found

    def _replace_text_by_weights(self, keys: list[list[Any]]) -> None:
        cells = [(key, i) for key in keys for i in self._text]
        for at in range(0, len(cells), _EXPRESSIONS_PER_QUERY):
            batch = cells[at : at + _EXPRESSIONS_PER_QUERY]
            expressions = (weight_string(self._columns[i], key[i]) for key, i in batch)
            weights = self._query_server("SELECT " + ", ".join(expressions))
            for (key, i), weight in zip(batch, weights, strict=True):
                key[i] = padded_order(weight, self._blank(i)) if self._columns[i].pads else weight


def _comparison(column: Column) -> tuple[object, ...]:
    """Return the properties of a column that decide how its raw values compare."""
    data_type = "int" if _kind(column) is KeyKind.INTEGER else column.data_type
    return column.name, data_type, column.unsigned, column.charset, column.enum_values


def _full_temporal(text: str) -> str:
    """Return ISO text with six fraction digits, so that text of any precision sorts."""
    text = text.replace("T", " ")
    if len(text) == len("2024-01-02"):
        return text
    return text.ljust(_FULL_TEMPORAL, "0") if "." in text else (text + ".").ljust(_FULL_TEMPORAL, "0")
