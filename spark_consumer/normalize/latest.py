"""Which records of a batch count: the last change per key, complete splits, what is behind a truncation.

The sequence orders the records of a key. Kafka's order (partition, offset) decides between equal sequences only: a key
moves to another partition if a topic gets more partitions, and its older records may then be read later.

Split resolution: the rows and the backfill of a split become one row per key, as of its high watermark. Until a split
is complete (split_progress.py) its records are held. Later records of the same keys are held too, because the order per
key must not change. In a complete split the last record per key wins: a delete removes the key, every other record
becomes one ``r`` whose sequence is the high watermark. Tombstones do not take part.

Truncate events (op t): every row of the table whose sequence is smaller is gone. The event is in one partition of the
topic. Rows of the other partitions that the statement has removed may be read later, and rows that were written after
the statement earlier. So the sequence of the last truncate event is kept with the target, and records with a smaller
sequence stay out from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as fn

from tailrace.schemas.rowkind import Op
from tailrace.schemas.sequence import Sequence
from tailrace.spark_consumer.in_driver import literal_rows
from tailrace.spark_consumer.normalize.split_progress import SplitStats
from tailrace.spark_consumer.small_data import ColumnCache
from tailrace.spark_consumer.source.types import sequence_literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def last_truncate(decoded: DataFrame, stats: Iterable[SplitStats]) -> Sequence | None:
    """Return the greatest sequence of the truncate events in a batch, or None; reads records only if there is one."""
    if not any(stat.truncates for stat in stats):
        return None
    row = decoded.where(fn.col("op") == Op.TRUNCATE.value).agg(fn.max("seq").alias("seq")).collect()[0]
    return Sequence(**row["seq"].asDict())


def truncate_time(decoded: DataFrame, truncated: Sequence) -> int | None:
    """Return the time at the source of the truncate event with a sequence, in milliseconds; None if it is not there."""
    events = decoded.where((fn.col("op") == Op.TRUNCATE.value) & (fn.col("seq") == sequence_literal(truncated)))
    found: int | None = events.agg(fn.max("ts_ms")).collect()[0][0]
    return found


def later(one: Sequence | None, other: Sequence | None) -> Sequence | None:
    """Return the later of two truncations; None is no truncation."""
    if one is None or other is None:
        return one or other
    return max(one, other)


def without_truncated(decoded: DataFrame, truncated: Sequence | None) -> DataFrame:
    """Return the records that are left after a truncation, without truncate events."""
    if truncated is None:
        return decoded
    return decoded.where((fn.col("op") != Op.TRUNCATE.value) & (fn.col("seq") >= sequence_literal(truncated)))


def last_per_key(decoded: DataFrame, *, incremental: bool = False) -> DataFrame:
    """Return the last record of each key, with the same columns.

    ``incremental``: the batch may contain rows of an incremental snapshot (``with_contained_sequence``).
    """
    if incremental:
        decoded = with_contained_sequence(decoded)
    rank, is_last = _RANK.get("", lambda: _rank("key"))
    return decoded.withColumn("_rank", rank).where(is_last).drop("_rank")


_RANK: Final = ColumnCache["tuple[Column, Column]"]()


def _rank(*keys: str) -> tuple[Column, Column]:
    """Return the number of a record in its group, the newest first, and whether it is the newest."""
    order = (fn.col(name).desc() for name in ("seq", "partition", "offset"))
    return fn.row_number().over(Window.partitionBy(*keys).orderBy(*order)), fn.col("_rank") == 1


def with_contained_sequence(decoded: DataFrame) -> DataFrame:
    """Give each row of an incremental snapshot the greatest sequence of what it contains, with the same columns.

    Such a row contains all changes before it in its partition, but its own sequence can be that of an earlier position.
    A sink that compares sequences would otherwise drop the row.
    """
    until_row = (
        Window.partitionBy("key", "partition")
        .orderBy("offset")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    is_row = (fn.col("op") == Op.READ.value) & fn.col("split").isNull()
    return decoded.withColumn("seq", fn.when(is_row, fn.max("seq").over(until_row)).otherwise(fn.col("seq")))


_HIGH: Final = "split: string, _high: struct<epoch: bigint, file: bigint, pos: bigint, event: bigint, row: bigint>"


def with_holder(decoded: DataFrame, incomplete: Iterable[str], held_keys: DataFrame | None) -> DataFrame:
    """Add ``holder``: the incomplete split whose key range a record must wait for, or NULL.

    A record is held if its key has a record of an incomplete split that is not later. ``held_keys`` are the keys that
    are held since earlier batches, with their holder: every further record of them is held too.
    """
    splits = sorted(incomplete)
    held = decoded
    holder = fn.lit(None).cast("string")
    if splits:
        names = fn.broadcast(
            literal_rows(decoded.sparkSession, [{"split": split} for split in splits], "split: string")
        )
        first = decoded.join(names, "split").groupBy("key").agg(fn.min(fn.struct("seq", "split")).alias("_first"))
        held = held.join(first, "key", "left")
        holder = fn.when(fn.col("seq") >= fn.col("_first.seq"), fn.col("_first.split"))
    if held_keys is not None:
        held = held.join(held_keys.withColumnRenamed("holder", "_earlier"), "key", "left")
        holder = fn.coalesce("_earlier", holder)
    return held.select(*decoded.columns, holder.alias("holder"))


def resolve_splits(decoded: DataFrame, high: Mapping[str, Sequence]) -> DataFrame:
    """Replace the records of complete splits by the last image per key as ``r``, or by nothing after a delete.

    ``high`` has the high watermark of each split. Records without a split do not change. A resolved row keeps the
    partition and offset of its last record.
    """
    without_split = decoded.where(fn.col("split").isNull())
    if not high:
        return without_split
    known = [{"split": split, "_high": sequence._asdict()} for split, sequence in high.items()]
    highs = fn.broadcast(literal_rows(decoded.sparkSession, known, _HIGH))
    rank, is_last = _rank("split", "key")
    resolved = (
        decoded.where(fn.col("split").isNotNull())
        .withColumn("_rank", rank)
        .where(is_last & (fn.col("op") != Op.DELETE.value))
        .join(highs, "split", "left")
        .withColumn("op", fn.lit(Op.READ.value))
        .withColumn("before", fn.lit(None).cast(decoded.schema["before"].dataType))
        .withColumn("seq", fn.coalesce("_high", "seq"))
        .select(*decoded.columns)
    )
    return without_split.unionByName(resolved)
