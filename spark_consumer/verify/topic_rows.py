"""The table that a topic describes: the last record of each key, as the target of an upsert sink has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

from tailrace.schemas.rowkind import Op
from tailrace.schemas.sequence import Sequence
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.normalize.latest import last_per_key, later, without_truncated
from tailrace.spark_consumer.sink.base import TargetRows
from tailrace.spark_consumer.source.json_decoder import row_type
from tailrace.spark_consumer.source.kafka_admin import beginning_offsets
from tailrace.spark_consumer.source.ranges import OffsetRange, TopicRange

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from tailrace.schemas.table import TableSchema
    from tailrace.spark_consumer.source.kafka_admin import TopicIds
    from tailrace.spark_consumer.tables.reading import Reading

_START = Sequence(0, 0, 0, 0, 0)


def whole_topic(spark: SparkSession, client: Mapping[str, str], topic: str, ids: TopicIds) -> dict[int, OffsetRange]:
    """Return what each partition has now, records of open transactions too."""
    ends = ids.ends_of(spark, topic)
    begins = beginning_offsets(spark, client, topic, ends)
    return {number: OffsetRange(begins[number], end) for number, end in ends.items()}


def with_records(topic: str, partitions: Mapping[int, OffsetRange]) -> TopicRange:
    """Return the range of the partitions that are not empty."""
    return TopicRange(topic, {number: each for number, each in partitions.items() if each.start < each.end})


@dataclass(frozen=True, slots=True)
class TopicRows:
    """Reads tables from their topics, to compare them as targets."""

    reading: Reading
    ids: TopicIds
    created: Callable[[str], Sequence | None]
    """Where the table of a topic begins: rows from before are gone."""

    def read_target(self, spark: SparkSession, schema: TableSchema) -> TargetRows:
        """Return the rows that the topic describes now."""
        partitions = whole_topic(spark, self.reading.source, schema.topic, self.ids)
        ends = {number: each.end for number, each in partitions.items()}
        return TargetRows(self._rows(spark, with_records(schema.topic, partitions), schema), ends, lambda: ends)

    def _rows(self, spark: SparkSession, found: TopicRange, schema: TableSchema) -> DataFrame:
        reading, topic = self.reading, schema.topic
        if not found.partitions:
            return spark.createDataFrame([], row_type(schema))
        raw = reading.read(spark, found)
        merged, decoded = reading.decode(raw, topic, Images.UPSERT, ())
        decoded = reading.with_tombstones(raw, decoded, merged, found, dict.fromkeys(found.partitions, _START))
        last = decoded.where(fn.col("op") == Op.TRUNCATE.value).agg(fn.max("seq").alias("seq")).collect()[0]["seq"]
        truncated = later(None if last is None else Sequence(**last.asDict()), self.created(topic))
        left = last_per_key(without_truncated(decoded, truncated), incremental=True)
        return left.where(fn.col("op") != Op.DELETE.value).select("after.*")
