"""Changes that cannot be written: the producer stops, or it skips the event and reads its tables again.

With ``event.processing.failure.handling.mode`` warn or skip, an incremental snapshot of the tables is requested in the
Kafka transaction of the offset behind the event. So the request is as durable as the skip. The snapshot writes each row
as it is then; rows that a skipped event deleted stay in the topic.
"""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.streaming.context import StreamContext
from tailrace.producer.streaming.snapshot_listener import SnapshotProgressListener
from tailrace.producer.streaming.table_versions import TableVersions
from tailrace.runtime.errors import SchemaError, TailraceError

log = structlog.get_logger(__name__)

_PROPERTY = "event.processing.failure.handling.mode"


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
