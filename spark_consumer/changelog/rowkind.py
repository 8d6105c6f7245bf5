"""Change events to changelog rows: c and r give +I, u gives -U and +U, d gives -D.

An incremental snapshot reads rows that the changelog already has, or lacks: its rows, and the changes that belong to
them, repeat what is known. They give one +U without -U, or -D: a reader sets the row of the key, as in an upsert
changelog of Flink.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn

from tailrace.schemas.rowkind import Op, RowKind
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
