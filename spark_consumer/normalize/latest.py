"""Reduces a batch to the last change per key, which is all that an upsert needs.

The sequence orders the records of a key. Kafka's order (partition, offset) decides between equal sequences only: a key
moves to another partition if a topic gets more partitions, and its older records may then be read later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as fn

from tailrace.schemas.rowkind import Op
from tailrace.spark_consumer.column_cache import ColumnCache

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def last_per_key(decoded: DataFrame, *, incremental: bool = False) -> DataFrame:
    """Return the last record of each key, with the same columns.

    ``incremental``: the batch may contain rows of an incremental snapshot (``with_contained_sequence``).
    """
    if incremental:
        decoded = with_contained_sequence(decoded)
    rank, is_last = _RANK.get("", _rank)
    return decoded.withColumn("_rank", rank).where(is_last).drop("_rank")


_RANK: Final = ColumnCache["tuple[Column, Column]"]()


def _rank() -> tuple[Column, Column]:
    newest_first = Window.partitionBy("key").orderBy(
        fn.col("seq").desc(), fn.col("partition").desc(), fn.col("offset").desc()
    )
    return fn.row_number().over(newest_first), fn.col("_rank") == 1


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
