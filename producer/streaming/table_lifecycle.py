"""Effects of DDL statements in the binlog on captured tables, during their snapshot and after it.

A table that is dropped or renamed is removed: what its splits wrote stays in Kafka, as with Debezium. A table that gets
its name later is a new table: the binlog has all of its rows if it was created, and an incremental snapshot reads them
if it was renamed. The same snapshot reads rows that a statement moves into a table.

TRUNCATE writes ``op: t`` at its position, if such records are configured; while the table waits, not at all; during an
incremental snapshot when the open splits are committed. During an initial snapshot there is no right position: no more
splits are opened, the open ones are committed, and one Kafka transaction writes the record, the missing END
certificates, the removal of table and splits from the state, and the offset. Then the snapshot of the table starts
again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import structlog

from tailrace.producer.kafka.transactional_producer import Headers
from tailrace.producer.model.binlog_events import QueryEvent
from tailrace.producer.model.ddl import Change, DdlEffect
from tailrace.producer.model.protocols import Offset
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableMode, TablePresence
from tailrace.producer.serialization.envelope.headers import event_header
from tailrace.producer.streaming import former_tables
from tailrace.producer.streaming.alterations import Alterations
from tailrace.producer.streaming.context import StreamContext
from tailrace.producer.streaming.new_tables import Arrival, NewTables
from tailrace.producer.streaming.online_schema_change import OnlineSwaps
from tailrace.producer.streaming.refused_changes import RefusedChanges
from tailrace.producer.streaming.schema_change_topic import SchemaChangeTopic
from tailrace.producer.streaming.snapshot_coordinator import SnapshotCoordinator
from tailrace.producer.streaming.table_versions import TableVersions
from tailrace.producer.streaming.tracked_table import TrackedTable
from tailrace.runtime.errors import Retryable, TailraceError
from tailrace.schemas.rowkind import Op

log = structlog.get_logger(__name__)


_WITHOUT_EVENTS: Final = (
    "delete the rows before they go with their partition; if readers shall lose them too, rename the table away and "
    "back: it is read again, and the consumer removes what it does not have; so it does by itself with "
    "tailrace.snapshot.altered.tables=true"
)


_GRANT: Final = re.compile(r"\s*(?:GRANT|SET\s+DEFAULT\s+ROLE)\b", re.IGNORECASE)
"""Statements that give privileges."""


class SnapshotRestartError(TailraceError, Retryable):
    """A new session is needed: for a table that was truncated during its initial snapshot, or that may be read now.

    The stored state says what it does.
    """


class TableLifecycle:
    """Applies DDL statements; used by the stream's thread."""

    def __init__(
        self,
        context: StreamContext,
        coordinator: SnapshotCoordinator,
        schema_changes: SchemaChangeTopic | None,
        *,
        versions: TableVersions,
        new_tables: NewTables,
        refused: RefusedChanges,
    ) -> None:
        self._alterations = Alterations(context, versions, new_tables)
        self._context = context
        self._registry = context.registry
        self._coordinator = coordinator
        self._schema_changes = schema_changes
        self._versions = versions
        self._new_tables = new_tables
        self._refused = refused
        self._swaps = OnlineSwaps(new_tables.lacks_rows)

    def apply(self, event: QueryEvent, effects: Sequence[DdlEffect]) -> list[TableId]:
        """Apply the effects of a statement and write its records; return tables that need a new session."""
        confined_to = self._refused.confined_to
        self._versions.forget_definitions(event.redefined)
        arrivals: dict[TableId, Arrival] = {}
        for alteration, former in self._swaps.on_statement(event, effects):
            arrivals[former] = Arrival(read=False)  # it is about to be dropped
            with confined_to(alteration.table, event):
                read = self._alterations.on_copied(event, alteration)
                arrivals[alteration.table] = Arrival(read=read, same=not read)
        for effect in effects:  # after the swaps: a RENAME makes the columns unknown that a copy is compared with
            with confined_to(effect.table, event):
                self._versions.on_statement(event, effect)
                self._alterations.on_statement(event, effect)
        restarting = []
        for effect in effects:
            with confined_to(effect.table, event):
                if self._apply_to_tables(event, effect, arrivals.get(effect.table, Arrival())):
                    restarting.append(effect.table)
        if self._schema_changes is not None:
            self._schema_changes.write_statement(event, effects)
        if not effects and _GRANT.match(event.sql):
            at = self._context.transaction.offset.position.after(event)
            return self._new_tables.on_granted(at)
        return restarting

    def end_replay(self) -> None:
        """Let the tables be read that were altered in the binlog that is read again, once that is passed."""
        if self._context.replay.part is None:
            return
        names = set(self._context.replay.take_passed(self._context.transaction))
        for table in [table for table in self._registry.tables if str(table) in names]:
            self._new_tables.read_whole(table, self._context.transaction.offset.position)

    def _apply_to_tables(self, event: QueryEvent, effect: DdlEffect, arrival: Arrival) -> bool:
        captured = self._context.settings.table_filter.includes(effect.table)
        at = self._context.transaction.offset.position.after(event)
        empty = False
        if effect.change is Change.DROP_DATABASE:
            self._new_tables.on_database_dropped(effect.table.database)
            for table in [table for table in self._registry.tables if table.database == effect.table.database]:
                self._on_dropped(table)
        elif effect.change in {Change.DROP, Change.RENAME}:
            empty = self._new_tables.is_empty(effect.renamed_from)
            self._on_dropped(effect.renamed_from or effect.table)
        if effect.change in {Change.CREATE, Change.RENAME} and captured:
            self._on_created(effect.table, at)
        if effect.change is Change.CREATE and captured:
            if not effect.adds_rows_silently:
                self._new_tables.on_created(effect.table, at, may_exist=effect.may_exist)
        elif effect.change is Change.RENAME and captured:
            self._new_tables.on_arrived(effect.table, at, arrival._replace(empty=empty))
        elif effect.change in {Change.ALTER, Change.INDEX}:
            self._new_tables.on_definition_changed(effect.table, at)
        restarts = effect.removes_rows_silently and captured and self._on_rows_removed(event, effect, at)
        if effect.adds_rows_silently and captured and not restarts:
            self._new_tables.on_arrived(effect.table, at)
        return restarts

    def _on_rows_removed(self, event: QueryEvent, effect: DdlEffect, at: Offset) -> bool:
        """Handle rows that were removed without row events; True if the table's initial snapshot must restart.

        A table that is read after such a statement counts as one that came back: readers remove the rows before.
        """
        truncated = effect.change is Change.TRUNCATE
        if truncated and Op.TRUNCATE not in self._context.settings.skipped_operations:
            return self._on_truncated(event, effect.table)
        tracked = self._registry.tables.get(effect.table)
        known = tracked is not None and tracked.mode not in {TableMode.WAITING, TableMode.ERROR}
        reads = self._context.settings.reads_after_alter and self._new_tables.is_read(effect.table)
        if known and not truncated and reads:
            former_tables.leave(self._context, effect.table)
            if not effect.adds_rows_silently:
                self._new_tables.on_arrived(effect.table, at)
        elif tracked is None or tracked.mode is not TableMode.WAITING:
            log.warning(
                "a statement removed rows without row events: the topic keeps them",
                table=str(effect.table),
                statement=effect.sql[:200],
                hint="set skipped.operations=none to get truncate events" if truncated else _WITHOUT_EVENTS,
            )
        return False

    def _on_dropped(self, table: TableId) -> None:
        self._new_tables.on_dropped(table)
        tracked = self._registry.tables.get(table)
        if tracked is None:
            return
        if tracked.mode not in {TableMode.WAITING, TableMode.ERROR}:
            former_tables.leave(self._context, table)
        if tracked.mode in {TableMode.STREAMING, TableMode.ERROR}:
            # An incremental snapshot that is being planned finds that the table is not tracked any more.
            self._coordinator.remove_table(table)
        else:
            self._set_presence(tracked, tracked.presence.after_drop())

    def _on_created(self, table: TableId, at: Offset) -> None:
        tracked = self._registry.tables.get(table)
        if tracked is None:
            return
        if tracked.mode is TableMode.ERROR:
            self._new_tables.on_definition_changed(table, at)
        elif tracked.mode is not TableMode.STREAMING:
            self._set_presence(tracked, tracked.presence.after_create())

    def _set_presence(self, tracked: TrackedTable, presence: TablePresence) -> None:
        tracked.presence = presence
        if presence is TablePresence.GONE:
            self._wait_until_idle(tracked)
            if self._is_tracked(tracked):
                self._coordinator.remove_table(tracked.id)

    def _is_tracked(self, table: TrackedTable) -> bool:
        return self._registry.tables.get(table.id) is table

    def _on_truncated(self, event: QueryEvent, table: TableId) -> bool:
        """Write ``op: t``; True if the table's initial snapshot must restart.

        Splits that are opened from here on contain the table after the statement, but their rows may precede the
        ``op: t`` record in the topic. So none of the splits counts, and the record is written when no split is open.
        """
        tracked = self._registry.tables.get(table)
        if tracked is None or tracked.mode is TableMode.STREAMING:
            self._write_truncate(event, table)
            return False
        self._coordinator.hold.wait_for(lambda: tracked.mode is not TableMode.PLANNING, table)
        if tracked.mode in {TableMode.WAITING, TableMode.ERROR}:
            return False  # no row of the table is in the topic, and its splits are read after this statement
        if tracked.mode is TableMode.INCREMENTAL:
            self._truncate_incremental(event, tracked)
            return False
        if self._is_tracked(tracked):
            self._coordinator.restart_table(table)
        self._wait_until_idle(tracked)
        self._write_truncate(event, table)
        if not self._is_tracked(tracked):
            return False
        former_tables.leave(self._context, table)  # its splits may have rows from behind the record
        self._coordinator.remove_table(table)
        return True

    def _truncate_incremental(self, event: QueryEvent, tracked: TrackedTable) -> None:
        """Write ``op: t`` after the splits that may have rows from before the statement; the snapshot continues.

        A split opened later may write rows before the record, but the binlog brings those rows as changes too: an
        incremental snapshot skips no change.
        """
        readers = [split for split in tracked.opened.values() if split.being_read]
        self._coordinator.hold.wait_for(
            lambda: tracked.mode is not TableMode.INCREMENTAL or not any(split.being_read for split in readers),
            tracked.id,
        )
        self._write_truncate(event, tracked.id)

    def _write_truncate(self, event: QueryEvent, table: TableId) -> None:
        context = self._context
        value = context.tables.truncate_envelope(table, event)
        if value is None:
            log.warning(
                "a table was truncated and removed before its schema could be read: the topic keeps its rows",
                table=str(table),
                statement=event.sql[:200],
            )
            return
        if not self._new_tables.ensure_topic(table):
            return
        epoch = context.transaction.offset.epoch
        headers: Headers = [event_header(epoch, 0), *self._versions.statement_headers(table, event)]
        context.transaction.send(context.tables.topic(table), None, value, headers)

    def _wait_until_idle(self, tracked: TrackedTable) -> None:
        self._coordinator.hold.wait_for(lambda: not tracked.being_read, tracked.id)
