"""What a table keeps of its records as Parquet files next to the checkpoint: held records, and remembered deletes.

Records of incomplete splits wait for a later batch. Each topic has a directory with a folder per batch, and in it a
folder per split that holds records. A batch writes only the records that are newly held. They are read once, when their
split is complete, and their folders are removed by the next batch of the topic. Which folders hold records is in the
state of the topic (table_state.py).

An upsert sink must remember deletes, because older records of their keys may be read later. Within a partition records
come in the order of their sequences. A key stays in its partition unless the topic gets more partitions. Then an older
record can be read after a delete, and would bring the row back. So from then on the greatest sequence of each partition
is kept, and a delete is remembered while a partition may have something older: until all of them have passed it. A
partition without offsets in a batch has been read to its end when the batch was planned, and thus past everything of
the batch before. One whose offsets in the batch are left out, because the target has applied them, has not.

A topic has got more partitions if it has more than in its first batch, or than a watermark before that batch names: a
query that starts later knows it from its first batch on. No watermark names the number if the topic has none (of some
connector, of a table that was never read), or was written by an older release: then only what happens after the first
batch is seen. Remembered deletes have a folder per batch, ``<checkpoint>/deletes/<topic>/<folder>``.

A folder has the name of the step that it belongs to, and of the run of the query that has written it. So two drivers
with one checkpoint, of which one ends, never write to the same folder.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.schemas.rowkind import Op
from tailrace.schemas.sequence import Sequence
from tailrace.spark_consumer.errors import StoredFileError
from tailrace.spark_consumer.files import children, delete
from tailrace.spark_consumer.java_errors import java_errors, summary
from tailrace.spark_consumer.source.kafka import RAW_COLUMNS, reload_remedy
from tailrace.spark_consumer.source.types import SEQUENCE_TYPE, sequence_literal

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
_HELD: Final = "records that wait for their split"


class HeldFolder(NamedTuple):
    """The records that a split holds since one batch of the table."""

    holder: str
    folder: str
    """That of the batch."""


class _Folders:
    """The folders under ``<checkpoint>/<kind>/<topic>``, on any file system that Spark can write."""

    def __init__(self, checkpoint: str, kind: str) -> None:
        self._root = f"{checkpoint.rstrip('/')}/{kind}"
        self._run = uuid.uuid4().hex[:8]

    def path(self, topic: str, folder: str) -> str:
        return f"{self._root}/{topic}/{folder}"

    def new(self, step: int) -> str:
        """Return the name of the folder that an attempt of a batch writes; a later attempt of the run replaces it."""
        return f"{step}-{self._run}"

    def keep(self, spark: SparkSession, topic: str, folders: Collection[str], step: int) -> None:
        """Remove all other folders of the steps up to one; later ones may be those of another driver."""
        for name in children(spark, f"{self._root}/{topic}"):
            if name not in folders and (number := name.partition("-")[0]).isdigit() and int(number) <= step:
                delete(spark, self.path(topic, name))

    def remove_all(self, spark: SparkSession, topic: str) -> None:
        """Remove all folders of a topic."""
        delete(spark, f"{self._root}/{topic}")


@contextmanager
def _named(topic: str, kind: str) -> Iterator[None]:
    """Say what to do if a folder is missing."""
    try:
        yield
    except AnalysisException as error:
        if all(each.condition != "PATH_NOT_FOUND" for each in java_errors(error)):
            raise
        raise StoredFileError(
            f"the checkpoint lacks {kind} of topic {topic}",
            hint=f"restore the checkpoint from a copy, or {reload_remedy(topic)}",
            cause=summary(error),
        ) from error


class CarryOver(_Folders):
    """The records that splits hold: a folder for each batch, and in it one for each split that holds records."""

    def __init__(self, checkpoint: str) -> None:
        super().__init__(checkpoint, "carry-over")
        self._removed: dict[str, tuple[HeldFolder, ...]] = {}

    def read(self, spark: SparkSession, topic: str, folders: Iterable[HeldFolder]) -> DataFrame:
        """Return the raw records in some folders."""
        paths = [self._path(topic, folder) for folder in folders]
        if not paths:
            columns = [fn.lit(None).cast(CARRY_OVER_TYPE[name].dataType).alias(name) for name in RAW_COLUMNS]
            return spark.range(0).select(*columns)
        with _named(topic, _HELD):
            return spark.read.schema(CARRY_OVER_TYPE).parquet(*paths).select(*RAW_COLUMNS)

    def keys(self, spark: SparkSession, topic: str, folders: Iterable[HeldFolder]) -> DataFrame:
        """Return the keys in some folders, each with the split that holds it; at least one folder."""
        paths = [self._path(topic, folder) for folder in folders]
        wanted = tp.StructType([CARRY_OVER_TYPE["key"], CARRY_OVER_TYPE["holder"]])
        with _named(topic, _HELD):
            stored = spark.read.schema(wanted).parquet(*paths)
        return stored.groupBy("key").agg(fn.first("holder").alias("holder"))

    def write(self, held: DataFrame, topic: str, step: int) -> str:
        """Store raw records with their ``holder``; return the folder of the batch."""
        name = self.new(step)
        folder = fn.substring(fn.sha2(fn.col("holder"), 256), 1, _DIGITS)
        stored = held.select(*CARRY_OVER_TYPE.names, folder.alias(_FOLDER)).repartition("holder")
        stored.write.mode("overwrite").partitionBy(_FOLDER).parquet(self.path(topic, name))
        return name

    def remove(
        self, spark: SparkSession, topic: str, folders: tuple[HeldFolder, ...], held: Iterable[HeldFolder], step: int
    ) -> None:
        """Remove folders whose records were written to the sink; ``held`` are the folders that stay at a step."""
        if not folders or self._removed.get(topic) == folders:
            return
        kept = {folder.folder for folder in held}
        self.keep(spark, topic, kept, step)
        for folder in folders:
            if folder.folder in kept:
                delete(spark, self._path(topic, folder))
        self._removed[topic] = folders

    def _path(self, topic: str, folder: HeldFolder) -> str:
        name = hashlib.sha256(folder.holder.encode()).hexdigest()[:_DIGITS]
        return f"{self.path(topic, folder.folder)}/{_FOLDER}={name}"


@dataclass(frozen=True, slots=True)
class MovedKeys:
    """What is known of the partitions of a topic since it got more of them."""

    partitions: int = 0
    """The least known number of partitions: in the first batch of the topic, or in its watermarks before."""
    passed: Mapping[int, Sequence] = field(default_factory=dict)
    """Partition to its greatest sequence."""
    deletes: Mapping[str, Sequence] = field(default_factory=dict)
    """Folders with remembered deletes, to the greatest sequence of these."""

    def grown(self, partitions: int) -> bool:
        """Return whether the topic has, or may have, records of one key in several partitions."""
        return 0 < self.partitions < partitions

    def advance(
        self, found: Mapping[int, Sequence], partitions: Iterable[int], within: Collection[int] = ()
    ) -> MovedKeys:
        """Return what is known after a batch: ``found`` has the greatest sequence of each partition with records.

        ``within``: the partitions with offsets in the batch, also those of which no record was read.
        """
        before = max(self.passed.values(), default=None)
        passed = dict(self.passed)
        for partition in partitions:
            read = found.get(partition, None if partition in within else before)
            if read is not None:
                passed[partition] = max(read, passed.get(partition, read))
        lowest = min(passed.values()) if all(partition in passed for partition in partitions) else None
        deletes = {folder: last for folder, last in self.deletes.items() if lowest is None or last > lowest}
        return MovedKeys(self.partitions, passed, deletes)

    @property
    def lowest(self) -> Sequence | None:
        """The sequence that all known partitions have passed."""
        return min(self.passed.values(), default=None)

    def to_json(self) -> dict[str, Any]:
        """Return the content for a file."""
        return {
            "partitions": self.partitions,
            "passed": {str(partition): sequence.text for partition, sequence in self.passed.items()},
            "deletes": {folder: sequence.text for folder, sequence in self.deletes.items()},
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> MovedKeys:
        """Read what ``to_json`` returned, also through JSON."""
        return cls(
            body["partitions"],
            {int(partition): Sequence.from_text(text) for partition, text in body["passed"].items()},
            {folder: Sequence.from_text(text) for folder, text in body["deletes"].items()},
        )


class RememberedDeletes(_Folders):
    """The deletes that are remembered: a folder for each batch."""

    def __init__(self, checkpoint: str) -> None:
        super().__init__(checkpoint, "deletes")

    def without_older(self, decoded: DataFrame, topic: str, folders: Iterable[str]) -> DataFrame:
        """Return the records without those that are older than a remembered delete of their key."""
        paths = [self.path(topic, folder) for folder in folders]
        if not paths:
            return decoded
        spark = decoded.sparkSession
        with _named(topic, "remembered deletes"):
            stored = spark.read.schema(f"key binary, deleted {SEQUENCE_TYPE.simpleString()}").parquet(*paths)
        last = stored.groupBy("key").agg(fn.max("deleted").alias("_deleted_at"))
        kept = decoded.join(last, "key", "left").where(
            fn.col("_deleted_at").isNull() | (fn.col("seq") >= fn.col("_deleted_at"))
        )
        return kept.select(*decoded.columns)

    def write(self, decoded: DataFrame, topic: str, step: int, *, above: Sequence | None) -> dict[str, Sequence]:
        """Store the deletes of a batch that are later than ``above``; return their folder with the greatest sequence.

        Empty: there are none.
        """
        deletes = decoded.where(fn.col("op") == Op.DELETE.value)
        if above is not None:
            deletes = deletes.where(fn.col("seq") > sequence_literal(above))
        found = deletes.agg(fn.max("seq").alias("seq")).collect()[0]["seq"]
        if found is None:
            return {}
        folder, stored = self.new(step), deletes.groupBy("key").agg(fn.max("seq").alias("deleted"))
        stored.write.mode("overwrite").parquet(self.path(topic, folder))
        return {folder: Sequence(**found.asDict())}


def greatest_by_partition(decoded: DataFrame) -> dict[int, Sequence]:
    """Return the greatest sequence of each partition in a batch."""
    rows = decoded.groupBy("partition").agg(fn.max("seq").alias("seq")).collect()
    return {row["partition"]: Sequence(**row["seq"].asDict()) for row in rows}
