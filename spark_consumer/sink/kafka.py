"""Sink ``kafka``: the changelog of each table as a topic, ``{"data":{…},"op":"+I"|"-U"|"+U"|"-D"}``, in order per key.

Spark's Kafka writer can write a batch again after a failure. The headers of each record name the source record it comes
from (topic, partition, offset, part) and its sequence. A reader removes repeats by ignoring, per key and partition of
the source, every record that is not later than the last one it has read.

A truncate event gives a ``-D`` for each row that the changelog topic has and that is older: the sink reads the topic.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pydantic import SecretStr
from pyspark.sql import Window
from pyspark.sql import functions as fn

from tailrace.runtime.config.section import Section, prefixed, supported
from tailrace.runtime.config.value_types import SECRET, TEXT, integer
from tailrace.runtime.errors import ConfigError
from tailrace.schemas.rowkind import RowKind
from tailrace.schemas.sequence import Sequence
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.changelog.rowkind import JSON_OPTIONS, ORDER
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.sink.base import SinkContext, TableBatch
from tailrace.spark_consumer.sink.plugin import SinkPlugin
from tailrace.spark_consumer.source.kafka_admin import open_admin
from tailrace.spark_consumer.source.sequence import sequence_literal
from tailrace.spark_consumer.source.topics import subscribe_pattern

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

TOPIC_HEADER: Final = "tailrace.topic"
PARTITION_HEADER: Final = "tailrace.partition"
OFFSET_HEADER: Final = "tailrace.offset"
PART_HEADER: Final = "tailrace.part"
SEQUENCE_HEADER: Final = "tailrace.sequence"
_KIND_DIGITS: Final = len('+I"}')
"""The end of a changelog record: its row kind."""


class KafkaOptions(Section):
    """Settings of the Kafka sink."""

    topic: str = supported(
        "sink.topic",
        TEXT,
        default="changelog.{topic}",
        doc="Changelog topic of a table, with {topic}, {database} and {table}.",
    )
    partitions: int = supported(
        "sink.partitions", integer(1), default="1", doc="Partitions of the changelog topics that the sink creates."
    )
    client: Mapping[str, SecretStr] = prefixed(
        "sink.kafka.*", SECRET, doc="Kafka client options of the sink; they override kafka.*."
    )


class KafkaSink:
    """Writes changelog rows to one topic per table."""

    def __init__(self, spark: SparkSession, options: KafkaOptions, context: SinkContext) -> None:
        self._spark = spark
        self._options = options
        self._prefix = context.prefix
        own = {f"kafka.{name}": value.get_secret_value() for name, value in options.client.items()}
        self._client = {**context.client, **own}
        self._existing: set[str] = set()
        self._lock = threading.Lock()

    def applied(self, schema: TableSchema) -> Mapping[int, int]:  # noqa: ARG002 - part of the protocol
        """Return nothing: the target does not know it."""
        return {}

    def prepare_table(self, schema: TableSchema) -> None:
        """Do nothing: a topic is created with its first rows."""

    def write_batch(self, batch: TableBatch, batch_id: int) -> None:  # noqa: ARG002 - part of the protocol
        """Write the changelog rows of one table."""
        target = self._target(batch.schema)
        with self._lock:
            if target not in self._existing:
                _ensure_topic(self._spark, self._client, target, self._options.partitions)
                self._existing.add(target)
        tasks = int(self._spark.sparkContext.defaultParallelism)
        if batch.truncated is not None:
            self._write(self._deletes(batch.records.sparkSession, target, batch.truncated), target)
        # The writer sends rows in the order it gets them: one task per key, sorted by the order of the changes.
        ordered = batch.records.repartition(tasks, "key").sortWithinPartitions("key", *ORDER)
        self._write(changelog_records(ordered, batch.schema.topic), target)

    def _write(self, records: DataFrame, target: str) -> None:
        writer = records.write.format("kafka").mode("append").options(**self._client)
        writer.option("topic", target).option("includeHeaders", "true").save()

    def _deletes(self, spark: SparkSession, target: str, truncated: Sequence) -> DataFrame:
        """Return a ``-D`` for each row that a changelog topic has, if its last record is before the truncate event.

        A batch that runs again finds the rows deleted that it has deleted.
        """
        options = {**self._client, "subscribe": target, "includeHeaders": "true", "failOnDataLoss": "false"}
        newest_first = Window.partitionBy("key").orderBy(fn.col("partition").desc(), fn.col("offset").desc())
        last = (
            spark.read.format("kafka")
            .options(**options, startingOffsets="earliest", endingOffsets="latest")
            .load()
            .withColumn("_rank", fn.row_number().over(newest_first))
            .where(fn.col("_rank") == 1)
            .select("key", fn.col("value").cast("string").alias("value"), "headers")
        )
        numbers = fn.split(_header_text(SEQUENCE_HEADER), "[.]")
        sequence = fn.struct(*(numbers[n].cast("bigint").alias(name) for n, name in enumerate(Sequence._fields)))
        older = last.where(
            ~fn.col("value").endswith(f'{RowKind.DELETE.value}"}}') & (sequence < sequence_literal(truncated))
        )
        value = fn.concat(
            fn.expr(f"substring(value, 1, length(value) - {_KIND_DIGITS})"), fn.lit(f'{RowKind.DELETE.value}"}}')
        )
        copied = (_header(name, _header_text(name)) for name in (TOPIC_HEADER, PARTITION_HEADER, OFFSET_HEADER))
        # Later than the record of the row, so that a reader does not take it for a repeat.
        part = (_header_text(PART_HEADER).cast("int") + fn.lit(1)).cast("string")
        own = _header(SEQUENCE_HEADER, fn.lit(truncated.text))
        return older.select(
            "key", value.alias("value"), fn.array(*copied, _header(PART_HEADER, part), own).alias("headers")
        )

    def close(self) -> None:
        """Do nothing: no resources are held."""

    def _target(self, schema: TableSchema) -> str:
        target = self._options.topic.format(topic=schema.topic, database=schema.database, table=schema.table)
        if target.startswith(f"{self._prefix}."):
            raise ConfigError(
                [
                    (
                        f"sink.topic results in {target!r}, which this consumer would read as a captured table "
                        f"({subscribe_pattern(self._prefix)}); use a name that does not start with the topic prefix"
                    )
                ]
            )
        return target


def changelog_records(rows: DataFrame, topic: str) -> DataFrame:
    """Return changelog rows as Kafka records: key, value, headers."""
    body = fn.struct(fn.col("row").alias("data"), fn.col("kind").alias("op"))
    headers = fn.array(
        _header(TOPIC_HEADER, fn.lit(topic)),
        _header(PARTITION_HEADER, fn.col("partition").cast("string")),
        _header(OFFSET_HEADER, fn.col("offset").cast("string")),
        _header(PART_HEADER, fn.col("part").cast("string")),
        _header(SEQUENCE_HEADER, _sequence_text(fn.col("seq"))),
    )
    return rows.select("key", fn.to_json(body, JSON_OPTIONS).alias("value"), headers.alias("headers"))


def _sequence_text(sequence: Column) -> Column:
    return fn.concat_ws(".", *(sequence.getField(name).cast("string") for name in Sequence._fields))


def _header_text(name: str) -> Column:
    return fn.get(fn.filter("headers", lambda header: header["key"] == name), fn.lit(0))["value"].cast("string")


def _header(name: str, value: Column) -> Column:
    return fn.struct(fn.lit(name).alias("key"), value.cast("binary").alias("value"))


def _ensure_topic(spark: SparkSession, client: Mapping[str, str], topic: str, partitions: int) -> None:
    """Create a missing topic with the admin client of Spark's Kafka jars."""
    jvm: Any = spark._jvm  # noqa: SLF001 - the arguments of the client are Java objects
    admin = open_admin(spark, client)
    try:
        if topic not in set(admin.listTopics().names().get()):
            replication = jvm.java.util.Optional.empty()
            new = jvm.org.apache.kafka.clients.admin.NewTopic(topic, jvm.java.util.Optional.of(partitions), replication)
            admin.createTopics(jvm.java.util.Collections.singletonList(new)).all().get()
    finally:
        admin.close()


SINK = SinkPlugin(
    name="kafka",
    doc="Writes the changelog of each table to a topic.",
    options=KafkaOptions,
    images=Images.CHANGELOG,
    guarantee="at least once, in order per key; headers let a reader remove repeats",
    open=KafkaSink,
)
