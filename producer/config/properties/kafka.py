"""Properties of Kafka: the connection, the topics, and how much goes into one transaction."""

from __future__ import annotations

from typing import Final

from tailrace.producer.config.property import ANY, TEXT, TOPIC_PART, Property, ignored, integer, rejected, supported

_NO_QUEUE = "no queue stands between the reader and Kafka; memory is bounded by one batch and Kafka's own buffer"
_NO_HISTORY = "table definitions come from the log and the state topic; there is no schema history topic"

PROPERTIES: Final[tuple[Property, ...]] = (
    supported(
        "bootstrap.servers",
        "kafka.bootstrap_servers",
        TEXT,
        None,
        "Kafka brokers as host:port,host:port; where it is missing, "
        "`schema.history.internal.kafka.bootstrap.servers` holds.",
        aliases=("kafka.bootstrap.servers", "producer.override.bootstrap.servers"),
        required=True,
    ),
    supported("topic.prefix", "topics.prefix", TOPIC_PART, None, "First part of every topic's name.", required=True),
    supported(
        "topic.delimiter", "topics.delimiter", TOPIC_PART, ".", "What stands between the parts of a topic's name."
    ),
    rejected(
        "topic.naming.strategy",
        "Java class that names topics.",
        "topics are named <prefix>.<database>.<table>",
        "io.debezium.schema.defaulttopicnamingstrategy",
        "io.debezium.schema.schematopicnamingstrategy",
    ),
    supported(
        "topic.transaction", "topics.transaction", TOPIC_PART, "transaction", "Last part of the transaction topic."
    ),
    supported(
        "topic.heartbeat.prefix",
        "topics.heartbeat_prefix",
        TOPIC_PART,
        "__debezium-heartbeat",
        "First part of the heartbeat topic.",
        aliases=("heartbeat.topics.prefix",),
    ),
    supported("topic.heartbeat.name", "topics.heartbeat_name", TOPIC_PART, None, "Whole name of the heartbeat topic."),
    supported(
        "heartbeat.interval.ms",
        "heartbeat.interval_ms",
        integer(0),
        "0",
        "How often a heartbeat is written, whether or not tables change, in ms; 0: never.",
    ),
    supported(
        "heartbeat.action.query",
        "heartbeat.action_query",
        ANY,
        "",
        "SQL that is run at the source with each heartbeat, over a session of its own. It is the only thing that ever "
        "writes to the source.",
    ),
    ignored("topic.cache.size", "How many topic names are remembered.", "all are remembered"),
    supported(
        "topic.creation.default.partitions",
        "topics.partitions",
        integer(-1),
        "-1",
        "Partitions of a table's topic when it is made; -1: as the broker decides.",
    ),
    supported(
        "topic.creation.default.replication.factor",
        "topics.replication_factor",
        integer(-1),
        "-1",
        "Replicas of a topic when it is made; -1: as the broker decides.",
    ),
    supported(
        "topic.creation.default.*",
        "topics.settings",
        ANY,
        None,
        "Any setting of a table's topic when it is made, e.g. `topic.creation.default.cleanup.policy`.",
    ),
    ignored(
        "topic.creation.enable",
        "Let Connect make topics.",
        "topics that are missing are always made",
        harmless=("true",),
    ),
    rejected(
        "topic.creation.groups", "Groups of topics with other settings.", "one set of settings serves all topics", ""
    ),
    rejected("topic.creation.*", "Settings of a group of topics.", "one set of settings serves all topics"),
    supported(
        "max.batch.size",
        "batch.max_records",
        integer(1),
        "16384",
        "Records of the log after which a Kafka transaction ends, within a long source transaction too.",
        debezium="2048",
    ),
    ignored("max.queue.size", "Length of the queue.", _NO_QUEUE),
    ignored("max.queue.size.in.bytes", "Size of the queue.", _NO_QUEUE),
    ignored("queue.provider.type", "Kind of queue.", _NO_QUEUE),
    ignored("poll.interval.ms", "How often the queue is emptied.", "tailrace.commit.interval.ms decides"),
    supported(
        "producer.override.transaction.timeout.ms",
        "kafka.transaction_timeout_ms",
        integer(1000),
        "60000",
        "How long Kafka waits for a producer that is gone before it aborts its transaction, in ms.",
        aliases=("kafka.transaction.timeout.ms", "tailrace.transaction.timeout.ms"),
    ),
    supported(
        "producer.override.*",
        "kafka.overrides",
        ANY,
        None,
        "Any setting of librdkafka, e.g. `producer.override.security.protocol`.",
    ),
    supported("kafka.*", "kafka.overrides", ANY, None, "The same, in short: `kafka.security.protocol`."),
    ignored("schema.history.internal", "Java class of the schema history.", _NO_HISTORY),
    ignored("schema.history.internal.kafka.bootstrap.servers", "Its brokers.", _NO_HISTORY),
    ignored("schema.history.internal.*", "Settings of the schema history.", _NO_HISTORY),
    ignored("internal.schema.history.internal.*", "Settings of the schema history.", _NO_HISTORY),
)
