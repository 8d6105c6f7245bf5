"""Truncate events (op t): every row of the table whose sequence is smaller is gone.

A truncate event is in one partition of the topic. Rows of the other partitions that the statement has removed may be
read later, and rows that were written after the statement earlier. So the sequence of the last truncate event is kept
with the target, and records with a smaller sequence stay out from then on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

from tailrace.schemas.rowkind import Op
from tailrace.schemas.sequence import Sequence
from tailrace.spark_consumer.normalize.split_stats import SplitStats
from tailrace.spark_consumer.source.sequence import sequence_literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
