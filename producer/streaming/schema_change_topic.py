"""Schema changes: DDL statements as records of the prefix's own topic, in the stream's Kafka transaction.

The definitions that exist when the binlog is first read come first, once: a CREATE for every captured table, as the
catalog has it. The state lists the tables for which that was done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tailrace.producer.config.filters import TableFilter
from tailrace.producer.errors import SourceError, SourceUnavailableError
from tailrace.producer.kafka.state_store import STRUCTURE_KEY, structure_key
from tailrace.producer.kafka.transactional_producer import Headers
from tailrace.producer.model.binlog_events import QueryEvent
from tailrace.producer.model.ddl import Change, DdlEffect
from tailrace.producer.model.protocols import CatalogSession, Offset
from tailrace.producer.model.table import CatalogTable, TableId, quote
from tailrace.producer.serialization.envelope.json import Struct, hash_order
from tailrace.producer.serialization.envelope.schema_change import (
    TableDefinition,
    change_key,
    change_value,
    table_change,
    without_counter,
)
from tailrace.producer.serialization.envelope.source_info import source_struct
from tailrace.producer.serialization.record_converter import TopicConverter
from tailrace.producer.streaming.stream_transaction import StreamTransaction
from tailrace.runtime.errors import SchemaError

_KINDS = {Change.CREATE: "CREATE", Change.ALTER: "ALTER", Change.RENAME: "ALTER", Change.DROP: "DROP"}


@dataclass(frozen=True, slots=True)
class SchemaChangeSettings:
    """Which tables are covered, and what the records contain."""

    prefix: str
    filters: TableFilter
    headers: Headers
    comments: bool
    """Whether comments of tables and columns are included."""
    connector: str = "mysql"
    """As in ``source``."""


class SchemaChangeTopic:
    """Writes the topic of schema changes; used by startup, then by the stream's thread."""

    def __init__(
        self,
        transaction: StreamTransaction,
        session: CatalogSession,
        topic: TopicConverter,
        settings: SchemaChangeSettings,
    ) -> None:
        """``session`` reads table definitions."""
        self._transaction = transaction
        self._session = session
        self._topic = topic
        self._settings = settings
        self._known: set[str] = set()

    def write_definitions(self, captured: Sequence[TableId], known: frozenset[str] | None, position: Offset) -> None:
        """Write the definitions of captured tables that are not ``known``.

        The first time (None), write everything that Debezium's snapshot begins with: character set, drops, databases.
        """
        first = known is None
        stored = set(known or ())
        self._known = stored & {str(table) for table in captured}
        new = [table for table in captured if str(table) not in self._known]
        write = partial(self._write_definition, position.to_json())
        if first:
            self._write_preamble(write, new)
        for name in dict.fromkeys(table.database for table in new):
            if first:
                write(name, None, f"DROP DATABASE IF EXISTS {quote(name)}")
                charset, collation = self._session.database_charset(name)
                write(name, None, f"CREATE DATABASE {quote(name)} CHARSET {charset} COLLATE {collation}")
                write(name, None, f"USE {quote(name)}")
            for table, found in self._session.describe_all([table for table in new if table.database == name]):
                described = None if isinstance(found, SchemaError) else self._describe(table, found)
                if described is not None:
                    write(name, table.table, described.create_statement, [self._change("CREATE", table, described)])
        self._known |= {str(table) for table in new}
        if first:
            self._transaction.store(STRUCTURE_KEY, b"{}")
        self._store(stored)

    def _write_preamble(self, write: Callable[..., None], tables: Iterable[TableId]) -> None:
        charset, collation = self._session.server_charset()
        write("", None, f"SET character_set_server={charset}, collation_server={collation}")
        for table in tables:
            write(
                table.database,
                table.table,
                f"DROP TABLE IF EXISTS {table.quoted}",
                [self._change("DROP", table, None)],
            )

    def write_statement(self, event: QueryEvent, effects: Sequence[DdlEffect]) -> None:
        """Write a statement's effects on captured tables and databases; nothing if it has none."""
        effects = [effect for effect in effects if self._is_captured(effect)]
        known = set(self._known)
        for effect in effects:
            name = effect.table.database
            named = {str(e.table): e.table for e in effects if e.change in _KINDS and e.table.database == name}
            source = source_struct(
                self._settings.prefix,
                database=name,
                # As from Debezium: null for a statement on a database, empty for one on an index.
                table=",".join(named[each].table for each in hash_order(list(named))) if effect.table.table else None,
                ts_us=(event.commit_ts_us // 1000 or event.ts * 1000) * 1000,
                file=event.file,
                pos=event.query_pos,
                server_id=event.server_id,
                gtid=event.gtid,
                connector=self._settings.connector,
            )
            changes = []
            if effect.change in _KINDS:
                dropped = effect.change is Change.DROP
                described = None if dropped else self._describe(effect.table)
                changes.append(self._change(_KINDS[effect.change], effect.table, described))
                self._known.discard(str(effect.renamed_from or effect.table))
                if not dropped and self._settings.filters.includes(effect.table):
                    self._known.add(str(effect.table))
            self._write(name, source, effect.sql, changes)
        self._store(known)

    def _change(self, kind: str, table: TableId, described: TableDefinition | None) -> Struct:
        return table_change(kind, table, described, comments=self._settings.comments)

    def _is_captured(self, effect: DdlEffect) -> bool:
        filters = self._settings.filters
        if effect.change in {Change.TRUNCATE, Change.EXCHANGE}:
            return False
        if not effect.table.table:
            return filters.includes_database(effect.table.database)
        return filters.includes(effect.table) or (
            effect.renamed_from is not None and filters.includes(effect.renamed_from)
        )

    def _describe(self, table: TableId, found: CatalogTable | None = None) -> TableDefinition | None:
        """Return the current definition of a table, or None if it no longer exists; ``found`` was read just before.

        Two queries give it. They are repeated if a statement has altered the table between them.
        """
        statement = self._create_statement(table)
        try:
            while statement is not None:
                described = TableDefinition(found or self._session.describe(table), statement)
                if described.agrees:
                    return described
                before, statement = statement, self._create_statement(table)
                if found is None and statement is not None and without_counter(statement) == without_counter(before):
                    return described  # the catalog prints a type in another way
                found = None
        except SchemaError:
            pass
        return None

    def _create_statement(self, table: TableId) -> str | None:
        try:
            return self._session.create_statement(table)
        except SourceUnavailableError:
            raise
        except SourceError:
            return None

    def _store(self, stored: set[str]) -> None:
        """Store what differs from ``stored``; one record for each table, so that none grows with their number."""
        for table in sorted(self._known ^ stored):
            self._transaction.store(structure_key(table), b"{}" if table in self._known else None)

    def _write(self, name: str, source: Struct, ddl: str, changes: Sequence[Struct]) -> None:
        value = change_value(source, ts_ms=time.time_ns() // 1_000_000, database=name, ddl=ddl, changes=changes)
        record = self._topic.record(change_key(name), value)
        self._transaction.tell(self._topic.name, *record, self._settings.headers, partition=0, statement=ddl[:200])

    def _write_definition(
        self, position: Mapping[str, Any], database: str, table: str | None, ddl: str, changes: Sequence[Struct] = ()
    ) -> None:
        """Write a definition read at startup: its source is the start position and the clock."""
        source = source_struct(
            self._settings.prefix,
            database=database,
            table=table,
            ts_us=time.time_ns() // 1000,
            file=position["file"],
            pos=position["pos"],
            snapshot=True,
            connector=self._settings.connector,
        )
        self._write(database, source, ddl, changes)
