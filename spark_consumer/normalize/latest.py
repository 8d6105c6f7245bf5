"""Reduces a batch to the last change per key, which is all that an upsert needs.

Kafka keeps the order of a key within its partition, so the record with the greatest offset is the last change. The
records are sorted once. An aggregation would copy every candidate row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as fn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def last_per_key(decoded: DataFrame, *, incremental: bool = False) -> DataFrame:
    """Return the last record of each key, with the same columns.

    ``incremental``: the batch may contain rows of an incremental snapshot. Such a row contains all changes before it in
    the topic, but its sequence can be that of an earlier position. It then gets the greatest sequence of its key in the
    batch. Otherwise a sink that compares sequences would drop both the row and the change.
    """
    key = Window.partitionBy("key")
    newest_first = key.orderBy(fn.col("partition").desc(), fn.col("offset").desc())
    if incremental:
        decoded = decoded.withColumn("seq", fn.max("seq").over(key))
    return decoded.withColumn("_rank", fn.row_number().over(newest_first)).where(fn.col("_rank") == 1).drop("_rank")
