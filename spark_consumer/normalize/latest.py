"""Last change per key within a batch: what an upsert needs of many changes of one key.

Kafka keeps the order of a key within its partition, so the greatest offset is the last change. The rows are sorted
once; nothing is aggregated, which would copy every candidate row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as fn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def last_per_key(decoded: DataFrame, *, incremental: bool = False) -> DataFrame:
    """Return the last record of each key, columns unchanged.

    ``again``: rows of tables that were read again may be among them. Such a row shows all that stands before it, but
    may bear the sequence of a moment before; it then takes the greatest one of its key, or the guard would drop both.
    """
    key = Window.partitionBy("key")
    newest_first = key.orderBy(fn.col("partition").desc(), fn.col("offset").desc())
    if incremental:
        decoded = decoded.withColumn("seq", fn.max("seq").over(key))
    return decoded.withColumn("_rank", fn.row_number().over(newest_first)).where(fn.col("_rank") == 1).drop("_rank")
