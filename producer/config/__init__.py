"""The producer's configuration: Debezium's property names outside, frozen sections inside."""

from __future__ import annotations

from tailrace.producer.config.definition import DEFINITION, ProducerConfig, describe, fingerprint, load
from tailrace.producer.config.sections.converters import ConverterConfig, ConvertersConfig
from tailrace.producer.config.sections.database import DatabaseConfig
from tailrace.producer.config.sections.filters import FiltersConfig
from tailrace.producer.config.sections.kafka import BatchConfig, HeartbeatConfig, KafkaConfig, TopicsConfig
from tailrace.producer.config.sections.process import OpsConfig
from tailrace.producer.config.sections.signals import NotificationsConfig, SignalsConfig
from tailrace.producer.config.sections.snapshot import SnapshotConfig
from tailrace.producer.config.sections.values import ValuesConfig

__all__ = [
    "DEFINITION",
    "BatchConfig",
    "ConverterConfig",
    "ConvertersConfig",
    "DatabaseConfig",
    "FiltersConfig",
    "HeartbeatConfig",
    "KafkaConfig",
    "NotificationsConfig",
    "OpsConfig",
    "ProducerConfig",
    "SignalsConfig",
    "SnapshotConfig",
    "TopicsConfig",
    "ValuesConfig",
    "describe",
    "fingerprint",
    "load",
]
