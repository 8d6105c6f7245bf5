"""Sink ``kafka``: the changelog of each table as a topic, ``{"data":{…},"op":"+I"|"-U"|"+U"|"-D"}``, in order per key.

Spark's Kafka writer can write a batch again after a failure. The headers of each record name the source record it comes
from (topic, partition, offset, part) and its sequence. A reader removes repeats by ignoring, per key and partition of
the source, every record that is not later than the last one it has read.

A truncate event gives a ``-D`` for each row that the changelog topic has and that is older: the sink reads the topic.

Sink ``upsert-kafka`` shares the headers, the topics to create, the newest record of each key and the ledger topic.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pydantic import SecretStr
from pyspark.sql import Window
from pyspark.sql import functions as fn

from tailrace.runtime.config.section import Section, prefixed, supported
from tailrace.runtime.config.value_types import SECRET, TEXT, integer
from tailrace.runtime.errors import ConfigError
from tailrace.schemas.rowkind import RowKind
from tailrace.schemas.sequence import Sequence
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.in_driver import literal_rows
from tailrace.spark_consumer.jvm import java_class
from tailrace.spark_consumer.normalize.rowkind import JSON_OPTIONS, ORDER
from tailrace.spark_consumer.sink.base import SinkContext, TableBatch
from tailrace.spark_consumer.sink.plugin import SinkPlugin
from tailrace.spark_consumer.source.kafka_admin import close_consumer, open_admin, open_consumer
from tailrace.spark_consumer.source.topics import subscribe_pattern
from tailrace.spark_consumer.source.types import sequence_literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

COMPACTED: Final = {"cleanup.policy": "compact"}
_TEXT: Final = "org.apache.kafka.common.serialization.StringDeserializer"
_WAIT_MS: Final = 500
_MOST_WAIT_S: Final = 30
"""A read without any progress for so long has failed."""

TOPIC_HEADER: Final = "tailrace.topic"
PARTITION_HEADER: Final = "tailrace.partition"
OFFSET_HEADER: Final = "tailrace.offset"
SEQUENCE_HEADER: Final = "tailrace.sequence"
PART_HEADER: Final = "tailrace.part"

_METADATA_S: Final = 30
"""How long brokers may take to learn of a topic that the controller has."""
_KIND_DIGITS: Final = len('+I"}')
"""The end of a changelog record: its row kind."""


class TopicOptions(Section):
    """Settings of a sink that writes topics."""

    partitions: int = supported(
        "sink.partitions", integer(1), default="1", doc="Partitions of the topics that the sink creates."
    )
    client: Mapping[str, SecretStr] = prefixed(
        "sink.kafka.*", SECRET, doc="Kafka client options of the sink; they override kafka.*."
    )

    def client_options(self, source: Mapping[str, str]) -> dict[str, str]:
        """Return the Kafka client options with their prefix ``kafka.``; those of the sink override the source's."""
        own = {f"kafka.{name}": value.get_secret_value() for name, value in self.client.items()}
        return {**source, **own}


def target_topic(template: str, schema: TableSchema, prefix: str) -> str:
    """Return the topic of a table; raises ConfigError if a consumer of the prefix would read it."""
    target = template.format(topic=schema.topic, database=schema.database, table=schema.table)
    if target.startswith(f"{prefix}."):
        raise ConfigError(
            [
                (
                    f"sink.topic results in {target!r}, which this consumer would read as a captured table "
                    f"({subscribe_pattern(prefix)}); use a name that does not start with the topic prefix"
                )
            ]
        )
    return target


def has_topic(spark: SparkSession, client: Mapping[str, str], topic: str) -> bool:
    """Return whether a topic exists."""
    admin = open_admin(spark, client)
    try:
        return _exists(spark, admin, topic)
    finally:
        admin.close()


def ensure_topic(
    spark: SparkSession, client: Mapping[str, str], topic: str, partitions: int, settings: Mapping[str, str]
) -> tuple[bool, dict[str, str]]:
    """Create a missing topic; return if it was missing, and which of ``settings`` an existing one has otherwise."""
    jvm: Any = spark._jvm  # noqa: SLF001 - the arguments of the client are Java objects
    admin = open_admin(spark, client)
    try:
        collections = jvm.java.util.Collections
        if _exists(spark, admin, topic):
            if not settings:
                return False, {}
            resource = jvm.org.apache.kafka.common.config.ConfigResource(
                getattr(jvm.org.apache.kafka.common.config, "ConfigResource$Type").TOPIC, topic
            )
            found = admin.describeConfigs(collections.singletonList(resource)).all().get().get(resource)
            values = {name: str(found.get(name).value()) for name in settings}
            return False, {name: value for name, value in values.items() if value != settings[name]}
        admin.createTopics(_new_topic(spark, topic, partitions, settings)).all().get()
        return True, {}
    finally:
        admin.close()


def _exists(spark: SparkSession, admin: Any, topic: str) -> bool:
    """Return whether a topic exists.

    A broker answers from its copy of the metadata, which may be old: that it does not list a topic is no proof. The
    controller decides: it refuses to create a topic that exists.
    """
    if topic in set(admin.listTopics().names().get()):
        return True
    options = java_class(spark, "org.apache.kafka.clients.admin.CreateTopicsOptions")().validateOnly(True)
    try:
        admin.createTopics(_new_topic(spark, topic, 1, {}), options).all().get()
    except Py4JJavaError as error:
        cause = error.java_exception.getCause()
        if cause is None or cause.getClass().getSimpleName() != "TopicExistsException":
            raise
    else:
        return False
    # What follows asks brokers again, which must know the topic then.
    deadline = time.monotonic() + _METADATA_S
    while topic not in set(admin.listTopics().names().get()):
        if time.monotonic() > deadline:
            raise SinkError(
                f"topic {topic} exists for the controller of Kafka, and its brokers do not list it",
                hint="look whether the brokers are connected to the controller; the table goes on by itself then",
            )
        time.sleep(0.1)
    return True


def _new_topic(spark: SparkSession, topic: str, partitions: int, settings: Mapping[str, str]) -> Any:
    """Return the argument of createTopics."""
    optional = java_class(spark, "java.util.Optional")
    found = java_class(spark, "org.apache.kafka.clients.admin.NewTopic")(
        topic, optional.of(partitions), optional.empty()
    )
    return java_class(spark, "java.util.Collections").singletonList(found.configs(dict(settings)))


def newest_records(spark: SparkSession, client: Mapping[str, str], topic: str) -> DataFrame:
    """Read a topic whole; return the newest record of each key: key (binary), value (text, may be NULL), headers."""
    options = {**client, "subscribe": topic, "includeHeaders": "true", "failOnDataLoss": "false"}
    newest_first = Window.partitionBy("key").orderBy(fn.col("partition").desc(), fn.col("offset").desc())
    records = spark.read.format("kafka").options(**options, startingOffsets="earliest", endingOffsets="latest").load()
    ranked = records.withColumn("_rank", fn.row_number().over(newest_first)).where(fn.col("_rank") == 1)
    return ranked.select("key", fn.col("value").cast("string").alias("value"), "headers")


def write_records(records: DataFrame, client: Mapping[str, str], topic: str) -> None:
    """Write records with the columns key, value and, if they have some, headers; on return Kafka has them."""
    writer = records.write.format("kafka").mode("append").options(**client)
    writer.option("topic", topic).option("includeHeaders", "true").save()


def sequence_text(sequence: Column) -> Column:
    """Return a sequence as the text of its header."""
    return fn.concat_ws(".", *(sequence.getField(name).cast("string") for name in Sequence._fields))


def sequence_header() -> Column:
    """Return the sequence that the headers of a record name."""
    numbers = fn.split(header_text(SEQUENCE_HEADER), "[.]")
    return fn.struct(*(numbers[n].cast("bigint").alias(name) for n, name in enumerate(Sequence._fields)))


def header_text(name: str) -> Column:
    """Return the value of a header of a record."""
    return fn.get(fn.filter("headers", lambda header: header["key"] == name), fn.lit(0))["value"].cast("string")


def header(name: str, value: Column) -> Column:
    """Return a header."""
    return fn.struct(fn.lit(name).alias("key"), value.cast("binary").alias("value"))


class LedgerTopic:
    """The newest record of each key of a ledger topic, also of those that others write; for several threads.

    The topic is compacted and has one partition: its order is that of the commits of all processes. A Spark job reads
    it once. Then a consumer in the driver reads what was appended, which is a few records for each batch.
    """

    def __init__(self, spark: SparkSession, client: Mapping[str, str], topic: str) -> None:
        """Create a missing topic, and read it; ``client`` has Kafka client options with their prefix ``kafka.``."""
        self._client, self._topic = client, topic
        ensure_topic(spark, client, topic, 1, COMPACTED)
        self._lock = threading.Lock()
        self._wait: Any = java_class(spark, "java.time.Duration").ofMillis(_WAIT_MS)
        partition = java_class(spark, "org.apache.kafka.common.TopicPartition")(topic, 0)
        self._partitions: Any = java_class(spark, "java.util.Collections").singletonList(partition)
        self._consumer = open_consumer(spark, client, {"key.deserializer": _TEXT, "value.deserializer": _TEXT})
        self._consumer.assign(self._partitions)
        self._next = self._end()
        self._consumer.seek(partition, self._next)
        # The records behind that offset are read again: the last one of a key counts.
        rows = newest_records(spark, client, topic).collect()
        self._values: dict[str, str | None] = {bytes(row["key"]).decode(): row["value"] for row in rows}

    def values(self) -> Mapping[str, str | None]:
        """Return the newest value of each key; None: it was removed."""
        with self._lock:
            end, progress = self._end(), time.monotonic()
            while self._next < end:
                for record in self._consumer.poll(self._wait).iterator():
                    self._values[str(record.key())] = record.value()
                before, self._next = self._next, int(self._consumer.position(self._partitions[0]))
                if self._next > before:
                    progress = time.monotonic()
                elif time.monotonic() > progress + _MOST_WAIT_S:
                    raise SinkError(
                        f"no records of topic {self._topic} for {_MOST_WAIT_S} s, which ends at {end}",
                        hint="look whether the leader of the partition can be reached",
                    )
            return dict(self._values)

    def write(self, spark: SparkSession, values: Mapping[str, str | None]) -> None:
        """Append values, in any order."""
        rows = [{"key": key, "value": value} for key, value in values.items()]
        write_records(literal_rows(spark, rows, "key string, value string"), self._client, self._topic)

    def close(self) -> None:
        """Close the connections."""
        close_consumer(self._consumer, self._wait)

    def _end(self) -> int:
        return int(self._consumer.endOffsets(self._partitions)[self._partitions[0]])


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
