"""Change events to changelog rows: c and r give +I, u gives -U and +U, d gives -D."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn

from tailrace.schemas.rowkind import Op, RowKind

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ORDER: Final = ("partition", "offset", "part")
"""Columns that order the changelog rows of a key."""

JSON_OPTIONS: Final[Mapping[str, str]] = {
    "ignoreNullFields": "false",
    # Spark's default formats print milliseconds.
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options of ``to_json`` for changelog rows: NULLs, and all six digits of a second."""


def to_changelog(decoded: DataFrame) -> DataFrame:
    """Return one row per changelog entry: key, partition, offset, part, kind, seq, ts_ms, row.

    ``part`` is 0, or 1 for the second row of an update. ``row`` is the row image as a struct.
    """
    op = fn.col("op")
    entries = (
        fn.when(op == Op.UPDATE.value, _entries((RowKind.UPDATE_BEFORE, "before"), (RowKind.UPDATE_AFTER, "after")))
        .when(op == Op.DELETE.value, _entries((RowKind.DELETE, "before")))
        .otherwise(_entries((RowKind.INSERT, "after")))
    )
    exploded = decoded.select(
        "key", "partition", "offset", "seq", "ts_ms", fn.posexplode(entries).alias("part", "entry")
    )
    return exploded.select(
        "key",
        "partition",
        "offset",
        "part",
        fn.col("entry.kind").alias("kind"),
        "seq",
        "ts_ms",
        fn.col("entry.row").alias("row"),
    )


def _entries(*parts: tuple[RowKind, str]) -> Column:
    return fn.array(*(fn.struct(fn.lit(kind.value).alias("kind"), fn.col(image).alias("row")) for kind, image in parts))
