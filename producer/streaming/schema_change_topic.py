"""Schema changes: DDL as records in the topic of the prefix, in the log's Kafka transaction.

What was there before the log begins comes first, once: for every captured table its CREATE, as the catalog has it.
The state says for which tables that was done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

import orjson
from pymysql.connections import Connection

from tailrace.producer.config.filters import TableFilter
from tailrace.producer.errors import SourceError, SourceUnavailableError
from tailrace.producer.kafka.state_store import STRUCTURE_KEY
from tailrace.producer.kafka.transactional_producer import Headers, TransactionalProducer
from tailrace.producer.model.binlog_events import QueryEvent
from tailrace.producer.model.protocols import Offset
from tailrace.producer.model.table import TableId, quote
from tailrace.producer.mysql import connection as database
from tailrace.producer.mysql.catalog import read_table
from tailrace.producer.mysql.ddl import Change, DdlEffect
from tailrace.producer.mysql.reconnecting import ReconnectingSession
from tailrace.producer.serialization.envelope.java_hash_order import hash_order
from tailrace.producer.serialization.envelope.json import Struct
from tailrace.producer.serialization.envelope.schema_change import (
    TableDefinition,
    change_key,
    change_value,
    table_change,
)
from tailrace.producer.serialization.envelope.source_info import source_struct
from tailrace.producer.serialization.record_converter import TopicConverter
from tailrace.runtime.errors import SchemaError
from tailrace.schemas.names import state_topic

_KINDS = {Change.CREATE: "CREATE", Change.ALTER: "ALTER", Change.RENAME: "ALTER", Change.DROP: "DROP"}


class SchemaChangeTopic:
    """Writes the topic of schema changes; used by the log reader's thread."""

    def __init__(
        self,
        session: ReconnectingSession,
        *,
        prefix: str,
        topic: TopicConverter,
        filters: TableFilter,
        headers: Headers,
        comments: bool = False,
    ) -> None:
        """``comments``: tell those of tables and columns."""
        self._session = session
        self._prefix = prefix
        self._topic = topic
        self._filters = filters
        self._headers = headers
        self._comments = comments
        self._known: set[str] = set()

    def structure(
        self,
        publisher: TransactionalProducer,
        captured: Sequence[TableId],
        known: frozenset[str] | None,
        position: Offset,
    ) -> None:
        """Write the definitions of captured tables that are not ``known``, into the open Kafka transaction.

        The first time (None) all that Debezium's snapshot begins with: character set, drops, databases.
        """
        first = known is None
        self._known = set(known or ()) & {str(table) for table in captured}
        new = [table for table in captured if str(table) not in self._known]
        write = _Snapshot(self._prefix, position, self._write_into(publisher))
        if first:
            self._preamble(write, new)
        for name in dict.fromkeys(table.database for table in new):
            if first:
                write(name, None, f"DROP DATABASE IF EXISTS {quote(name)}")
                charset, collation = self._session.run(lambda c, name=name: _charset(c, name))  # type: ignore[misc]
                write(name, None, f"CREATE DATABASE {quote(name)} CHARSET {charset} COLLATE {collation}")
                write(name, None, f"USE {quote(name)}")
            for table in (table for table in new if table.database == name):
                described = self._described(table)
                if described is not None:
                    write(name, table.table, described.create_statement, [self._change("CREATE", table, described)])
        self._known |= {str(table) for table in new}
        self._store(publisher)

    def _preamble(self, write: _Snapshot, tables: Iterable[TableId]) -> None:
        charset, collation = self._session.query("SELECT @@character_set_server, @@collation_server")[0]
        write("", None, f"SET character_set_server={charset}, collation_server={collation}")
        for table in tables:
            write(
                table.database,
                table.table,
                f"DROP TABLE IF EXISTS {table.quoted}",
                [self._change("DROP", table, None)],
            )

    def statement(self, publisher: TransactionalProducer, event: QueryEvent, parts: Sequence[DdlEffect]) -> None:
        """Write what a statement of the log does to captured tables and databases; nothing where it does nothing."""
        parts = [part for part in parts if self._concerns(part)]
        if not parts:
            return
        publisher.begin()
        write = self._write_into(publisher)
        known = set(self._known)
        for part in parts:
            name = part.table.database
            named = [str(p.table) for p in parts if p.change in _KINDS and p.table.database == name]
            source = source_struct(
                self._prefix,
                database=name,
                table=",".join(table.partition(".")[2] for table in hash_order(named)),
                ts_us=(event.commit_ts_us // 1000 or event.ts * 1000) * 1000,
                file=event.file,
                pos=event.query_pos,
                server_id=event.server_id,
                gtid=event.gtid,
            )
            changes = []
            if part.change in _KINDS:
                gone = part.change is Change.DROP
                described = None if gone else self._described(part.table)
                changes.append(self._change(_KINDS[part.change], part.table, described))
                self._known.discard(str(part.former or part.table))
                if not gone and self._filters.includes(part.table):
                    self._known.add(str(part.table))
            write(name, source, part.sql, changes)
        if self._known != known:
            self._store(publisher)

    def _change(self, kind: str, table: TableId, described: TableDefinition | None) -> Struct:
        return table_change(kind, table, described, comments=self._comments)

    def _concerns(self, part: DdlEffect) -> bool:
        if part.change is Change.TRUNCATE:
            return False
        if not part.table.table:
            return self._filters.includes_database(part.table.database)
        return self._filters.includes(part.table) or (part.former is not None and self._filters.includes(part.former))

    def _described(self, table: TableId) -> TableDefinition | None:
        """Return the table as it is now, or None where it is gone by now."""
        try:
            return self._session.run(lambda connection: _describe(connection, table))
        except SourceUnavailableError:
            raise
        except (SourceError, SchemaError):
            return None

    def _store(self, publisher: TransactionalProducer) -> None:
        publisher.send(state_topic(self._prefix), STRUCTURE_KEY, orjson.dumps({"tables": sorted(self._known)}))

    def _write_into(self, publisher: TransactionalProducer) -> Callable[[str, Struct, str, Sequence[Struct]], None]:
        def write(name: str, source: Struct, ddl: str, changes: Sequence[Struct]) -> None:
            value = change_value(source, ts_ms=time.time_ns() // 1_000_000, database=name, ddl=ddl, changes=changes)
            record = self._topic.record(change_key(name), value)
            publisher.send(self._topic.name, *record, self._headers, partition=0)

        return write


class _Snapshot:
    """Writes records of the structure read at the start: their source is the position and the clock."""

    def __init__(
        self, prefix: str, position: Offset, write: Callable[[str, Struct, str, Sequence[Struct]], None]
    ) -> None:
        self._prefix = prefix
        self._position = position.to_json()
        self._write = write

    def __call__(self, database: str, table: str | None, ddl: str, changes: Sequence[Struct] = ()) -> None:
        source = source_struct(
            self._prefix,
            database=database,
            table=table,
            ts_us=time.time_ns() // 1000,
            file=self._position["file"],
            pos=self._position["pos"],
            snapshot=True,
        )
        self._write(database, source, ddl, changes)


def _describe(connection: Connection, table: TableId) -> TableDefinition:
    created = str(database.query(connection, f"SHOW CREATE TABLE {table.quoted}")[0][1])
    return TableDefinition(read_table(connection, table), created)


def _charset(connection: Connection, name: str) -> tuple[str, str]:
    rows = database.query(
        connection,
        "SELECT DEFAULT_CHARACTER_SET_NAME, DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA "
        "WHERE SCHEMA_NAME = %s",
        (name,),
    )
    return str(rows[0][0]), str(rows[0][1])
