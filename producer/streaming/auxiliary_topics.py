"""What is written beside the rows, each part only where it is configured: heartbeats, schema changes, transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pymysql.connections import Connection

from tailrace.producer.config import ProducerConfig
from tailrace.producer.kafka.topics import TopicSpec
from tailrace.producer.kafka.transactional_producer import Headers, TransactionalProducer
from tailrace.producer.mysql.reconnecting import ReconnectingSession
from tailrace.producer.serialization.envelope.heartbeat import HEARTBEAT_KEY, HEARTBEAT_VALUE
from tailrace.producer.serialization.envelope.schema_change import CHANGE_KEY, CHANGE_VALUE
from tailrace.producer.serialization.envelope.topic_names import TopicNames
from tailrace.producer.serialization.envelope.transaction import TRANSACTION_KEY, TRANSACTION_VALUE
from tailrace.producer.serialization.record_converter import RecordConverter
from tailrace.producer.streaming.heartbeat import Heartbeat, HeartbeatAction
from tailrace.producer.streaming.offset import StreamOffset
from tailrace.producer.streaming.schema_change_topic import SchemaChangeTopic
from tailrace.producer.streaming.transaction_metadata import TransactionBlockWriter


@dataclass(frozen=True, slots=True)
class AuxiliaryTopics:
    """The parts that are on; None for those that are not. All are used by the log reader's thread."""

    heartbeats: Heartbeat | None = None
    transactions: TransactionBlockWriter | None = None
    schema_changes: SchemaChangeTopic | None = None
    action: HeartbeatAction | None = None

    def close(self) -> None:
        """End what runs beside the log."""
        if self.action is not None:
            self.action.close()


def topics(config: ProducerConfig, names: TopicNames) -> Iterator[TopicSpec]:
    """Yield the topics of what is on. Schema changes are in one order, so they have one partition."""
    topics, values = config.topics, config.values
    replicas = topics.replication_factor
    if config.heartbeat.interval_ms:
        yield TopicSpec(names.heartbeats, replication_factor=replicas)
    if values.schema_changes:
        yield TopicSpec(names.schema_changes, replication_factor=replicas, exact_partitions=True)
    if values.transaction_metadata:
        yield TopicSpec(
            names.transactions,
            partitions=topics.partitions,
            replication_factor=replicas,
            config=topics.settings,
        )


def schema_changes(
    config: ProducerConfig, names: TopicNames, session: ReconnectingSession, headers: Headers
) -> SchemaChangeTopic | None:
    """Return the writer of schema changes, where they are wanted."""
    if not config.values.schema_changes:
        return None
    return SchemaChangeTopic(
        session,
        prefix=config.topics.prefix,
        topic=RecordConverter(config.converters).topic(names.schema_changes, CHANGE_KEY, CHANGE_VALUE),
        filters=config.filters.tables,
        headers=headers,
        comments=config.values.schema_comments,
    )


def open_auxiliary_topics(
    config: ProducerConfig,
    names: TopicNames,
    publisher: TransactionalProducer,
    place: StreamOffset,
    *,
    connect: Callable[[], Connection[Any]],
    schema_changes: SchemaChangeTopic | None,
) -> AuxiliaryTopics:
    """Return what is on. ``connect`` opens a session that the caller does not own."""
    beat, beside = config.heartbeat, RecordConverter(config.converters)
    action = (
        HeartbeatAction(ReconnectingSession(connect), beat.action_query)
        if beat.interval_ms and beat.action_query
        else None
    )
    return AuxiliaryTopics(
        heartbeats=Heartbeat(
            publisher,
            beside.topic(names.heartbeats, HEARTBEAT_KEY, HEARTBEAT_VALUE),
            config.topics.prefix,
            interval_s=beat.interval_ms / 1000,
            action=action,
        )
        if beat.interval_ms
        else None,
        transactions=TransactionBlockWriter(
            publisher, beside.topic(names.transactions, TRANSACTION_KEY, TRANSACTION_VALUE), place
        )
        if config.values.transaction_metadata
        else None,
        schema_changes=schema_changes,
        action=action,
    )
