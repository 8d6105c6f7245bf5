"""Envelope JSON without schemas to typed columns, by native expressions, and an error where a value does not fit.

Spark's JSON reader turns what it cannot read into NULL. Here the record's own text is asked for beside it, and a NULL
that the record did not have stops the batch with topic, partition and offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.schemas.connect import ConnectField
from tailrace.schemas.rowkind import Op
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.normalize.sequence import sequence_column
from tailrace.spark_consumer.source.types import TypePlan, plan

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_CORRUPT: Final = "_corrupt"
_OPS: Final = ("c", "u", "d", "r")
_TRUNCATE: Final = (
    "it says that the source's table was emptied (op t), which no sink here applies: let the producer leave such "
    "records out (skipped.operations=t, its default) and begin anew under another topic.prefix, with an empty target "
    "and checkpoint, since this record stays in the topic"
)


class Images(Enum):
    """Which row images are decoded: an upsert needs less than a changelog."""

    UPSERT = "after whole, before only its key columns"
    CHANGELOG = "before and after whole"


def decode(raw: DataFrame, schema: TableSchema, images: Images) -> DataFrame:
    """Decode the records of one table's topic; tombstones are left out first.

    ``raw`` has RAW_COLUMNS. The result: partition, offset, key (bytes), split, seq (struct), op, ts_ms, before, after.
    A batch with a value that cannot be decoded fails when ``op`` is evaluated: whoever uses the result caches it whole
    or reads ``op``, since Spark does not compute a column that nobody asks for.
    """
    plans = {column.name: plan(column.schema, column=column.name, topic=schema.topic) for column in schema.columns}
    before = _key_columns(schema) if images is Images.UPSERT else schema.columns
    wire = _wire(schema.columns, before, plans)
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = raw.where(fn.col("value").isNotNull()).select(
        "partition",
        "offset",
        "key",
        "split",
        "event",
        fn.from_json(fn.col("value").cast("string"), wire, options).alias("e"),
    )
    opened = parsed.select(
        "partition",
        "offset",
        "key",
        "split",
        sequence_column(fn.col("event"), fn.col("e.source")).alias("seq"),
        fn.col("e.op").alias("op"),
        fn.col("e.source.ts_ms").alias("ts_ms"),
        _image("before", before, plans).alias("before"),
        _image("after", schema.columns, plans).alias("after"),
        fn.col("event"),
        fn.col(f"e.{_CORRUPT}").alias(_CORRUPT),
        *_raw_fallible("before", before, plans),
        *_raw_fallible("after", schema.columns, plans),
    )
    fault = _fault(schema, before, plans)
    return opened.select(
        "partition",
        "offset",
        "key",
        "split",
        "seq",
        fn.when(fault.isNotNull(), fn.raise_error(_message(schema, fault))).otherwise(fn.col("op")).alias("op"),
        "ts_ms",
        "before",
        "after",
    )


def row_type(schema: TableSchema) -> tp.StructType:
    """Return the Spark type of a decoded row; every column is nullable, since a delete or an older row may lack it."""
    return tp.StructType(
        [
            tp.StructField(column.name, plan(column.schema, column=column.name, topic=schema.topic).final)
            for column in schema.columns
        ]
    )


def _key_columns(schema: TableSchema) -> tuple[ConnectField, ...]:
    by_name = {column.name: column for column in schema.columns}
    return tuple(by_name[name] for name in schema.key)


def _wire(after: Sequence[ConnectField], before: Sequence[ConnectField], plans: dict[str, TypePlan]) -> tp.StructType:
    def row(columns: Sequence[ConnectField]) -> tp.StructType:
        return tp.StructType([tp.StructField(column.name, plans[column.name].wire) for column in columns])

    source = tp.StructType(
        [
            tp.StructField("file", tp.StringType()),
            tp.StructField("pos", tp.LongType()),
            tp.StructField("row", tp.LongType()),
            tp.StructField("ts_ms", tp.LongType()),
        ]
    )
    return tp.StructType(
        [
            tp.StructField("before", row(before)),
            tp.StructField("after", row(after)),
            tp.StructField("source", source),
            tp.StructField("op", tp.StringType()),
            tp.StructField(_CORRUPT, tp.StringType()),
        ]
    )


def _field(image: str, column: ConnectField) -> Column:
    return fn.col(f"e.{image}").getField(column.name)


def _image(image: str, columns: Sequence[ConnectField], plans: dict[str, TypePlan]) -> Column:
    if not columns:
        return fn.lit(None).cast(tp.StructType([]))
    if all(plans[column.name].decode is None for column in columns):
        return fn.col(f"e.{image}")
    members = []
    for column in columns:
        how = plans[column.name].decode
        value = _field(image, column)
        members.append((value if how is None else how(value)).alias(column.name))
    return fn.when(fn.col(f"e.{image}").isNotNull(), fn.struct(*members))


def _fallible(columns: Sequence[ConnectField], plans: dict[str, TypePlan]) -> list[ConnectField]:
    return [column for column in columns if plans[column.name].decode is not None]


def _raw_fallible(image: str, columns: Sequence[ConnectField], plans: dict[str, TypePlan]) -> list[Column]:
    """Return, for each column that decoding could lose, whether the record had a value."""
    return [
        _field(image, column).isNotNull().alias(f"had_{image}_{index}")
        for index, column in enumerate(_fallible(columns, plans))
    ]


def _fault(schema: TableSchema, before: Sequence[ConnectField], plans: dict[str, TypePlan]) -> Column:
    """Return what is wrong with a record as text, NULL for a good one."""
    seq, op = fn.col("seq"), fn.col("op")
    no_sequence = (
        seq["epoch"].isNull() | seq["file"].isNull() | seq["pos"].isNull() | seq["event"].isNull() | seq["row"].isNull()
    )
    no_row = fn.when(op == "d", fn.col("before").isNull()).otherwise(fn.col("after").isNull())
    no_before = (op == "u") & fn.col("before").isNull()
    checks = (
        fn.when(fn.col(_CORRUPT).isNotNull(), fn.lit("it is not the JSON that the table's schema describes"))
        .when(op.isNull(), fn.lit("it has no op; the envelope must be JSON without schemas"))
        .when(op == Op.TRUNCATE.value, fn.lit(_TRUNCATE))
        .when(~op.isin(*_OPS), fn.concat(fn.lit("its op is not known: "), op))
        .when(fn.col("key").isNull(), fn.lit("it has no key; give the table one with message.key.columns"))
        .when(no_sequence, fn.lit("its place in the log is incomplete (header tailrace.event, source.file, pos, row)"))
        .when(no_row | no_before, fn.lit("it lacks the row image that its op must have"))
    )
    for image, columns in (("before", before), ("after", schema.columns)):
        for index, column in enumerate(_fallible(columns, plans)):
            lost = fn.col(f"had_{image}_{index}") & fn.col(image).getField(column.name).isNull()
            checks = checks.when(
                lost,
                fn.lit(f"{image}.{column.name} cannot be represented as {plans[column.name].final.simpleString()}"),
            )
    return checks


def _message(schema: TableSchema, fault: Column) -> Column:
    return fn.concat(
        fn.lit(f"a record cannot be decoded: topic {schema.topic}, partition "),
        fn.col("partition").cast("string"),
        fn.lit(", offset "),
        fn.col("offset").cast("string"),
        fn.lit(": "),
        fault,
    )
