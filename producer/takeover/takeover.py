"""Takes over the topics of a Debezium connector, so that ``tailrace produce`` resumes where the connector stopped.

It resolves the offset of the connector, checks that the connector is stopped, and stores the state of Tailrace.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
from pymysql.connections import Connection

from tailrace.producer.config import ProducerConfig
from tailrace.producer.errors import TakeoverError
from tailrace.producer.kafka import state_store as states
from tailrace.producer.kafka.client import KafkaSettings
from tailrace.producer.kafka.generation import ANNOUNCEMENT_KEY, GENERATION_KEY, Generation, announce, claim
from tailrace.producer.kafka.state_store import State, StoredOffset, TableState
from tailrace.producer.kafka.topic_reader import read_compacted
from tailrace.producer.kafka.topics import Topics, own_topics
from tailrace.producer.kafka.transactional_producer import (
    TransactionalProducer,
    reader_transactional_id,
    stream_transactional_id,
)
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.mysql.connection import query
from tailrace.producer.mysql.offset import MySqlOffset, mysql_offset
from tailrace.producer.mysql.source import MySqlSource
from tailrace.producer.serialization.envelope.topic_names import TopicNames
from tailrace.producer.streaming.watermark_record import ends_of_stored_splits
from tailrace.producer.takeover.connect_offsets import find_offset, find_offset_in_file, running_tasks
from tailrace.producer.takeover.debezium_offset import ConnectorOffset
from tailrace.producer.takeover.resume_position import resolve_resume_position
from tailrace.runtime.printable import printable
from tailrace.schemas.names import state_topic, watermarks_topic

OFFSET_TOPIC: Final = "connect-offsets"
STATUS_TOPIC: Final = "connect-status"


@dataclass(frozen=True, slots=True)
class TakeoverOptions:
    """Which connector is taken over, and what the operator confirms."""

    connector: str | None = None
    """None: the only connector that writes under the prefix."""
    offset_topic: str = OFFSET_TOPIC
    offset_file: Path | None = None
    """The offset file of a standalone worker or an embedded engine, used instead of the topics."""
    status_topic: str = STATUS_TOPIC
    stopped: bool = False
    """The connector is stopped, whatever its last status says."""
    force: bool = False
    """Replace existing state of Tailrace."""
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class TakeoverResult:
    """What was stored, or would be stored in a dry run."""

    connector_offset: ConnectorOffset
    stored_offset: StoredOffset
    tables: Sequence[TableId]
    """Captured tables that have a topic already."""
    new_tables: Sequence[TableId]
    """Captured tables without a topic: the connector has written nothing for them, so they get a snapshot."""
    notes: Sequence[str]

    @property
    def position(self) -> MySqlOffset:
        return mysql_offset(self.stored_offset.position)

    def report(self, *, stored: bool) -> str:
        """Return the lines for the terminal."""
        offset, resumed = self.connector_offset, self.stored_offset
        lines = [
            f"connector: {offset.partition.connector}",
            f"stopped at: {offset.file}:{offset.pos}, event {offset.events}, row {offset.rows}",
            f"resumes at: {self.position.file}:{self.position.pos}",
            f"executed GTIDs: {self.position.gtids or 'none'}",
        ]
        lines += [
            f"within {mark.gtid}: {mark.number} rows event(s) are done, and {mark.rows} row(s) of the next one"
            for mark in resumed.transactions
        ]
        lines.append(f"tables taken over: {len(self.tables)}")
        lines += [f"new table, gets a snapshot: {table} (it has no topic)" for table in self.new_tables]
        lines.append("stored; continue with `tailrace produce`" if stored else "nothing was written (dry run)")
        return "".join(f"{printable(line)}\n" for line in lines)


def take_over(
    config: ProducerConfig, options: TakeoverOptions, *, kafka: KafkaSettings, source: MySqlSource
) -> TakeoverResult:
    """Store the offset of a stopped connector as the offset of ``config``'s prefix; a dry run only resolves it.

    Raises TakeoverError if the connector seems to run, its offset cannot be used, or Tailrace has state already.
    """
    if config.database.connector != "mysql":
        raise TakeoverError(
            "the offset of a MariaDB connector cannot be taken over",
            hint="capture under another topic.prefix, which begins with a snapshot",
        )
    prefix = config.topics.prefix
    offset = _connector_offset(kafka, options, prefix)
    notes = [] if options.stopped else _require_stopped(kafka, options, offset.partition.connector)
    topics = Topics(kafka)
    if not topics.missing([state_topic(prefix)]):
        _require_no_state(states.read(kafka, state_topic(prefix), source.read_offset), options)
    captured = source.list_tables(config.filters.tables.includes)
    notes += source.check(captured)
    with closing(source.connect()) as session:
        notes += _other_binlog_readers(session)
        resumed = resolve_resume_position(offset, source, session)
    if _connector_offset(kafka, options, prefix) != offset:
        raise TakeoverError(
            "the connector's offset changed while it was read: the connector is running",
            hint="stop the connector first (PUT /connectors/<name>/stop)",
            connector=offset.partition.connector,
        )
    names = TopicNames(config.topics)
    missing = topics.missing(map(names.table, captured))
    tables = [table for table in captured if names.table(table) not in missing]
    new_tables = [table for table in captured if names.table(table) in missing]
    if not options.dry_run:
        _store(config, kafka, resumed.offset, tables, options)
    return TakeoverResult(offset, resumed.offset, tables, new_tables, [*notes, *resumed.notes])


def _connector_offset(kafka: KafkaSettings, options: TakeoverOptions, prefix: str) -> ConnectorOffset:
    if options.offset_file is not None:
        return find_offset_in_file(options.offset_file, prefix=prefix, connector=options.connector)
    return find_offset(kafka, options.offset_topic, prefix=prefix, connector=options.connector)


def _require_stopped(kafka: KafkaSettings, options: TakeoverOptions, connector: str) -> list[str]:
    if options.offset_file is not None:
        return [f"an offset file has no status: whether the connector {connector} is stopped was not checked"]
    running = running_tasks(kafka, options.status_topic, connector)
    if running is None:
        topic = options.status_topic
        return [f"the topic {topic} does not exist: whether the connector {connector} is stopped was not checked"]
    if running:
        raise TakeoverError(
            f"the last status of the connector {connector} is running",
            hint="stop it (PUT /connectors/<name>/stop, or delete it) and wait until it is stopped; if its worker was "
            "killed and cannot come back, pass --stopped",
            status=", ".join(running),
        )
    return []


def _require_no_state(state: State, options: TakeoverOptions) -> None:
    if (state.offset is not None or state.tables) and not options.force:
        raise TakeoverError(
            "Tailrace has state under this prefix already",
            hint="continue with `tailrace produce`; or pass --force to discard Tailrace's offset and resume from the "
            "connector's",
            tables=len(state.tables),
            gtids=str(mysql_offset(state.offset.position).gtids) if state.offset is not None else "",
        )


def _other_binlog_readers(session: Connection[Any]) -> list[str]:
    """Return notes about binlog readers of the same account: the connector may be one of them."""
    rows = query(
        session,
        "SELECT ID, HOST FROM information_schema.PROCESSLIST "
        "WHERE COMMAND LIKE 'Binlog Dump%%' AND USER = SUBSTRING_INDEX(USER(), '@', 1)",
        (),
    )
    return [
        f"session {number} from {host} reads the binlog under the same account: make sure it is not the connector"
        for number, host in rows
    ]


def _store(
    config: ProducerConfig,
    kafka: KafkaSettings,
    offset: StoredOffset,
    tables: Sequence[TableId],
    options: TakeoverOptions,
) -> None:
    """Write the state in one transaction, after fencing every producer that might write to the topics."""
    prefix, workers = config.topics.prefix, config.snapshot.max_threads
    topic = state_topic(prefix)
    topics = Topics(kafka)
    topics.ensure(own_topics(prefix, replication_factor=config.topics.replication_factor))
    own = announce(kafka, topic, Generation(0, str(uuid.uuid4()))).generation
    with closing(TransactionalProducer(kafka, stream_transactional_id(prefix))) as producer:
        producer.init_transactions()
        former = states.decode(read_compacted(kafka, topic), MySqlOffset.from_json)
        claim(producer, topic, own, former.generation)
        for worker in range(max(former.readers, workers)):
            with closing(TransactionalProducer(kafka, reader_transactional_id(prefix, worker))) as reader:
                reader.init_transactions()
        known = read_compacted(kafka, topic)
        replaced = states.decode(known, MySqlOffset.from_json)
        _require_no_state(replaced, options)
        producer.begin()
        for end in ends_of_stored_splits(replaced, TopicNames(config.topics).table, lambda _table: True):
            producer.send(watermarks_topic(prefix), end.record_key(), end.to_json())
        for key in known.keys() - {GENERATION_KEY, ANNOUNCEMENT_KEY}:
            producer.send(topic, key, None)
        producer.send(topic, states.FORMAT_KEY, states.format_value())
        producer.send(topic, states.READERS_KEY, orjson.dumps({"count": workers}))
        producer.send(topic, states.OFFSET_KEY, offset.to_json())
        for table in tables:
            producer.send(topic, states.table_key(table), TableState(TableMode.STREAMING).to_json())
        if not topics.missing([TopicNames(config.topics).schema_changes]):
            # The connector has written the definitions: readers that apply the statements must see no DROP TABLE.
            names = sorted(map(str, tables))
            producer.send(topic, states.STRUCTURE_KEY, orjson.dumps({"tables": names}))
        producer.commit()
