"""Decodes change events (JSON envelopes without schemas) to typed columns, with native Spark expressions.

Spark's JSON reader returns NULL for a value that it cannot read. The decoder compares the NULLs before and after each
conversion: a NULL that was not in the record fails the batch with topic, partition and offset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.schemas.connect import ConnectField
from tailrace.schemas.names import SCHEMA_HEADER
from tailrace.schemas.rowkind import Op
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.images import Images, MetadataField
from tailrace.spark_consumer.small_data import ColumnCache
from tailrace.spark_consumer.source.types import FieldType, field_type, sequence_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Read = Callable[["DataFrame", tp.StructType], "DataFrame"]
"""``(records, type)`` -> the records with a column ``e``: the envelope as a struct of that type."""

METADATA: Final = "metadata"
"""Column of decoded records and of changelog rows: a struct of the chosen fields of the envelope."""
_CORRUPT: Final = "_corrupt"
_SOURCE: Final[Mapping[str, tp.DataType]] = {
    "file": tp.StringType(),
    "pos": tp.LongType(),
    "row": tp.LongType(),
    "ts_ms": tp.LongType(),
}
"""The fields of the source block that every record needs."""
_NO_SEQUENCE: Final = "its sequence is incomplete (header tailrace.event; source.file, pos and row)"
_NO_HEADER: Final = "no header; if a Debezium connector began this topic, set key.converter and value.converter"
_OPS: Final = (Op.CREATE.value, Op.UPDATE.value, Op.DELETE.value, Op.READ.value)


def read_json(records: DataFrame, envelope: tp.StructType) -> DataFrame:
    """Return the records with a column ``e``: the value, a JSON envelope without schema, as a struct of that type."""
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    return records.withColumn("e", fn.from_json(fn.col("value").cast("string"), envelope, options))


def decode(
    raw: DataFrame, schema: TableSchema, images: Images, read: Read = read_json, fields: Sequence[MetadataField] = ()
) -> DataFrame:
    """Decode the records of one table topic, without tombstones.

    ``raw`` has RAW_COLUMNS; ``read`` adds the envelope of each record as a struct (formats/record_format.py). The
    result has partition, offset, key (bytes), split, incremental, seq (struct), op, ts_ms, checksum (of a snapshot row
    with a split), before, after, and with ``fields`` the struct metadata. A truncate event (op t) has neither key nor
    images. An invalid record fails the batch when ``op`` is evaluated. Spark does not evaluate unused columns, so the
    caller must cache the whole result or read ``op``.
    """
    chosen = tuple(fields)
    columns = _COLUMNS.get((schema.fingerprint, images, chosen), lambda: _columns(schema, images, chosen))
    rows = raw.where(columns.has_value).withColumn("incremental", columns.is_incremental)
    return read(rows, columns.envelope).select(*columns.converted).select(*columns.decoded)


@dataclass(frozen=True, slots=True)
class _Columns:
    has_value: Column
    is_incremental: Column
    envelope: tp.StructType
    converted: list[Column]
    decoded: list[Column]


_COLUMNS: Final = ColumnCache[_Columns]()
_PLAIN: Final = ("partition", "offset", "key", "split", "incremental")


def _columns(schema: TableSchema, images: Images, fields: Sequence[MetadataField]) -> _Columns:
    types = _field_types(schema)
    before = image_fields(schema, "before", images)
    is_row = fn.col("split").isNotNull() & (fn.col("e.op") == Op.READ.value)
    converted = [
        *map(fn.col, _PLAIN),
        sequence_column(fn.col("event"), fn.col("e.source")).alias("seq"),
        fn.col("e.op").alias("op"),
        fn.col("e.source.ts_ms").alias("ts_ms"),
        fn.when(is_row, row_checksum(fn.col("value"))).alias("checksum"),
        _image("before", before, types).alias("before"),
        _image("after", schema.columns, types).alias("after"),
        fn.col("event"),
        fn.col("schema"),
        fn.col(f"e.{_CORRUPT}").alias(_CORRUPT),
        *_metadata(fields),
        *_had_value("before", before, types),
        *_had_value("after", schema.columns, types),
    ]
    problem = _problem(schema, before, types)
    failure = fn.raise_error(fn.concat(failure_prefix(schema), problem))
    decoded = [
        *map(fn.col, (*_PLAIN, "seq")),
        fn.when(problem.isNotNull(), failure).otherwise(fn.col("op")).alias("op"),
        *map(fn.col, ("ts_ms", "checksum", "before", "after", *([METADATA] if fields else []))),
    ]
    return _Columns(
        fn.col("value").isNotNull(),
        fn.col("incremental").isNotNull(),
        _envelope_type(schema.columns, before, types, fields),
        converted,
        decoded,
    )


def row_type(schema: TableSchema) -> tp.StructType:
    """Return the Spark type of a decoded row. Every column is nullable: deletes and older rows can lack values."""
    return tp.StructType([tp.StructField(name, found.column) for name, found in _field_types(schema).items()])


def _field_types(schema: TableSchema) -> dict[str, FieldType]:
    return {column.name: field_type(column.schema, column=column.name, topic=schema.topic) for column in schema.columns}


def image_fields(schema: TableSchema, image: str, images: Images) -> tuple[ConnectField, ...]:
    """Return the fields that are decoded of an image: for upserts, only the key of ``before``."""
    if image == "after" or images is not Images.UPSERT:
        return schema.columns
    by_name = {column.name: column for column in schema.columns}
    return tuple(by_name[name] for name in schema.key)


def _envelope_type(
    after: Sequence[ConnectField],
    before: Sequence[ConnectField],
    types: dict[str, FieldType],
    fields: Sequence[MetadataField],
) -> tp.StructType:
    def row(columns: Sequence[ConnectField]) -> tp.StructType:
        return tp.StructType([tp.StructField(column.name, types[column.name].json) for column in columns])

    def block(name: str, needed: Mapping[str, tp.DataType]) -> list[tp.StructField]:
        chosen = {field.name: field.type for field in fields if field.block == name}
        return [tp.StructField(member, kind) for member, kind in {**needed, **chosen}.items()]

    transaction = block("transaction", {})
    return tp.StructType(
        [
            tp.StructField("before", row(before)),
            tp.StructField("after", row(after)),
            tp.StructField("source", tp.StructType(block("source", _SOURCE))),
            *block("", {"op": tp.StringType()}),
            *([tp.StructField("transaction", tp.StructType(transaction))] if transaction else []),
            tp.StructField(_CORRUPT, tp.StringType()),
        ]
    )


def _metadata(fields: Sequence[MetadataField]) -> list[Column]:
    values = [
        fn.col(f"e.{field.block}.{field.name}" if field.block else f"e.{field.name}").alias(field.column)
        for field in fields
    ]
    return [fn.struct(*values).alias(METADATA)] if values else []


def _field(image: str, column: ConnectField) -> Column:
    return fn.col(f"e.{image}").getField(column.name)


def _image(image: str, columns: Sequence[ConnectField], types: dict[str, FieldType]) -> Column:
    if not columns:
        return fn.lit(None).cast(tp.StructType([]))
    if all(types[column.name].decode is None for column in columns):
        return fn.col(f"e.{image}")
    members = []
    for column in columns:
        decode_value = types[column.name].decode
        value = _field(image, column)
        members.append((value if decode_value is None else decode_value(value)).alias(column.name))
    return fn.when(fn.col(f"e.{image}").isNotNull(), fn.struct(*members))


def _converted(columns: Sequence[ConnectField], types: dict[str, FieldType]) -> list[ConnectField]:
    return [column for column in columns if types[column.name].decode is not None]


def _had_value(image: str, columns: Sequence[ConnectField], types: dict[str, FieldType]) -> list[Column]:
    """Return, for each column that is converted, whether the record had a value."""
    return [
        _field(image, column).isNotNull().alias(f"had_{image}_{index}")
        for index, column in enumerate(_converted(columns, types))
    ]


def _problem(schema: TableSchema, before: Sequence[ConnectField], types: dict[str, FieldType]) -> Column:
    """Return what is wrong with a record as text; NULL for a valid record."""
    seq, op = fn.col("seq"), fn.col("op")
    no_sequence = (
        seq["epoch"].isNull() | seq["file"].isNull() | seq["pos"].isNull() | seq["event"].isNull() | seq["row"].isNull()
    )
    no_row = fn.when(op == Op.DELETE.value, fn.col("before").isNull()).otherwise(fn.col("after").isNull())
    no_before = (op == Op.UPDATE.value) & fn.col("before").isNull()
    checks = (
        fn.when(fn.col(_CORRUPT).isNotNull(), fn.lit("its value does not match the table schema"))
        .when(
            op.isNull(), fn.lit("it has no op; without key.converter and value.converter the value must be plain JSON")
        )
        # It has no row. Its schema header is that of the rows before it, and can be missing.
        .when(op == Op.TRUNCATE.value, fn.when(no_sequence, fn.lit(_NO_SEQUENCE)))
        .when(
            fn.col("schema").isNull() | (fn.col("schema") != schema.fingerprint),
            fn.concat(
                fn.lit(f"its header {SCHEMA_HEADER} is not {schema.fingerprint}, the published schema: "),
                fn.coalesce(fn.col("schema"), fn.lit(_NO_HEADER)),
            ),
        )
        .when(~op.isin(*_OPS), fn.concat(fn.lit("unknown op: "), op))
        .when(fn.col("key").isNull(), fn.lit("it has no key; set key columns with message.key.columns"))
        .when(no_sequence, fn.lit(_NO_SEQUENCE))
        .when(no_row | no_before, fn.lit("it lacks a row image that its op requires"))
    )
    for image, columns in (("before", before), ("after", schema.columns)):
        for index, column in enumerate(_converted(columns, types)):
            lost = fn.col(f"had_{image}_{index}") & fn.col(image).getField(column.name).isNull()
            checks = checks.when(
                lost,
                fn.lit(f"{image}.{column.name} does not fit {types[column.name].column.simpleString()}"),
            )
    return checks


def failure_prefix(schema: TableSchema) -> Column:
    """Return the beginning of an error message: the record that cannot be decoded."""
    return fn.concat(
        fn.lit(f"a record cannot be decoded: topic {schema.topic}, partition "),
        fn.col("partition").cast("string"),
        fn.lit(", offset "),
        fn.col("offset").cast("string"),
        fn.lit(": "),
    )


_HEAD: Final = '{"before":null,"after":'
_SOURCE_START: Final = ',"source":{"version":'
_OBJECT: Final = r"^\x{FEFF}?\s*\{"
_WITHOUT: Final = 320
"""Bytes at the end that are searched by a faster function: what begins the source block is usually before them."""


def row_checksum(value: Column) -> Column:
    """Return the CRC-32 of the ``after`` JSON, which the END certificate of a split sums up; NULL for no JSON.

    The producer writes ``{"before":null,"after":A,"source":{"version":…`` without blanks. A is cut out of the bytes of
    the value without a parser: the text that begins the source block can be in a row too, but not behind that block.
    JSON of another form was written by somebody else: it counts as 0, since NULL would pass as a row without checksum.
    """
    text = value.cast("string")
    row = fn.substr(value, fn.lit(len(_HEAD) + 1), fn.octet_length(value) - len(_HEAD) - _tail_length(value))
    return fn.when(text.startswith(_HEAD), fn.crc32(row)).when(text.rlike(_OBJECT), fn.lit(0))


def _tail_length(value: Column) -> Column:
    """Return the bytes from the source block to the end.

    ``substring_index`` compares the whole text that it searches at each byte, from the end. ``contains`` looks at the
    first byte only, but does not tell where the text is. So the end of the value is excluded by it.
    """
    end = fn.substr(value, fn.lit(1 - _WITHOUT - len(_SOURCE_START))).cast("string")
    before = fn.substr(value, fn.lit(1), fn.octet_length(value) - _WITHOUT).cast("string")
    return (
        fn.when(end.contains(_SOURCE_START), _after_last(value.cast("string"))).otherwise(
            _after_last(before) + _WITHOUT
        )
    ) + len(_SOURCE_START)


def _after_last(text: Column) -> Column:
    return fn.octet_length(fn.substring_index(text, _SOURCE_START, -1))
