"""Records of incomplete splits that a batch passes on to a later batch, as Parquet files next to the checkpoint.

Each topic has a directory with one folder per batch that passed records on. Batch N of a topic reads the newest folder
before N and writes folder N completely before any row goes to the sink. A batch that runs again reads the same folder
and overwrites its own, so the result is the same. Folders before the one that is read are removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import types as tp

from tailrace.spark_consumer.files import children, delete, exists

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CARRY_OVER_TYPE: Final = tp.StructType(
    [
        tp.StructField("topic", tp.StringType()),
        tp.StructField("partition", tp.IntegerType()),
        tp.StructField("offset", tp.LongType()),
        tp.StructField("key", tp.BinaryType()),
        tp.StructField("value", tp.BinaryType()),
        tp.StructField("split", tp.StringType()),
        tp.StructField("event", tp.StringType()),
        tp.StructField("schema", tp.StringType()),
        tp.StructField("incremental", tp.StringType()),
    ]
)


class CarryOver:
    """The folders under ``<checkpoint>/carry-over/<topic>``, on any file system that Spark can write."""

    def __init__(self, checkpoint: str) -> None:
        self._root = f"{checkpoint.rstrip('/')}/carry-over"

    def read(self, spark: SparkSession, topic: str, batch_id: int) -> DataFrame | None:
        """Return the records of a topic that an earlier batch passed on, or None; removes folders that are older."""
        earlier = [number for number in self._batches(spark, topic) if number < batch_id]
        complete = [number for number in earlier if exists(spark, f"{self._folder(topic, number)}/_SUCCESS")]
        for number in earlier:
            if complete and number < complete[-1]:
                delete(spark, self._folder(topic, number))
        if not complete:
            return None
        return spark.read.schema(CARRY_OVER_TYPE).parquet(self._folder(topic, complete[-1]))

    def write(self, records: DataFrame, topic: str, batch_id: int) -> None:
        """Store the records that this batch passes on; replaces what an earlier attempt of the batch stored."""
        files = max(1, int(records.sparkSession.sparkContext.defaultParallelism))
        stored = records.select(*CARRY_OVER_TYPE.names).coalesce(files)
        stored.write.mode("overwrite").parquet(self._folder(topic, batch_id))

    def _batches(self, spark: SparkSession, topic: str) -> list[int]:
        return sorted(int(name) for name in children(spark, f"{self._root}/{topic}") if name.isdigit())

    def _folder(self, topic: str, batch_id: int) -> str:
        return f"{self._root}/{topic}/{batch_id}"
