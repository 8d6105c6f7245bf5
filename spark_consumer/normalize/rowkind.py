"""Change events to the rows of sinks: changelog rows, or the columns of an upsert.

c and r give +I, u gives -U and +U, d gives -D. An incremental snapshot reads rows that the changelog already has, or
lacks: its rows, and the changes that belong to them, repeat what is known. They give one +U without -U, or -D: a reader
sets the row of the key, as in an upsert changelog of Flink.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn

from tailrace.runtime.errors import SchemaError
from tailrace.schemas.rowkind import Op, RowKind
from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.source.json_decoder import METADATA

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ORDER: Final = ("seq", "partition", "offset", "part")
"""Columns that order the changelog rows of a key."""

JSON_OPTIONS: Final[Mapping[str, str]] = {
    "ignoreNullFields": "false",
    # Spark's default formats print milliseconds.
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options of ``to_json`` for changelog rows: NULLs, and all six digits of a second."""


def to_changelog(decoded: DataFrame) -> DataFrame:
    """Return one row per changelog entry: key, partition, offset, part, kind, seq, ts_ms, op, row, metadata if given.

    The rows of an incremental snapshot must have the sequence of what they contain (normalize/latest.py).
    ``part`` is 0, or 1 for the second row of an update. ``row`` is the row image as a struct.
    """
    op = fn.col("op")
    entries = (
        fn.when(fn.col("incremental") & (op != Op.DELETE.value), _entries((RowKind.UPDATE_AFTER, "after")))
        .when(op == Op.UPDATE.value, _entries((RowKind.UPDATE_BEFORE, "before"), (RowKind.UPDATE_AFTER, "after")))
        .when(op == Op.DELETE.value, _entries((RowKind.DELETE, "before")))
        .otherwise(_entries((RowKind.INSERT, "after")))
    )
    metadata = [name for name in decoded.columns if name == METADATA]
    exploded = decoded.where(op != Op.TRUNCATE.value).select(
        "key", "partition", "offset", "seq", "ts_ms", "op", *metadata, fn.posexplode(entries).alias("part", "entry")
    )
    return exploded.select(
        "key",
        "partition",
        "offset",
        "part",
        fn.col("entry.kind").alias("kind"),
        "seq",
        "ts_ms",
        "op",
        fn.col("entry.row").alias("row"),
        *metadata,
    )


def _entries(*parts: tuple[RowKind, str]) -> Column:
    return fn.array(*(fn.struct(fn.lit(kind.value).alias("kind"), fn.col(image).alias("row")) for kind, image in parts))


DELETED_COLUMN: Final = "_deleted"
"""Added column of an upsert batch: true if the key is deleted."""


RENAME_COLUMN: Final = (
    "give it another name with transforms.<name>.projection, or exclude it with column.exclude.list in the producer"
)


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
                hint=RENAME_COLUMN,
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
