"""The consumer's configuration: Spark's and Kafka's property names outside, one frozen object inside."""

from __future__ import annotations

from tailrace.spark_consumer.config.consumer import ConsumerConfig
from tailrace.spark_consumer.config.definition import describe, load, parse

__all__ = ["ConsumerConfig", "describe", "load", "parse"]
