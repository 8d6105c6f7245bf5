"""What a batch leaves for the next one: raw records of splits that are not complete, as Parquet beside the checkpoint.

Batch N reads folder N-1 and writes folder N, whole, before anything goes to the sink. A batch that is run again reads
the same folder and overwrites its own, so it does the same again. Folders before N-1 are removed when N begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import types as tp

from tailrace.runtime.errors import SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CARRY_TYPE = tp.StructType(
    [
        tp.StructField("topic", tp.StringType()),
        tp.StructField("partition", tp.IntegerType()),
        tp.StructField("offset", tp.LongType()),
        tp.StructField("key", tp.BinaryType()),
        tp.StructField("value", tp.BinaryType()),
        tp.StructField("split", tp.StringType()),
        tp.StructField("event", tp.StringType()),
    ]
)
_KEPT_FOLDERS = 2


class CarryOver:
    """The folders under ``<checkpoint>/carry-over``; the checkpoint may lie on any file system that Spark writes."""

    def __init__(self, checkpoint: str) -> None:
        self._root = f"{checkpoint.rstrip('/')}/carry-over"

    def read(self, spark: SparkSession, batch_id: int) -> DataFrame:
        """Return what the batch before ``batch_id`` left.

        Raises SinkError where its folder is gone: going on would lose records.
        """
        if batch_id == 0:
            return spark.createDataFrame([], CARRY_TYPE)
        folder = self._folder(batch_id - 1)
        if not _exists(spark, f"{folder}/_SUCCESS"):
            raise SinkError(
                f"the records carried over to batch {batch_id} are gone",
                hint="restore the checkpoint directory as a whole, or start with an empty one and an empty target",
                missing=folder,
            )
        return spark.read.schema(CARRY_TYPE).parquet(folder)

    def write(self, records: DataFrame | None, spark: SparkSession, batch_id: int) -> None:
        """Store what this batch leaves, in place of what an earlier try of it left."""
        rows = spark.createDataFrame([], CARRY_TYPE) if records is None else records.select(*CARRY_TYPE.names)
        rows.coalesce(_files(spark)).write.mode("overwrite").parquet(self._folder(batch_id))

    def clean(self, spark: SparkSession, batch_id: int) -> None:
        """Remove folders that no batch from ``batch_id`` on can need."""
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


def _files(spark: SparkSession) -> int:
    return max(1, int(spark.sparkContext.defaultParallelism))


def _path(spark: SparkSession, name: str) -> Any:
    jvm: Any = spark._jvm  # noqa: SLF001 - the only way to the cluster's own file systems
    return jvm.org.apache.hadoop.fs.Path(name)


def _file_system(spark: SparkSession, path: Any) -> Any:
    session: Any = spark._jsparkSession  # noqa: SLF001
    return path.getFileSystem(session.sessionState().newHadoopConf())


def _exists(spark: SparkSession, name: str) -> bool:
    path = _path(spark, name)
    return bool(_file_system(spark, path).exists(path))
