"""Decodes the records of a table topic, each with the schema that it was written with, to rows of one merged schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

import orjson
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.runtime.errors import SchemaError
from tailrace.schemas.alteration import UNKNOWN, ColumnChange, field_of
from tailrace.schemas.connect import ConnectField, ConnectSchema
from tailrace.schemas.sequence import Sequence as Position
from tailrace.spark_consumer.images import Images, MetadataField
from tailrace.spark_consumer.source.common_type import can_check, common_type, convert_value, failing
from tailrace.spark_consumer.source.json_decoder import Read, decode, failure_prefix, image_fields, read_json
from tailrace.spark_consumer.source.kafka import reload_remedy
from tailrace.spark_consumer.source.schema_tracker import Lineages, Origin, lineages, not_published
from tailrace.spark_consumer.source.types import decimal_schema, field_type, sequence_literal

if TYPE_CHECKING:
    from pyspark.sql import Column

    from tailrace.schemas.alteration import Alteration
    from tailrace.schemas.table import TableSchema
    from tailrace.spark_consumer.source.schema_tracker import SchemaTracker


def schemas_in(raw: DataFrame, topic: str, tracker: SchemaTracker) -> list[TableSchema]:
    """Return the schemas of the records of one topic, and last the latest published one.

    The target may have the latest one already, and late records of other partitions must not undo it. A topic with one
    published schema needs no job: ``decode`` compares the header of each record. Raises SchemaError for a record whose
    schema is not published.
    """
    published = tracker.versions(topic)
    if len(published) == 1:
        return published
    rows = raw.where(fn.col("value").isNotNull()).select("schema").distinct().collect()
    # A record without the header is decoded with the latest schema, which reports it (json_decoder.py).
    used = {row["schema"] for row in rows if row["schema"] is not None}
    unknown = used - {schema.fingerprint for schema in published}
    if unknown:
        raise not_published(topic, ", ".join(sorted(unknown)))
    return [schema for schema in published[:-1] if schema.fingerprint in used] + published[-1:]


def decode_versions(
    raw: DataFrame,
    schemas: Sequence[TableSchema],
    images: Images,
    alterations: Sequence[Alteration] = (),
    *,
    read: Read = read_json,
    fields: Sequence[MetadataField] = (),
) -> tuple[TableSchema, DataFrame]:
    """Decode the records of one topic; return the merged schema and the rows in its types (json_decoder.py).

    A value that the merged type does not represent exactly fails the batch when ``op`` is evaluated.
    """
    found = [lineages([column.name for column in schema.columns], alterations) for schema in schemas]
    parts = []
    for schema in schemas:
        named = fn.coalesce(fn.col("schema"), fn.lit(schemas[-1].fingerprint))
        own = raw if len(schemas) == 1 else raw.where(named == schema.fingerprint)
        parts.append(decode(own, schema, images, read, fields))
    # The name of a column that was dropped can be that of another one since. Its type counts only if rows have it.
    found = [
        of_rows(rows, each) if has_several_types(schema, each) else each
        for schema, rows, each in zip(schemas, parts, found, strict=True)
    ]
    merged = merge_schemas(schemas, found if alterations else ())
    converted = [
        convert(rows, schema, merged, images, each) for schema, rows, each in zip(schemas, parts, found, strict=True)
    ]
    return merged, reduce(DataFrame.unionByName, converted)


def merge_schemas(schemas: Sequence[TableSchema], found: Sequence[Lineages] = ()) -> TableSchema:
    """Return the schema that the records of all given schemas are converted to; the last schema is the latest.

    It has the columns and the key of the latest schema. The type of a column is the smallest type that represents the
    values of all schemas. If no such type exists, it is the latest type, and each older value must survive the
    conversion. Raises SchemaError if the types cannot be converted, or if the key columns differ.

    ``found``: the lineages of the rows with each schema, if there were alterations.
    """
    latest = schemas[-1]
    if len(schemas) == 1 and not found:
        return latest
    for schema in schemas:
        if schema.key != latest.key:
            raise SchemaError(
                f"the key of {latest.database}.{latest.table} changed, so rows before and after it cannot be matched",
                hint=reload_remedy(latest.topic),
                topic=latest.topic,
                key_before=", ".join(schema.key) or "none",
                key=", ".join(latest.key) or "none",
            )
    own = found or [lineages([column.name for column in schema.columns], ()) for schema in schemas]
    older = [(schema, _origins(schema, each)) for schema, each in zip(schemas, own, strict=True)]
    return replace(latest, columns=tuple(_merge_column(column, older) for column in latest.columns))


def has_several_types(schema: TableSchema, found: Lineages) -> bool:
    """Return whether the type of a column depends on where the rows with a schema are."""
    for fields in _origins(schema, found).values():
        known = [field for field in fields if field is not None]
        if len({field_type(each.schema, column=each.name, topic=schema.topic).column for each in known}) > 1:
            return True
    return False


def _origins(schema: TableSchema, found: Lineages) -> dict[str, list[ConnectField | None]]:
    """Return, for each later column, its forms in rows with a schema; None for rows that lack it."""
    fields = {column.name: column for column in schema.columns}
    forms: dict[str, list[ConnectField | None]] = {}
    for _, lineage in found:
        for name, origin in lineage.items():
            field = fields.get(origin.column) if origin.added is None else field_of(origin.added)
            forms.setdefault(name, []).append(field)
    return forms


def _merge_column(
    latest: ConnectField, older: Sequence[tuple[TableSchema, Mapping[str, Sequence[ConnectField | None]]]]
) -> ConnectField:
    merged, optional = latest, latest.schema.optional
    for schema, fields in older:
        for field in fields.get(latest.name.lower(), [None]):
            optional = optional or field is None or field.schema.optional
            if field is not None:
                merged = _wider(merged, replace(field, name=latest.name), schema)
    return replace(merged, schema=replace(merged.schema, optional=optional))


def _wider(merged: ConnectField, older: ConnectField, schema: TableSchema) -> ConnectField:
    now = field_type(merged.schema, column=merged.name, topic=schema.topic).column
    before = field_type(older.schema, column=older.name, topic=schema.topic).column
    if now == before:
        return merged
    common = common_type(now, before)
    if common is None:
        if can_check(before, now):
            return merged
        raise SchemaError(
            f"column {merged.name} of {schema.database}.{schema.table} changed its type, "
            "and the values before the change have no representation in the type after it",
            hint=reload_remedy(schema.topic),
            topic=schema.topic,
            before=before.simpleString(),
            after=now.simpleString(),
        )
    if common == now:
        return merged
    if common == before:
        return older
    assert isinstance(common, tp.DecimalType)  # all other common types are one of the two
    return replace(merged, schema=decimal_schema(common, optional=True))


def convert(decoded: DataFrame, schema: TableSchema, merged: TableSchema, images: Images, found: Lineages) -> DataFrame:
    """Return decoded rows in the columns and types of the merged schema.

    A renamed column keeps its values. A column that was added later has the value that existing rows got, or NULL.
    ``found`` are the lineages of the rows.
    """
    names = [column.name for column in schema.columns]
    if schema == merged and [lineage for _, lineage in found] == [{name.lower(): Origin(name) for name in names}]:
        return decoded
    problem = fn.when(fn.lit(False), fn.lit(""))
    converted: dict[str, Column] = {}
    for image in ("before", "after"):
        known = {column.name: column.schema for column in image_fields(schema, image, images)}
        members = []
        for field in image_fields(merged, image, images):
            target = field_type(field.schema, column=field.name, topic=schema.topic).column
            origins = [(start, lineage.get(field.name.lower(), Origin())) for start, lineage in found]
            values = [_value(image, origin, known, target, schema.topic) for _, origin in origins]
            members.append(_by_position(origins, [value for value, _ in values]).alias(field.name))
            if any(lost is not None for _, lost in values):
                losses = [fn.lit(False) if lost is None else lost for _, lost in values]
                text = f"{image}.{field.name} does not fit {target.simpleString()}, its type after ALTER TABLE"
                problem = problem.when(_by_position(origins, losses), fn.lit(text))
        row = fn.struct(*members) if members else fn.lit(None).cast("struct<>")
        converted[image] = fn.when(fn.col(image).isNotNull(), row)
    failure = fn.raise_error(fn.concat(failure_prefix(schema), problem))
    return decoded.withColumns({**converted, "op": fn.when(problem.isNotNull(), failure).otherwise(fn.col("op"))})


def of_rows(rows: DataFrame, found: Lineages) -> Lineages:
    """Return those of the lineages that rows of one schema have; the last one if there are no rows."""
    number = _by_position(
        [(start, number) for number, (start, _) in enumerate(found)], list(map(fn.lit, range(len(found))))
    )
    used = {row["number"] for row in rows.select(number.alias("number")).distinct().collect()}
    return [each for number, each in enumerate(found) if number in used] or found[-1:]


def added_value(change: ColumnChange, target: tp.DataType, topic: str) -> Column | None:
    """Return the value that existing rows got of an added column; None if it is not known or does not fit."""
    if change.value is UNKNOWN:
        return None
    if change.value is None or change.schema is None:
        return fn.lit(None).cast(target)
    types = field_type(change.schema, column=change.column, topic=topic)
    text = orjson.dumps({"v": change.value}).decode()
    value = fn.from_json(fn.lit(text), tp.StructType([tp.StructField("v", types.json)])).getField("v")
    member, lost = convert_value(value if types.decode is None else types.decode(value), types.column, target)
    message = (
        f"the value that ALTER TABLE gave to column {change.column} of {topic} does not fit {target.simpleString()}"
    )
    return failing(member, lost, target, message)


def _value(
    image: str, origin: Origin, known: Mapping[str, ConnectSchema], target: tp.DataType, topic: str
) -> tuple[Column, Column | None]:
    """Return the value of a column by its origin, and whether it was lost (``convert_value``)."""
    if origin.column not in known:
        added = None if origin.added is None else added_value(origin.added, target, topic)
        return (fn.lit(None).cast(target) if added is None else added), None
    source = field_type(known[origin.column], column=origin.column, topic=topic).column
    return convert_value(fn.col(image).getField(origin.column), source, target)


def _by_position(origins: Sequence[tuple[Position, object]], values: Sequence[Column]) -> Column:
    """Return the value that holds at the position of the row; each origin holds from its position on."""
    chosen = values[0]
    for (start, origin), (_, before), value in zip(origins[1:], origins, values[1:], strict=False):
        if origin != before:
            chosen = fn.when(fn.col("seq") >= sequence_literal(start), value).otherwise(chosen)
    return chosen
