"""Counts a table's records of a batch per split, in one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import functions as fn

from tailrace.schemas.rowkind import Op
from tailrace.schemas.sequence import Sequence
from tailrace.spark_consumer.small_data import ColumnCache

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row


_FILE: Final = 1 << 36
"""A binlog position as one number is file * 2^36 + pos: a file is smaller than 64 GiB, a server has fewer than 2^27."""


class SplitStats(NamedTuple):
    """Counts of the records of one split; ``split`` is None for the records without a split."""

    split: str | None
    rows: int
    """Snapshot rows (op r)."""
    changes: int
    """Change records (op c, u, d), without tombstones."""
    newest_ms: int | None
    """Greatest source.ts_ms."""
    earliest: Sequence = Sequence(0, 0, 0, 0, 0)
    """A lower bound of the sequences: the least epoch combined with the least position of any epoch."""
    truncates: int = 0
    """Truncate events (op t)."""
    updates: int = 0
    """Changes with op u."""
    deletes: int = 0
    """Changes with op d."""
    checksum: int | None = 0
    """Sum of the checksums of the rows; None if they are not known, because the records are not plain JSON."""

    @property
    def incremental(self) -> bool:
        """Whether rows of an incremental snapshot are among the records; those rows have no split header."""
        return self.split is None and self.rows > 0


def summarize(decoded: DataFrame) -> list[SplitStats]:
    """Return the counts of each split; the driver collects one row per split.

    Only numbers are aggregated. With text or structs Spark would sort all records first.
    """
    return [_stats(row) for row in decoded.groupBy("split").agg(*_COUNTS.get("", _counts)).collect()]


_COUNTS: Final = ColumnCache["list[Column]"]()


def _counts() -> list[Column]:
    return [
        fn.count_if(fn.col("op") == Op.READ.value).alias("rows"),
        fn.count_if(~fn.col("op").isin(Op.READ.value, Op.TRUNCATE.value)).alias("changes"),
        fn.count_if(fn.col("op") == Op.TRUNCATE.value).alias("truncates"),
        fn.count_if(fn.col("op") == Op.UPDATE.value).alias("updates"),
        fn.count_if(fn.col("op") == Op.DELETE.value).alias("deletes"),
        fn.max("ts_ms").alias("newest"),
        fn.sum("checksum").alias("checksum"),
        fn.min("seq.epoch").alias("epoch"),
        fn.min(fn.col("seq.file") * fn.lit(_FILE) + fn.col("seq.pos")).alias("position"),
    ]


def _stats(row: Row) -> SplitStats:
    file, pos = divmod(row["position"], _FILE)
    earliest = Sequence(row["epoch"], file, pos, 0, 0)
    return SplitStats(
        row["split"],
        row["rows"],
        row["changes"],
        row["newest"],
        earliest,
        row["truncates"],
        row["updates"],
        row["deletes"],
        row["checksum"] if row["rows"] else 0,
    )
