"""The producer's configuration: the properties of Debezium 3.6's MySQL connector, of Kafka Connect and of Tailrace."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tailrace.producer.config import checks
from tailrace.producer.config.column_transforms import without_salt
from tailrace.producer.config.sections import connect, converters, database, filters, kafka, snapshot, values
from tailrace.producer.config.sections.converters import ConvertersConfig
from tailrace.producer.config.sections.database import DatabaseConfig
from tailrace.producer.config.sections.filters import FiltersConfig
from tailrace.producer.config.sections.kafka import BatchConfig, HeartbeatConfig, KafkaConfig, TopicsConfig
from tailrace.producer.config.sections.process import OpsConfig
from tailrace.producer.config.sections.signals import NotificationsConfig, SignalsConfig
from tailrace.producer.config.sections.snapshot import SnapshotConfig
from tailrace.producer.config.sections.values import ValuesConfig
from tailrace.runtime.config.definition import ConfigDefinition, Group
from tailrace.runtime.config.section import RootConfig


class ProducerConfig(RootConfig):
    """The whole configuration of a producer."""

    database: DatabaseConfig
    filters: FiltersConfig
    values: ValuesConfig
    converters: ConvertersConfig
    snapshot: SnapshotConfig
    signals: SignalsConfig
    notifications: NotificationsConfig
    kafka: KafkaConfig
    topics: TopicsConfig
    batch: BatchConfig
    heartbeat: HeartbeatConfig
    ops: OpsConfig


GROUPS: Final[tuple[Group, ...]] = (
    Group("Database connection", ("database",), database.UNSUPPORTED),
    Group("Captured databases, tables and columns", ("filters",), filters.UNSUPPORTED),
    Group("Values and events", ("values",), values.UNSUPPORTED),
    Group("Converters and schemas", ("converters.key", "converters.value", "converters"), converters.UNSUPPORTED),
    Group("Snapshots", ("snapshot",), snapshot.UNSUPPORTED),
    Group("Signals and notifications", ("signals", "notifications")),
    Group("Kafka, topics and transactions", ("kafka", "topics", "batch", "heartbeat"), kafka.UNSUPPORTED),
    Group("HTTP and log", ("ops",)),
    Group("Kafka Connect and Java", (), connect.UNSUPPORTED),
)
"""The chapters of the reference page. Among wildcards the first that matches a name applies."""

DEFINITION: Final = ConfigDefinition(ProducerConfig, GROUPS, checks=checks.CHECKS, redact_name=without_salt)

_OF_THE_RUN: Final = {
    "tailrace.binlog.watch.interval.ms",
    *(entry.name for entry in DEFINITION.table.properties if entry.target.startswith("ops.")),
}
"""When the process ends, and how it is watched: often another at each start."""


def load(path: Path | None, environ: Mapping[str, str], overrides: Mapping[str, str] | None = None) -> ProducerConfig:
    """Return the configuration of a file, the environment and flags. Raises ConfigError with all problems."""
    return DEFINITION.load(path, environ, overrides)


def describe(config: ProducerConfig) -> dict[str, str]:
    """Return the effective settings by property, secrets masked."""
    return DEFINITION.describe(config)


def fingerprint(config: ProducerConfig) -> str:
    """Return what differs if a setting differs that is no secret, and that may change how the log is read."""
    settings = sorted(each for each in describe(config).items() if each[0] not in _OF_THE_RUN)
    return hashlib.sha256(repr(settings).encode()).hexdigest()[:16]
