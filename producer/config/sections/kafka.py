"""The connection to Kafka, the topics, heartbeats and transactions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Literal

from pydantic import SecretStr

from tailrace.producer.config.java_client import client_options
from tailrace.runtime.config.property import Property, ignored, rejected
from tailrace.runtime.config.section import Section, prefixed, supported
from tailrace.runtime.config.value_types import ANY_TEXT, SECRET, TEXT, TOPIC_PART, integer, one_of

MissingTopicHandling = Literal["warn", "snapshot", "fail"]
MissingStateHandling = Literal["fail", "snapshot"]

TopicNaming = Literal["default", "unicode"]
_NEW_TOPICS: Final = "Partitions of new table topics, replication factor of all new topics; -1: the broker's default."
_NAMING: Final = "io.debezium.schema."
_NAMING_CLASSES: Final = {
    f"{_NAMING}defaulttopicnamingstrategy": "default",
    f"{_NAMING}defaultunicodetopicnamingstrategy": "unicode",
}
_OTHER_NAMING: Final = {
    f"{_NAMING}schematopicnamingstrategy": "with MySQL its topics lack the database",
    f"{_NAMING}schemaunicodetopicnamingstrategy": "with MySQL its topics lack the database",
}

_ONE_GROUP = "all topics are created with the same settings"


class KafkaConfig(Section):
    """The connection to Kafka. ``overrides`` have librdkafka's names; they may be secrets and are never printed."""

    bootstrap_servers: str = supported(
        "bootstrap.servers",
        TEXT,
        required=True,
        fallback="schema.history.internal.kafka.bootstrap.servers",
        doc="Kafka brokers, as host:port,host:port; by default those of "
        "`schema.history.internal.kafka.bootstrap.servers`.",
        aliases=("kafka.bootstrap.servers", "producer.override.bootstrap.servers"),
    )
    transaction_timeout_ms: int = supported(
        "producer.override.transaction.timeout.ms",
        integer(1000),
        default="60000",
        doc="Time after which Kafka aborts the transaction of a silent producer.",
        aliases=("kafka.transaction.timeout.ms", "tailrace.transaction.timeout.ms"),
    )
    overrides: Mapping[str, SecretStr] = prefixed(
        "producer.override.*",
        SECRET,
        doc="Options of the Kafka clients, e.g. `producer.override.security.protocol`: librdkafka's names, or "
        "Java's with the same meaning (`max.request.size`, `buffer.memory`, `sasl.jaas.config` for PLAIN and "
        "SCRAM, stores in PEM).",
        aliases=("kafka.*",),
        environment_keys=("*",),
    )

    def client_settings(self) -> dict[str, str]:
        """Return the settings of a librdkafka client, secrets in clear."""
        given = {name: value.get_secret_value() for name, value in self.overrides.items()}
        return {**client_options(given).options, "bootstrap.servers": self.bootstrap_servers}


class TopicsConfig(Section):
    """Names and settings of topics; see serialization/envelope/topic_names.py for complete names."""

    prefix: str = supported("topic.prefix", TOPIC_PART, required=True, doc="Prefix of all topic names.")
    delimiter: str = supported(
        "topic.delimiter", TOPIC_PART, default=".", doc="Delimiter between the parts of a topic name."
    )
    transaction: str = supported(
        "topic.transaction", TOPIC_PART, default="transaction", doc="Last part of the name of the transaction topic."
    )
    heartbeat_prefix: str = supported(
        "topic.heartbeat.prefix",
        TOPIC_PART,
        default="__debezium-heartbeat",
        doc="First part of the name of the heartbeat topic.",
        aliases=("heartbeat.topics.prefix",),
    )
    heartbeat_name: str | None = supported("topic.heartbeat.name", TOPIC_PART, doc="Whole name of the heartbeat topic.")
    naming: TopicNaming = supported(
        "topic.naming.strategy",
        one_of(TopicNaming, renamed=_NAMING_CLASSES, rejected=tuple(_OTHER_NAMING)),
        default="default",
        doc="Characters that a topic name cannot have become `_` (default, `DefaultTopicNamingStrategy`) or their "
        "codes, also `_` itself (unicode, `DefaultUnicodeTopicNamingStrategy`): `_u6ce8_u6587`. Use a new "
        "prefix to change it.",
        rejected_values=_OTHER_NAMING,
    )
    partitions: int = supported(
        "topic.creation.default.partitions",
        integer(-1),
        default="-1",
        doc=_NEW_TOPICS,
    )
    replication_factor: int = supported(
        "topic.creation.default.replication.factor",
        integer(-1),
        default="-1",
        doc=_NEW_TOPICS,
    )
    settings: Mapping[str, str] = prefixed(
        "topic.creation.default.*",
        ANY_TEXT,
        doc="Settings of new table topics, such as `retention.ms`.",
    )
    missing: MissingTopicHandling = supported(
        "tailrace.missing.topic.handling.mode",
        one_of(MissingTopicHandling),
        default="warn",
        doc="If the topic of a captured table is gone: it is created again with an error in the log (warn), its "
        "table is read again too (snapshot), or the producer stops (fail).",
    )
    missing_state: MissingStateHandling = supported(
        "tailrace.missing.state.handling.mode",
        one_of(MissingStateHandling),
        default="fail",
        doc="If the state topic is missing or empty although topics of the prefix have records: the start fails "
        "(fail), or earlier rows are gone for readers, and all tables are read again (snapshot).",
    )


class BatchConfig(Section):
    """How many changes one Kafka transaction contains."""

    max_records: int = supported(
        "max.batch.size",
        integer(1),
        default="16384",
        default_note="Debezium: `2048`",
        doc="Records after which a Kafka transaction is committed, also within a MySQL transaction.",
    )
    commit_interval_ms: int = supported(
        "tailrace.commit.interval.ms",
        integer(1, 60_000),
        default="200",
        doc="Longest time between a change and its Kafka commit while there is more to read; else it is committed "
        "at once.",
    )


class HeartbeatConfig(Section):
    """Records that are written even if no table changes."""

    interval_ms: int = supported(
        "heartbeat.interval.ms",
        integer(0),
        default="0",
        doc="Interval of heartbeat records; 0: none.",
    )
    action_query: str = supported(
        "heartbeat.action.query",
        replace(ANY_TEXT, secret=True),
        default="",
        doc="SQL statement that is run with each heartbeat, in its own session.",
    )


UNSUPPORTED: Final[tuple[Property, ...]] = (
    *ignored("all names are cached", "topic.cache.size"),
    *ignored("missing topics are always created", "topic.creation.enable", no_op_values=("true",)),
    *rejected(_ONE_GROUP, "topic.creation.groups", no_op_values=("",)),
    *rejected(_ONE_GROUP, "topic.creation.*"),
    *ignored(
        "there is no queue between the reader and Kafka; one batch and the buffer of the client limit the memory",
        "max.queue.size",
        "max.queue.size.in.bytes",
        "queue.provider.type",
    ),
    *ignored("tailrace.commit.interval.ms applies", "poll.interval.ms"),
    *ignored(
        "the binlog and the state topic describe the tables; there is no schema history",
        "schema.history.internal",
        "schema.history.internal.kafka.bootstrap.servers",
        "schema.history.internal.*",
        "internal.schema.history.internal.*",
    ),
)
