"""Resolves snapshot splits: the rows and the backfill of a split become one row per key, as of its high watermark.

A split is complete when its END watermark has been read and the number of rows and backfill events equals the counts
in END. Until then the records of the split are held. Later records of the same keys are held too, because the order per
key must not change. In a complete split the last record per key wins: a delete removes the key, every other record
becomes one ``r`` whose sequence is the high watermark. Tombstones do not take part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as fn

from tailrace.runtime.errors import KafkaRequestError
from tailrace.schemas.rowkind import Op
from tailrace.schemas.sequence import Sequence
from tailrace.schemas.watermark import Watermark
from tailrace.spark_consumer.normalize.split_stats import SplitStats
from tailrace.spark_consumer.source.sequence import SEQUENCE_TYPE, position_sequence, sequence_literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, slots=True)
class SplitCompleteness:
    """Complete splits with the sequence of their high watermark, and what is still missing."""

    high: Mapping[str, Sequence] = field(default_factory=dict)
    """Complete splits."""
    incomplete: frozenset[str] = frozenset()
    """Splits with records that must be held."""
    pending: tuple[Watermark, ...] = ()
    """END watermarks of splits whose records have not all been read."""


def check_completeness(stats: Iterable[SplitStats], ends: Iterable[Watermark]) -> SplitCompleteness:
    """Compare the records that were read with the counts in the END watermarks.

    Raises KafkaRequestError if a split has more records than its END watermark says.
    """
    by_split = {end.split: end for end in ends}
    read = {stat.split: (stat.rows, stat.changes) for stat in stats if stat.split is not None}
    high: dict[str, Sequence] = {}
    for split, end in by_split.items():
        rows, backfill = read.get(split, (0, 0))
        if rows > end.rows or backfill > end.backfill:
            raise KafkaRequestError(
                f"split {split} has more records than its END watermark says",
                hint="check for another writer to the topic; a producer without transactions repeats records",
                topic=end.topic,
                rows=f"{rows} read, {end.rows} in END",
                backfill=f"{backfill} read, {end.backfill} in END",
            )
        if (rows, backfill) == (end.rows, end.backfill):
            high[split] = position_sequence(end.position)
    return SplitCompleteness(
        high=high,
        incomplete=frozenset(read) - frozenset(high),
        pending=tuple(end for split, end in by_split.items() if split not in high),
    )


def hold_incomplete(
    records: DataFrame, incomplete: Iterable[str], scope: tuple[str, ...] = ()
) -> tuple[DataFrame, DataFrame | None]:
    """Separate records into those to process now and those to hold, or None if nothing is held.

    A key lives in one partition, so offsets order its records. ``scope`` names further columns that identify a key, for
    records of several tables.
    """
    splits = sorted(incomplete)
    if not splits:
        return records, None
    identity = ("key", *scope)
    first = records.where(fn.col("split").isin(splits)).groupBy(*identity).agg(fn.min("offset").alias("_held_from"))
    joined = records.join(first, list(identity), "left")
    held = fn.col("_held_from").isNotNull() & (fn.col("offset") >= fn.col("_held_from"))
    columns = records.columns
    return joined.where(~held).select(*columns), joined.where(held).select(*columns)


def resolve_splits(decoded: DataFrame, high: Mapping[str, Sequence]) -> DataFrame:
    """Replace the records of complete splits by the last image per key as ``r``, or by nothing after a delete.

    Records without a split do not change. A resolved row keeps the partition and offset of its last record.
    """
    without_split = decoded.where(fn.col("split").isNull())
    if not high:
        return without_split
    newest_first = Window.partitionBy("split", "key").orderBy(fn.col("partition").desc(), fn.col("offset").desc())
    resolved = (
        decoded.where(fn.col("split").isNotNull())
        .withColumn("_rank", fn.row_number().over(newest_first))
        .where((fn.col("_rank") == 1) & (fn.col("op") != Op.DELETE.value))
        .drop("_rank")
        .withColumn("op", fn.lit(Op.READ.value))
        .withColumn("before", fn.lit(None).cast(decoded.schema["before"].dataType))
        .withColumn("seq", fn.get(_high_watermarks(high)[fn.col("split")], fn.lit(0)))
    )
    return without_split.unionByName(resolved)


def _high_watermarks(high: Mapping[str, Sequence]) -> Column:
    """Return a literal map of split id to an array that holds its sequence."""
    entries: list[Column] = []
    for split, sequence in high.items():
        entries += [fn.lit(split), fn.array(sequence_literal(sequence).cast(SEQUENCE_TYPE))]
    return fn.create_map(*entries)
