"""Which schema decodes which topic: the newest version of each table that the producer has published.

Fields are found by name, so the newest schema reads older rows too: a column they lack is NULL. The topic is read
before every batch, since a row may carry a column that was added after the last one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from tailrace.runtime.errors import SchemaError
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.source.control import ControlTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = structlog.get_logger(__name__)


class SchemaTracker:
    """Newest schema per topic."""

    def __init__(self, topic: ControlTopic) -> None:
        self._topic = topic
        self._newest: dict[str, tuple[int, TableSchema]] = {}

    def refresh(self, spark: SparkSession) -> None:
        """Take in what was published since the last call."""
        for record in self._topic.news(spark):
            self.learn(record.value)

    def learn(self, value: bytes) -> None:
        """Take in one record of the schemas topic; an older version than the one known is ignored."""
        try:
            schema, version = TableSchema.from_json(value)
        except (KeyError, TypeError, ValueError) as error:
            raise SchemaError(
                f"a record of {self._topic.topic} is not a table schema",
                hint="let nothing but the producer write to this topic",
                seen=value[:200],
            ) from error
        known = self._newest.get(schema.topic)
        if known is None or version >= known[0]:
            self._newest[schema.topic] = (version, schema)
            log.info("table schema", topic=schema.topic, version=version, columns=len(schema.columns))

    def get(self, topic: str) -> TableSchema:
        """Return the schema of a topic's rows, or raise SchemaError."""
        known = self._newest.get(topic)
        if known is None:
            raise SchemaError(
                f"no table schema is published for topic {topic}",
                hint="give each producer a prefix that does not begin with another's, and keep the schemas topic",
                schemas_topic=self._topic.topic,
            )
        return known[1]
