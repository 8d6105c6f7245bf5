"""What a DDL statement met in the log does to tables that are captured, while their snapshot runs and after.

A table that is dropped or renamed leaves: what its splits wrote stays, as it does with Debezium, and a table that
takes its name later is a new one, whose rows all come from the log. A table that is emptied gives an ``op: t`` where
those are wanted, and begins its snapshot anew when it is in the middle of one (docs/architecture.md says why).
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from tailrace.producer.kafka.transactional_producer import Headers, TransactionalProducer
from tailrace.producer.model.binlog_events import QueryEvent
from tailrace.producer.model.codec import EventEnvelope
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.ddl import Change, DdlEffect, ddl_effects
from tailrace.producer.serialization.captured_tables import CapturedTables
from tailrace.producer.serialization.envelope.headers import event_header
from tailrace.producer.serialization.envelope.source_info import SourceInfo
from tailrace.producer.snapshot.split_registry import Phase, SplitRegistry, TrackedTable
from tailrace.producer.streaming.offset import StreamOffset
from tailrace.producer.streaming.schema_change_topic import SchemaChangeTopic
from tailrace.runtime.errors import Retryable, TailraceError

log = structlog.get_logger(__name__)


class SnapshotRestartError(TailraceError, Retryable):
    """A table was emptied while its snapshot was under way; the state says that it is to be read anew."""


class TableLifecycle:
    """Applies statements; used by the log reader's thread."""

    def __init__(
        self,
        registry: SplitRegistry,
        publisher: TransactionalProducer,
        tables: CapturedTables,
        *,
        prefix: str,
        wanted: Callable[[TableId], bool],
        truncates: bool,
        context_headers: Headers,
        schema_changes: SchemaChangeTopic | None,
        ensure_topic: Callable[[TableId], None],
        leave: Callable[[TableId], None],
        wait: Callable[[], None],
    ) -> None:
        """``truncates``: write ``op: t``. ``leave`` forgets a table, ``wait`` lets some split move on."""
        self._registry = registry
        self._publisher = publisher
        self._tables = tables
        self._prefix = prefix
        self._wanted = wanted
        self._truncates = truncates
        self._context_headers = context_headers
        self._schema_changes = schema_changes
        self._ensure_topic = ensure_topic
        self._leave = leave
        self._wait = wait

    def statement(self, event: QueryEvent, place: StreamOffset) -> list[TableId]:
        """Do what a statement asks for and write its records; return tables whose snapshots are to begin anew."""
        parts = ddl_effects(event.sql, event.database)
        anew = [part.table for part in parts if self._apply(event, part, place)]
        if self._schema_changes is not None:
            self._schema_changes.statement(self._publisher, event, parts)
        return anew

    def _apply(self, event: QueryEvent, part: DdlEffect, place: StreamOffset) -> bool:
        if part.change is Change.DROP_DATABASE:
            for table in [table for table in self._registry.tables if table.database == part.table.database]:
                self._gone(table)
        elif part.change in {Change.DROP, Change.RENAME}:
            self._gone(part.former or part.table)
        if part.change in {Change.CREATE, Change.RENAME}:
            self._made(part.table)
        if not part.loses_rows or not self._wanted(part.table):
            return False
        if part.change is Change.TRUNCATE and self._truncates:
            return self._truncated(event, part.table, place)
        tracked = self._registry.tables.get(part.table)
        if tracked is None or tracked.phase is not Phase.WAITING:
            log.warning(
                "rows went without events of their own: readers of the topic keep them",
                table=str(part.table),
                statement=part.sql[:200],
                hint="set skipped.operations=none for truncate events" if part.change is Change.TRUNCATE else "",
            )
        return False

    def _gone(self, table: TableId) -> None:
        tracked = self._registry.tables.get(table)
        if tracked is None:
            return
        tracked.dropped = True
        if tracked.abandoned:
            self._leave_when_idle(tracked)

    def _made(self, table: TableId) -> None:
        tracked = self._registry.tables.get(table)
        if tracked is None:
            return
        if tracked.abandoned:
            self._leave_when_idle(tracked)  # what is missed was the one before: this one is new, all from the log
        elif tracked.dropped:
            tracked.dropped, tracked.recreated = False, True

    def _leave_when_idle(self, tracked: TrackedTable) -> None:
        tracked.closed = True
        while self._busy(tracked):
            self._wait()
        if self._registry.tables.get(tracked.id) is tracked:
            self._leave(tracked.id)

    def _truncated(self, event: QueryEvent, table: TableId, place: StreamOffset) -> bool:
        """Write ``op: t``. Of a table under snapshot only when no split is open, and all of it is then forgotten.

        Splits that are read from here on show the table as it is after the statement, but their rows may stand in the
        topic before the record that says that it was emptied. So none of them counts: the table is read anew.
        """
        tracked = self._registry.tables.get(table)
        if tracked is not None:
            if tracked.phase is Phase.WAITING:
                return False  # no row of it is in the topic, and those that are read later are read after this
            if tracked.phase is Phase.INCREMENTAL:
                self._emptied_again(event, tracked, place)
                return False
            tracked.closed = True
            while self._busy(tracked):
                self._wait()
        self._write_emptied(event, table, place)
        if tracked is None or tracked.phase is Phase.LOG or self._registry.tables.get(table) is not tracked:
            return False
        self._leave(table)
        return True

    def _emptied_again(self, event: QueryEvent, tracked: TrackedTable, place: StreamOffset) -> None:
        """Write ``op: t`` behind the splits that may have rows from before the statement; their reading goes on.

        Whatever a split that knows of the statement has put before the record comes from the log as well: no change of
        a table that is read again is dropped.
        """
        readers = [split for split in tracked.opened.values() if split.high is None]
        while tracked.phase is Phase.INCREMENTAL and any(
            split.high is None and not split.abandoned for split in readers
        ):
            self._wait()
        self._write_emptied(event, tracked.id, place)

    def _write_emptied(self, event: QueryEvent, table: TableId, place: StreamOffset) -> None:
        value = self._emptied(event, table)
        if value is not None:
            self._ensure_topic(table)
            self._publisher.begin()
            headers: Headers = [event_header(place.epoch, 0), *self._context_headers]
            self._publisher.send(self._tables.topic(table), None, value, headers)

    def _emptied(self, event: QueryEvent, table: TableId) -> bytes | None:
        """Return the envelope of ``op: t``, None where the table's schema is wanted and the table is gone by now."""
        value = self._tables.truncate_envelope(table, truncate_envelope_of(self._prefix, table, event))
        if value is None:
            log.warning(
                "a table was emptied and went away before its schema could be read: readers of the topic keep the rows",
                table=str(table),
                statement=event.sql[:200],
            )
        return value

    @staticmethod
    def _busy(tracked: TrackedTable) -> bool:
        return tracked.phase is Phase.RANGING or any(
            split.high is None and not split.abandoned for split in tracked.opened.values()
        )


def truncate_envelope_of(prefix: str, table: TableId, event: QueryEvent) -> EventEnvelope:
    """Return what stands around no row: of the source's time the milliseconds alone."""
    return SourceInfo(prefix, table).event_envelope(
        ts_us=(event.commit_ts_us // 1000 or event.ts * 1000) * 1000,
        server_id=event.server_id,
        gtid=event.gtid,
        file=event.file,
        pos=event.query_pos,
    )
