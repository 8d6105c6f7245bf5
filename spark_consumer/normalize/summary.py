"""What a table's records of a batch are, per split, found in one pass: all that the driver needs to know of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import functions as fn

from tailrace.schemas.rowkind import Op
from tailrace.schemas.sequence import Sequence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


_FILE: Final = 1 << 36
"""A place in the log as one number is file * 2^36 + position: a file has less than 64 GiB, a server 2^27 files."""


class SplitStats(NamedTuple):
    """The records of one split, or those without a split (``split`` None)."""

    split: str | None
    rows: int
    """Snapshot rows."""
    changes: int
    """Change records, tombstones not counted."""
    newest_ms: int | None
    """Greatest source.ts_ms."""
    earliest: Sequence = Sequence(0, 0, 0, 0, 0)
    """No record lies before it: the least epoch, and the least place of any epoch."""

    @property
    def incremental(self) -> bool:
        """Whether these are, or have among them, rows of a table that was read again: they bear no split."""
        return self.split is None and self.rows > 0


def summarize(decoded: DataFrame) -> list[SplitStats]:
    """Return the facts of each split; one row per split is brought to the driver.

    Only numbers are aggregated: with text or a struct among them Spark would sort all records first.
    """
    rows = (
        decoded.groupBy("split")
        .agg(
            fn.count_if(fn.col("op") == Op.READ.value).alias("rows"),
            fn.count_if(fn.col("op") != Op.READ.value).alias("changes"),
            fn.max("ts_ms").alias("newest"),
            fn.min("seq.epoch").alias("epoch"),
            fn.min(fn.col("seq.file") * fn.lit(_FILE) + fn.col("seq.pos")).alias("place"),
        )
        .collect()
    )
    return [_facts(row) for row in rows]


def _facts(row: Row) -> SplitStats:
    file, pos = divmod(row["place"], _FILE)
    return SplitStats(row["split"], row["rows"], row["changes"], row["newest"], Sequence(row["epoch"], file, pos, 0, 0))
