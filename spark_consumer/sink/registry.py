"""Sinks by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tailrace.spark_consumer.config import ConsumerConfig
from tailrace.spark_consumer.sink.base import Sink
from tailrace.spark_consumer.sink.console import ConsoleSink
from tailrace.spark_consumer.sink.delta import DeltaSink
from tailrace.spark_consumer.sink.kafka import DEFAULT_TOPIC, KafkaSink


def _delta(config: ConsumerConfig) -> Sink:
    assert config.sink_path is not None  # checked by the configuration
    return DeltaSink(config.sink_path, config.sink_properties)


def _kafka(config: ConsumerConfig) -> Sink:
    client = {**config.kafka_client, **config.sink_client}
    return KafkaSink(client, config.sink_topic or DEFAULT_TOPIC, partitions=config.sink_partitions)


def _console(config: ConsumerConfig) -> Sink:
    return ConsoleSink(config.sink_rows)


SINKS: Final[dict[str, Callable[[ConsumerConfig], Sink]]] = {"delta": _delta, "kafka": _kafka, "console": _console}


def make_sink(config: ConsumerConfig) -> Sink:
    """Return the configured sink."""
    return SINKS[config.sink](config)
