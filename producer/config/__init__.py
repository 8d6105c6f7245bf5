"""The producer's configuration: Debezium's names outside, frozen sections inside."""

from __future__ import annotations

from tailrace.producer.config.load import describe, load
from tailrace.producer.config.sections import (
    BatchConfig,
    DatabaseConfig,
    FiltersConfig,
    KafkaConfig,
    OpsConfig,
    ProducerConfig,
    SnapshotConfig,
    TopicsConfig,
    ValuesConfig,
)

__all__ = [
    "BatchConfig",
    "DatabaseConfig",
    "FiltersConfig",
    "KafkaConfig",
    "OpsConfig",
    "ProducerConfig",
    "SnapshotConfig",
    "TopicsConfig",
    "ValuesConfig",
    "describe",
    "load",
]
