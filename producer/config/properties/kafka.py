"""Properties of Kafka: the connection, the topics, and how much goes into one transaction."""

from __future__ import annotations

from typing import Final

from producer.config.property import ANY, TEXT, TOPIC_PART, Property, accepted, honoured, refused, whole

_NO_QUEUE = "no queue stands between the reader and Kafka; memory is bounded by one batch and Kafka's own buffer"
_NO_HISTORY = "table definitions come from the log and the state topic; there is no schema history topic"

PROPERTIES: Final[tuple[Property, ...]] = (
    honoured(
        "bootstrap.servers",
        "kafka.bootstrap_servers",
        TEXT,
        None,
        "Kafka brokers as host:port,host:port; where it is missing, "
        "`schema.history.internal.kafka.bootstrap.servers` holds.",
        aliases=("kafka.bootstrap.servers", "producer.override.bootstrap.servers"),
        required=True,
    ),
    honoured("topic.prefix", "topics.prefix", TOPIC_PART, None, "First part of every topic's name.", required=True),
    honoured(
        "topic.delimiter", "topics.delimiter", TOPIC_PART, ".", "What stands between the parts of a topic's name."
    ),
    refused(
        "topic.naming.strategy",
        "Java class that names topics.",
        "topics are named <prefix>.<database>.<table>",
        "io.debezium.schema.defaulttopicnamingstrategy",
        "io.debezium.schema.schematopicnamingstrategy",
    ),
    honoured(
        "topic.transaction", "topics.transaction", TOPIC_PART, "transaction", "Last part of the transaction topic."
    ),
    honoured(
        "topic.heartbeat.prefix",
        "topics.heartbeat_prefix",
        TOPIC_PART,
        "__debezium-heartbeat",
        "First part of the heartbeat topic.",
        aliases=("heartbeat.topics.prefix",),
    ),
    honoured("topic.heartbeat.name", "topics.heartbeat_name", TOPIC_PART, None, "Whole name of the heartbeat topic."),
    honoured(
        "heartbeat.interval.ms",
        "heartbeat.interval_ms",
        whole(0),
        "0",
        "How often a heartbeat is written, whether or not tables change, in ms; 0: never.",
    ),
    honoured(
        "heartbeat.action.query",
        "heartbeat.action_query",
        ANY,
        "",
        "SQL that is run at the source with each heartbeat, over a session of its own. It is the only thing that ever "
        "writes to the source.",
    ),
    accepted("topic.cache.size", "How many topic names are remembered.", "all are remembered"),
    honoured(
        "topic.creation.default.partitions",
        "topics.partitions",
        whole(-1),
        "-1",
        "Partitions of a table's topic when it is made; -1: as the broker decides.",
    ),
    honoured(
        "topic.creation.default.replication.factor",
        "topics.replication_factor",
        whole(-1),
        "-1",
        "Replicas of a topic when it is made; -1: as the broker decides.",
    ),
    honoured(
        "topic.creation.default.*",
        "topics.settings",
        ANY,
        None,
        "Any setting of a table's topic when it is made, e.g. `topic.creation.default.cleanup.policy`.",
    ),
    accepted(
        "topic.creation.enable",
        "Let Connect make topics.",
        "topics that are missing are always made",
        harmless=("true",),
    ),
    refused(
        "topic.creation.groups", "Groups of topics with other settings.", "one set of settings serves all topics", ""
    ),
    refused("topic.creation.*", "Settings of a group of topics.", "one set of settings serves all topics"),
    honoured(
        "max.batch.size",
        "batch.max_records",
        whole(1),
        "16384",
        "Records of the log after which a Kafka transaction ends, within a long source transaction too.",
        debezium="2048",
    ),
    accepted("max.queue.size", "Length of the queue.", _NO_QUEUE),
    accepted("max.queue.size.in.bytes", "Size of the queue.", _NO_QUEUE),
    accepted("queue.provider.type", "Kind of queue.", _NO_QUEUE),
    accepted("poll.interval.ms", "How often the queue is emptied.", "tailrace.commit.interval.ms decides"),
    honoured(
        "producer.override.transaction.timeout.ms",
        "kafka.transaction_timeout_ms",
        whole(1000),
        "60000",
        "How long Kafka waits for a producer that is gone before it aborts its transaction, in ms.",
        aliases=("kafka.transaction.timeout.ms", "tailrace.transaction.timeout.ms"),
    ),
    honoured(
        "producer.override.*",
        "kafka.overrides",
        ANY,
        None,
        "Any setting of librdkafka, e.g. `producer.override.security.protocol`.",
    ),
    honoured("kafka.*", "kafka.overrides", ANY, None, "The same, in short: `kafka.security.protocol`."),
    accepted("schema.history.internal", "Java class of the schema history.", _NO_HISTORY),
    accepted("schema.history.internal.kafka.bootstrap.servers", "Its brokers.", _NO_HISTORY),
    accepted("schema.history.internal.*", "Settings of the schema history.", _NO_HISTORY),
    accepted("internal.schema.history.internal.*", "Settings of the schema history.", _NO_HISTORY),
)
