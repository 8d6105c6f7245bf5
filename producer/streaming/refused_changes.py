"""Changes that cannot be written: the producer stops, or it skips the event and reads its tables again.

With ``event.processing.failure.handling.mode`` warn or skip, an incremental snapshot of the tables is requested in the
Kafka transaction of the offset behind the event. So the request is as durable as the skip. The snapshot writes each row
as it is then; rows that a skipped event deleted stay in the topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import structlog

from tailrace.producer.errors import BinlogError
from tailrace.producer.model.binlog_events import QueryEvent
from tailrace.producer.model.ddl import DdlEffect
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.streaming.context import StreamContext
from tailrace.producer.streaming.snapshot_listener import SnapshotProgressListener
from tailrace.producer.streaming.table_versions import TableVersions
from tailrace.runtime.errors import SchemaError, TailraceError

log = structlog.get_logger(__name__)

_PROPERTY = "event.processing.failure.handling.mode"
_REPLACED: Final = "\ufffd"
"""Stands for bytes of a statement that are no text."""


class RefusedChanges:
    """Decides on refused changes; used by the stream's thread."""

    def __init__(self, context: StreamContext, versions: TableVersions, listener: SnapshotProgressListener) -> None:
        self._context = context
        self._versions = versions
        self._listener = listener
        self._registry = context.registry
        self._mode = context.settings.processing_failures

    def refuse(self, error: TailraceError, tables: Iterable[TableId]) -> None:
        """Skip the event and request its tables, () for all of them; raise ``error`` in mode fail."""
        named = tuple(tables)
        captured = [table for table in named if self._is_captured(table)] if named else sorted(self._registry.tables)
        error.context["tables"] = ", ".join(map(str, captured or named)) if named else "unknown"
        if self._mode == "fail":
            error.hint = f"{error.hint}; or set {_PROPERTY}=warn: the event is skipped, and its tables are read again"
            raise error
        for table in captured:
            self._versions.track(table)
        (log.warning if self._mode == "warn" else log.debug)(
            "a change cannot be written: it is skipped, and its tables are read again",
            reason=error.message,
            hint=error.hint,
            **{name: str(value) for name, value in error.context.items()},
        )
        self._context.status.change_refused()
        # The splits of a table that waits for its initial snapshot will contain the change.
        read_later = {TableMode.WAITING, TableMode.RESTARTING, TableMode.ERROR}
        modes = {table: self._registry.tables[table].mode for table in captured}
        self._listener.on_change_skipped([table for table, mode in modes.items() if mode not in read_later])

    def known_effects(self, event: QueryEvent, effects: Sequence[DdlEffect]) -> Sequence[DdlEffect]:
        """Return the effects on tables whose names are known; refuse the others.

        A name with bytes that are no text may be that of any captured table of its database.
        """
        if not event.has_replaced:
            return effects
        known = []
        for effect in effects:
            names = [table for table in (effect.renamed_from, effect.table) if table is not None]
            if not any(_REPLACED in str(table) for table in names):
                known.append(effect)
                continue
            databases = {table.database for table in names}
            unclear = any(_REPLACED in database for database in databases)
            if meant := [table for table in sorted(self._registry.tables) if unclear or table.database in databases]:
                self.refuse(_unknown_name(event, names), meant)
        return known

    def _is_captured(self, table: TableId) -> bool:
        """Return whether a table is captured; the words of a statement are perhaps no tables at all."""
        if not self._context.settings.table_filter.includes(table):
            return False
        if table in self._registry.tables:
            return True
        try:
            self._context.tables.current_version(table)
        except SchemaError:
            return False
        return True


def _unknown_name(event: QueryEvent, names: Sequence[TableId]) -> BinlogError:
    return BinlogError(
        "a statement names a table in bytes that are no text of its client's character set",
        hint="use SET NAMES utf8mb4 for such names",
        names=", ".join(map(str, names)),
        file=event.file,
        pos=event.query_pos,
        gtid=event.gtid,
    )
