"""Integers: TINYINT to BIGINT, signed and unsigned.

TINYINT is INT16 (INT8 from Debezium 3.7 on, by a setting); BIGINT UNSIGNED is INT64 that wraps above 2**63-1, or a
Decimal of scale 0 with ``bigint.unsigned.handling.mode=precise``. Display widths change nothing.
"""

from __future__ import annotations

from typing import ClassVar, Final

from tailrace.producer.model.source_type import SourceType, declared_type
from tailrace.producer.model.table import Column
from tailrace.producer.mysql.types.base import (
    BinlogOption,
    BinlogType,
    CatalogRow,
    ColumnType,
    Expression,
    ExpressionKind,
    FixedWidth,
    KeyKind,
    RawBytes,
)
from tailrace.schemas.connect import ConnectSchema

_INT64_MAX: Final = (1 << 63) - 1
_CODES: Final = {"tinyint": ("b",), "smallint": ("h",), "mediumint": ("H", "b"), "int": ("i",), "bigint": ("q",)}
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
    def layout(self) -> FixedWidth:
        codes = _CODES[self.column.data_type]
        return FixedWidth((*codes[:-1], codes[-1].upper()) if self.column.unsigned else codes)

    def from_result_set(self, raw: RawBytes) -> Expression:
        if self._precise:
            return Expression(f"{raw.bind('unscaled', unscaled_bytes)}(int({raw.text}))", ExpressionKind.BYTES)
        if self.column.data_type == "bigint" and self.column.unsigned:
            return Expression(f"{raw.bind('wrapped', wrapped_digits)}({raw.text})", ExpressionKind.DIGITS)
        if self._may_be_zerofilled:
            return Expression(f"int({raw.text})", ExpressionKind.INT)
        return Expression(raw.text, ExpressionKind.DIGITS)

    def from_row_image(self, raw: RawBytes) -> Expression:
        value = self._value(raw)
        if self._precise:
            return Expression(f"{raw.bind('unscaled', unscaled_bytes)}({value})", ExpressionKind.BYTES)
        if self.column.data_type == "bigint" and self.column.unsigned:
            return Expression(f"({value} if {value} < {1 << 63} else {value} - {1 << 64})", ExpressionKind.INT)
        return Expression(value, ExpressionKind.INT)

    def key_from_row_image(self, raw: RawBytes) -> str:
        return self._value(raw)

    def _value(self, raw: RawBytes) -> str:
        return raw.parts[0] if len(raw.parts) == 1 else f"({raw.parts[0]} | {raw.parts[1]} << 16)"


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


def wrapped_digits(digits: str) -> str:
    """Return an unsigned 64-bit number as a signed one; leading zeros of ZEROFILL go."""
    value = int(digits)
    return str(value if value < 1 << 63 else value - (1 << 64))
