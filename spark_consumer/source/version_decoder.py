"""Decodes the records of a table topic, each with the schema that it was written with, to rows of one merged schema."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from tailrace.runtime.errors import SchemaError
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.source.common_type import checked_cast, common_type
from tailrace.spark_consumer.source.json_decoder import Read, decode, failure_prefix, image_fields, read_json
from tailrace.spark_consumer.source.schema_merge import merge_schemas
from tailrace.spark_consumer.source.types import field_type

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql import types as tp

    from tailrace.schemas.table import TableSchema
    from tailrace.spark_consumer.source.schema_tracker import SchemaTracker


def schemas_in(raw: DataFrame, topic: str, tracker: SchemaTracker) -> list[TableSchema]:
    """Return the schemas of the records of one topic, the latest last; at least one.

    A topic with one published schema needs no job: ``decode`` compares the header of each record. Raises SchemaError
    for a record whose schema is not published.
    """
    published = tracker.versions(topic)
    if len(published) == 1:
        return published
    rows = raw.where(fn.col("value").isNotNull()).select("schema").distinct().collect()
    # A record without the header is decoded with the latest schema, which reports it (json_decoder.py).
    used = {row["schema"] for row in rows if row["schema"] is not None}
    unknown = used - {schema.fingerprint for schema in published}
    if unknown:
        raise SchemaError(
            f"records of topic {topic} name a table schema that is not published",
            hint="allow only the producer to write to the topics of its prefix, and do not delete the schemas topic",
            schemas=", ".join(sorted(unknown)),
        )
    return [schema for schema in published if schema.fingerprint in used] or published[-1:]


def decode_versions(
    raw: DataFrame, schemas: Sequence[TableSchema], images: Images, read: Read = read_json
) -> tuple[TableSchema, DataFrame]:
    """Decode the records of one topic; return the merged schema and the rows in its types (json_decoder.py).

    A value that the merged type does not represent exactly fails the batch when ``op`` is evaluated.
    """
    merged = merge_schemas(schemas)
    if len(schemas) == 1:
        return merged, decode(raw, merged, images, read)
    parts = []
    for schema in schemas:
        named = fn.coalesce(fn.col("schema"), fn.lit(schemas[-1].fingerprint))
        own = decode(raw.where(named == schema.fingerprint), schema, images, read)
        parts.append(_convert(own, schema, merged, images))
    return merged, reduce(DataFrame.unionByName, parts)


def _convert(decoded: DataFrame, schema: TableSchema, merged: TableSchema, images: Images) -> DataFrame:
    """Return decoded rows in the types of the merged schema; a column that the schema lacks is NULL."""
    problem = fn.when(fn.lit(False), fn.lit(""))
    converted: dict[str, Column] = {}
    for image in ("before", "after"):
        members = []
        known = {column.name: column.schema for column in image_fields(schema, image, images)}
        for field in image_fields(merged, image, images):
            target = field_type(field.schema, column=field.name, topic=schema.topic).column
            if field.name not in known:
                members.append(fn.lit(None).cast(target).alias(field.name))
                continue
            value = fn.col(image).getField(field.name)
            source = field_type(known[field.name], column=field.name, topic=schema.topic).column
            member, lost = _member(value, source, target)
            members.append(member.alias(field.name))
            if lost is not None:
                text = f"{image}.{field.name} of type {source.simpleString()} does not fit {target.simpleString()}"
                problem = problem.when(lost, fn.lit(f"{text}, its type after ALTER TABLE"))
        row = fn.struct(*members) if members else fn.lit(None).cast("struct<>")
        converted[image] = fn.when(fn.col(image).isNotNull(), row)
    failure = fn.raise_error(fn.concat(failure_prefix(schema), problem))
    return decoded.select(
        "partition",
        "offset",
        "key",
        "split",
        "incremental",
        "seq",
        fn.when(problem.isNotNull(), failure).otherwise(fn.col("op")).alias("op"),
        "ts_ms",
        converted["before"].alias("before"),
        converted["after"].alias("after"),
    )


def _member(value: Column, source: tp.DataType, target: tp.DataType) -> tuple[Column, Column | None]:
    """Return the value in the target type, and for a conversion that can lose a value, whether it did."""
    if source == target:
        return value, None
    if common_type(source, target) == target:
        return value.cast(target), None
    cast = checked_cast(value, source, target)
    return cast, value.isNotNull() & cast.isNull()
