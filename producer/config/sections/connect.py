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

UNSUPPORTED: Final[tuple[Property, ...]] = (
    *ignored(_NO_WORKER, "name", in_environment=False),
    *ignored("snapshot.max.threads is the number of readers", "tasks.max", no_op_values=("1",)),
    *ignored(_NO_WORKER, "tasks.max.enforce", "consumer.override.*", "executor.shutdown.timeout.ms"),
    *rejected(
        _TEXT_HEADERS, "header.converter", no_op_values=("org.apache.kafka.connect.storage.simpleheaderconverter",)
    ),
    *rejected(_TEXT_HEADERS, "header.converter.*"),
    *ignored("placeholders are resolved at start", "config.action.reload"),
    *ignored(_PLACEHOLDERS, "config.providers", in_environment=False),
    *ignored(_PLACEHOLDERS, "config.providers.*"),
    *ignored(_NO_TOLERANCE, "errors.tolerance", no_op_values=("none",)),
    *ignored(
        _NO_TOLERANCE,
        "errors.retry.timeout",
        "errors.log.enable",
        "errors.log.include.messages",
        "errors.deadletterqueue.*",
    ),
    *ignored(_EXACTLY_ONCE, "exactly.once.support", no_op_values=("required", "requested")),
    *ignored(_EXACTLY_ONCE, "transaction.boundary"),
    *ignored("tailrace.commit.interval.ms applies", "transaction.boundary.interval.ms"),
    *ignored("offsets are stored in the state topic", "offsets.storage.topic"),
    *ignored("set options of Kafka clients as kafka.*", "admin.override.*"),
    *ignored("the labels of metrics are fixed", "custom.metric.tags"),
    *ignored("secrets are never printed", "custom.sanitize.pattern"),
    *ignored("metrics are counters and gauges", "statistics.metrics.enabled"),
    *rejected(_NO_LINEAGE, "openlineage.integration.enabled", no_op_values=("false",)),
    *ignored(_NO_LINEAGE, "openlineage.integration.*"),
    *ignored("they configure the Java connector", "internal.*"),
)
