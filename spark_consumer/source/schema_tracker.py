"""Keeps the newest published schema of each table topic: the one that was in use at the greatest source position.

The decoder finds fields by name, so the newest schema decodes older rows too: a column that they lack is NULL. The
schemas topic is read before every batch, because a row can have a column that was added after the last batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from tailrace.runtime.errors import SchemaError
from tailrace.schemas.sequence import Sequence
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.source.control import ControlTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = structlog.get_logger(__name__)


class SchemaTracker:
    """The newest schema per topic."""

    def __init__(self, topic: ControlTopic) -> None:
        self._topic = topic
        self._newest: dict[str, tuple[Sequence, TableSchema]] = {}

    def refresh(self, spark: SparkSession) -> None:
        """Read the schemas that were published since the last call."""
        for record in self._topic.poll(spark):
            self.add(record.value)

    def add(self, value: bytes) -> None:
        """Add one record of the schemas topic; an older schema than the known one is ignored."""
        try:
            schema, sequence = TableSchema.from_json(value)
        except (KeyError, TypeError, ValueError) as error:
            raise SchemaError(
                f"a record of {self._topic.topic} is not a table schema",
                hint="allow only the producer to write to this topic",
                value=value[:200],
            ) from error
        known = self._newest.get(schema.topic)
        if known is None or sequence >= known[0]:
            self._newest[schema.topic] = (sequence, schema)
            log.info("table schema read", topic=schema.topic, sequence=sequence, columns=len(schema.columns))

    def get(self, topic: str) -> TableSchema:
        """Return the newest schema of a topic; raises SchemaError if none is published."""
        known = self._newest.get(topic)
        if known is None:
            raise SchemaError(
                f"no table schema is published for topic {topic}",
                hint="use topic prefixes of which none is the start of another, and do not delete the schemas topic",
                schemas_topic=self._topic.topic,
            )
        return known[1]
