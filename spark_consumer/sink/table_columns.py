"""The columns of a batch as a table has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn

from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.changelog.flatten import upsert_columns
from tailrace.spark_consumer.column_cache import ColumnCache
from tailrace.spark_consumer.evolution.outcome import Evolved
from tailrace.spark_consumer.sink.target_table import TargetTable
from tailrace.spark_consumer.source.conversion import convert_value
from tailrace.spark_consumer.source.json_decoder import row_type

if TYPE_CHECKING:
    from pyspark.sql import Column


def stored_columns(table: TargetTable, schema: TableSchema, evolved: Evolved) -> list[Column]:
    """Return the columns of the batch that the table has, in its types: they represent the values, or are checked."""
    key = table.format, table.columns, schema.fingerprint, evolved
    return _STORED.get(key, lambda: _convert(table, schema, evolved))


_STORED: Final = ColumnCache["list[Column]"]()


def _convert(table: TargetTable, schema: TableSchema, evolved: Evolved) -> list[Column]:
    types = {field.name.lower(): field.dataType for field in table.columns}
    columns = []
    for column, field, own in zip(upsert_columns(schema), schema.columns, row_type(schema).fields, strict=True):
        name = field.name.lower()
        if name in evolved.ignored:
            continue
        value, lost = convert_value(column, own.dataType, types[name])
        if lost is not None:
            source = f"{schema.database}.{schema.table}, column {field.name}"
            text = f"a value of {source}, does not fit the {table.format} table: "
            failure = fn.raise_error(fn.concat(fn.lit(text), column.cast("string"))).cast(types[name])
            value = fn.when(lost, failure).otherwise(value)
        columns.append(value.alias(field.name))
    return columns


def own_columns(schema: TableSchema, evolved: Evolved) -> list[str]:
    """Return the columns of the source that the table has."""
    return [column.name for column in schema.columns if column.name.lower() not in evolved.ignored]


def kept_columns(table: TargetTable, evolved: Evolved) -> list[str]:
    """Return the columns of the table that the source had earlier."""
    return [name for name in table.columns.names if name.lower() in evolved.kept]
