"""The Connect schemas of a table version: adjusted names, defaults, comments and source types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from tailrace.producer.config import ProducerConfig
from tailrace.producer.config.column_transforms import ColumnProjection, Truncate
from tailrace.producer.model.table import Column, Table, source_parameters
from tailrace.producer.mysql.types.registry import source_type
from tailrace.producer.serialization.column_default import field_with_default
from tailrace.producer.serialization.column_transforms import ColumnTransforms
from tailrace.producer.serialization.envelope.name_adjustment import field_names, schema_name
from tailrace.producer.serialization.envelope.schemas import envelope_schema, key_schema
from tailrace.schemas.connect import ConnectField, ConnectSchema


class TableSchemas(NamedTuple):
    """Schemas of the records of one table version."""

    columns: tuple[ConnectField, ...]
    """The published columns."""
    key: ConnectSchema
    value: ConnectSchema


def table_schemas(
    table: Table,
    topic: str,
    columns: Sequence[Column],
    projection: ColumnProjection | None,
    config: ProducerConfig,
    *,
    key: Sequence[Column],
    transforms: ColumnTransforms,
) -> TableSchemas:
    """Return the schemas of a table version; ``columns`` are the published ones, from the catalog if possible.

    ``key`` are those of the key, which may have other defaults: the bytes of a key do not follow the catalog.
    Raises SchemaError if two columns have the same name after adjustment.
    """
    converters, comments = config.converters, config.values.schema_comments
    published = [column.name for column in columns]
    names = dict(zip(published, field_names(published, converters.field_names), strict=True))

    def field(column: Column) -> ConnectField:
        found = field_with_default(column, names[column.name], config.values.options)
        return _with_comment(found, column, comments=comments)

    fields = {column.name: field(column) for column in columns}
    typed = {column.name for column in columns if transforms.carries_source_type(table.id, column)}
    in_rows = tuple(
        _with_parameters(
            fields[column.name],
            _row_parameters(column, projection, comments=comments, typed=column.name in typed),
        )
        for column in columns
    )
    name = schema_name(topic, converters.schema_names)
    envelope = envelope_schema(name, in_rows, config.database.connector)
    return TableSchemas(in_rows, key_schema(name, [field(column) for column in key]), envelope)


def _with_comment(field: ConnectField, column: Column, *, comments: bool) -> ConnectField:
    if not comments or column.catalog is None or not column.catalog.comment:
        return field
    return ConnectField(field.name, replace(field.schema, doc=column.catalog.comment))


def _with_parameters(field: ConnectField, parameters: tuple[tuple[str, str], ...]) -> ConnectField:
    if not parameters:
        return field
    return ConnectField(field.name, replace(field.schema, parameters=(*field.schema.parameters, *parameters)))


def _row_parameters(
    column: Column, projection: ColumnProjection | None, *, comments: bool, typed: bool
) -> tuple[tuple[str, str], ...]:
    """Return the parameters that a column has in rows but not in keys: its transform, or its source type if typed."""
    change = projection.transforms.get(column.name) if projection is not None else None
    if isinstance(change, Truncate):
        length = source_type(column).length
        truncates = length is None or length > change.length
        return (("truncateLength", str(change.length)),) if truncates else ()
    if change is not None:
        return (("masked", "true"),)
    if typed:
        return source_parameters(column, source_type(column), comments=comments)
    return ()
