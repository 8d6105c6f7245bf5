"""The properties of the consumer, except those of the sinks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from pydantic import SecretStr

from tailrace.runtime.config.draft import Draft
from tailrace.runtime.config.property import Property, ignored, rejected
from tailrace.runtime.config.section import RootConfig, Section, prefixed, section, supported
from tailrace.runtime.config.value_types import ANY_TEXT, BOOLEAN, DIRECTORY, SECRET, TEXT, TOPIC_PART, integer, one_of
from tailrace.runtime.logging import LogFormat, LogLevel
from tailrace.spark_consumer.config.converters import ConvertersConfig
from tailrace.spark_consumer.config.sinks import NAMES, ChosenSink, NamedSinkConfig, attribute_of
from tailrace.spark_consumer.source.formats.registry import FormatSettings
from tailrace.spark_consumer.source.topics import TableFilter, split_expressions
from tailrace.spark_consumer.transform.rules import Rules, read_rules

_LEAST_OFFSETS: Final = "Offsets for which a micro-batch waits, and the longest wait for them, such as `15m`."
_OFFSET_RETRIES: Final = "Attempts to read offsets from Kafka, and the time between them."
_TABLES: Final = "Tables to read (empty: all), and not to read."


class TransformsConfig(Section):
    """What happens to the rows of tables before the sink gets them."""

    transforms: str | None = supported(
        "transforms",
        TEXT,
        doc="Names of [transforms](transforms.md), separated by commas.",
        in_environment=False,
    )
    transform_settings: Mapping[str, str] = prefixed(
        "transforms.*",
        ANY_TEXT,
        doc="`transforms.<name>.source-table`, `.projection`, `.filter` and `.primary-keys`.",
    )
    routes: str | None = supported(
        "routes",
        TEXT,
        doc="Names of [routes](transforms.md#routes), separated by commas.",
        in_environment=False,
    )
    route_settings: Mapping[str, str] = prefixed(
        "routes.*",
        ANY_TEXT,
        doc="`routes.<name>.source-table` and `.sink-table`.",
    )

    @property
    def rules(self) -> Rules:
        """The rules; the settings have been checked."""
        return read_rules(self.transforms, self.transform_settings, self.routes, self.route_settings)[0]


def check_rules(draft: Draft) -> None:
    """Add the problems of the rules that are seen without the schemas of the tables."""
    values = {name: draft.values.get(f"transforms.{name}") for name in TransformsConfig.model_fields}
    _, problems = read_rules(
        values["transforms"], values["transform_settings"] or {}, values["routes"], values["route_settings"] or {}
    )
    draft.problems += problems


IncompleteTopics = Literal["fail", "warn"]
Tolerance = Literal["none", "all"]
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
    """The whole configuration of a consumer. ``sink_options`` are the settings of the sink, as its plug-in declares.

    With several sinks, ``named_sinks`` has a section for each.
    """

    part = "consumer"
    bootstrap_servers: str = supported(
        "bootstrap.servers",
        TEXT,
        required=True,
        doc="Kafka brokers, as host:port,host:port.",
        aliases=("kafka.bootstrap.servers",),
    )
    topic_prefix: str = supported("topic.prefix", TOPIC_PART, required=True, doc="The producer's `topic.prefix`.")
    checkpoint: str = supported(
        "checkpointLocation",
        DIRECTORY,
        required=True,
        doc="Directory for offsets and for records that wait; each query needs its own.",
    )
    query_name: str | None = supported(
        "queryName", TEXT, default_note="`tailrace-<topic.prefix>`", doc="Name of the streaming query."
    )
    max_offsets: int = supported(
        "maxOffsetsPerTrigger",
        integer(1),
        default="2000000",
        doc="Most offsets in a micro-batch; more give a higher throughput and need more memory.",
    )
    max_bytes: int = supported(
        "tailrace.table.max.bytes",
        integer(1),
        default="2147483648",
        doc="About how many bytes of a table are processed at once; more in a micro-batch are processed in parts.",
    )
    min_partitions: int | None = supported(
        "minPartitions",
        integer(1),
        doc="Least number of Spark partitions in which a table is read.",
    )
    records_per_partition: int | None = supported(
        "maxRecordsPerPartition",
        integer(1),
        default_note="75000",
        doc="Most records that one Spark task reads.",
    )
    min_offsets: int | None = supported(
        "minOffsetsPerTrigger",
        integer(1),
        doc=_LEAST_OFFSETS,
    )
    max_delay: str | None = supported(
        "maxTriggerDelay",
        TEXT,
        doc=_LEAST_OFFSETS,
    )
    starting_offsets: str = supported(
        "startingOffsets",
        TEXT,
        default="earliest",
        doc="Where a query without a checkpoint starts: earliest, latest or Spark's JSON. Later topics and "
        "partitions are read from their beginning.",
    )
    fail_on_loss: bool = supported(
        "failOnDataLoss",
        BOOLEAN,
        default="true",
        doc="Whether a table stops if Kafka lost records that were not read; else they are skipped.",
    )
    poll_timeout: int | None = supported(
        "kafkaConsumer.pollTimeoutMs", integer(1), doc="Longest wait of a task for records."
    )
    fetch_retries: int | None = supported("fetchOffset.numRetries", integer(0), doc=_OFFSET_RETRIES)
    fetch_interval: int | None = supported("fetchOffset.retryIntervalMs", integer(0), doc=_OFFSET_RETRIES)
    included_tables: str | None = supported(
        "table.include.list",
        TEXT,
        doc=_TABLES,
    )
    excluded_tables: str | None = supported("table.exclude.list", TEXT, doc=_TABLES)
    group_prefix: str | None = supported(
        "groupIdPrefix", TEXT, doc="Prefix of Spark's consumer group, for access control."
    )
    processing_time: str | None = supported(
        "trigger.processingTime",
        TEXT,
        default_note="`10 seconds` (delta, iceberg), `1 minute` (parquet), else `1 second`; of several the longest",
        doc="Least time between the starts of two micro-batches, each a commit of each changed table.",
    )
    available_now: bool = supported(
        "trigger.availableNow",
        BOOLEAN,
        default="false",
        doc="Whether the query ends when it has read what was there at its start.",
    )
    converters: ConvertersConfig = section(ConvertersConfig)
    table_schemas: Mapping[str, str] = prefixed(
        "table.schema.*",
        TEXT,
        doc="Columns of a table whose records are [JSON without "
        "schemas](debezium-topics.md#json-without-schemas), e.g. `table.schema.shop.orders`.",
    )
    transforms: TransformsConfig = section(TransformsConfig)
    tolerance: Tolerance = supported(
        "errors.tolerance",
        one_of(Tolerance),
        default="none",
        doc="A record that cannot be decoded or transformed stops its table (none), or is written to the next "
        "topic and skipped (all).",
    )
    dead_letter_topic: str | None = supported(
        "errors.deadletterqueue.topic.name",
        TEXT,
        doc="Topic for skipped records, with the headers of Kafka Connect (`__connect.errors.topic` and so on).",
    )
    retry_ms: int = supported(
        "tailrace.parked.table.retry.ms",
        integer(0),
        default="600000",
        doc="Time after which a parked table is tried again; 0: at the next start only.",
    )
    table_threads: int | None = supported(
        "tailrace.table.threads",
        integer(1),
        default_note="the cores of the Spark application, 2 to 32",
        doc="Tables that are processed at the same time.",
    )
    incomplete_topics: IncompleteTopics = supported(
        "tailrace.incomplete.topic.handling.mode",
        one_of(IncompleteTopics),
        default="fail",
        doc="If [records or rows of a snapshot are lost](consumer.md#snapshots), the table stops (fail), or goes "
        "on with a message in the log (warn).",
    )
    sink: str | None = supported("sink", TEXT, doc="Name of the sink; or set `sinks`.")
    sink_options: Section = section(Section)
    sinks: tuple[str, ...] | None = supported(
        "sinks",
        NAMES,
        default_note="that of `sink`",
        doc="Names for several sinks of this query, separated by commas.",
    )
    named_sinks: Section = section(Section)
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
        doc="Port of /status, /metrics, /livez, /readyz; 0: none.",
    )
    monitor_host: str = supported("monitor.host", TEXT, default="127.0.0.1", doc="Address on which that port listens.")
    log_format: LogFormat = supported(
        "log.format",
        one_of(LogFormat),
        default="auto",
        doc="Log on stderr as json or text; auto: text on a terminal, otherwise JSON.",
    )
    log_level: LogLevel = supported(
        "log.level", one_of(LogLevel), default="info", doc="Least level that is logged: debug, info, warning or error."
    )

    @property
    def chosen_sinks(self) -> tuple[ChosenSink, ...]:
        """The sinks of the query: the one of ``sink``, or those of ``sinks``."""
        if self.sink:
            return (ChosenSink(self.sink, self.sink, self.sink_options),)
        found: list[tuple[str, NamedSinkConfig]] = [
            (name, getattr(self.named_sinks, attribute_of(name))) for name in self.sinks or ()
        ]
        return tuple(ChosenSink(name, each.kind, each.options, each.tables) for name, each in found)

    @property
    def sink_names(self) -> str:
        """The names of the sinks, for logs."""
        return ",".join(chosen.name for chosen in self.chosen_sinks)

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
    def accepts_incomplete_topics(self) -> bool:
        """Whether tables may lack rows; a query that does not start at the beginning of the topics leaves rows out."""
        return self.incomplete_topics == "warn" or self.starting_offsets != "earliest" or not self.fail_on_loss

    @property
    def source_options(self) -> dict[str, str]:
        """The options of Spark's Kafka source that are passed on unchanged."""
        given = {
            "minPartitions": self.min_partitions,
            "maxRecordsPerPartition": self.records_per_partition,
            "minOffsetsPerTrigger": self.min_offsets,
            "maxTriggerDelay": self.max_delay,
            "startingOffsets": self.starting_offsets,
            "failOnDataLoss": str(self.fail_on_loss).lower(),
            "kafkaConsumer.pollTimeoutMs": self.poll_timeout,
            "fetchOffset.numRetries": self.fetch_retries,
            "fetchOffset.retryIntervalMs": self.fetch_interval,
            "groupIdPrefix": self.group_prefix,
        }
        return {name: str(value) for name, value in given.items() if value is not None}

    @property
    def format_settings(self) -> FormatSettings | None:
        """The record format; None if no converter is set."""
        if not self.converters.are_set:
            return None
        key, value = self.converters.key, self.converters.value
        return FormatSettings(key.registry_settings, value.registry_settings, self.table_schemas)

    @property
    def table_filter(self) -> TableFilter:
        """The tables to read."""
        return TableFilter(split_expressions(self.included_tables or ""), split_expressions(self.excluded_tables or ""))

    @property
    def name(self) -> str:
        """The name of the query."""
        return self.query_name or f"tailrace-{self.topic_prefix}"


def _rejected_options(reason: str, *names: str, no_op_values: tuple[str, ...] = ()) -> tuple[Property, ...]:
    # Other programs read variables such as KAFKA_GROUP_ID.
    options = [f"kafka.{name}" for name in names]
    return rejected(reason, *options, no_op_values=no_op_values, in_environment=False)


UNSUPPORTED: Final[tuple[Property, ...]] = (
    *ignored("queryName is the name of the query", "name", in_environment=False),
    *_rejected_options(
        "the consumer always reads committed records", "isolation.level", no_op_values=("read_committed",)
    ),
    *_rejected_options(f"{_CHECKPOINT}; use groupIdPrefix", "group.id"),
    *_rejected_options(
        "startingOffsets says where a new query starts", "auto.offset.reset", no_op_values=("earliest",)
    ),
    *_rejected_options(_CHECKPOINT, "enable.auto.commit", no_op_values=("false",)),
    *_rejected_options(_BYTES, "key.deserializer", "value.deserializer"),
)
