"""Sink ``kafka``: the changelog of each table as a topic, ``{"data":{…},"op":"+I"|"-U"|"+U"|"-D"}``, in order per key.

Spark's Kafka writer can write a batch again after a failure. The headers of each record name the source record it comes
from (topic, partition, offset, part) and its sequence. A reader removes repeats by ignoring, per key and partition of
the source, every record that is not later than the last one it has read.

A truncate event gives a ``-D`` for each row that the changelog topic has and that is older: the sink reads the topic.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn

from tailrace.runtime.config.section import supported
from tailrace.runtime.config.value_types import TEXT
from tailrace.schemas.rowkind import RowKind
from tailrace.schemas.sequence import Sequence
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.normalize.rowkind import JSON_OPTIONS, ORDER
from tailrace.spark_consumer.sink.base import SinkContext, TableBatch
from tailrace.spark_consumer.sink.kafka_topic import (
    OFFSET_HEADER,
    PARTITION_HEADER,
    SEQUENCE_HEADER,
    TOPIC_HEADER,
    TopicOptions,
    ensure_topic,
    header,
    header_text,
    newest_records,
    sequence_header,
    sequence_text,
    target_topic,
    write_records,
)
from tailrace.spark_consumer.sink.plugin import SinkPlugin
from tailrace.spark_consumer.source.types import sequence_literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PART_HEADER: Final = "tailrace.part"
_KIND_DIGITS: Final = len('+I"}')
"""The end of a changelog record: its row kind."""


class KafkaOptions(TopicOptions):
    """Settings of the Kafka sink."""

    topic: str = supported(
        "sink.topic",
        TEXT,
        default="changelog.{topic}",
        doc="Changelog topic of a table, with {topic}, {database} and {table}.",
    )


class KafkaSink:
    """Writes changelog rows to one topic per table."""

    def __init__(self, spark: SparkSession, options: KafkaOptions, context: SinkContext) -> None:
        self._spark = spark
        self._options = options
        self._prefix = context.prefix
        self._client = options.client_options(context.client)
        self._existing: set[str] = set()
        self._lock = threading.Lock()

    def applied(self, schema: TableSchema) -> Mapping[int, int] | None:  # noqa: ARG002 - part of the protocol
        """Return nothing: the target does not know it."""
        return None

    def prepare_table(self, schema: TableSchema) -> None:
        """Do nothing: a topic is created with its first rows."""

    def write_batch(self, batch: TableBatch, batch_id: int) -> None:  # noqa: ARG002 - part of the protocol
        """Write the changelog rows of one table."""
        target = target_topic(self._options.topic, batch.schema, self._prefix)
        with self._lock:
            if target not in self._existing:
                ensure_topic(self._spark, self._client, target, self._options.partitions, {})
                self._existing.add(target)
        tasks = int(self._spark.sparkContext.defaultParallelism)
        if batch.truncated is not None:
            deletes = self._deletes(batch.records.sparkSession, target, batch.schema.topic, batch.truncated)
            write_records(deletes, self._client, target)
        # The writer sends rows in the order it gets them: one task per key, sorted by the order of the changes.
        ordered = batch.records.repartition(tasks, "key").sortWithinPartitions("key", *ORDER)
        write_records(changelog_records(ordered, batch.schema.topic), self._client, target)

    def _deletes(self, spark: SparkSession, target: str, source: str, truncated: Sequence) -> DataFrame:
        """Return a ``-D`` for each row of a table in a changelog topic, if its last record is before a truncate event.

        A batch that runs again finds the rows deleted that it has deleted.
        """
        older = newest_records(spark, self._client, target).where(
            # Another table that is written to the topic keeps its rows.
            (header_text(TOPIC_HEADER) == source)
            & ~fn.col("value").endswith(f'{RowKind.DELETE.value}"}}')
            & (sequence_header() < sequence_literal(truncated))
        )
        value = fn.concat(
            fn.expr(f"substring(value, 1, length(value) - {_KIND_DIGITS})"), fn.lit(f'{RowKind.DELETE.value}"}}')
        )
        copied = (header(name, header_text(name)) for name in (TOPIC_HEADER, PARTITION_HEADER, OFFSET_HEADER))
        # Later than the record of the row, so that a reader does not take it for a repeat.
        part = (header_text(PART_HEADER).cast("int") + fn.lit(1)).cast("string")
        own = header(SEQUENCE_HEADER, fn.lit(truncated.text))
        return older.select(
            "key", value.alias("value"), fn.array(*copied, header(PART_HEADER, part), own).alias("headers")
        )

    def close(self) -> None:
        """Do nothing: no resources are held."""


def changelog_records(rows: DataFrame, topic: str) -> DataFrame:
    """Return changelog rows as Kafka records: key, value, headers."""
    body = fn.struct(fn.col("row").alias("data"), fn.col("kind").alias("op"))
    headers = fn.array(
        header(TOPIC_HEADER, fn.lit(topic)),
        header(PARTITION_HEADER, fn.col("partition").cast("string")),
        header(OFFSET_HEADER, fn.col("offset").cast("string")),
        header(PART_HEADER, fn.col("part").cast("string")),
        header(SEQUENCE_HEADER, sequence_text(fn.col("seq"))),
    )
    return rows.select("key", fn.to_json(body, JSON_OPTIONS).alias("value"), headers.alias("headers"))


SINK = SinkPlugin(
    name="kafka",
    doc="Writes the changelog of each table to a topic.",
    options=KafkaOptions,
    images=Images.CHANGELOG,
    guarantee="at least once, in order per key; headers let a reader remove repeats",
    open=KafkaSink,
    merges_tables=True,
)
