"""Builds the writers of auxiliary topics from the configuration: heartbeats, transaction metadata, schema changes."""

from __future__ import annotations

from tailrace.producer.config import ProducerConfig
from tailrace.producer.kafka.transactional_producer import Headers
from tailrace.producer.model.protocols import CatalogSession
from tailrace.producer.serialization.envelope.schema_change import change_schemas
from tailrace.producer.serialization.envelope.topic_names import TopicNames
from tailrace.producer.serialization.envelope.transaction import TRANSACTION_KEY, TRANSACTION_VALUE
from tailrace.producer.serialization.record_converter import RecordConverter
from tailrace.producer.streaming.heartbeat import HEARTBEAT_KEY, HEARTBEAT_VALUE, Heartbeat, HeartbeatAction
from tailrace.producer.streaming.schema_change_topic import SchemaChangeSettings, SchemaChangeTopic
from tailrace.producer.streaming.stream_transaction import StreamTransaction
from tailrace.producer.streaming.transaction_metadata import TransactionBlockWriter


class AuxiliaryTopics:
    """Each method returns a writer, or None if its topic is not configured."""

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._names = TopicNames(config.topics)
        self._converter = RecordConverter(config.converters)

    def heartbeat_action(self, session: CatalogSession) -> HeartbeatAction | None:
        """Return what runs heartbeat.action.query; it closes the session."""
        heartbeat = self._config.heartbeat
        return (
            HeartbeatAction(session, heartbeat.action_query)
            if heartbeat.interval_ms and heartbeat.action_query
            else None
        )

    def heartbeat(self, action: HeartbeatAction | None) -> Heartbeat | None:
        heartbeat = self._config.heartbeat
        if not heartbeat.interval_ms:
            return None
        return Heartbeat(
            self._converter.topic(self._names.heartbeats, HEARTBEAT_KEY, HEARTBEAT_VALUE),
            self._config.topics.prefix,
            interval_s=heartbeat.interval_ms / 1000,
            action=action,
        )

    def transaction_metadata(self, transaction: StreamTransaction) -> TransactionBlockWriter | None:
        if not self._config.values.transaction_metadata:
            return None
        topic = self._converter.topic(self._names.transactions, TRANSACTION_KEY, TRANSACTION_VALUE)
        return TransactionBlockWriter(transaction, topic)

    def schema_changes(
        self, transaction: StreamTransaction, session: CatalogSession, headers: Headers
    ) -> SchemaChangeTopic | None:
        """Return the writer of schema changes; ``session`` reads table definitions."""
        config = self._config
        if not config.values.schema_changes:
            return None
        return SchemaChangeTopic(
            transaction,
            session,
            self._converter.topic(self._names.schema_changes, *change_schemas(config.database.connector)),
            SchemaChangeSettings(
                config.topics.prefix,
                config.filters.tables,
                headers,
                config.values.schema_comments,
                config.database.connector,
            ),
        )
