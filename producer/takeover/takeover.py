"""Takes a connector's topics over: finds its place, checks that nothing else writes there, stores Tailrace's state."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pymysql.connections import Connection

from tailrace.producer.app.connection_settings import kafka_settings, source_settings
from tailrace.producer.app.startup import reader_transactional_id, stream_transactional_id
from tailrace.producer.config import ProducerConfig
from tailrace.producer.errors import TakeoverError
from tailrace.producer.kafka import state_store as states
from tailrace.producer.kafka.client import KafkaSettings, translate
from tailrace.producer.kafka.state_store import State, StoredOffset, TableState
from tailrace.producer.kafka.topics import COMPACTED, Topics, TopicSpec
from tailrace.producer.kafka.transactional_producer import TransactionalProducer
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.catalog import list_tables
from tailrace.producer.mysql.connection import connect, query
from tailrace.producer.mysql.offset import MySqlOffset, mysql_offset
from tailrace.producer.mysql.prerequisites import check
from tailrace.producer.serialization.envelope.topic_names import TopicNames
from tailrace.producer.takeover.connect_offsets import find_offset, find_offset_in_file, running_parts
from tailrace.producer.takeover.debezium_offset import ConnectorOffset
from tailrace.producer.takeover.resume_position import BinlogSource, resolve_resume_position
from tailrace.schemas.names import schemas_topic, state_topic, watermarks_topic

OFFSET_TOPIC: Final = "connect-offsets"
STATUS_TOPIC: Final = "connect-status"


@dataclass(frozen=True, slots=True)
class TakeoverOptions:
    """What is to be taken over, and what the operator vouches for."""

    connector: str | None = None
    """None: the one that writes under the prefix."""
    offset_topic: str = OFFSET_TOPIC
    offset_file: Path | None = None
    """Of a standalone worker or an embedded engine, instead of the topics."""
    status_topic: str = STATUS_TOPIC
    stopped: bool = False
    """The connector is stopped, whatever its last status says."""
    force: bool = False
    """State that is there already is replaced."""
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class TakeoverResult:
    """What was stored (or, in a dry run, would be)."""

    offset: ConnectorOffset
    log: StoredOffset
    adopted: Sequence[TableId]
    unread: Sequence[TableId]
    """Captured tables without a topic: the connector has written nothing of them, so they are read as new ones."""
    notes: Sequence[str]

    @property
    def position(self) -> MySqlOffset:
        """Return the offset from which the binlog reader resumes."""
        return mysql_offset(self.log.position)


def take_over(config: ProducerConfig, wish: TakeoverOptions) -> TakeoverResult:
    """Store the place where a connector stopped as that of ``config``'s prefix; in a dry run, only find it.

    Raises AdoptError where the connector seems to run, its offset cannot be taken over, or there is state already.
    """
    kafka, prefix = kafka_settings(config), config.topics.prefix
    offset = _offset(kafka, wish, prefix)
    notes = [] if wish.stopped else _require_stopped(kafka, wish, offset.owner.connector)
    known = existing_topics(kafka)
    if state_topic(prefix) in known:
        _require_no_state(states.read(kafka, state_topic(prefix), MySqlOffset.from_json), wish)
    settings = source_settings(config)
    with closing(connect(settings)) as session:
        for statement in config.database.initial_statements:
            query(session, statement)
        wanted = config.filters.tables.includes
        captured = list_tables(session, wanted)
        notes += check(session, captured, server_id=config.database.server_id)
        notes += _other_readers(session)
        place = resolve_resume_position(offset, BinlogSource(session, settings, config.database.server_id, wanted))
    if _offset(kafka, wish, prefix) != offset:
        raise TakeoverError(
            "the connector's offset has moved while it was read: it is running",
            hint="stop the connector first (PUT /connectors/<name>/stop)",
            connector=offset.owner.connector,
        )
    names = TopicNames(config.topics)
    done = [table for table in captured if names.table(table) in known]
    unread = [table for table in captured if names.table(table) not in known]
    if not wish.dry_run:
        _store(config, kafka, place.state, done, wish)
    return TakeoverResult(offset, place.state, done, unread, [*notes, *place.notes])


def _offset(kafka: KafkaSettings, wish: TakeoverOptions, prefix: str) -> ConnectorOffset:
    if wish.offset_file is not None:
        return find_offset_in_file(wish.offset_file, prefix=prefix, connector=wish.connector)
    return find_offset(kafka, wish.offset_topic, prefix=prefix, connector=wish.connector)


def _require_stopped(kafka: KafkaSettings, wish: TakeoverOptions, connector: str) -> list[str]:
    if wish.offset_file is not None:
        return [f"offsets in a file say nothing of it: whether the connector {connector} is stopped was not checked"]
    running = running_parts(kafka, wish.status_topic, connector)
    if running is None:
        return [f"there is no topic {wish.status_topic}: whether the connector {connector} is stopped was not checked"]
    if running:
        raise TakeoverError(
            f"the connector {connector} was last said to be running",
            hint="stop it (PUT /connectors/<name>/stop, or delete it) and wait until it has; if its worker was killed "
            "and cannot come back, say so with --stopped",
            status=", ".join(running),
        )
    return []


def _require_no_state(state: State, wish: TakeoverOptions) -> None:
    if (state.log is not None or state.tables) and not wish.force:
        raise TakeoverError(
            "there is state of Tailrace under this prefix already",
            hint="go on with `tailrace produce`; or, to forget how far Tailrace has come and start at the connector's "
            "place, add --force",
            tables=len(state.tables),
            gtids=str(mysql_offset(state.log.position).gtids) if state.log is not None else "",
        )


def existing_topics(kafka: KafkaSettings) -> set[str]:
    """Return the names of all topics."""
    try:
        return set(AdminClient(kafka.common()).list_topics(timeout=kafka.request_timeout_s).topics)
    except KafkaException as failure:
        raise translate(failure, "listing topics") from failure


def _other_readers(session: Connection[Any]) -> list[str]:
    """Tell of log readers of the same account: the connector may be one of them."""
    rows = query(
        session,
        "SELECT ID, HOST FROM information_schema.PROCESSLIST "
        "WHERE COMMAND LIKE 'Binlog Dump%%' AND USER = SUBSTRING_INDEX(USER(), '@', 1)",
        (),
    )
    return [
        f"session {number} from {host} reads the source's log under the same account: make sure it is not the connector"
        for number, host in rows
    ]


def _store(
    config: ProducerConfig, kafka: KafkaSettings, log: StoredOffset, done: Sequence[TableId], wish: TakeoverOptions
) -> None:
    """Write the state in one transaction, after fencing every producer that might write to the topics."""
    prefix, workers = config.topics.prefix, config.snapshot.max_threads
    topic = state_topic(prefix)
    Topics(kafka).ensure(
        TopicSpec(name, config=policy, exact_partitions=True, replication_factor=config.topics.replication_factor)
        for name, policy in ((topic, COMPACTED), (schemas_topic(prefix), COMPACTED), (watermarks_topic(prefix), {}))
    )
    with closing(TransactionalProducer(kafka, stream_transactional_id(prefix))) as publisher:
        publisher.fence()
        known = states.read_compacted(kafka, topic)
        for worker in range(max(states.decode(known, MySqlOffset.from_json).readers, workers)):
            with closing(TransactionalProducer(kafka, reader_transactional_id(prefix, worker))) as reader:
                reader.fence()
        known = states.read_compacted(kafka, topic)
        _require_no_state(states.decode(known, MySqlOffset.from_json), wish)
        publisher.begin()
        for key in known:
            publisher.send(topic, key, None)
        publisher.send(topic, states.READERS_KEY, orjson.dumps({"count": workers}))
        publisher.send(topic, states.OFFSET_KEY, log.to_json())
        for table in done:
            publisher.send(topic, states.table_key(table), TableState(phase="log").to_json())
        publisher.commit()
