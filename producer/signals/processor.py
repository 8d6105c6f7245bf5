"""Signal desk: takes signals on the log reader's thread, keeps what is left of them, and notifies of snapshots.

All that it changes is written into the log's Kafka transaction. So a signal is taken exactly if the position, or the
mark of its channel, says so.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace

import structlog

from tailrace.producer.config.filters import TableFilter
from tailrace.producer.kafka.state_store import SIGNALS_KEY, SplitState, TableState
from tailrace.producer.model.binlog_events import RowsEvent
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.notifications.notification import (
    AggregateType,
    NotificationType,
    chunk_data,
    names,
    table_scan_data,
)
from tailrace.producer.notifications.service import NotificationService
from tailrace.producer.signals.queue import ChannelOffsets, IncrementalSnapshotQueue, SnapshotRequest, apply_signal
from tailrace.producer.signals.signal import InvalidSignalError, LogSignal, Signal, parse_action
from tailrace.producer.signals.source_channel import SourceSignalChannel
from tailrace.producer.streaming.split_registry import SplitRegistry
from tailrace.producer.streaming.stream_transaction import StreamTransaction
from tailrace.schemas.rowkind import Op

log = structlog.get_logger(__name__)


class SignalProcessor:
    """The one place where signals take effect; used by the log reader's thread, but for what says otherwise."""

    def __init__(
        self,
        control: IncrementalSnapshotQueue,
        registry: SplitRegistry,
        transaction: StreamTransaction,
        notifications: NotificationService,
        table_filter: TableFilter,
    ) -> None:
        self.control = control
        """A value that is replaced as a whole: any thread may look at it."""
        self.work = threading.Event()
        """Set while tables are to be read again; any thread may wait for it."""
        self._registry = registry
        self._transaction = transaction
        self._notifications = notifications
        self._table_filter = table_filter
        self._initial: tuple[TableId, ...] = ()
        self._left: set[TableId] = set()
        if control.queue:
            self.work.set()

    # -- signals -----------------------------------------------------------------------------------------------------

    @property
    def marks(self) -> ChannelOffsets:
        """The last signals taken; any thread may ask."""
        return self.control.marks

    def process(self, signals: Iterable[Signal | InvalidSignalError], marks: ChannelOffsets) -> None:
        """Follow signals of one channel and remember that they were taken."""
        for signal in signals:
            if isinstance(signal, InvalidSignalError):
                log.warning("a signal cannot be followed", reason=str(signal))
            else:
                self._follow(signal)
        self._store(replace(self.control, marks=marks))

    def _follow(self, signal: Signal) -> None:
        facts = {"id": signal.id, "type": signal.type}
        try:
            request = parse_action(signal)
        except InvalidSignalError as fault:
            log.warning("a signal cannot be followed", **facts, reason=str(fault))
            return
        if isinstance(request, LogSignal):
            log.info(request.message, signal=signal.id)
            return
        log.info("signal", **facts, data=dict(signal.data))
        captured = [table for table in self._registry.tables if self._table_filter.includes(table)]
        after, told, odd = apply_signal(self.control, request, signal.id, captured, self.is_running)
        if odd:
            log.warning("signal followed in part" if after != self.control else "signal not followed", **facts, why=odd)
        about = after.about or self.control.about
        self._store(after)
        for kind, data in told:
            self._notifications.send(AggregateType.INCREMENTAL, kind, data, about=about)

    def process_row(self, table: SourceSignalChannel, event: RowsEvent, gtid: str, number: int) -> None:
        """Follow what was inserted into the signal table by rows event ``number`` of a transaction."""
        seen, last = self.marks.source
        if event.op != Op.CREATE or (gtid == seen and number <= last):
            return
        self.process(table.signals(event), replace(self.marks, source=(gtid, number)))

    def request_incremental(self, tables: Iterable[TableId]) -> None:
        """Have tables read again without a signal; those that are asked for already stay as they are."""
        present = set(self.control.tables)
        fresh = tuple(SnapshotRequest(table) for table in tables if table not in present)
        if fresh:
            self._store(replace(self.control, queue=self.control.queue + fresh))
            data = {"data_collections": names(self.control.tables)}
            self._notifications.send(AggregateType.INCREMENTAL, NotificationType.STARTED, data)

    def is_running(self, table: TableId) -> bool:
        """Whether an incremental snapshot of a table is running; on the stream's thread."""
        tracked = self._registry.tables.get(table)
        return tracked is not None and tracked.mode is TableMode.INCREMENTAL

    def _store(self, control: IncrementalSnapshotQueue) -> None:
        self.control = control
        self._transaction.store(SIGNALS_KEY, control.to_json())
        if control.queue:
            self.work.set()
        else:
            self.work.clear()

    # -- what the enumerator asks, on its thread ---------------------------------------------------------------------

    @property
    def paused(self) -> bool:
        """Whether no split may be handed out now."""
        return self.control.paused

    def stopped(self, table: TableId) -> bool:
        """Tell whether the rest of a table is not wanted any more."""
        entry = self._entry(table)
        return entry is None or entry.stopped

    def condition(self, table: TableId) -> str:
        """Return the SQL that the rows of a table must meet; empty: all rows."""
        entry = self._entry(table)
        return entry.condition if entry is not None else ""

    def pending_tables(self) -> list[TableId]:
        """Return the tables to read again, in the order they were asked for."""
        return list(dict.fromkeys(wanted.table for wanted in self.control.queue))

    def _entry(self, table: TableId) -> SnapshotRequest | None:
        return self.control.wanted(table)

    # -- what becomes of snapshots -----------------------------------------------------------------------------------

    def initial_snapshot_started(self, tables: Iterable[TableId], *, resumed: bool) -> None:
        """Set the remaining tables of the initial snapshot; ``resumed``: it started before this process."""
        self._initial = tuple(tables)
        self._left = set(self._initial)
        if not self._initial:
            self._notifications.send(AggregateType.INITIAL, NotificationType.SKIPPED)
        elif not resumed:
            self._notifications.send(AggregateType.INITIAL, NotificationType.STARTED)

    def on_table_started(self, table: TableId, *, incremental: bool) -> None:
        """See ``SnapshotProgressListener``; an incremental snapshot notifies after each split instead."""
        if not incremental:
            data = {"current_collection_in_progress": str(table), "data_collections": names(self._initial)}
            self._notifications.send(AggregateType.INITIAL, NotificationType.IN_PROGRESS, data)

    def on_split_completed(self, table: TableId, state: SplitState, plan: TableState, *, incremental: bool) -> None:
        """See ``SnapshotProgressListener``; a stopped table has no notifications after ABORTED."""
        entry = self._entry(table)
        if incremental and state.rows and entry is not None and not entry.stopped:
            data = dict(chunk_data(self.control.tables, table, plan.greatest, state.upper))
            self._notifications.send(
                AggregateType.INCREMENTAL, NotificationType.IN_PROGRESS, data, about=self.control.about
            )

    def on_table_completed(self, table: TableId, rows: int, *, incremental: bool) -> None:
        """See ``SnapshotProgressListener``."""
        if not incremental:
            self._notifications.send(
                AggregateType.INITIAL,
                NotificationType.TABLE_SCAN_COMPLETED,
                table_scan_data(self._initial, table, rows, "SUCCEEDED"),
            )
            self._less_initial(table)
            return
        before = self.control
        entry = before.wanted(table)
        if entry is not None and not entry.stopped:
            status = "SUCCEEDED" if rows else "EMPTY"
            data = table_scan_data(before.tables, table, rows, status)
            self._notifications.send(
                AggregateType.INCREMENTAL, NotificationType.TABLE_SCAN_COMPLETED, data, about=before.about
            )
            if before.tables == (table,):
                self._notifications.send(AggregateType.INCREMENTAL, NotificationType.COMPLETED, about=before.about)
        self._store(before.without(table))

    def on_table_removed(self, table: TableId, *, incremental: bool) -> None:
        """See ``SnapshotProgressListener``; also called for a requested table that does not exist by then."""
        self._less_initial(table)
        before = self.control
        entry = before.wanted(table)
        if entry is None:
            return
        if incremental and not entry.stopped:
            data = table_scan_data(before.tables, table, 0, "SQL_EXCEPTION")
            self._notifications.send(
                AggregateType.INCREMENTAL, NotificationType.TABLE_SCAN_COMPLETED, data, about=before.about
            )
            if before.tables == (table,):
                self._notifications.send(AggregateType.INCREMENTAL, NotificationType.COMPLETED, about=before.about)
        self._store(before.without(table))

    def _less_initial(self, table: TableId) -> None:
        if table in self._left:
            self._left.discard(table)
            if not self._left:
                self._notifications.send(AggregateType.INITIAL, NotificationType.COMPLETED)
