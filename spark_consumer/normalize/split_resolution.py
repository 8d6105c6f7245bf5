"""Per-split correction: a split's rows and its backfill become one row per key, as of the split's high watermark.

A split is complete when its END watermark is there and as many rows and backfill events have been read as END says.
Until then its records are held, and so is every later record of a key that has a held one: order per key must hold.
Of a complete split the last record per key wins, a delete removes the key, and what remains is one +I whose sequence
is the high watermark. Tombstones are no part of this: the delete before them says the same.
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
from tailrace.spark_consumer.normalize.sequence import SEQUENCE_TYPE, position_sequence
from tailrace.spark_consumer.normalize.summary import SplitStats

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, slots=True)
class SplitCompleteness:
    """Which splits can be corrected now; ``high`` is their sequence, ``pending`` the END records still waited for."""

    high: Mapping[str, Sequence] = field(default_factory=dict)
    incomplete: frozenset[str] = frozenset()
    pending: tuple[Watermark, ...] = ()


def check_completeness(facts: Iterable[SplitStats], ends: Iterable[Watermark]) -> SplitCompleteness:
    """Compare what was read with what END records promise.

    Raises KafkaFailure where more was read than END says: the topic does not hold what the producer wrote.
    """
    by_split = {end.split: end for end in ends}
    read = {fact.split: (fact.rows, fact.changes) for fact in facts if fact.split is not None}
    high: dict[str, Sequence] = {}
    for split, end in by_split.items():
        rows, backfill = read.get(split, (0, 0))
        if rows > end.rows or backfill > end.backfill:
            raise KafkaRequestError(
                f"split {split} has more records than its END watermark says",
                hint="look for another writer to the topic; a producer that ran without transactions repeats records",
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
    """Part records into those that may go on and those that are carried over, by key and offset.

    A key lives in one partition, so offsets alone order its records. ``scope`` are columns that tell keys of several
    tables apart.
    """
    names = sorted(incomplete)
    if not names:
        return records, None
    identity = ("key", *scope)
    first = records.where(fn.col("split").isin(names)).groupBy(*identity).agg(fn.min("offset").alias("_held_from"))
    joined = records.join(first, list(identity), "left")
    waits = fn.col("_held_from").isNotNull() & (fn.col("offset") >= fn.col("_held_from"))
    columns = records.columns
    return joined.where(~waits).select(*columns), joined.where(waits).select(*columns)


def resolve_splits(decoded: DataFrame, high: Mapping[str, Sequence]) -> DataFrame:
    """Replace the records of complete splits by their outcome: the last image per key as ``r``, or nothing.

    Records without a split pass unchanged. The outcome keeps the place (partition, offset) of the record it comes from.
    """
    plain = decoded.where(fn.col("split").isNull())
    if not high:
        return plain
    newest_first = Window.partitionBy("split", "key").orderBy(fn.col("partition").desc(), fn.col("offset").desc())
    tagged = (
        decoded.where(fn.col("split").isNotNull())
        .withColumn("_rank", fn.row_number().over(newest_first))
        .where((fn.col("_rank") == 1) & (fn.col("op") != Op.DELETE.value))
        .drop("_rank")
        .withColumn("op", fn.lit(Op.READ.value))
        .withColumn("before", fn.lit(None).cast(decoded.schema["before"].dataType))
        .withColumn("seq", fn.get(_high_map(high)[fn.col("split")], fn.lit(0)))
    )
    return plain.unionByName(tagged)


def _high_map(high: Mapping[str, Sequence]) -> Column:
    """Return a literal map of split id to an array with its sequence."""
    entries: list[Column] = []
    for split, sequence in high.items():
        value = fn.struct(*(fn.lit(v).cast("bigint").alias(n) for n, v in sequence._asdict().items()))
        entries += [fn.lit(split), fn.array(value.cast(SEQUENCE_TYPE))]
    return fn.create_map(*entries)
