"""The rows of some keys of a table, and the rows that stand for keys which the table does not have.

The keys are canonical texts (schemas/verification.py), which decide. Since a text is an expression, no index has it: a
comparison with the value, where the value is known from its text, finds all rows of the key, and maybe others.

A row that stands for a key has NULL in its other columns. Where they are NOT NULL it has an empty value: a record with
a schema must have one. It is made as a result set has it, so that the codec of the table encodes it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from pymysql.connections import Connection

from tailrace.producer.errors import KeysRefusedError, SourceError
from tailrace.producer.model.protocols import SplitQuery
from tailrace.producer.model.table import CatalogTable, Column, Table, quote
from tailrace.producer.model.value_options import ValueOptions
from tailrace.producer.mysql import split_sql
from tailrace.producer.mysql.connection import query
from tailrace.producer.mysql.types import canonical
from tailrace.producer.mysql.types.text import UTF8
from tailrace.schemas.verification import NULL, TextForm, is_canonical

_INTEGERS: Final = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
"""Their bits."""
_LONG_BITS: Final = 64
_FIRST_YEAR: Final = 1901
_LAST_YEAR: Final = 2155
_LAST_SECOND: Final = 838 * 3600 + 59 * 60 + 59
_MAX_FLOAT: Final = 3.4028234663852886e38
_HEX: Final = re.compile(rb"(?:[0-9a-f]{2})*")
_PLAIN: Final = re.compile(r"-?\d+(?:\.\d+)?", re.ASCII)
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
_SHOWN: Final = 200


class MySqlKeyRows:
    """Looks for the rows of keys over one session."""

    def __init__(
        self, session: Connection[Any], found: CatalogTable, table: Table, options: ValueOptions, keys: Sequence[str]
    ) -> None:
        """``found`` is the table in the catalog, ``table`` its captured version.

        Raises NotComparedError if a key column has no texts, and KeysRefusedError if a text is none of its column: it
        would be told to have no row, while a row has the same value by another text.
        """
        self._session, self._found, self._options = session, found, options
        self._columns = table.key_columns
        self._texts = [canonical.canonical_text(column, options) for column in self._columns]
        self._keys = keys
        for key in keys:
            self._require_texts(key)

    def _require_texts(self, key: str) -> None:
        for column, each, text in zip(self._columns, self._texts, key.split(","), strict=True):
            if not is_canonical(each.form, text):
                raise KeysRefusedError(
                    "a text of a key is not the one that its column makes of any value",
                    hint="take the texts from a comparison of the table as it is now",
                    column=column.name,
                    form=each.form.value,
                    text=text[:_SHOWN],
                )

    @property
    def condition(self) -> str:
        """The condition that the rows of the keys meet, and no others."""
        bounds = [self._bound(key.split(",")) for key in self._keys]
        listed = ",".join(f"'{key}'" for key in self._keys)
        return f"({' OR '.join(bounds)}) AND {self._joined} IN ({listed})"

    @property
    def unbounded(self) -> str:
        """The name of the first key column, if an index does not find the rows of each key by it; or ''."""
        column, each = self._columns[0], self._texts[0]
        found = (self._literal(column, each.form, key.partition(",")[0]) for key in self._keys)
        return "" if all(found) else column.name

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
            return ""  # the text of other values, too
        if kind in _INTEGERS or form is TextForm.DECIMAL:
            return self._digits(column, text)
        if form in {TextForm.DATE, TextForm.DATETIME}:  # in a key, other values are faults of the table
            return f"'{text}'" if self._options.conversion_failures == "fail" else ""
        if (kind == "year" and text != "1900") or (kind == "bit" and form is TextForm.INTEGER):
            return text
        if kind == "bit":
            return str(int.from_bytes(bytes.fromhex(text), "little"))
        if kind in _NO_VALUE:
            return f"CONVERT(_utf8mb4 x'{text}' USING utf8mb4)"
        if form is TextForm.BYTES and kind in _TEXT and column.charset in _CHARSETS:
            collation = self._found.collations[column.name].name
            return f"CONVERT(_utf8mb4 x'{text}' USING {column.charset}) COLLATE {collation}"
        if form is TextForm.BYTES and column.charset == "binary":
            if self._options.binary_handling_mode == "bytes":
                return f"x'{text}'"
            digits = bytes.fromhex(text)
            return f"x'{digits.decode()}'" if _HEX.fullmatch(digits) else "NULL"
        return ""

    @staticmethod
    def _digits(column: Column, text: str) -> str:
        return str(int(text) + _BIGINT) if column.unsigned and text.startswith("-") else text

    def _value(self, column: Column, form: TextForm, text: str) -> bytes | None:
        """Return the value with a text as a result set has it."""
        kind = column.data_type
        if text == NULL:
            _require(column.nullable, column)
            return None
        if kind in _INTEGERS:
            return self._integer(column, int(text))
        if kind == "time":
            return self._clock(column, int(text))
        if kind == "year" and (text == "1900" or _FIRST_YEAR <= int(text) <= _LAST_YEAR):
            return b"0000" if text == "1900" else text.encode()
        if kind == "bit":
            value = bytes([int(text)]) if form is TextForm.INTEGER else bytes.fromhex(text)[::-1]
            _require(len(value) == (column.length + 7) // 8 and not int.from_bytes(value) >> column.length, column)
            return value
        if kind in {"decimal", "float", "double"}:
            return _number(column, form, text)
        if form in {TextForm.DATE, TextForm.DATETIME}:
            return _cut(text, column).encode()
        if form is TextForm.BYTES:
            return self._bytes(column, bytes.fromhex(text))
        raise _not_deleted(column)

    def _integer(self, column: Column, number: int) -> bytes:
        bits = _INTEGERS[column.data_type]
        is_wrapped = bits == _LONG_BITS and self._options.bigint_unsigned_handling_mode != "precise"
        least = 0 if column.unsigned and not is_wrapped else -1 << bits - 1
        _require(least <= number < least + (1 << bits), column)
        return str(number % (1 << bits) if column.unsigned else number).encode()

    def _bytes(self, column: Column, value: bytes) -> bytes:
        if column.charset == "binary" or column.data_type in {"binary", "varbinary", "blob"}:
            if self._options.binary_handling_mode == "hex":
                _require(_HEX.fullmatch(value) is not None, column)
                value = bytes.fromhex(value.decode())
            _require(column.data_type != "binary" or len(value) == column.length, column)
            return value
        _require(column.charset in {*_CHARSETS, ""} or column.data_type in {"enum", "set"}, column)
        try:
            text = value.decode()
        except UnicodeDecodeError:
            raise _not_deleted(column) from None
        labels = [text] if column.data_type == "enum" else text.split(",") if column.data_type == "set" else []
        _require(not text or all(label in column.enum_values for label in labels), column)
        return value

    def _clock(self, column: Column, units: int) -> bytes:
        factor, divisor = _MICROS.get(self._options.time_precision_mode, (1, 1))
        micros, rest = divmod(abs(units) * factor, divisor)
        _require(not rest and micros // 1_000_000 <= _LAST_SECOND, column)
        seconds, micros = divmod(micros, 1_000_000)
        text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{micros:06d}"
        return (("-" if units < 0 else "") + _cut(text, column)).encode()


def _number(column: Column, form: TextForm, text: str) -> bytes:
    """Return a decimal or floating-point number whose text is that, and not one that is near."""
    if form is not TextForm.DOUBLE:
        exact = bytes.fromhex(text).decode("ascii", "replace") if form is TextForm.BYTES else text
        _require(_PLAIN.fullmatch(exact) is not None, column)
        whole, _, fraction = exact.partition(".")
        digits = whole + (f".{fraction.ljust(column.scale, '0')}" if column.scale else "")
        _require(len(fraction) <= column.scale and (form is TextForm.DECIMAL or digits == exact), column)
        return digits.encode()
    (number,) = struct.unpack(">d", bytes.fromhex(text))
    if column.data_type == "decimal":
        written = f"{Decimal(repr(number)):.{column.scale}f}"
        _require(float(written) == number, column)
        return written.encode()
    if column.data_type == "float" and not column.precision:
        _require(abs(number) <= _MAX_FLOAT and struct.unpack(">f", struct.pack(">f", number))[0] == number, column)
    return repr(number).encode()


def _cut(text: str, column: Column) -> str:
    """Return a time with as many digits of the fraction as the column has."""
    whole, _, fraction = text.partition(".")
    _require(not fraction[column.fsp :].strip("0"), column)
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


def _require(is_value: bool, column: Column) -> None:
    """Raise if a text is not that of a value of the column: a value that is near would be that of another row."""
    if not is_value:
        raise _not_deleted(column)


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
