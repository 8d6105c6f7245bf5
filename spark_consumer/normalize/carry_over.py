"""Records of incomplete splits that a batch passes on to the next batch, as Parquet files next to the checkpoint.

Batch N reads folder N-1 and writes folder N completely before any row goes to the sink. A batch that runs again reads
the same folder and overwrites its own, so the result is the same. Folders before N-1 are removed when batch N starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import types as tp

from tailrace.spark_consumer.errors import SinkError

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
    ]
)
_KEPT_FOLDERS: Final = 2


class CarryOver:
    """The folders under ``<checkpoint>/carry-over``, on any file system that Spark can write."""

    def __init__(self, checkpoint: str) -> None:
        self._root = f"{checkpoint.rstrip('/')}/carry-over"

    def read(self, spark: SparkSession, batch_id: int) -> DataFrame:
        """Return the records that the batch before ``batch_id`` passed on.

        Raises SinkError if its folder is missing: without it records would be lost.
        """
        if batch_id == 0:
            return spark.createDataFrame([], CARRY_OVER_TYPE)
        folder = self._folder(batch_id - 1)
        if not _exists(spark, f"{folder}/_SUCCESS"):
            raise SinkError(
                f"the records carried over to batch {batch_id} are missing",
                hint="restore the whole checkpoint directory, or start with an empty checkpoint and an empty target",
                missing=folder,
            )
        return spark.read.schema(CARRY_OVER_TYPE).parquet(folder)

    def write(self, records: DataFrame | None, spark: SparkSession, batch_id: int) -> None:
        """Store the records that this batch passes on; replaces what an earlier attempt of the batch stored."""
        rows = spark.createDataFrame([], CARRY_OVER_TYPE) if records is None else records.select(*CARRY_OVER_TYPE.names)
        files = max(1, int(spark.sparkContext.defaultParallelism))
        rows.coalesce(files).write.mode("overwrite").parquet(self._folder(batch_id))

    def clean(self, spark: SparkSession, batch_id: int) -> None:
        """Remove the folders that neither ``batch_id`` nor a later batch reads."""
        path = _path(spark, self._root)
        files = _file_system(spark, path)
        if not files.exists(path):
            return
        for entry in files.listStatus(path):
            name = str(entry.getPath().getName())
            if name.isdigit() and int(name) <= batch_id - _KEPT_FOLDERS:
                files.delete(entry.getPath(), True)

    def _folder(self, batch_id: int) -> str:
        return f"{self._root}/{batch_id}"


def _path(spark: SparkSession, name: str) -> Any:
    jvm: Any = spark._jvm  # noqa: SLF001 - the only access to the cluster's file systems
    return jvm.org.apache.hadoop.fs.Path(name)


def _file_system(spark: SparkSession, path: Any) -> Any:
    session: Any = spark._jsparkSession  # noqa: SLF001
    return path.getFileSystem(session.sessionState().newHadoopConf())


def _exists(spark: SparkSession, name: str) -> bool:
    path = _path(spark, name)
    return bool(_file_system(spark, path).exists(path))
