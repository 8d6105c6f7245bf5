"""The changelog as a Kafka topic per table: ``{"data":{…},"op":"+I"|"-U"|"+U"|"-D"}``, in order per key.

Spark's Kafka writer may write a batch again after a failure. Each record names the change it comes from in its headers
(topic, partition, offset, part), so that a reader drops, per key, what is not later than what it has seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as fn

from tailrace.runtime.errors import ConfigError
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.changelog.rowkind import ORDER
from tailrace.spark_consumer.sink.base import SinkContext, TableBatch
from tailrace.spark_consumer.source.json_decoder import Images
from tailrace.spark_consumer.source.kafka import subscribe_pattern

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

DEFAULT_TOPIC: Final = "changelog.{topic}"
TOPIC_HEADER: Final = "tailrace.topic"
PARTITION_HEADER: Final = "tailrace.partition"
OFFSET_HEADER: Final = "tailrace.offset"
PART_HEADER: Final = "tailrace.part"


class KafkaSink:
    """Writes the changelog to topics named by a template with {topic}, {database} and {table}."""

    name = "kafka"
    images = Images.CHANGELOG
    guarantee = "at least once, in order per key; headers let a reader drop repeats"

    def __init__(self, client: Mapping[str, str], topic: str = DEFAULT_TOPIC, *, partitions: int = 1) -> None:
        self._client = dict(client)
        self._template = topic
        self._partitions = partitions
        self._context: SinkContext | None = None
        self._ready: set[str] = set()

    def prepare(self, spark: SparkSession, context: SinkContext) -> None:  # noqa: ARG002 - the protocol's form
        """Keep the prefix, whose own topics may not be written."""
        self._context = context

    def make_ready(self, spark: SparkSession, schema: TableSchema) -> None:
        """Nothing: topics are made when rows are there for them."""

    def apply(self, batch: TableBatch, batch_id: int) -> None:  # noqa: ARG002 - the protocol's form
        """Write one table's changelog rows."""
        target = self._target(batch.schema)
        spark = batch.records.sparkSession
        if target not in self._ready:
            _ensure_topic(spark, self._client, target, self._partitions)
            self._ready.add(target)
        tasks = int(spark.sparkContext.defaultParallelism)
        # One task per key, and within it the order of the changes: the writer sends rows as they come.
        ordered = batch.records.repartition(tasks, "key").sortWithinPartitions("key", *ORDER)
        writer = changelog_records(ordered, batch.schema.topic).write.format("kafka").options(**self._client)
        writer.option("topic", target).option("includeHeaders", "true").save()

    def close(self) -> None:
        """Nothing is held."""

    def _target(self, schema: TableSchema) -> str:
        assert self._context is not None, "prepare comes first"
        target = self._template.format(topic=schema.topic, database=schema.database, table=schema.table)
        if target.startswith(f"{self._context.prefix}."):
            raise ConfigError(
                [
                    (
                        f"sink.topic gives {target!r}, which this consumer would read as a captured table "
                        f"({subscribe_pattern(self._context.prefix)}); let it begin with another word"
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
    return rows.select("key", fn.to_json(body, {"ignoreNullFields": "false"}).alias("value"), headers.alias("headers"))


def _header(name: str, value: Column) -> Column:
    return fn.struct(fn.lit(name).alias("key"), value.cast("binary").alias("value"))


def _ensure_topic(spark: SparkSession, client: Mapping[str, str], topic: str, partitions: int) -> None:
    """Create the topic where it is missing, with the administration client that comes with Spark's Kafka jars."""
    jvm: Any = spark._jvm  # noqa: SLF001 - Spark offers no way to create a topic
    settings = jvm.java.util.Properties()
    for name, value in client.items():
        settings.setProperty(name.removeprefix("kafka."), value)
    admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
    try:
        if topic not in set(admin.listTopics().names().get()):
            replication = jvm.java.util.Optional.empty()
            wanted = jvm.org.apache.kafka.clients.admin.NewTopic(
                topic, jvm.java.util.Optional.of(partitions), replication
            )
            admin.createTopics(jvm.java.util.Collections.singletonList(wanted)).all().get()
    finally:
        admin.close()
