"""Deletes that an upsert sink must remember, because older records of their keys may be read later.

Within a partition records come in the order of their sequences. A key stays in its partition unless the topic gets more
partitions. Then an older record can be read after a delete, and would bring the row back. So from then on the greatest
sequence of each partition is kept, and a delete is remembered while a partition may have something older: until all of
them have passed it. A partition without offsets in a batch has been read to its end when the batch was planned, and
thus past everything of the batch before. One whose offsets in the batch are left out, because the target has applied
them, has not.

A topic has got more partitions if it has more than in its first batch, or than a watermark before that batch names: a
query that starts later knows it from its first batch on. No watermark names the number if the topic has none (of some
connector, of a table that was never read), or was written by an older release: then only what happens after the first
batch is seen.

Remembered deletes are Parquet files, a folder per batch, ``<checkpoint>/deletes/<topic>/<batch>``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as fn

from tailrace.schemas.rowkind import Op
from tailrace.schemas.sequence import Sequence
from tailrace.spark_consumer.files import children, delete
from tailrace.spark_consumer.source.types import SEQUENCE_TYPE, sequence_literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class MovedKeys:
    """What is known of the partitions of a topic since it got more of them."""

    partitions: int = 0
    """The least known number of partitions: in the first batch of the topic, or in its watermarks before."""
    passed: Mapping[int, Sequence] = field(default_factory=dict)
    """Partition to its greatest sequence."""
    deletes: Mapping[int, Sequence] = field(default_factory=dict)
    """Steps (table_state.py) with remembered deletes, to the greatest sequence of these."""

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
        deletes = {batch: last for batch, last in self.deletes.items() if lowest is None or last > lowest}
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
            "deletes": {str(batch): sequence.text for batch, sequence in self.deletes.items()},
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> MovedKeys:
        """Read what ``to_json`` returned, also through JSON."""
        return cls(
            body["partitions"],
            {int(partition): Sequence.from_text(text) for partition, text in body["passed"].items()},
            {int(batch): Sequence.from_text(text) for batch, text in body["deletes"].items()},
        )


class RememberedDeletes:
    """The folders under ``<checkpoint>/deletes/<topic>``."""

    def __init__(self, checkpoint: str) -> None:
        self._root = f"{checkpoint.rstrip('/')}/deletes"

    def without_older(self, decoded: DataFrame, topic: str, batches: Iterable[int]) -> DataFrame:
        """Return the records without those that are older than a remembered delete of their key."""
        paths = [self._path(topic, batch) for batch in batches]
        if not paths:
            return decoded
        spark = decoded.sparkSession
        stored = spark.read.schema(f"key binary, deleted {SEQUENCE_TYPE.simpleString()}").parquet(*paths)
        last = stored.groupBy("key").agg(fn.max("deleted").alias("_deleted_at"))
        kept = decoded.join(last, "key", "left").where(
            fn.col("_deleted_at").isNull() | (fn.col("seq") >= fn.col("_deleted_at"))
        )
        return kept.select(*decoded.columns)

    def write(self, decoded: DataFrame, topic: str, batch: int, *, above: Sequence | None) -> Sequence | None:
        """Store the deletes of a batch that are later than ``above``; return the greatest sequence, or None."""
        deletes = decoded.where(fn.col("op") == Op.DELETE.value)
        if above is not None:
            deletes = deletes.where(fn.col("seq") > sequence_literal(above))
        found = deletes.agg(fn.max("seq").alias("seq")).collect()[0]["seq"]
        if found is None:
            return None
        stored = deletes.groupBy("key").agg(fn.max("seq").alias("deleted"))
        stored.write.mode("overwrite").parquet(self._path(topic, batch))
        return Sequence(**found.asDict())

    def keep(self, spark: SparkSession, topic: str, batches: Iterable[int]) -> None:
        """Remove the folders of all other batches: their deletes need not be remembered any more."""
        kept = {str(batch) for batch in batches}
        for name in children(spark, f"{self._root}/{topic}"):
            if name not in kept:
                delete(spark, f"{self._root}/{topic}/{name}")

    def _path(self, topic: str, batch: int) -> str:
        return f"{self._root}/{topic}/{batch}"


def greatest_by_partition(decoded: DataFrame) -> dict[int, Sequence]:
    """Return the greatest sequence of each partition in a batch."""
    rows = decoded.groupBy("partition").agg(fn.max("seq").alias("seq")).collect()
    return {row["partition"]: Sequence(**row["seq"].asDict()) for row in rows}
