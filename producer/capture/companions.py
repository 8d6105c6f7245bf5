"""What is written beside the rows, each part only where it is configured: heartbeats, schema changes, transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pymysql.connections import Connection

from producer.capture.beside import Beside
from producer.capture.heartbeats import Action, Heartbeats
from producer.capture.metadata import TransactionRecords
from producer.capture.place import Place
from producer.capture.schema_changes import SchemaChanges
from producer.config import ProducerConfig
from producer.database.session import Session
from producer.envelope.heartbeat import HEARTBEAT_KEY, HEARTBEAT_VALUE
from producer.envelope.naming import TopicNames
from producer.envelope.schema_change import CHANGE_KEY, CHANGE_VALUE
from producer.envelope.transaction import TRANSACTION_KEY, TRANSACTION_VALUE
from producer.kafka.publisher import Headers, Publisher
from producer.kafka.topics import TopicSpec


@dataclass(frozen=True, slots=True)
class Companions:
    """The parts that are on; None for those that are not. All are used by the log reader's thread."""

    heartbeats: Heartbeats | None = None
    transactions: TransactionRecords | None = None
    schema_changes: SchemaChanges | None = None
    action: Action | None = None

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
    config: ProducerConfig, names: TopicNames, session: Session, headers: Headers
) -> SchemaChanges | None:
    """Return the writer of schema changes, where they are wanted."""
    if not config.values.schema_changes:
        return None
    return SchemaChanges(
        session,
        prefix=config.topics.prefix,
        topic=Beside(config.converters).topic(names.schema_changes, CHANGE_KEY, CHANGE_VALUE),
        filters=config.filters.tables,
        headers=headers,
        comments=config.values.schema_comments,
    )


def companions(
    config: ProducerConfig,
    names: TopicNames,
    publisher: Publisher,
    place: Place,
    *,
    connect: Callable[[], Connection[Any]],
    schema_changes: SchemaChanges | None,
) -> Companions:
    """Return what is on. ``connect`` opens a session that the caller does not own."""
    beat, beside = config.heartbeat, Beside(config.converters)
    action = Action(Session(connect), beat.action_query) if beat.interval_ms and beat.action_query else None
    return Companions(
        heartbeats=Heartbeats(
            publisher,
            beside.topic(names.heartbeats, HEARTBEAT_KEY, HEARTBEAT_VALUE),
            config.topics.prefix,
            interval_s=beat.interval_ms / 1000,
            action=action,
        )
        if beat.interval_ms
        else None,
        transactions=TransactionRecords(
            publisher, beside.topic(names.transactions, TRANSACTION_KEY, TRANSACTION_VALUE), place
        )
        if config.values.transaction_metadata
        else None,
        schema_changes=schema_changes,
        action=action,
    )
