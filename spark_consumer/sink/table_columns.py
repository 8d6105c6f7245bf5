"""The columns of a batch as a table has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn

from tailrace.schemas.rowkind import Op
from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.changelog.flatten import DELETED_COLUMN, upsert_columns
from tailrace.spark_consumer.column_cache import ColumnCache
from tailrace.spark_consumer.evolution.outcome import Evolved
from tailrace.spark_consumer.sink.shape import IS_DELETED, Layout
from tailrace.spark_consumer.sink.target_table import TargetTable
from tailrace.spark_consumer.source.conversion import convert_value, failing
from tailrace.spark_consumer.source.json_decoder import METADATA, row_type

if TYPE_CHECKING:
    from pyspark.sql import Column


def stored_columns(table: TargetTable, schema: TableSchema, evolved: Evolved, layout: Layout) -> list[Column]:
    """Return the columns of an upsert batch that the table has: those of the source, the sequence, those of the layout.

    The columns of the source have the types of the table: they represent the values, or the values are checked.
    """
    key = table.format, table.columns, schema.fingerprint, evolved, layout
    return _STORED.get(key, lambda: _stored(table, schema, evolved, layout))


_STORED: Final = ColumnCache["list[Column]"]()


def _stored(table: TargetTable, schema: TableSchema, evolved: Evolved, layout: Layout) -> list[Column]:
    values = upsert_columns(schema, keeps_deleted=layout.keeps_deleted)
    return upsert_row(converted_columns(table, schema, evolved, values), layout)


def upsert_row(values: Iterable[Column], layout: Layout) -> list[Column]:
    """Return the columns of an upsert batch, with the values of the columns of the source."""
    columns = [*values, fn.col("seq").alias(SEQUENCE_COLUMN)]
    if layout.keeps_deleted:
        columns.append((fn.col("op") == Op.DELETE.value).alias(IS_DELETED))
    return [*columns, *metadata_columns(layout)]


def changelog_columns(table: TargetTable, schema: TableSchema, evolved: Evolved, layout: Layout) -> list[Column]:
    """Return the columns of changelog rows that every table has: those of the source, the sequence, the metadata."""
    values = [fn.col("row").getField(column.name) for column in schema.columns]
    return changelog_row(converted_columns(table, schema, evolved, values), layout)


def changelog_row(values: Iterable[Column], layout: Layout) -> list[Column]:
    """Return the columns of changelog rows, with the values of the columns of the source."""
    return [*values, fn.col("seq").alias(SEQUENCE_COLUMN), *metadata_columns(layout)]


def metadata_columns(layout: Layout) -> list[Column]:
    """Return the metadata columns of decoded records or changelog rows."""
    return [fn.col(METADATA).getField(field.column).alias(field.column) for field in layout.fields]


def converted_columns(
    table: TargetTable, schema: TableSchema, evolved: Evolved, values: Iterable[Column]
) -> list[Column]:
    """Return the columns of the source that the table has, in its types; ``values`` has one for each of the schema."""
    types = {field.name.lower(): field.dataType for field in table.columns}
    columns = []
    for column, field, own in zip(values, schema.columns, row_type(schema).fields, strict=True):
        name = field.name.lower()
        if name in evolved.ignored:
            continue
        value, lost = convert_value(column, own.dataType, types[name])
        source = f"{schema.database}.{schema.table}, column {field.name}"
        text = f"a value of {source}, does not fit the {table.format} table: "
        columns.append(failing(value, lost, types[name], text, column).alias(field.name))
    return columns


def removed_column(layout: Layout) -> Column:
    """Return the column of an upsert batch that says whether the row of the key is removed."""
    removed = fn.lit(False) if layout.keeps_deleted else fn.col("op") == Op.DELETE.value
    return removed.alias(DELETED_COLUMN)


def source_columns(schema: TableSchema, evolved: Evolved) -> list[str]:
    """Return the columns of the source that the table has."""
    return [column.name for column in schema.columns if column.name.lower() not in evolved.ignored]


def own_columns(schema: TableSchema, evolved: Evolved, layout: Layout) -> list[str]:
    """Return the columns that a batch writes, without the sequence."""
    return [*source_columns(schema, evolved), *layout.names]


def kept_columns(table: TargetTable, evolved: Evolved, layout: Layout) -> list[str]:
    """Return the columns of the table that the source, or the layout, had earlier."""
    former = {name.lower() for name in table.state.added} - {name.lower() for name in layout.names}
    return [name for name in table.columns.names if name.lower() in evolved.kept | former]
