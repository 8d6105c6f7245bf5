"""What is checked before a query starts, because one setting can concern many tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.runtime.errors import ConfigError
from tailrace.spark_consumer.config import ConsumerConfig
from tailrace.spark_consumer.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def require_transforms(spark: SparkSession, config: ConsumerConfig, pipeline: Pipeline) -> None:
    """Raise ConfigError with all faults of the transforms in the tables that are known; new ones are checked later."""
    rules = config.transforms.rules
    if not (rules.transforms or rules.routes):
        return
    tables = config.table_filter
    problems = pipeline.load_transforms(spark).problems(
        lambda schema: tables.contains(f"{schema.database}.{schema.table}")
    )
    if problems:
        raise ConfigError(problems)
