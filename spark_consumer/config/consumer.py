"""The properties of the consumer, except those of the sinks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import SecretStr

from tailrace.runtime.config.property import Property, ignored, rejected
from tailrace.runtime.config.section import RootConfig, Section, prefixed, section, supported
from tailrace.runtime.config.value_types import BOOLEAN, SECRET, TEXT, TOPIC_PART, integer, one_of
from tailrace.runtime.logging import LogFormat, LogLevel
from tailrace.spark_consumer.config.converters import ConvertersConfig
from tailrace.spark_consumer.source.formats.settings import FormatSettings

_CHECKPOINT = "Spark stores the offsets in the checkpoint"
_BYTES = "Spark reads bytes"
_CLIENT_VARIABLES: Final = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.jaas.config",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.key.password",
)


class ConsumerConfig(RootConfig):
    """The whole configuration of a consumer. ``sink_options`` are the settings of the sink, as its plug-in declares."""

    bootstrap_servers: str = supported(
        "bootstrap.servers",
        TEXT,
        required=True,
        doc="Kafka brokers as host:port,host:port.",
        aliases=("kafka.bootstrap.servers",),
    )
    topic_prefix: str = supported("topic.prefix", TOPIC_PART, required=True, doc="The producer's `topic.prefix`.")
    checkpoint: str = supported(
        "checkpointLocation",
        TEXT,
        required=True,
        doc="Directory for offsets and for records that wait for the end of their chunk. Each query needs its own.",
    )
    query_name: str | None = supported(
        "queryName", TEXT, default_note="`tailrace-<topic.prefix>`", doc="Name of the streaming query."
    )
    max_offsets: int = supported(
        "maxOffsetsPerTrigger",
        integer(1),
        default="2000000",
        doc="Maximum number of offsets in a micro-batch; transaction markers count too. Larger batches have a higher "
        "throughput and need more memory.",
    )
    min_partitions: int | None = supported(
        "minPartitions", integer(1), doc="Minimum number of Spark partitions in which the topics are read."
    )
    group_prefix: str | None = supported(
        "groupIdPrefix", TEXT, doc="Prefix of the consumer group that Spark uses, for access control."
    )
    processing_time: str = supported(
        "trigger.processingTime", TEXT, default="1 second", doc="Minimum time between the starts of two micro-batches."
    )
    available_now: bool = supported(
        "trigger.availableNow",
        BOOLEAN,
        default="false",
        doc="Whether the query ends when it has read everything that was available at its start.",
    )
    converters: ConvertersConfig = section(ConvertersConfig)
    table_schemas: Mapping[str, str] = prefixed(
        "table.schema.*",
        TEXT,
        doc="Columns of a table whose records are plain JSON of a connector, as Spark's DDL or as a StructType in "
        "JSON, e.g. `table.schema.shop.orders`. The comment of a TIMESTAMP_NTZ column names how it is written, e.g. "
        "`io.debezium.time.MicroTimestamp`.",
    )
    table_threads: int | None = supported(
        "tailrace.table.threads",
        integer(1),
        default_note="the number of cores of the Spark application, at least 2 and at most 32",
        doc="Number of tables that are processed at the same time.",
    )
    sink: str = supported("sink", TEXT, required=True, doc="Name of the sink.")
    sink_options: Section = section(Section)
    client: Mapping[str, SecretStr] = prefixed(
        "kafka.*",
        SECRET,
        doc="Options of the Kafka client, with Java's names, e.g. `kafka.security.protocol`.",
        environment_keys=_CLIENT_VARIABLES,
    )
    session: Mapping[str, SecretStr] = prefixed("spark.*", SECRET, doc="Settings of the Spark session.")
    monitor_port: int = supported(
        "monitor.port",
        integer(0, 65535),
        default="0",
        doc="Port of the HTTP endpoints /status, /metrics, /livez and /readyz. 0 disables them.",
    )
    monitor_host: str = supported("monitor.host", TEXT, default="127.0.0.1", doc="Address on which that port listens.")
    log_format: LogFormat = supported(
        "log.format",
        one_of(LogFormat),
        default="auto",
        doc="Format of the log on stderr. auto: text on a terminal, otherwise JSON.",
    )
    log_level: LogLevel = supported("log.level", one_of(LogLevel), default="info", doc="Minimum level of log messages.")

    @property
    def kafka_client(self) -> dict[str, str]:
        """The options of the Kafka client as Spark takes them, with the prefix ``kafka.``; secrets in clear."""
        options = {f"kafka.{name}": value.get_secret_value() for name, value in self.client.items()}
        return {**options, "kafka.bootstrap.servers": self.bootstrap_servers}

    @property
    def spark(self) -> dict[str, str]:
        """The settings of the session, with the prefix ``spark.``; secrets in clear."""
        return {f"spark.{name}": value.get_secret_value() for name, value in self.session.items()}

    @property
    def source_options(self) -> dict[str, str]:
        """The options of Spark's Kafka source that are passed on unchanged."""
        given = {"minPartitions": self.min_partitions, "groupIdPrefix": self.group_prefix}
        return {name: str(value) for name, value in given.items() if value is not None}

    @property
    def format_settings(self) -> FormatSettings | None:
        """The record format; None if no converter is set."""
        if not self.converters.are_set:
            return None
        key, value = self.converters.key, self.converters.value
        return FormatSettings(key.registry_settings, value.registry_settings, self.table_schemas)

    @property
    def name(self) -> str:
        """The name of the query."""
        return self.query_name or f"tailrace-{self.topic_prefix}"


def _rejected_option(name: str, doc: str, reason: str, *no_op_values: str) -> Property:
    # Other programs read variables such as KAFKA_GROUP_ID.
    return rejected(f"kafka.{name}", doc, reason, *no_op_values, in_environment=False)


UNSUPPORTED: Final[tuple[Property, ...]] = (
    ignored("name", "Name of the configuration.", "queryName is the name of the query", in_environment=False),
    _rejected_option(
        "isolation.level", "Which records are read.", "the consumer always reads committed records", "read_committed"
    ),
    _rejected_option("group.id", "Consumer group.", f"{_CHECKPOINT}; use groupIdPrefix"),
    _rejected_option(
        "auto.offset.reset",
        "Where a query without offsets starts.",
        "a new query always starts at the earliest offset",
        "earliest",
    ),
    _rejected_option("enable.auto.commit", "Whether Kafka stores the offsets.", _CHECKPOINT, "false"),
    _rejected_option("key.deserializer", "Java class that reads keys.", _BYTES),
    _rejected_option("value.deserializer", "Java class that reads values.", _BYTES),
)
