"""Properties that Kafka Connect itself reads from a connector's configuration, and those of the Java process."""

from __future__ import annotations

from typing import Final

from tailrace.producer.config.property import Property, ignored, rejected

_NO_WORKER = "there is no Connect worker: Tailrace is a process of its own"
_STOPS = "a record that cannot be written stops the producer"
_ONCE = "delivery is exactly-once by Kafka transactions"
_LINEAGE = "lineage events are not there yet"
_SIMPLE_HEADERS = "org.apache.kafka.connect.storage.simpleheaderconverter"

PROPERTIES: Final[tuple[Property, ...]] = (
    ignored("name", "Name of the connector.", _NO_WORKER, in_environment=False),
    rejected(
        "connector.class",
        "Java class of the connector.",
        "Tailrace stands in for the MySQL connector only",
        "io.debezium.connector.mysql.mysqlconnector",
    ),
    ignored("tasks.max", "Number of tasks.", "snapshot.max.threads says how much runs in parallel", harmless=("1",)),
    ignored("tasks.max.enforce", "Check of the number of tasks.", _NO_WORKER),
    rejected("header.converter", "Java class that writes headers.", "headers are text", _SIMPLE_HEADERS),
    rejected("header.converter.*", "Settings of the converter of headers.", "headers are text"),
    ignored("config.action.reload", "Reload when a provider says so.", "placeholders are read at start"),
    ignored("config.providers", "Sources of placeholders.", "file, dir and env are always there", in_environment=False),
    ignored("config.providers.*", "Settings of a source.", "file, dir and env are always there"),
    ignored("errors.tolerance", "What to do with records that fail.", _STOPS, harmless=("none",)),
    ignored("errors.retry.timeout", "How long to retry a record.", _STOPS),
    ignored("errors.log.enable", "Log records that fail.", _STOPS),
    ignored("errors.log.include.messages", "Log their contents.", _STOPS),
    ignored("errors.deadletterqueue.*", "Where records that fail go.", _STOPS),
    ignored("exactly.once.support", "Ask for exactly-once.", _ONCE, harmless=("required", "requested")),
    ignored("transaction.boundary", "Where Connect's transactions end.", _ONCE),
    ignored("transaction.boundary.interval.ms", "How often they end.", "tailrace.commit.interval.ms decides"),
    ignored("offsets.storage.topic", "Where Connect keeps offsets.", "the state topic holds the position"),
    ignored("consumer.override.*", "Settings of Connect's consumer.", _NO_WORKER),
    ignored("admin.override.*", "Settings of Connect's admin client.", "give Kafka's settings as kafka.*"),
    ignored("custom.metric.tags", "Tags of the Java metrics.", "labels of metrics are fixed"),
    ignored("custom.sanitize.pattern", "What the Java log masks.", "secrets are known by type and never printed"),
    ignored("statistics.metrics.enabled", "Percentiles in the Java metrics.", "metrics are counters and gauges"),
    ignored("executor.shutdown.timeout.ms", "Wait for threads at the end.", _NO_WORKER),
    rejected("openlineage.integration.enabled", "Lineage events.", _LINEAGE, "false"),
    ignored("openlineage.integration.*", "Settings of lineage.", _LINEAGE),
    ignored("internal.*", "Settings that Debezium does not document.", "they belong to the Java connector"),
)
