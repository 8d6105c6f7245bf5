"""Row image fields as top-level columns, for sinks that store one row per key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn

from tailrace.runtime.errors import SchemaError
from tailrace.schemas.rowkind import Op
from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.schemas.table import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import Column

DELETED_COLUMN: Final = "_deleted"
"""Added column of an upsert batch: true if the key is deleted."""


def check_names(schema: TableSchema) -> None:
    """Raise SchemaError if a column has a reserved name, or two column names differ only in case."""
    seen: dict[str, str] = {}
    for column in schema.columns:
        lower = column.name.lower()
        if lower in {SEQUENCE_COLUMN, DELETED_COLUMN} or lower in seen:
            raise SchemaError(
                f"column {column.name!r} of {schema.database}.{schema.table} cannot be stored under its name",
                hint="exclude the column with column.exclude.list in the producer",
                collides_with=seen.get(lower, lower),
            )
        seen[lower] = column.name


def upsert_columns(schema: TableSchema) -> list[Column]:
    """Return the table's columns: values from ``after``; for a deleted key, key columns from ``before``."""
    deleted = fn.col("op") == Op.DELETE.value
    columns = []
    for column in schema.columns:
        value = fn.col("after").getField(column.name)
        if column.name in schema.key:
            value = fn.when(deleted, fn.col("before").getField(column.name)).otherwise(value)
        columns.append(value.alias(column.name))
    return columns
