"""The type that represents every value of two types of a column, and the conversions whose loss can be detected.

A column changes its type by ALTER TABLE, and the records before and after it have different types. ``common_type`` is
decided by the types alone. ``checked_cast`` converts each value and compares it with the original.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.spark_consumer.spark_line import try_cast

if TYPE_CHECKING:
    from pyspark.sql import Column

MAX_PRECISION: Final = 38
_Type = type[tp.DataType]
_INTEGER_DIGITS: Final[dict[_Type, int]] = {
    tp.ByteType: 3,
    tp.ShortType: 5,
    tp.IntegerType: 10,
    tp.LongType: 20,
}
"""Digits of a decimal that represents all values. Delta widens BIGINT to decimals with at least 20 whole digits."""
_INTEGER_BITS: Final[dict[_Type, int]] = {tp.ByteType: 7, tp.ShortType: 15, tp.IntegerType: 31, tp.LongType: 63}
_FLOATING: Final = (tp.FloatType, tp.DoubleType)
_EXACT_IN_FLOAT: Final = (tp.ByteType, tp.ShortType)
_EXACT_IN_DOUBLE: Final = (tp.ByteType, tp.ShortType, tp.IntegerType, tp.FloatType)
_PLAIN_NUMBER: Final = r"^-?(0|[1-9][0-9]{0,19})(\.[0-9]{0,17}[1-9])?\z"
"""A number as MySQL prints it without an exponent: no zeros that the number does not need."""
_HOLDS_PLAIN_NUMBERS: Final = "decimal(38,18)"
_PRINTED_ALIKE: Final = (tp.ByteType, tp.ShortType, tp.IntegerType, tp.LongType, tp.DecimalType, tp.DateType)
"""MySQL and Spark print the values of these types alike."""

_NUMBERS: Final[tuple[_Type, ...]] = (
    *_INTEGER_DIGITS,
    tp.FloatType,
    tp.DoubleType,
    tp.DecimalType,
)
_PAIRS: Final[Mapping[_Type, Sequence[_Type]]] = {
    tp.StringType: (*_NUMBERS, tp.DateType),
    tp.TimestampNTZType: (tp.DateType,),
    **dict.fromkeys((tp.LongType, tp.FloatType, tp.DoubleType, tp.DecimalType), _NUMBERS),
}
"""Conversions that MySQL does in the same way for every value that survives the way back.

Text and bytes are none: MySQL keeps the bytes of the column's character set, which a record does not tell.
"""


def common_type(one: tp.DataType, other: tp.DataType) -> tp.DataType | None:
    """Return the smallest type that represents all values of both types; None if there is none."""
    if one == other:
        return one
    return _directed(one, other) or _directed(other, one)


def _directed(narrow: tp.DataType, wide: tp.DataType) -> tp.DataType | None:
    if isinstance(narrow, tuple(_INTEGER_DIGITS)) and isinstance(wide, tuple(_INTEGER_DIGITS)):
        return max(narrow, wide, key=lambda found: _INTEGER_DIGITS[type(found)])
    if isinstance(wide, tp.DecimalType):
        if isinstance(narrow, tuple(_INTEGER_DIGITS)):
            return _decimal(max(_INTEGER_DIGITS[type(narrow)], wide.precision - wide.scale), wide.scale)
        if isinstance(narrow, tp.DecimalType):
            whole = max(narrow.precision - narrow.scale, wide.precision - wide.scale)
            return _decimal(whole, max(narrow.scale, wide.scale))
        return None
    exact = (
        (isinstance(wide, tp.FloatType) and isinstance(narrow, _EXACT_IN_FLOAT))
        or (isinstance(wide, tp.DoubleType) and isinstance(narrow, _EXACT_IN_DOUBLE))
        or (isinstance(wide, tp.StringType) and isinstance(narrow, _PRINTED_ALIKE))
        or (isinstance(wide, tp.TimestampNTZType) and isinstance(narrow, tp.DateType))
    )
    return wide if exact else None


def _decimal(whole: int, scale: int) -> tp.DecimalType | None:
    return tp.DecimalType(whole + scale, scale) if whole + scale <= MAX_PRECISION else None


def can_check(source: tp.DataType, target: tp.DataType) -> bool:
    """Return whether ``checked_cast`` supports a pair of types without a common type."""
    return type(target) in _PAIRS.get(type(source), ())


def exact_cast(value: Column, source: tp.DataType, target: tp.DataType) -> Column:
    """Return the value in a type that represents all values of its own: ``common_type`` of both is the target."""
    if isinstance(source, tp.DecimalType) and isinstance(target, tp.StringType):
        # A cast can print small numbers with an exponent, unlike MySQL.
        return fn.replace(fn.format_number(value, source.scale), fn.lit(","), fn.lit(""))
    return value.cast(target)


def checked_cast(value: Column, source: tp.DataType, target: tp.DataType) -> Column:
    """Return the value in the target type; NULL if the target type does not represent it exactly."""
    converted = try_cast(value, target)
    same = try_cast(converted, source) == value
    # The greatest integer becomes a power of two as a floating-point number, and that becomes the integer again.
    if isinstance(target, _FLOATING):
        if isinstance(source, tp.StringType):
            same |= _is_printed_as(converted, value)
        same &= _is_within(converted, source)
    if isinstance(source, _FLOATING):
        same &= _is_within(value, target)
    return fn.when(same, converted)


def _is_printed_as(number: Column, text: Column) -> Column:
    """Return whether MySQL prints a floating-point number as a text without exponent: 1 and not 1.0 as Spark."""
    digits = try_cast(number.cast("string"), _HOLDS_PLAIN_NUMBERS)
    return text.rlike(_PLAIN_NUMBER) & (try_cast(text, _HOLDS_PLAIN_NUMBERS) == digits)


def _is_within(number: Column, kind: tp.DataType) -> Column:
    """Return whether a floating-point number is finite, and within the limits of a type if that has integers."""
    bits = _INTEGER_BITS.get(type(kind))
    if bits is None:
        return fn.abs(number) < fn.lit(float("inf"))
    return (number >= fn.lit(-(2.0**bits))) & (number < fn.lit(2.0**bits))


def failing(value: Column, lost: Column | None, kind: tp.DataType, text: str, shown: Column | None = None) -> Column:
    """Return a value of a type that fails its query where it is ``lost``, with a text and what is ``shown``."""
    if lost is None:
        return value
    message = fn.lit(text) if shown is None else fn.concat(fn.lit(text), shown.cast("string"))
    return fn.when(lost, fn.raise_error(message).cast(kind)).otherwise(value)


def convert_value(value: Column, source: tp.DataType, target: tp.DataType) -> tuple[Column, Column | None]:
    """Return the value in the target type, and for a conversion that can lose a value, whether it did."""
    if source == target:
        return value, None
    if common_type(source, target) == target:
        return exact_cast(value, source, target), None
    cast = checked_cast(value, source, target)
    return cast, value.isNotNull() & cast.isNull()
