"""The canonical text of a target's values in Spark, as schemas/verification.py defines it: native expressions alone.

The session is in UTC, and ``spark.sql.ansi.enabled`` is true: otherwise Spark casts small decimals to texts with an
exponent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.schemas.verification import CHECKSUM_DIGITS, NULL, TextForm

if TYPE_CHECKING:
    from pyspark.sql import Column

_INTEGERS: Final = (tp.ByteType, tp.ShortType, tp.IntegerType, tp.LongType)
_TEXT: Final = (tp.StringType, tp.BinaryType)
_BITS: Final = 16
_SRID_DIGITS: Final = 8


def canonical_text(value: Column, form: TextForm, kind: tp.DataType) -> Column | None:
    """Return the texts of a column of some type; None if values of the type have no text of that form."""
    text = _FORMS[form](value, kind)
    return None if text is None else fn.coalesce(text, fn.lit(NULL))


def joined(texts: Sequence[Column]) -> Column:
    """Return the text of a row, or of a key."""
    return fn.concat_ws(",", *texts)


def checksum(text: Column) -> Column:
    """Return the checksum of a row, from its text."""
    return fn.substring(fn.sha2(text.cast("binary"), 256), 1, CHECKSUM_DIGITS)


def key_number(key: Column, modulus: int) -> Column:
    """Return the CRC-32 of the text of a key, modulo a number; with ``BUCKETS`` it is the bucket."""
    return fn.crc32(key.cast("binary")) % modulus


def _integer(value: Column, kind: tp.DataType) -> Column | None:
    if isinstance(kind, tp.BooleanType):
        return value.cast("int").cast("string")
    whole = isinstance(kind, _INTEGERS) or (isinstance(kind, tp.DecimalType) and not kind.scale)
    return value.cast("string") if whole else None


def _decimal(value: Column, kind: tp.DataType) -> Column | None:
    if not isinstance(kind, tp.DecimalType):
        return _integer(value, kind)
    text = value.cast("string")
    return fn.regexp_replace(text, r"\.?0+$", "") if kind.scale else text


def _double(value: Column, kind: tp.DataType) -> Column | None:
    if not isinstance(kind, (tp.FloatType, tp.DoubleType)):
        return None
    # Databases lose the sign of zero.
    wide = fn.when(value == 0, fn.lit(0.0)).otherwise(value.cast("double"))
    # A method that is called with NULL fails.
    bits = fn.java_method(fn.lit("java.lang.Double"), fn.lit("doubleToLongBits"), fn.coalesce(wide, fn.lit(0.0)))
    return fn.when(value.isNotNull(), fn.lpad(fn.hex(bits.cast("bigint")), _BITS, "0"))


def _bytes(value: Column, kind: tp.DataType) -> Column | None:
    return fn.hex(value) if isinstance(kind, _TEXT) else None


def _digest(value: Column, kind: tp.DataType) -> Column | None:
    return fn.sha2(value.cast("binary"), 256) if isinstance(kind, _TEXT) else None


def _date(value: Column, kind: tp.DataType) -> Column | None:
    return value.cast("string") if isinstance(kind, tp.DateType) else None


def _datetime(value: Column, kind: tp.DataType) -> Column | None:
    if not isinstance(kind, (tp.TimestampType, tp.TimestampNTZType)):
        return None
    return fn.date_format(value, "yyyy-MM-dd HH:mm:ss.SSSSSS")


def _geometry(value: Column, kind: tp.DataType) -> Column | None:
    if not isinstance(kind, tp.StructType) or not {"wkb", "srid"} <= set(kind.names):
        return None
    srid = fn.lpad(fn.hex(fn.coalesce(value["srid"], fn.lit(0))), 2 * _SRID_DIGITS, "0")
    text = fn.concat(fn.sha2(value["wkb"], 256), fn.lit(":"), fn.substring(srid, _SRID_DIGITS + 1, _SRID_DIGITS))
    return fn.when(value.isNotNull(), text)


_FORMS: Final[dict[TextForm, Callable[[Column, tp.DataType], Column | None]]] = {
    TextForm.INTEGER: _integer,
    TextForm.DECIMAL: _decimal,
    TextForm.DOUBLE: _double,
    TextForm.BYTES: _bytes,
    TextForm.DIGEST: _digest,
    TextForm.DATE: _date,
    TextForm.DATETIME: _datetime,
    TextForm.GEOMETRY: _geometry,
}
