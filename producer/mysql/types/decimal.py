"""DECIMAL and NUMERIC: Connect's Decimal, a double, or a string with all its digits, by ``decimal.handling.mode``.

The binlog packs nine decimal digits into four bytes, each side of the point apart; a negative number has all its bits
inverted, and the first bit is inverted again. All arithmetic is on integers: the value times ten to the power of scale.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import ClassVar, Final

from tailrace.producer.model.table import Column, SourceType
from tailrace.producer.mysql.types.base import (
    BinlogColumn,
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
from tailrace.producer.mysql.types.conversion import Inexact
from tailrace.producer.mysql.types.integer import decimal_schema, is_unsigned, number_type, unscaled_bytes
from tailrace.schemas.connect import ConnectSchema

_DIGITS_PER_GROUP: Final = 9
_DIGITS_OF_DOUBLE: Final = 15
_FAST_DIGITS: Final = 18
_KEEP_DIGITS: Final = "set decimal.handling.mode to precise or string"
_BYTES_OF_DIGITS: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


class DecimalType(ColumnType):
    """DECIMAL(precision, scale)."""

    data_types = ("decimal",)
    binlog_types = (BinlogType(246, "decimal", 2, BinlogOption.SIGN),)
    old_binlog_codes: ClassVar = {0: "decimal"}
    jdbc_types: ClassVar = {"decimal": 3}
    key_kinds: ClassVar = {"decimal": KeyKind.DECIMAL}

    @classmethod
    def from_catalog(cls, row: CatalogRow) -> Column:
        return Column(row.name, "decimal", row.nullable, is_unsigned(row), precision=row.precision, scale=row.scale)

    @classmethod
    def from_binlog(cls, column: BinlogColumn) -> Column:
        precision, scale = column.metadata
        return Column(column.name, "decimal", column.nullable, column.unsigned, precision=precision, scale=scale)

    @classmethod
    def known_length(cls, column: Column) -> int | None:
        return column.precision

    @classmethod
    def source_type(cls, column: Column) -> SourceType:
        return number_type(column, column.precision, column.scale)

    def connect(self) -> ConnectSchema:
        mode = self.settings.decimal_handling_mode
        if mode == "double":
            return ConnectSchema("double")
        if mode == "string":
            return ConnectSchema("string")
        return decimal_schema(scale=self.column.scale, precision=self.column.precision)

    @property
    def layout(self) -> Layout:
        return Layout(packed_size(self.column.precision, self.column.scale))

    def from_text(self) -> Value:
        if self.settings.decimal_handling_mode == "double":
            to_double = self._to_double()
            return Value(ValueKind.FLOAT64, lambda data: to_double(str(data, "latin-1")))
        return self._of_unscaled((lambda data: int(data.replace(b".", b""))) if self.column.scale else int)

    def from_image(self) -> Value:
        unscaled = unpack(self.column.precision, self.column.scale)
        if self.settings.decimal_handling_mode == "double":
            plain, to_double = plain_text(self.column.scale), self._to_double()
            return Value(ValueKind.FLOAT64, lambda data: to_double(plain(unscaled(data))))
        return self._of_unscaled(unscaled)

    def _of_unscaled(self, unscaled: Callable[[bytes], int]) -> Value:
        if self.settings.decimal_handling_mode == "string":
            plain = plain_text(self.column.scale)
            return Value(ValueKind.PLAIN, lambda data: plain(unscaled(data)).encode())
        return Value(ValueKind.BYTES, lambda data: unscaled_bytes(unscaled(data)))

    def raw_key(self) -> Callable[[bytes], Decimal]:
        plain, unscaled = plain_text(self.column.scale), unpack(self.column.precision, self.column.scale)
        return lambda data: Decimal(plain(unscaled(data)))

    def fast_text(self) -> Fast | None:
        return self._fast()

    def fast_image(self) -> Fast | None:
        return self._fast() if self.column.precision <= _FAST_DIGITS else None

    def _fast(self) -> Fast | None:
        mode, scale = self.settings.decimal_handling_mode, self.column.scale
        if mode == "double":
            return None
        kind = "decimal" if mode == "precise" else "decimal-text"
        return Fast(kind, scale=scale, whole_digits=self.column.precision - scale)

    @property
    def may_replace(self) -> bool:
        cuts = self.settings.decimal_handling_mode == "double" and self.column.precision > _DIGITS_OF_DOUBLE
        return cuts and self.in_key

    def _to_double(self) -> Callable[[str], float]:
        """Return the function from text to a double; a double keeps any 15 digits."""
        conversion = self.conversion
        if conversion is None or not self.may_replace:
            return float

        def convert(text: str) -> float:
            value = float(text)
            if Decimal(repr(value)) != Decimal(text):
                conversion.replace(Inexact(text, "of a key has more digits than a double", _KEEP_DIGITS), value)
            return value

        return convert


def packed_size(precision: int, scale: int) -> int:
    """Return the number of bytes of a packed decimal."""
    whole_groups, whole_rest = divmod(precision - scale, _DIGITS_PER_GROUP)
    groups, rest = divmod(scale, _DIGITS_PER_GROUP)
    return 4 * (whole_groups + groups) + _BYTES_OF_DIGITS[whole_rest] + _BYTES_OF_DIGITS[rest]


def unpack(precision: int, scale: int) -> Callable[[bytes], int]:
    """Return the function from packed bytes to the unscaled integer."""
    whole_groups, whole_rest = divmod(precision - scale, _DIGITS_PER_GROUP)
    groups, rest = divmod(scale, _DIGITS_PER_GROUP)
    # (digits, bytes) of every group, most significant first.
    layout = [(whole_rest, _BYTES_OF_DIGITS[whole_rest])] if whole_rest else []
    layout += [(_DIGITS_PER_GROUP, 4)] * (whole_groups + groups)
    layout += [(rest, _BYTES_OF_DIGITS[rest])] if rest else []
    size = packed_size(precision, scale)
    top = 1 << (8 * size - 1)
    ones = (1 << (8 * size)) - 1
    terms: list[tuple[int, int, int]] = []
    shift, power = 0, 0
    for digits, width in reversed(layout):
        terms.append((shift, (1 << (8 * width)) - 1, 10**power))
        shift += 8 * width
        power += digits
    from_bytes = int.from_bytes

    if len(terms) == 1:

        def unpack_one(packed: bytes) -> int:
            bits = from_bytes(packed, "big")
            return bits ^ top if bits & top else -(bits ^ ones ^ top)

        return unpack_one

    if len(terms) == 2:
        (_, low_mask, _), (high_shift, _, high_power) = terms

        def unpack_two(packed: bytes) -> int:
            bits = from_bytes(packed, "big")
            if bits & top:
                bits ^= top
                return (bits >> high_shift) * high_power + (bits & low_mask)
            bits ^= ones ^ top
            return -((bits >> high_shift) * high_power + (bits & low_mask))

        return unpack_two

    def unpack_many(packed: bytes) -> int:
        bits = from_bytes(packed, "big")
        negative = not bits & top
        bits ^= (ones ^ top) if negative else top
        total = 0
        for shift, mask, power in terms:
            total += ((bits >> shift) & mask) * power
        return -total if negative else total

    return unpack_many


def plain_text(scale: int) -> Callable[[int], str]:
    """Return the function from an unscaled integer to plain notation, trailing zeros kept."""

    def plain(unscaled: int) -> str:
        if not scale:
            return str(unscaled)
        digits = str(abs(unscaled)).rjust(scale + 1, "0")
        return f"{'-' if unscaled < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"

    return plain
