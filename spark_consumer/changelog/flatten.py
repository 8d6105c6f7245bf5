"""Row image fields as top-level columns, for sinks that store one row per key."""

from __future__ import annotations

from collections.abc import Iterable
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


def check_names(schema: TableSchema, added: Iterable[str] = ()) -> None:
    """Raise SchemaError if a column has a reserved name, or two column names differ only in case.

    ``added`` are the columns that the target has besides.
    """
    seen: dict[str, str] = {}
    reserved = {SEQUENCE_COLUMN, DELETED_COLUMN, *(name.lower() for name in added)}
    for column in schema.columns:
        lower = column.name.lower()
        if lower in reserved or lower in seen:
            raise SchemaError(
                f"column {column.name!r} of {schema.database}.{schema.table} cannot be stored under its name",
                hint="give it another name with transforms.<name>.projection, or exclude the column with "
                "column.exclude.list in the producer",
                collides_with=seen.get(lower, lower),
            )
        seen[lower] = column.name


def upsert_columns(schema: TableSchema, *, keeps_deleted: bool = False) -> list[Column]:
    """Return the table's columns: values from ``after``; for a deleted key, key columns from ``before``.

    ``keeps_deleted``: for a deleted key all columns from ``before``.
    """
    deleted = fn.col("op") == Op.DELETE.value
    columns = []
    for column in schema.columns:
        value = fn.col("after").getField(column.name)
        if keeps_deleted or column.name in schema.key:
            value = fn.when(deleted, fn.col("before").getField(column.name)).otherwise(value)
        columns.append(value.alias(column.name))
    return columns
