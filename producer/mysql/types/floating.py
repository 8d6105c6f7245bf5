"""FLOAT and DOUBLE: the same bits by SELECT and from the log, printed as Java prints them.

The server rounds FLOAT to six digits in the text protocol, and FLOAT(M,D) and DOUBLE(M,D) to D digits; multiplied by
1e0 it is a double, whose text is exact (adding 0e0 would lose the sign of -0.0). FLOAT(M,D) is a double, as in
Debezium: the same 32 bits, with the digits of a double. Only the catalog tells it from FLOAT.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from decimal import Decimal
from math import copysign
from typing import ClassVar, Final

from tailrace.producer.model.table import Column, SourceType, quote
from tailrace.producer.mysql.types.base import (
    BinlogOption,
    BinlogType,
    Cache,
    CatalogRow,
    ColumnType,
    Fast,
    Layout,
    Value,
    ValueKind,
)
from tailrace.producer.mysql.types.integer import is_unsigned, number_type
from tailrace.schemas.connect import ConnectSchema

_SCALED: Final = re.compile(r"float\((\d+),(\d+)\)")
_FLOAT32: Final = struct.Struct("<f")
_FLOAT64: Final = struct.Struct("<d")


class FloatType(ColumnType):
    """FLOAT in four bytes, DOUBLE in eight."""

    data_types = ("float", "double")
    binlog_types = (
        BinlogType(4, "float", 1, BinlogOption.SIGN),
        BinlogType(5, "double", 1, BinlogOption.SIGN),
    )
    jdbc_types: ClassVar = {"float": 6, "double": 8}

    @classmethod
    def from_catalog(cls, row: CatalogRow) -> Column:
        digits = _SCALED.match(row.column_type)
        precision, scale = map(int, digits.groups()) if digits else (0, 0)
        return Column(row.name, row.data_type, row.nullable, is_unsigned(row), precision=precision, scale=scale)

    @classmethod
    def source_type(cls, column: Column) -> SourceType:
        return number_type(column, None, None)

    def connect(self) -> ConnectSchema:
        return ConnectSchema("float" if self._is_float32 else "double")

    @property
    def _is_float32(self) -> bool:
        return self.column.data_type == "float" and not self.column.precision

    @property
    def select(self) -> str:
        return f"{quote(self.column.name)}*1e0"

    @property
    def _struct(self) -> struct.Struct:
        return _FLOAT32 if self.column.data_type == "float" else _FLOAT64

    @property
    def layout(self) -> Layout:
        return Layout(self._struct.size)

    @property
    def _kind(self) -> ValueKind:
        return ValueKind.FLOAT32 if self._is_float32 else ValueKind.FLOAT64

    def from_text(self) -> Value:
        return Value(self._kind, float)

    def from_image(self) -> Value:
        return Value(self._kind, self.raw_key())

    def raw_key(self) -> Callable[[bytes], float]:
        unpack = self._struct.unpack

        def read(data: bytes) -> float:
            number: float = unpack(data)[0]
            return number

        return read

    def fast_image(self) -> Fast | None:
        return Fast("double") if self.column.data_type == "double" else None


def java_double(value: float) -> str:
    """Return what Java's Double.toString prints: 1.0, 1.0E10, 1.0E-5, in the fewest digits that read back."""
    if 1e-3 <= value < 1e7 or -1e7 < value <= -1e-3:
        return repr(value)
    return _java_text(value, repr(value))


def java_float(value: float) -> str:
    """Return what Java's Float.toString prints; ``value`` is exactly a 32-bit float."""
    return _FLOATS[value] if value else _java_text(value, "0")


def _shortest_float32(value: float) -> str:
    text = ""
    for fraction_digits in range(9):
        text = f"{value:.{fraction_digits}e}"
        if _as_float32(text) == value:
            break
    return _java_text(value, text)


def _as_float32(text: str) -> float:
    try:
        return float(_FLOAT32.unpack(_FLOAT32.pack(float(text)))[0])
    except OverflowError:
        # Few digits may round past the greatest 32-bit value.
        return float("inf")


_FLOATS: Final[Cache[float, str]] = Cache(_shortest_float32)


def _java_text(value: float, shortest: str) -> str:
    """Put the shortest digits into Java's notation: plain from 10**-3 up to 10**7, else with an exponent.

    There is always a digit after the point; where one digit would do, Java prints the nearest two.
    """
    if not value:
        return "-0.0" if copysign(1, value) < 0 else "0.0"
    digits, power = _digits(shortest)
    if len(digits) == 1:
        digits, power = _digits(f"{value:.1e}")
    sign = "-" if value < 0 else ""
    if -3 <= power < 0:
        return f"{sign}0.{'0' * (-power - 1)}{digits}"
    if 0 <= power < 7:
        digits = digits.ljust(power + 2, "0")
        return f"{sign}{digits[: power + 1]}.{digits[power + 1 :]}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{power}"


def _digits(text: str) -> tuple[str, int]:
    """Return the significant digits and the power of ten of the first."""
    _, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)
    return "".join(map(str, digits)).rstrip("0"), len(digits) + exponent - 1
