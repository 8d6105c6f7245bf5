"""The topics of one prefix: those of tables, those of Tailrace itself, and the auxiliary ones that are configured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tailrace.producer.config import ProducerConfig
from tailrace.producer.errors import TopicsRefusedError
from tailrace.producer.kafka.topics import Topics, TopicSpec, own_topics
from tailrace.producer.model.table import TableId
from tailrace.producer.serialization.envelope.topic_names import TopicNames
from tailrace.schemas.names import watermarks_topic


class CaptureTopics:
    """Creates the topics that a capture writes, and checks those that exist."""

    def __init__(self, config: ProducerConfig, topics: Topics) -> None:
        self._config = config
        self._topics = topics
        self._names = TopicNames(config.topics)

    def ensure_own(self) -> set[str]:
        """Create Tailrace's own topics and the auxiliary topics that are configured; return those that were missing."""
        topics = self._config.topics
        own = own_topics(topics.prefix, replication_factor=topics.replication_factor)
        return self._topics.ensure([*own, *self._auxiliary()])

    def without_topic(self, tables: Iterable[TableId]) -> list[TableId]:
        names = {self._names.table(table): table for table in tables}
        missing = self._topics.missing(names)
        return [table for name, table in names.items() if name in missing]

    def with_records(self, tables: Iterable[TableId]) -> list[TableId]:
        """Return the tables whose data topics have, or had, records."""
        names = {self._names.table(table): table for table in tables}
        return [names[name] for name in self._topics.with_records(names)]

    def has_watermarks(self) -> bool:
        """Return whether splits were read under this prefix before."""
        return bool(self._topics.with_records([watermarks_topic(self._config.topics.prefix)]))

    def ensure_tables(self, tables: Iterable[TableId]) -> None:
        """Create the missing data topics of tables. Raises TopicsRefusedError when all that can be are created."""
        topics = self._config.topics
        self._topics.ensure(
            TopicSpec(
                self._names.table(table),
                partitions=topics.partitions,
                replication_factor=topics.replication_factor,
                config=topics.settings,
            )
            for table in tables
        )

    def refused(self, tables: Iterable[TableId]) -> dict[TableId, TopicsRefusedError]:
        """Create the missing data topics of tables; return the tables whose topics Kafka refuses to create."""
        named = {self._names.table(table): table for table in tables}
        try:
            self.ensure_tables(named.values())
        except TopicsRefusedError as error:
            return {named[topic]: TopicsRefusedError({topic: each}) for topic, each in error.refused.items()}
        return {}

    def _auxiliary(self) -> Iterator[TopicSpec]:
        topics, values = self._config.topics, self._config.values
        replicas = topics.replication_factor
        if self._config.heartbeat.interval_ms:
            yield TopicSpec(self._names.heartbeats, replication_factor=replicas)
        if values.schema_changes:
            # Schema changes have one order: they go to partition 0, also where a connector's topic has more.
            yield TopicSpec(self._names.schema_changes, replication_factor=replicas)
        if values.transaction_metadata:
            yield TopicSpec(
                self._names.transactions,
                partitions=topics.partitions,
                replication_factor=replicas,
                config=topics.settings,
            )
