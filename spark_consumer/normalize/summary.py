"""What a table's records of a batch are, per split, found in one pass: all that the driver needs to know of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as fn

from schemas.rowkind import Op

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class SplitFacts(NamedTuple):
    """The records of one split, or those without a split (``split`` None)."""

    split: str | None
    rows: int
    """Snapshot rows."""
    changes: int
    """Change records, tombstones not counted."""
    newest_ms: int | None
    """Greatest source.ts_ms."""

    @property
    def again(self) -> bool:
        """Whether these are, or have among them, rows of a table that was read again: they bear no split."""
        return self.split is None and self.rows > 0


def summarize(decoded: DataFrame) -> list[SplitFacts]:
    """Return the facts of each split; one row per split is brought to the driver.

    Only numbers are aggregated: with text or a struct among them Spark would sort all records first.
    """
    rows = (
        decoded.groupBy("split")
        .agg(
            fn.count_if(fn.col("op") == Op.READ.value).alias("rows"),
            fn.count_if(fn.col("op") != Op.READ.value).alias("changes"),
            fn.max("ts_ms").alias("newest"),
        )
        .collect()
    )
    return [SplitFacts(r["split"], r["rows"], r["changes"], r["newest"]) for r in rows]
