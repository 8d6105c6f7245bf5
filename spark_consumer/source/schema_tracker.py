"""Keeps all published schemas and alterations of each table topic, ordered by position in the source.

A record names its schema in the header ``tailrace.schema``. The schemas topic is read before every batch, because a
row can be written with a schema that was published after the last batch. The number of schemas grows with ALTER TABLE
statements, not with rows.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import structlog

from tailrace.runtime.errors import SchemaError
from tailrace.schemas.alteration import Alteration
from tailrace.schemas.sequence import Sequence
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.source.control import ControlTopic
from tailrace.spark_consumer.source.lineage import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = structlog.get_logger(__name__)


class SchemaTracker:
    """All schemas per topic."""

    def __init__(self, topic: ControlTopic) -> None:
        self._topic = topic
        self._lock = threading.Lock()
        self._versions: dict[str, dict[str, tuple[Sequence, TableSchema]]] = {}
        self._alterations: dict[str, dict[Sequence, Alteration]] = {}

    def refresh(self, spark: SparkSession, *, can_be_missing: bool = False) -> None:
        """Read the schemas that were published since the last call; waits for a call of another thread.

        ``can_be_missing``: there may be no schemas topic yet.
        """
        if can_be_missing and not self._topic.exists(spark):
            return
        with self._lock:
            records = self._topic.poll(spark)
            added = {self.add(record.value) for record in records} - {None}
        if added:
            log.info("table schemas read", tables=len(added), records=len(records))

    def add(self, value: bytes) -> str | None:
        """Add one record of the schemas topic; return the topic of its table if it is a new or a later schema."""
        try:
            alteration = Alteration.from_json(value)
            if alteration is not None:
                self._alterations.setdefault(alteration.topic, {})[alteration.sequence] = alteration
                return None
            schema, sequence = TableSchema.from_json(value)
        except (KeyError, TypeError, ValueError) as error:
            raise SchemaError(
                f"a record of {self._topic.topic} is not a table schema",
                hint="allow only the producer to write to this topic",
                value=value[:200],
            ) from error
        versions = self._versions.setdefault(schema.topic, {})
        known = versions.get(schema.fingerprint)
        if known is not None and sequence < known[0]:
            return None
        versions[schema.fingerprint] = (sequence, schema)
        log.debug("table schema read", topic=schema.topic, sequence=sequence, columns=len(schema.columns))
        return schema.topic

    def topics(self) -> list[str]:
        """Return the topics with a published schema."""
        return sorted(self._versions)

    def has(self, topic: str) -> bool:
        """Return whether a schema of a topic is published."""
        return topic in self._versions

    def versions(self, topic: str) -> list[TableSchema]:
        """Return the schemas of a topic, the latest last; raises SchemaError if none is published."""
        known = self._versions.get(topic)
        if known is None:
            raise SchemaError(
                f"no table schema is published for topic {topic}",
                hint="use topic prefixes of which none is the start of another, and do not delete the schemas topic",
                schemas_topic=self._topic.topic,
            )
        return [schema for _, schema in sorted(known.values(), key=lambda entry: entry[0])]

    def alterations(self, topic: str) -> list[Alteration]:
        """Return the alterations of a table up to its latest schema, in order."""
        known = self._alterations.get(topic)
        if not known or topic not in self._versions:
            return []
        sequence, latest = max(self._versions[topic].values(), key=lambda entry: entry[0])
        in_order = [known[position] for position in sorted(known)]
        return until(in_order, [column.name for column in latest.columns], sequence)

    def published(self, topic: str) -> list[TableSchema]:
        """Return the schemas of a topic like ``versions``; none for a topic that only another connector wrote."""
        return self.versions(topic) if topic in self._versions else []
