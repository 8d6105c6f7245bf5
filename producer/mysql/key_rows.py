"""The rows of some keys of a table, and the rows that stand for keys which the table does not have.

The keys are canonical texts (schemas/verification.py), which decide. Since a text is an expression, no index has it: a
comparison with the value, where the value is known from its text, finds all rows of the key, and maybe others.

A row that stands for a key has NULL in its other columns. Where they are NOT NULL it has an empty value: a record with
a schema must have one. It is made as a result set has it, so that the codec of the table encodes it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from pymysql.connections import Connection

from tailrace.producer.errors import SourceError
from tailrace.producer.model.protocols import SplitQuery
from tailrace.producer.model.table import CatalogTable, Column, Table, quote
from tailrace.producer.model.value_options import ValueOptions
from tailrace.producer.mysql import split_sql
from tailrace.producer.mysql.connection import query
from tailrace.producer.mysql.types import canonical
from tailrace.producer.mysql.types.text import UTF8
from tailrace.schemas.verification import NULL, TextForm

_INTEGERS: Final = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
_TEXT: Final = frozenset({"char", "varchar", "text"})
_CHARSETS: Final = UTF8 | {"ascii", "latin1"}
"""Character sets of which each character has one code, and whose text a result set has in UTF-8."""
_MICROS: Final[Mapping[str, tuple[int, int]]] = {"connect": (1000, 1), "nanoseconds": (1, 1000)}
"""How many microseconds a unit of TIME is, and how many units a microsecond."""
_BIGINT: Final = 1 << 64
_POINT: Final = bytes(4) + b"\x01\x01\0\0\0" + bytes(16)
_MIDNIGHT: Final = "00:00:00.000000"
_NO_VALUE: Final[Mapping[str, bytes]] = {
    "uuid": b"00000000-0000-0000-0000-000000000000",
    "inet4": b"0.0.0.0",
    "inet6": b"::",
}
"""Types whose values have one text each, with an empty value."""
_EOF: Final = b"\xfe\0\0\0\0"


class MySqlKeyRows:
    """Looks for the rows of keys over one session."""

    def __init__(
        self, session: Connection[Any], found: CatalogTable, table: Table, options: ValueOptions, keys: Sequence[str]
    ) -> None:
        """``found`` is the table in the catalog, ``table`` its captured version. Raises NotComparedError."""
        self._session, self._found, self._options = session, found, options
        self._columns = table.key_columns
        self._texts = [canonical.canonical_text(column, options) for column in self._columns]
        self._keys = keys

    @property
    def condition(self) -> str:
        """The condition that the rows of the keys meet, and no others."""
        bounds = [self._bound(key.split(",")) for key in self._keys]
        listed = ",".join(f"'{key}'" for key in self._keys)
        return f"({' OR '.join(bounds)}) AND {self._joined} IN ({listed})"

    def absent(self, task: SplitQuery) -> list[str]:
        """Return the keys that have no row now."""
        table, condition = task.table.quoted, f"{split_sql.predicate(task.columns, task.range)} AND {self.condition}"
        found = {str(text) for (text,) in query(self._session, f"SELECT {self._joined} FROM {table} WHERE {condition}")}
        return [key for key in self._keys if key not in found]

    def packets(self, columns: Sequence[Column], key: str) -> bytes:
        """Return the packets of a result set with ``columns`` whose only row stands for a key.

        Raises SourceError if the value of a column is not known from its text, or has no empty value.
        """
        texts = dict(zip((column.name for column in self._columns), key.split(","), strict=True))
        forms = dict(zip(texts, self._texts, strict=True))
        row = b""
        for column in columns:
            if column.name in texts:
                value = self._value(column, forms[column.name].form, texts[column.name])
            else:
                value = None if column.nullable else _empty(column)
            row += _sized(value)
        return len(row).to_bytes(3, "little") + b"\x01" + row + len(_EOF).to_bytes(3, "little") + b"\x02" + _EOF

    @property
    def _joined(self) -> str:
        return split_sql.joined([each.sql for each in self._texts])

    def _bound(self, texts: Sequence[str]) -> str:
        """Return a condition that the rows of a key meet, and maybe others."""
        terms = [
            f"{quote(column.name)}={literal}"
            for column, each, text in zip(self._columns, self._texts, texts, strict=True)
            if (literal := self._literal(column, each.form, text))
        ]
        return f"({' AND '.join(terms)})" if terms else "1=1"

    def _literal(self, column: Column, form: TextForm, text: str) -> str:
        """Return the SQL of the only value that a column can have with a text; '' if that is not known."""
        kind = column.data_type
        if text == NULL:
            return ""
        if kind in _INTEGERS or form is TextForm.DECIMAL:
            return self._digits(column, text)
        if form in {TextForm.DATE, TextForm.DATETIME}:  # in a key, other values are faults of the table
            return f"'{text}'" if self._options.conversion_failures == "fail" else ""
        if kind in _NO_VALUE:
            return f"CONVERT(_utf8mb4 x'{text}' USING utf8mb4)"
        if form is TextForm.BYTES and kind in _TEXT and column.charset in _CHARSETS:
            collation = self._found.collations[column.name].name
            return f"CONVERT(_utf8mb4 x'{text}' USING {column.charset}) COLLATE {collation}"
        if form is TextForm.BYTES and column.charset == "binary" and self._options.binary_handling_mode == "bytes":
            return f"x'{text}'"
        return ""

    @staticmethod
    def _digits(column: Column, text: str) -> str:
        return str(int(text) + _BIGINT) if column.unsigned and text.startswith("-") else text

    def _value(self, column: Column, form: TextForm, text: str) -> bytes | None:
        """Return the value with a text as a result set has it."""
        kind = column.data_type
        if text == NULL:
            return None
        if form is TextForm.INTEGER:
            if kind == "bit":
                return bytes([int(text)])
            if kind == "year":
                return b"0000" if text == "1900" else text.encode()
            return (self._clock(column, int(text)) if kind == "time" else self._digits(column, text)).encode()
        if form in {TextForm.DECIMAL, TextForm.DOUBLE}:
            number = repr(struct.unpack(">d", bytes.fromhex(text))[0]) if form is TextForm.DOUBLE else text
            return (f"{Decimal(number):.{column.scale}f}" if kind == "decimal" else number).encode()
        if form in {TextForm.DATE, TextForm.DATETIME}:
            return _cut(text, column).encode()
        if form is TextForm.BYTES and (column.charset in {*_CHARSETS, "binary", ""} or kind in {"enum", "set"}):
            value = bytes.fromhex(text)
            if kind == "bit":
                return value[::-1]
            is_hex = column.charset == "binary" and self._options.binary_handling_mode == "hex"
            return bytes.fromhex(value.decode()) if is_hex else value
        raise _not_deleted(column)

    def _clock(self, column: Column, units: int) -> str:
        factor, divisor = _MICROS.get(self._options.time_precision_mode, (1, 1))
        seconds, micros = divmod(abs(units) * factor // divisor, 1_000_000)
        text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{micros:06d}"
        return ("-" if units < 0 else "") + _cut(text, column)


def _cut(text: str, column: Column) -> str:
    """Return a time with as many digits of the fraction as the column has."""
    whole, _, fraction = text.partition(".")
    return f"{whole}.{fraction[: column.fsp]}" if column.fsp else whole


def _empty(column: Column) -> bytes:
    """Return an empty value of a column that is NOT NULL, as a result set has it."""
    kind = column.data_type
    if kind in _INTEGERS or kind in {"float", "double"}:
        return b"0"
    if kind in _TEXT or kind in {"set", "binary", "varbinary", "blob"}:
        return b""
    if kind in {"datetime", "timestamp"}:
        return _cut(f"1970-01-01 {_MIDNIGHT}", column).encode()
    values: dict[str, bytes] = {
        **_NO_VALUE,
        "decimal": f"{Decimal(0):.{column.scale}f}".encode(),
        "bit": bytes((column.length + 7) // 8),
        "enum": column.enum_values[0].encode() if column.enum_values else b"",
        "date": b"1970-01-01",
        "time": _cut(_MIDNIGHT, column).encode(),
        "year": b"1970",
        "json": b"null",
        "geometry": _POINT,
        "point": _POINT,
    }
    if kind not in values:
        raise _not_deleted(column)
    return values[kind]


def _not_deleted(column: Column) -> SourceError:
    return SourceError(
        "a key is not deleted: no record can be made of it",
        hint="delete the row in the target, or load the table again",
        column=column.name,
        type=column.data_type,
        charset=column.charset,
    )


def _sized(value: bytes | None) -> bytes:
    """Return a value of a row packet, behind its length."""
    if value is None:
        return b"\xfb"
    size = len(value)
    return (bytes([size]) if size < 0xFB else b"\xfd" + size.to_bytes(3, "little")) + value
