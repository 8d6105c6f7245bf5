"""Decodes the records of a table topic, each with the schema that it was written with, to rows of one merged schema."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from tailrace.runtime.errors import SchemaError
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.metadata_fields import MetadataField
from tailrace.spark_consumer.source.conversion import convert, of_rows
from tailrace.spark_consumer.source.json_decoder import Read, decode, read_json
from tailrace.spark_consumer.source.lineage import lineages
from tailrace.spark_consumer.source.schema_merge import has_several_types, merge_schemas

if TYPE_CHECKING:
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
        raise SchemaError(
            f"records of topic {topic} name a table schema that is not published",
            hint="allow only the producer to write to the topics of its prefix, and do not delete the schemas topic",
            schemas=", ".join(sorted(unknown)),
        )
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
