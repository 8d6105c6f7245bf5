"""Records of incomplete splits that wait for a later batch, as Parquet files next to the checkpoint, by split.

Each topic has a directory with a folder per batch, and in it a folder per split that holds records. A batch writes only
the records that are newly held. They are read once, when their split is complete, and their folders are removed by the
next batch of the topic. Which folders hold records is in the state of the topic (table_state.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.spark_consumer.files import delete
from tailrace.spark_consumer.source.kafka import RAW_COLUMNS

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
        tp.StructField("holder", tp.StringType()),
    ]
)
_FOLDER: Final = "held_by"
_DIGITS: Final = 32


class HeldFolder(NamedTuple):
    """The records that a split holds since one step of the table (table_state.py)."""

    holder: str
    step: int


class CarryOver:
    """The folders under ``<checkpoint>/carry-over/<topic>``, on any file system that Spark can write."""

    def __init__(self, checkpoint: str) -> None:
        self._root = f"{checkpoint.rstrip('/')}/carry-over"
        self._removed: dict[str, tuple[HeldFolder, ...]] = {}

    def read(self, spark: SparkSession, topic: str, folders: Iterable[HeldFolder]) -> DataFrame:
        """Return the raw records in some folders."""
        paths = [self._path(topic, folder) for folder in folders]
        if not paths:
            columns = [fn.lit(None).cast(CARRY_OVER_TYPE[name].dataType).alias(name) for name in RAW_COLUMNS]
            return spark.range(0).select(*columns)
        return spark.read.schema(CARRY_OVER_TYPE).parquet(*paths).select(*RAW_COLUMNS)

    def keys(self, spark: SparkSession, topic: str, folders: Iterable[HeldFolder]) -> DataFrame:
        """Return the keys in some folders, each with the split that holds it; at least one folder."""
        paths = [self._path(topic, folder) for folder in folders]
        wanted = tp.StructType([CARRY_OVER_TYPE["key"], CARRY_OVER_TYPE["holder"]])
        return spark.read.schema(wanted).parquet(*paths).groupBy("key").agg(fn.first("holder").alias("holder"))

    def write(self, held: DataFrame, topic: str, step: int) -> None:
        """Store raw records with their ``holder``; replaces what an earlier attempt of the batch stored."""
        folder = fn.substring(fn.sha2(fn.col("holder"), 256), 1, _DIGITS)
        stored = held.select(*CARRY_OVER_TYPE.names, folder.alias(_FOLDER)).repartition("holder")
        stored.write.mode("overwrite").partitionBy(_FOLDER).parquet(f"{self._root}/{topic}/{step}")

    def remove(
        self, spark: SparkSession, topic: str, folders: tuple[HeldFolder, ...], held: Iterable[HeldFolder]
    ) -> None:
        """Remove folders whose records were written to the sink; ``held`` are the folders that stay."""
        if not folders or self._removed.get(topic) == folders:
            return
        steps = {folder.step for folder in held}
        for step in {folder.step for folder in folders} - steps:
            delete(spark, f"{self._root}/{topic}/{step}")
        for folder in folders:
            if folder.step in steps:
                delete(spark, self._path(topic, folder))
        self._removed[topic] = folders

    def remove_all(self, spark: SparkSession, topic: str) -> None:
        """Remove all folders of a topic."""
        delete(spark, f"{self._root}/{topic}")

    def _path(self, topic: str, folder: HeldFolder) -> str:
        name = hashlib.sha256(folder.holder.encode()).hexdigest()[:_DIGITS]
        return f"{self._root}/{topic}/{folder.step}/{_FOLDER}={name}"
