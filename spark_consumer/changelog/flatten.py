"""A row as columns: the row image's fields side by side with what Tailrace adds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

from tailrace.runtime.errors import SchemaError
from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.schemas.table import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import Column

DELETED_COLUMN = "_deleted"
"""Beside the columns of an upsert batch: true where the key is to be removed."""


def check_names(schema: TableSchema) -> None:
    """Raise SchemaError where a column of the table has a name that Tailrace needs, or two differ only in case."""
    seen: dict[str, str] = {}
    for column in schema.columns:
        low = column.name.lower()
        if low in {SEQUENCE_COLUMN, DELETED_COLUMN} or low in seen:
            raise SchemaError(
                f"column {column.name!r} of {schema.database}.{schema.table} cannot be stored under its name",
                hint="leave the column out with column.exclude.list in the producer",
                collides_with=seen.get(low, low),
            )
        seen[low] = column.name


def upsert_columns(schema: TableSchema) -> list[Column]:
    """Return the table's columns of an upsert batch: ``after``, and for a deleted key its key columns."""
    deleted = fn.col("op") == fn.lit("d")
    columns = []
    for column in schema.columns:
        value = fn.col("after").getField(column.name)
        if column.name in schema.key:
            value = fn.when(deleted, fn.col("before").getField(column.name)).otherwise(value)
        columns.append(value.alias(column.name))
    return columns
