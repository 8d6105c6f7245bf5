"""Integers: TINYINT to BIGINT, signed and unsigned.

TINYINT is INT16 (INT8 from Debezium 3.7 on, by a setting); BIGINT UNSIGNED is INT64 that wraps above 2**63-1, or a
Decimal of scale 0 with ``bigint.unsigned.handling.mode=precise``. Display widths change nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import ClassVar, Final

from tailrace.producer.model.table import Column, SourceType, declared_type
from tailrace.producer.mysql.types.base import (
    BinlogOption,
    BinlogType,
    CatalogRow,
    ColumnType,
    Fast,
    KeyKind,
    Layout,
    Value,
    ValueKind,
)
from tailrace.schemas.connect import ConnectSchema

_INT64_MAX: Final = (1 << 63) - 1
_WIDTHS: Final = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}
_CODES: Final = {1: "b", 2: "h", 4: "i", 8: "q"}
_SIGNED: Final = {"tinyint": "int16", "smallint": "int16", "mediumint": "int32", "int": "int32", "bigint": "int64"}
_UNSIGNED: Final = {"tinyint": "int16", "smallint": "int32", "mediumint": "int32", "int": "int64", "bigint": "int64"}


class IntegerType(ColumnType):
    """All integer kinds."""

    data_types = ("tinyint", "smallint", "mediumint", "int", "bigint")
    binlog_types = tuple(
        BinlogType(code, data_type, option=BinlogOption.SIGN)
        for code, data_type in {1: "tinyint", 2: "smallint", 3: "int", 8: "bigint", 9: "mediumint"}.items()
    )
    jdbc_types: ClassVar = {"tinyint": 5, "smallint": 5, "mediumint": 4, "int": 4, "bigint": -5}
    key_kinds: ClassVar = dict.fromkeys(data_types, KeyKind.INTEGER)

    @classmethod
    def from_catalog(cls, row: CatalogRow) -> Column:
        return Column(row.name, row.data_type, row.nullable, is_unsigned(row))

    @classmethod
    def source_type(cls, column: Column) -> SourceType:
        return number_type(column, None, None)

    @classmethod
    def default_integer(cls, column: Column, value: int) -> int:
        if column.data_type == "bigint" and column.unsigned and column.catalog and column.catalog.default:
            # As in Debezium, a default above 63 bits becomes the greatest number, although such a value wraps.
            return min(int(column.catalog.default), _INT64_MAX)
        return value

    def connect(self) -> ConnectSchema:
        kind = self.column.data_type
        if self._precise:
            return decimal_schema(scale=0, precision=20)
        if kind == "tinyint" and self.settings.tinyint_as_int8 and not self.column.unsigned:
            return ConnectSchema("int8")
        return ConnectSchema((_UNSIGNED if self.column.unsigned else _SIGNED)[kind])

    @property
    def _precise(self) -> bool:
        return (
            self.column.data_type == "bigint"
            and self.column.unsigned
            and self.settings.bigint_unsigned_handling_mode == "precise"
        )

    @property
    def _may_be_zerofilled(self) -> bool:
        """ZEROFILL pads the server's text; a TABLE_MAP event does not tell it apart from UNSIGNED."""
        known = self.column.catalog
        return self.column.unsigned and (known is None or "zerofill" in known.column_type.lower())

    @property
    def layout(self) -> Layout:
        return Layout(_WIDTHS[self.column.data_type])

    @property
    def _wraps(self) -> bool:
        return self.column.data_type == "bigint" and self.column.unsigned

    def from_text(self) -> Value:
        if self._precise:
            return Value(ValueKind.BYTES, lambda data: unscaled_bytes(int(data)))
        if self._wraps:
            return Value(ValueKind.DIGITS, wrapped_digits)
        return Value(ValueKind.INT, int) if self._may_be_zerofilled else Value(ValueKind.DIGITS)

    def from_image(self) -> Value:
        if self._precise:
            read = self.raw_key()
            return Value(ValueKind.BYTES, lambda data: unscaled_bytes(read(data)))
        width, signed = self.layout.width, self._wraps or not self.column.unsigned
        return Value(ValueKind.INT, _reader(width, signed=signed), _printer(width, signed=signed))

    def raw_key(self) -> Callable[[bytes], int]:
        return _reader(self.layout.width, signed=not self.column.unsigned)

    def fast_text(self) -> Fast | None:
        if self._precise:
            return None
        return Fast("wrapped" if self._wraps else "unsigned" if self._may_be_zerofilled else "digits")

    def fast_image(self) -> Fast | None:
        return None if self._precise else Fast("integer", signed=not self.column.unsigned)


def _reader(width: int, *, signed: bool) -> Callable[[bytes], int]:
    """Return the function from little-endian bytes to an integer."""
    if width not in _CODES:
        return lambda data: int.from_bytes(data, "little", signed=signed)
    unpack = _unpacker(width, signed=signed)

    def read(data: bytes) -> int:
        number: int = unpack(data)[0]
        return number

    return read


def _printer(width: int, *, signed: bool) -> Callable[[bytes], bytes] | None:
    """Return the function from little-endian bytes to decimal digits."""
    if width not in _CODES:
        return None
    unpack = _unpacker(width, signed=signed)
    return lambda data: b"%d" % unpack(data)


def _unpacker(width: int, *, signed: bool) -> Callable[[bytes], tuple[int]]:
    return Struct("<" + (_CODES[width] if signed else _CODES[width].upper())).unpack


def is_unsigned(row: CatalogRow) -> bool:
    """Return whether a number is UNSIGNED; ZEROFILL includes it."""
    return "unsigned" in row.column_type or "zerofill" in row.column_type


def number_type(column: Column, length: int | None, scale: int | None) -> SourceType:
    """Return the source type of a number, as ``ColumnType.source_type``."""
    name = column.data_type.upper() + (" UNSIGNED" if column.unsigned else "")
    return declared_type(column) or SourceType(name, length, scale)


def decimal_schema(*, scale: int, precision: int) -> ConnectSchema:
    """Return Connect's Decimal: bytes of the unscaled value."""
    return ConnectSchema(
        "bytes",
        name="org.apache.kafka.connect.data.Decimal",
        version=1,
        parameters=(("scale", str(scale)), ("connect.decimal.precision", str(precision))),
    )


def unscaled_bytes(value: int) -> bytes:
    """Return two's complement, big-endian, as short as it can be: Java's BigInteger.toByteArray."""
    return value.to_bytes(((value + (value < 0)).bit_length() >> 3) + 1, "big", signed=True)


def wrapped_digits(digits: bytes) -> bytes:
    """Return an unsigned 64-bit number as a signed one; leading zeros of ZEROFILL go."""
    value = int(digits)
    return b"%d" % (value if value < 1 << 63 else value - (1 << 64))
