"""Merges the schemas of a table under which the records of one batch were written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import types as tp

from tailrace.runtime.errors import SchemaError
from tailrace.schemas.alteration import field_of
from tailrace.schemas.connect import ConnectField
from tailrace.spark_consumer.source.common_type import can_check, common_type
from tailrace.spark_consumer.source.kafka import reload_remedy
from tailrace.spark_consumer.source.lineage import Lineages, lineages
from tailrace.spark_consumer.source.types import decimal_schema, field_type

if TYPE_CHECKING:
    from tailrace.schemas.table import TableSchema


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
