"""Publishes what ALTER TABLE did to the columns of captured tables (schemas/alteration.py), and reads them if told to.

The definition of a column before a statement is that of the version in use, or of an earlier statement since then. It
is unknown before the first change of the table after a start: then the statement counts as one that changes values.

Invariant: a definition is used only if no statement has replaced it since. What may give the name another table makes
the columns unknown, and the version in use with them, until the next change brings a version.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import structlog

from tailrace.producer.model.binlog_events import QueryEvent, TableVersion
from tailrace.producer.model.ddl import Change, ColumnAction, DdlEffect
from tailrace.producer.model.table import Column, TableId
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.model.value_conversion import as_column, is_strict, keeps_values
from tailrace.producer.streaming.context import StreamContext
from tailrace.producer.streaming.new_tables import NewTables
from tailrace.producer.streaming.table_versions import TableVersions
from tailrace.schemas.alteration import Alteration, AlterationKind, ColumnChange
from tailrace.schemas.names import schemas_topic
from tailrace.schemas.sequence import Sequence

log = structlog.get_logger(__name__)

_LEAVES_COLUMNS: Final = frozenset({Change.INDEX, Change.TRUNCATE, Change.DATABASE, Change.EXCHANGE})
"""Statements after which a table has the columns that it had; the tables of an EXCHANGE have the same ones."""
_SHOWN: Final = 10_000
"""Characters of a statement that a record includes, for people: the record must not be too large for Kafka."""


class _Known(NamedTuple):
    """The columns of a version in use, as statements have changed them since."""

    definition: TableVersion | None
    columns: dict[str, Column]


class Alterations:
    """Publishes alterations; used by the stream's thread."""

    def __init__(self, context: StreamContext, versions: TableVersions, new_tables: NewTables) -> None:
        self._context = context
        self._versions = versions
        self._new_tables = new_tables
        self._known: dict[TableId, _Known] = {}

    def on_statement(self, event: QueryEvent, effect: DdlEffect) -> None:
        """Publish what a statement did to the columns of a captured table."""
        if effect.change is not Change.ALTER:
            # CREATE TABLE IF NOT EXISTS makes a table only after its end, which the log has.
            if effect.change not in _LEAVES_COLUMNS and not effect.may_exist:
                self._forget(effect)
            return
        table = effect.table
        reads = self._context.settings.reads_after_alter and self._new_tables.is_read(table)
        stale = self._publish(event, effect, strict=is_strict(event.sql_mode), reads=reads)
        if stale and reads:
            self._new_tables.on_arrived(table, self._context.transaction.offset.position.after(event))
        elif stale:
            log.warning(
                "a statement changed rows without row events: the topic keeps their old values",
                table=str(table),
                columns=[change.column for change in stale],
                statement=event.sql[:200],
                hint="send a signal execute-snapshot for the table, or set tailrace.snapshot.altered.tables=true",
            )

    def on_copied(self, event: QueryEvent, effect: DdlEffect) -> bool:
        """Publish what the columns of a copy are for those of the table that it is about to replace.

        Return whether its rows must be read: some may be missing, or have other values, as those of a renamed column.
        """
        table = effect.table
        if not effect.columns:
            return not effect.keeps_rows
        tracked = self._context.registry.tables.get(table)
        renamed = any(action.kind == "rename" for action in effect.columns)
        stale = self._publish(event, effect, strict=False, reads=self._new_tables.is_read(table))
        return bool(stale) or renamed or not effect.keeps_rows or tracked is None

    def _publish(self, event: QueryEvent, effect: DdlEffect, *, strict: bool, reads: bool) -> list[ColumnChange]:
        """Publish a statement; return the changes whose values only the rows have, which are read if ``reads``."""
        tracked = self._context.registry.tables.get(effect.table)
        if tracked is None or tracked.mode is TableMode.ERROR:
            self._forget(effect)
            return []
        if not effect.columns:
            return []
        context, table = self._context, effect.table
        changes = tuple(self._changes(table, effect.columns, strict=strict))
        if not changes:
            return []
        stale = [change for change in changes if change.needs_rows]
        alteration = Alteration(
            topic=context.tables.topic(table),
            database=table.database,
            table=table.table,
            statement=effect.sql[:_SHOWN],
            changes=changes,
            sequence=Sequence.at(context.transaction.offset.epoch, event.file, event.query_pos),
            reread=bool(stale) and reads,
        )
        topic = schemas_topic(context.settings.prefix)
        context.transaction.send(topic, alteration.record_key(), alteration.to_json())
        self._versions.republish(table)
        context.replay.on_alteration(context.transaction, table, event.sql)
        return stale

    def _changes(self, table: TableId, actions: tuple[ColumnAction, ...], *, strict: bool) -> Iterator[ColumnChange]:
        known, tables = self._columns(table), self._context.tables
        before = dict(known)
        for action in actions:
            _define(known, action)
            name, old = tables.field_name(action.column), tables.field_name(action.old)
            published = not action.column or tables.publishes(table, action.column)
            if action.kind == "rename":
                moved = before.get(action.old.lower())
                if moved is not None:
                    known[action.column.lower()] = moved
                if tables.publishes(table, action.old):
                    renamed = ColumnChange(AlterationKind.RENAME, name, old)
                    yield renamed if published else ColumnChange(AlterationKind.DROP, old)
                elif published:
                    yield ColumnChange(AlterationKind.ADD, name)
            elif not published:
                continue
            elif action.kind == "add":
                added = tables.added_column(table, action)
                if added is not None:
                    yield added
            elif action.kind == "drop":
                yield ColumnChange(AlterationKind.DROP, name)
            elif action.kind == "convert":
                if not strict:
                    yield ColumnChange(AlterationKind.CONVERT, "")
            elif not _kept(before.get(action.old.lower()), action, strict=strict):
                yield ColumnChange(AlterationKind.CONVERT, name)

    def _columns(self, table: TableId) -> dict[str, Column]:
        """Return the columns whose definitions are known, by lower-case name; the caller removes what changes."""
        definition, known = self._versions.definition(table), self._known.get(table)
        if known is None or known.definition is not definition:
            columns = () if definition is None else definition.columns
            known = self._known[table] = _Known(definition, {column.name.lower(): column for column in columns})
        return known.columns

    def _forget(self, effect: DdlEffect) -> None:
        tables = [effect.table] if effect.renamed_from is None else [effect.table, effect.renamed_from]
        if effect.change is Change.DROP_DATABASE:
            known = {*self._known, *self._context.registry.tables}
            tables = [table for table in known if table.database == effect.table.database]
        for table in tables:
            self._known.pop(table, None)
            self._versions.forget(table)


def _define(known: dict[str, Column], action: ColumnAction) -> None:
    known.pop(action.column.lower(), None)
    known.pop(action.old.lower(), None)
    defined = None if action.definition is None else as_column(action.column, action.definition)
    if defined is not None:
        known[action.column.lower()] = defined


def _kept(before: Column | None, action: ColumnAction, *, strict: bool) -> bool:
    return (
        before is not None and action.definition is not None and keeps_values(before, action.definition, strict=strict)
    )
