"""Spark types of Connect schemas, and of the sequence: the type that from_json reads, and the type that a table stores.

The JSON type is what the JSON token must be. The column type is what a table stores. Native expressions convert one to
the other; they return NULL for a value that they cannot represent, never an approximation. The decoder compares the
NULLs before and after and fails the batch. docs/consumer.md lists the types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.runtime.errors import SchemaError
from tailrace.schemas.connect import ConnectSchema
from tailrace.schemas.sequence import Sequence
from tailrace.spark_consumer.source.common_type import MAX_PRECISION
from tailrace.spark_consumer.source.kafka import reload_remedy
from tailrace.spark_consumer.spark_line import VARIANT_TYPES, lpad, try_cast

if TYPE_CHECKING:
    from pyspark.sql import Column

_LONG_DIGITS: Final = 18
_LONG_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class FieldType:
    """The types of one field; ``decode`` is None if the JSON value is the column value."""

    json: tp.DataType
    column: tp.DataType
    decode: Callable[[Column], Column] | None = None


VARIANT: Final = "variant"
"""The type of a column of which only JSON values are known; no Connect type."""

_PRIMITIVE: Final[dict[str, tp.DataType]] = {
    # int8 is read as a short: the JSON reader would accept 200 for a byte and store -56.
    "int8": tp.ShortType(),
    "int16": tp.ShortType(),
    "int32": tp.IntegerType(),
    "int64": tp.LongType(),
    "float": tp.FloatType(),
    "double": tp.DoubleType(),
    "boolean": tp.BooleanType(),
    "string": tp.StringType(),
    "bytes": tp.BinaryType(),
    **({VARIANT: VARIANT_TYPES[0]()} if VARIANT_TYPES else {}),
}

PLAIN_TYPES: Final[dict[type[tp.DataType], str]] = {
    tp.ByteType: "int16",
    tp.ShortType: "int16",
    tp.IntegerType: "int32",
    tp.LongType: "int64",
    tp.FloatType: "float",
    tp.DoubleType: "double",
    tp.BooleanType: "boolean",
    tp.StringType: "string",
    tp.BinaryType: "bytes",
    **dict.fromkeys(VARIANT_TYPES, VARIANT),
}
"""The Connect type of a Spark type, where no name and no parameter is needed: the reverse of the above."""


def decimal_schema(kind: tp.DecimalType, *, optional: bool) -> ConnectSchema:
    """Return the Connect schema of a decimal type."""
    parameters = (("scale", str(kind.scale)), ("connect.decimal.precision", str(kind.precision)))
    return ConnectSchema("bytes", optional=optional, name=DECIMAL, version=1, parameters=parameters)


def _millis(value: Column) -> Column:
    # The session time zone is UTC (session.py; changes.py refuses others), so the cast keeps the digits.
    return fn.timestamp_millis(value).cast("timestamp_ntz")


def _micros(value: Column) -> Column:
    return fn.timestamp_micros(value).cast("timestamp_ntz")


def _nanos(value: Column) -> Column:
    micros = (value.cast("decimal(19,0)") / fn.lit(1000)).cast("bigint")
    return fn.when(value % 1000 == 0, _micros(micros))


def _iso(kind: str) -> Callable[[Column], Column]:
    # A DATETIME has no zone; the connector prints it in UTC.
    return lambda text: try_cast(fn.regexp_replace(text, "Z$", ""), kind)


_LOGICAL: Final[dict[str, tuple[tp.DataType, Callable[[Column], Column]]]] = {
    "io.debezium.time.Date": (tp.DateType(), fn.date_from_unix_date),
    "io.debezium.time.Timestamp": (tp.TimestampNTZType(), _millis),
    "io.debezium.time.MicroTimestamp": (tp.TimestampNTZType(), _micros),
    "io.debezium.time.NanoTimestamp": (tp.TimestampNTZType(), _nanos),
    "io.debezium.time.ZonedTimestamp": (tp.TimestampType(), lambda text: try_cast(text, "timestamp")),
    "io.debezium.time.IsoDate": (tp.DateType(), _iso("date")),
    "io.debezium.time.IsoTimestamp": (tp.TimestampNTZType(), _iso("timestamp_ntz")),
    "org.apache.kafka.connect.data.Date": (tp.DateType(), fn.date_from_unix_date),
    "org.apache.kafka.connect.data.Timestamp": (tp.TimestampNTZType(), _millis),
}
"""Schema names whose values are converted. All others keep the JSON value, for example Enum, EnumSet, Json, Bits, Year
and the types of TIME (signed and beyond 24 hours, which no Spark type represents)."""

DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"


def field_type(schema: ConnectSchema, *, column: str, topic: str) -> FieldType:
    """Return the Spark types of a field; raises SchemaError for a schema without a Spark type."""
    if schema.name == DECIMAL:
        return _decimal_type(schema, column, topic)
    if schema.name in _LOGICAL:
        column_type, decode = _LOGICAL[schema.name]
        return FieldType(_PRIMITIVE[schema.type], column_type, decode)
    same = _plain_type(schema, column, topic)
    return FieldType(same, same)


def _plain_type(schema: ConnectSchema, column: str, topic: str) -> tp.DataType:
    if schema.type in _PRIMITIVE:
        return _PRIMITIVE[schema.type]
    if schema.type == "struct":
        members = [tp.StructField(f.name, _member(f.schema, column, topic)) for f in schema.fields]
        return tp.StructType(members)
    if schema.type == "array" and schema.items is not None:
        return tp.ArrayType(_member(schema.items, column, topic))
    if schema.type == "map" and schema.keys is not None and schema.values is not None and schema.keys.type == "string":
        return tp.MapType(tp.StringType(), _member(schema.values, column, topic))
    raise SchemaError(
        f"column {column!r} has a Connect type without a Spark type",
        hint=_exclude_remedy(topic),
        topic=topic,
        type=schema.type,
    )


def _member(schema: ConnectSchema, column: str, topic: str) -> tp.DataType:
    inner = field_type(schema, column=column, topic=topic)
    if inner.decode is not None:
        raise SchemaError(
            f"column {column!r} has {schema.name} inside a struct, array or map, which is not supported",
            hint=_exclude_remedy(topic),
            topic=topic,
        )
    return inner.column


def _exclude_remedy(topic: str) -> str:
    """Return what to do about a column that cannot be read: records that the topic has name its type too."""
    return f"exclude the column with column.exclude.list in the producer, then {reload_remedy(topic)}"


def _decimal_type(schema: ConnectSchema, column: str, topic: str) -> FieldType:
    parameters = dict(schema.parameters)
    scale = int(parameters.get("scale", "0"))
    precision = int(parameters.get("connect.decimal.precision", str(MAX_PRECISION)))
    if precision > MAX_PRECISION or not 0 <= scale <= precision:
        raise SchemaError(
            f"column {column!r} is a decimal with more digits than Spark's maximum of {MAX_PRECISION}",
            hint=f"set decimal.handling.mode=string in the producer, or {_exclude_remedy(topic)}",
            topic=topic,
            precision=precision,
            scale=scale,
        )

    def decode(unscaled: Column) -> Column:
        return _decimal(unscaled, precision, scale)

    return FieldType(tp.BinaryType(), tp.DecimalType(precision, scale), decode)


def _decimal(unscaled: Column, precision: int, scale: int) -> Column:
    """Return the decimal of an unscaled two's complement big-endian integer; NULL if it does not fit."""
    digits = fn.hex(unscaled)
    length = fn.octet_length(unscaled)
    # The sign is the upper bit of the first hex digit; the value is padded with the digit of the sign.
    fill = fn.when(fn.substring(digits, 1, 1) >= fn.lit("8"), fn.lit("F")).otherwise(fn.lit("0"))
    if precision <= _LONG_DIGITS:
        wide = lpad(digits, fn.lit(2 * _LONG_BYTES), fill)
        number = try_cast(fn.conv(wide, 16, -10), "decimal(20,0)")
        return fn.when((length >= 1) & (length <= _LONG_BYTES), _scaled(number, precision, scale))
    wide = lpad(digits, fn.lit(4 * _LONG_BYTES), fill)
    halves = fn.struct(
        fn.conv(fn.substring(wide, 1, 2 * _LONG_BYTES), 16, -10).cast("bigint").alias("high"),
        fn.conv(fn.substring(wide, 2 * _LONG_BYTES + 1, 2 * _LONG_BYTES), 16, 10).cast("decimal(20,0)").alias("low"),
    )
    text = _let(halves, lambda half: _text(half["high"], half["low"], scale))
    return fn.when((length >= 1) & (length <= 2 * _LONG_BYTES), try_cast(text, f"decimal({precision},{scale})"))


def _let(value: Column, use: Callable[[Column], Column]) -> Column:
    """Return ``use(value)`` with the value computed once; Spark generates code for each occurrence of an expression."""
    return fn.get(fn.transform(fn.array(value), use), fn.lit(0))


def _text(high: Column, low: Column, scale: int) -> Column:
    negative = high < 0
    magnitude = _magnitude(
        fn.when(negative, -high - 1).otherwise(high),
        fn.when(negative, fn.lit(str(2**64)).cast("decimal(20,0)") - low).otherwise(low).cast("decimal(21,0)"),
    )
    sign = fn.when(negative, fn.lit("-")).otherwise(fn.lit(""))
    return fn.concat(sign, _let(magnitude, lambda digits: _with_point(digits, scale)))


def _magnitude(high: Column, low: Column) -> Column:
    """Return the digits of ``high * 2**64 + low``.

    Spark rounds decimal arithmetic beyond 34 digits, so no step here needs more than 30. The upper half is split into
    two groups of decimal digits, and their products are joined as text.
    """
    two_64 = fn.lit(str(2**64)).cast("decimal(20,0)")
    pieces = fn.lpad(high.cast("string"), 19, "0")
    upper = fn.substring(pieces, 1, 10).cast("decimal(10,0)")
    lower = fn.substring(pieces, 11, 9).cast("decimal(9,0)")
    rest = fn.lpad((lower * two_64 + low).cast("string"), 31, "0")
    parts = fn.struct((upper * two_64).alias("whole"), rest.alias("rest"))
    return _let(
        parts,
        lambda part: fn.concat(
            (part["whole"] + fn.substring(part["rest"], 1, 22).cast("decimal(22,0)")).cast("string"),
            fn.substring(part["rest"], 23, 9),
        ),
    )


def _with_point(digits: Column, scale: int) -> Column:
    """Return digits with the decimal point ``scale`` places from the right."""
    if scale == 0:
        return digits
    padded = lpad(digits, fn.greatest(fn.length(digits), fn.lit(scale + 1)), fn.lit("0"))
    point = fn.length(padded) - scale
    return fn.concat(padded.substr(fn.lit(1), point), fn.lit("."), padded.substr(point + 1, fn.lit(scale)))


def _scaled(number: Column, precision: int, scale: int) -> Column:
    whole = try_cast(number, f"decimal({precision},0)")
    if scale == 0:
        return whole
    factor = fn.lit(f"0.{'0' * (scale - 1)}1").cast(f"decimal({scale + 1},{scale})")
    return try_cast(fn.try_multiply(whole, factor), f"decimal({precision},{scale})")


SEQUENCE_TYPE: Final = tp.StructType([tp.StructField(name, tp.LongType()) for name in Sequence._fields])


def sequence_column(event_header: Column, source: Column) -> Column:
    """Return the sequence struct of a record; a field is NULL if the header or the source block lacks it."""
    file = fn.substring_index(source["file"], ".", -1)
    # Without split_part, which compiles a regular expression for each record.
    epoch = fn.substring_index(event_header, ".", 1)
    after_epoch = fn.substr(event_header, fn.length(epoch) + 2)
    return fn.struct(
        try_cast(epoch, "bigint").alias("epoch"),
        try_cast(file, "bigint").alias("file"),
        source["pos"].cast("bigint").alias("pos"),
        try_cast(fn.substring_index(after_epoch, ".", 1), "bigint").alias("event"),
        source["row"].cast("bigint").alias("row"),
    )


def sequence_literal(sequence: Sequence) -> Column:
    """Return a sequence as a literal of SEQUENCE_TYPE."""
    return fn.struct(*(fn.lit(value).cast("bigint").alias(name) for name, value in sequence._asdict().items()))
