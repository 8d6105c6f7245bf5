"""Sink ``kafka``: the changelog of each table as a topic, ``{"data":{…},"op":"+I"|"-U"|"+U"|"-D"}``, in order per key.

Spark's Kafka writer can write a batch again after a failure. The headers of each record name the source record it comes
from (topic, partition, offset, part). A reader removes repeats by ignoring, per key, every record that is not later
than the last one it has read.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pydantic import SecretStr
from pyspark.sql import functions as fn

from tailrace.runtime.config.section import Section, prefixed, supported
from tailrace.runtime.config.value_types import SECRET, TEXT, integer
from tailrace.runtime.errors import ConfigError
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.changelog.rowkind import JSON_OPTIONS, ORDER
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.sink.base import SinkContext, TableBatch
from tailrace.spark_consumer.sink.plugin import SinkPlugin
from tailrace.spark_consumer.source.topics import subscribe_pattern

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

TOPIC_HEADER: Final = "tailrace.topic"
PARTITION_HEADER: Final = "tailrace.partition"
OFFSET_HEADER: Final = "tailrace.offset"
PART_HEADER: Final = "tailrace.part"


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
        # The writer sends rows in the order it gets them: one task per key, sorted by the order of the changes.
        ordered = batch.records.repartition(tasks, "key").sortWithinPartitions("key", *ORDER)
        writer = (
            changelog_records(ordered, batch.schema.topic).write.format("kafka").mode("append").options(**self._client)
        )
        writer.option("topic", target).option("includeHeaders", "true").save()

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
    )
    return rows.select("key", fn.to_json(body, JSON_OPTIONS).alias("value"), headers.alias("headers"))


def _header(name: str, value: Column) -> Column:
    return fn.struct(fn.lit(name).alias("key"), value.cast("binary").alias("value"))


def _ensure_topic(spark: SparkSession, client: Mapping[str, str], topic: str, partitions: int) -> None:
    """Create a missing topic with the admin client of Spark's Kafka jars."""
    jvm: Any = spark._jvm  # noqa: SLF001 - Spark has no API to create a topic
    settings = jvm.java.util.Properties()
    for name, value in client.items():
        settings.setProperty(name.removeprefix("kafka."), value)
    admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
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
