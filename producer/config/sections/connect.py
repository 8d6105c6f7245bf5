"""Properties of Kafka Connect and of the Java process. None of them is supported."""

from __future__ import annotations

from typing import Final

from tailrace.runtime.config.property import Property, ignored, rejected

_NO_WORKER = "Tailrace runs without a Kafka Connect worker"
_NO_TOLERANCE = "the producer stops at a record that cannot be written"
_EXACTLY_ONCE = "delivery is exactly-once, with Kafka transactions"
_NO_LINEAGE = "OpenLineage is not supported"
_TEXT_HEADERS = "headers are written as text"
_PLACEHOLDERS = "the providers file, dir and env are always available"
_SIMPLE_HEADERS = "org.apache.kafka.connect.storage.simpleheaderconverter"

UNSUPPORTED: Final[tuple[Property, ...]] = (
    ignored("name", "Name of the connector.", _NO_WORKER, in_environment=False),
    rejected(
        "connector.class",
        "Java class of the connector.",
        "Tailrace replaces the MySQL connector only",
        "io.debezium.connector.mysql.mysqlconnector",
    ),
    ignored("tasks.max", "Number of tasks.", "snapshot.max.threads is the number of readers", no_op_values=("1",)),
    ignored("tasks.max.enforce", "Whether the number of tasks is checked.", _NO_WORKER),
    rejected("header.converter", "Java class of the converter for headers.", _TEXT_HEADERS, _SIMPLE_HEADERS),
    rejected("header.converter.*", "Options of the converter for headers.", _TEXT_HEADERS),
    ignored("config.action.reload", "Restart when a provider has new values.", "placeholders are resolved at start"),
    ignored("config.providers", "Providers of placeholders.", _PLACEHOLDERS, in_environment=False),
    ignored("config.providers.*", "Options of a provider.", _PLACEHOLDERS),
    ignored("errors.tolerance", "How to handle records that fail.", _NO_TOLERANCE, no_op_values=("none",)),
    ignored("errors.retry.timeout", "Maximum time to retry a record.", _NO_TOLERANCE),
    ignored("errors.log.enable", "Log records that fail.", _NO_TOLERANCE),
    ignored("errors.log.include.messages", "Log the content of these records.", _NO_TOLERANCE),
    ignored("errors.deadletterqueue.*", "Topic for records that fail.", _NO_TOLERANCE),
    ignored(
        "exactly.once.support", "Require exactly-once delivery.", _EXACTLY_ONCE, no_op_values=("required", "requested")
    ),
    ignored("transaction.boundary", "Where transactions of Kafka Connect end.", _EXACTLY_ONCE),
    ignored(
        "transaction.boundary.interval.ms", "Interval of these transactions.", "tailrace.commit.interval.ms applies"
    ),
    ignored("offsets.storage.topic", "Topic for the offsets.", "offsets are stored in the state topic"),
    ignored("consumer.override.*", "Options of Kafka Connect's consumer.", _NO_WORKER),
    ignored("admin.override.*", "Options of Kafka Connect's admin client.", "set options of Kafka clients as kafka.*"),
    ignored("custom.metric.tags", "Tags of the JMX metrics.", "the labels of metrics are fixed"),
    ignored("custom.sanitize.pattern", "What the Java log masks.", "secrets are never printed"),
    ignored("statistics.metrics.enabled", "Percentiles in the JMX metrics.", "metrics are counters and gauges"),
    ignored("executor.shutdown.timeout.ms", "Time to wait for threads at the end.", _NO_WORKER),
    rejected("openlineage.integration.enabled", "Whether lineage events are sent.", _NO_LINEAGE, "false"),
    ignored("openlineage.integration.*", "Options of OpenLineage.", _NO_LINEAGE),
    ignored("internal.*", "Internal options of Debezium.", "they configure the Java connector"),
)
