"""Resolves snapshot splits: the rows and the backfill of a split become one row per key, as of its high watermark.

Until a split is complete (split_progress.py) its records are held. Later records of the same keys are held too, because
the order per key must not change. In a complete split the last record per key wins: a delete removes the key, every
other record becomes one ``r`` whose sequence is the high watermark. Tombstones do not take part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as fn

from tailrace.schemas.rowkind import Op
from tailrace.schemas.sequence import Sequence
from tailrace.spark_consumer.source.literal_rows import literal_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
    newest_first = Window.partitionBy("split", "key").orderBy(
        fn.col("seq").desc(), fn.col("partition").desc(), fn.col("offset").desc()
    )
    resolved = (
        decoded.where(fn.col("split").isNotNull())
        .withColumn("_rank", fn.row_number().over(newest_first))
        .where((fn.col("_rank") == 1) & (fn.col("op") != Op.DELETE.value))
        .join(highs, "split", "left")
        .withColumn("op", fn.lit(Op.READ.value))
        .withColumn("before", fn.lit(None).cast(decoded.schema["before"].dataType))
        .withColumn("seq", fn.coalesce("_high", "seq"))
        .select(*decoded.columns)
    )
    return without_split.unionByName(resolved)
