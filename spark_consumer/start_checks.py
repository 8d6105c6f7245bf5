"""What is checked before a query starts, because one setting can concern many tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.runtime.errors import ConfigError
from tailrace.schemas.names import schemas_topic
from tailrace.spark_consumer.config import ConsumerConfig
from tailrace.spark_consumer.sink.routing import QuerySink, SinkRouter
from tailrace.spark_consumer.source.control import ControlTopic
from tailrace.spark_consumer.source.schema_tracker import SchemaTracker
from tailrace.spark_consumer.tables.pool import clone_session
from tailrace.spark_consumer.transform.transforms import Transforms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def require_transforms(spark: SparkSession, config: ConsumerConfig, sinks: Sequence[QuerySink]) -> None:
    """Raise ConfigError with all faults of the transforms in the tables that are known; new ones are checked later."""
    rules = config.transforms.rules
    if not (rules.transforms or rules.routes):
        return
    topic = ControlTopic(schemas_topic(config.topic_prefix), config.kafka_client, optional=True)
    schemas = SchemaTracker(topic)
    schemas.refresh(spark)
    tables = config.table_filter
    router = SinkRouter(sinks, config.topic_prefix)
    problems = Transforms(clone_session(spark), rules, schemas, router).problems(
        lambda schema: tables.contains(f"{schema.database}.{schema.table}")
    )
    if problems:
        raise ConfigError(problems)
