"""Processes signals, keeps the queue of incremental snapshots, and sends the notifications of snapshots.

Every change of the queue is written in the stream's open Kafka transaction, together with the binlog offset or the
channel offset of the signal. So each signal takes effect exactly once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import orjson
import structlog

from tailrace.producer.config.filters import TableFilter
from tailrace.producer.errors import SourceUnavailableError
from tailrace.producer.kafka.moved_position import MOVED_KEY
from tailrace.producer.kafka.state_store import SplitState, TableState
from tailrace.producer.model.binlog_events import RowsEvent
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.notifications.notification import (
    AggregateType,
    NotificationService,
    NotificationType,
    chunk_data,
    data_collections,
    table_scan_data,
)
from tailrace.producer.signals.channels import SourceSignalChannel
from tailrace.producer.signals.moves import Moves, PositionRefusedError
from tailrace.producer.signals.queue import ChannelOffsets, IncrementalSnapshotQueue, SnapshotRequest, apply_signal
from tailrace.producer.signals.signal import (
    ExecuteSnapshot,
    InvalidSignalError,
    LogSignal,
    SetBinlogPosition,
    Signal,
    parse_action,
)
from tailrace.producer.streaming.split_registry import SplitRegistry
from tailrace.producer.streaming.stream_transaction import StreamTransaction
from tailrace.schemas.rowkind import Op

log = structlog.get_logger(__name__)

_SHOWN: Final = 2_000
"""Characters of a signal that the log includes."""
_KEPT: Final = 200
"""More than a channel returns at once, so that a command which asks a few times a second sees each."""


class SignalResponse(NamedTuple):
    """What the producer has made of a signal."""

    id: str
    type: str
    applied: bool
    reason: str = ""
    """Why it was not applied, or only in part."""


class SignalProcessor:
    """Applies signals and reports snapshots. Used on the stream's thread, except where a method says otherwise."""

    def __init__(
        self,
        queue: IncrementalSnapshotQueue,
        registry: SplitRegistry,
        transaction: StreamTransaction,
        notifications: NotificationService,
        table_filter: TableFilter,
        *,
        condition_problem: Callable[[str], str],
        moves: Moves,
    ) -> None:
        """``condition_problem`` says why an SQL condition may not be used, '' if it may."""
        self.responses: tuple[SignalResponse, ...] = ()
        """To the last signals of the session. Immutable and replaced as a whole, so any thread may read it."""
        self.moved = False
        """A signal has set the position of the stream: the session is to end when that is committed."""
        self._moves = moves
        self.queue = queue
        """Immutable and replaced as a whole, so any thread may read it."""
        self.work = threading.Event()
        """Set while incremental snapshots are pending; any thread may wait for it."""
        self._registry = registry
        self._transaction = transaction
        self._notifications = notifications
        self._table_filter = table_filter
        self._condition_problem = condition_problem
        self._initial_tables: tuple[TableId, ...] = ()
        self._initial_remaining: set[TableId] = set()
        if queue.requests:
            self.work.set()

    # -- signals -----------------------------------------------------------------------------------------------------

    @property
    def offsets(self) -> ChannelOffsets:
        """The last processed signals; any thread may read it."""
        return self.queue.offsets

    def process(
        self, signals: Iterable[Signal | InvalidSignalError], offsets: ChannelOffsets, *, in_log: bool = False
    ) -> None:
        """Apply signals of one channel and store the channel offsets behind them; ``in_log``: the stream reads them."""
        for signal in signals:
            if isinstance(signal, InvalidSignalError):
                log.warning("invalid signal ignored", reason=str(signal))
            else:
                response = self._apply(signal, in_log=in_log)
                self.responses = (*self.responses[1 - _KEPT :], response)
        self._store(replace(self.queue, offsets=offsets))

    def as_status(self) -> dict[str, Any]:
        """Return what /status has of signals; any thread may call it."""
        queue = self.queue  # first: a signal whose offset it has is among the responses
        return {
            "paused": queue.paused,
            "pending": len(queue.tables),
            "kafka_offset": queue.offsets.kafka,
            "responses": [response._asdict() for response in self.responses],
        }

    def _apply(self, signal: Signal, *, in_log: bool) -> SignalResponse:
        context = {"id": signal.id, "type": signal.type[:_SHOWN]}
        log.info("signal received", **context, data=orjson.dumps(signal.data)[:_SHOWN].decode(errors="replace"))
        action = None
        try:
            action = parse_action(signal)
            if isinstance(action, LogSignal):
                log.info(action.message[:_SHOWN], signal=signal.id)
                return SignalResponse(**context, applied=True)
            if isinstance(action, SetBinlogPosition):
                self._move(action, in_log=in_log)
                return SignalResponse(**context, applied=True)
            if isinstance(action, ExecuteSnapshot):
                action.check_conditions(self._condition_problem)
            captured = [table for table in self._registry.tables if self._table_filter.includes(table)]
            result = apply_signal(self.queue, action, signal.id, captured, self.is_running)
        except Exception as error:  # nothing is written yet: a signal must not stop the stream
            if isinstance(error, SourceUnavailableError) and isinstance(action, SetBinlogPosition):
                raise  # the signal is read again
            reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            log.warning("invalid signal ignored", **context, reason=reason[:_SHOWN])
            shown = error.shown if isinstance(error, InvalidSignalError) else InvalidSignalError.shown
            return SignalResponse(**context, applied=False, reason=shown)
        applied = not result.warning or result.queue != self.queue
        if result.warning:
            event = "signal partly applied" if applied else "signal not applied"
            log.warning(event, **context, reason=result.warning[:_SHOWN])
        # Stopping the last snapshot clears the id, but its notifications still need it.
        correlation_id = result.queue.correlation_id or self.queue.correlation_id
        self._store(result.queue)
        for notification in result.notifications:
            self._notifications.send(
                AggregateType.INCREMENTAL, notification.type, notification.data, correlation_id=correlation_id
            )
        return SignalResponse(**context, applied=applied, reason=result.warning[:_SHOWN])

    def _move(self, action: SetBinlogPosition, *, in_log: bool) -> None:
        if in_log:
            raise PositionRefusedError("the stream would read it again and again: send it to another channel")
        before = self._transaction.offset.position
        moved = self._moves.position(action.position, before, self._registry.tables.values())
        self._transaction.store(MOVED_KEY, moved.to_json())
        self.moved = True
        log.warning(
            "a signal sets the position of the stream: what is between is not captured, or written again",
            moved_from=before.to_json(),
            moved_to=moved.position.to_json(),
        )

    def process_row(self, channel: SourceSignalChannel, event: RowsEvent, gtid: str, number: int) -> None:
        """Apply the signals inserted by rows event ``number`` of a transaction, unless they are already processed."""
        last_gtid, last_number = self.offsets.source
        if event.op != Op.CREATE or (gtid == last_gtid and number <= last_number):
            return
        self.process(channel.signals(event), replace(self.offsets, source=(gtid, number)), in_log=True)

    def request_incremental(self, tables: Iterable[TableId]) -> None:
        """Request incremental snapshots without a signal; tables that are already requested are skipped."""
        queued = set(self.queue.tables)
        added = tuple(SnapshotRequest(table) for table in tables if table not in queued)
        if added:
            self._store(self.queue.adding(added))
            data = data_collections(self.queue.tables)
            self._notifications.send(AggregateType.INCREMENTAL, NotificationType.STARTED, data)

    def request_reading(self, table: TableId) -> None:
        self.on_change_skipped([table])

    def requires_reading(self, table: TableId) -> bool:
        return table in self.queue.required

    def on_change_skipped(self, tables: Iterable[TableId]) -> None:
        """See ``SnapshotProgressListener``; a snapshot that is running may have read the row before the change."""
        known, queue = self.queue, self.queue.requiring(tables, self.is_running)
        if queue is known:
            return
        self._store(queue)
        if queue.last > known.last:
            data = data_collections(queue.tables)
            self._notifications.send(AggregateType.INCREMENTAL, NotificationType.STARTED, data)

    def is_running(self, table: TableId) -> bool:
        tracked = self._registry.tables.get(table)
        return tracked is not None and tracked.mode is TableMode.INCREMENTAL

    def _store(self, queue: IncrementalSnapshotQueue) -> None:
        for key, value in queue.records(self.queue):
            self._transaction.store(key, value)
        self.queue = queue
        if queue.requests:
            self.work.set()
        else:
            self.work.clear()

    # -- SnapshotControl: read by the enumerator on its thread -------------------------------------------------------

    @property
    def paused(self) -> bool:
        return self.queue.paused

    def first_request(self, table: TableId) -> SnapshotRequest | None:
        return self.queue.first_request(table)

    def pending_tables(self) -> list[TableId]:
        return list(dict.fromkeys(request.table for request in self.queue.requests))

    # -- SnapshotProgressListener ------------------------------------------------------------------------------------

    def initial_snapshot_started(self, tables: Iterable[TableId], *, resumed: bool) -> None:
        """Set the remaining tables of the initial snapshot; ``resumed``: it started before this process."""
        self._initial_tables = tuple(tables)
        self._initial_remaining = set(self._initial_tables)
        if not self._initial_tables:
            self._notifications.send(AggregateType.INITIAL, NotificationType.SKIPPED)
        elif not resumed:
            self._notifications.send(AggregateType.INITIAL, NotificationType.STARTED)

    def on_table_started(self, table: TableId, *, incremental: bool) -> None:
        """See ``SnapshotProgressListener``; an incremental snapshot notifies after each split instead."""
        if not incremental:
            data = {"current_collection_in_progress": str(table), **data_collections(self._initial_tables)}
            self._notifications.send(AggregateType.INITIAL, NotificationType.IN_PROGRESS, data)

    def on_split_completed(self, table: TableId, state: SplitState, plan: TableState, *, incremental: bool) -> None:
        """See ``SnapshotProgressListener``; a stopped table has no notifications after ABORTED."""
        request = self.queue.first_request(table)
        if incremental and state.rows and request is not None and not request.stopped:
            data = chunk_data(self.queue.tables, table, plan.greatest, state.upper)
            self._notify_incremental(NotificationType.IN_PROGRESS, data)

    def on_table_completed(self, table: TableId, rows: int, *, incremental: bool) -> None:
        if incremental:
            self._incremental_completed(table, rows, "SUCCEEDED" if rows else "EMPTY")
            return
        data = table_scan_data(self._initial_tables, table, rows, "SUCCEEDED")
        self._notifications.send(AggregateType.INITIAL, NotificationType.TABLE_SCAN_COMPLETED, data)
        self._initial_completed(table)

    def on_table_removed(self, table: TableId, *, incremental: bool, request: int | None = None) -> bool:
        """See ``SnapshotProgressListener``; also called for a requested table that no longer exists."""
        self._initial_completed(table)
        required = False
        while (first := self.queue.first_request(table)) is not None and request in {None, first.number}:
            required = required or first.required
            self._incremental_completed(table, 0, "SQL_EXCEPTION")
            if incremental:
                break  # a later request may still be possible
        return required

    def _initial_completed(self, table: TableId) -> None:
        """Remove a table from the initial snapshot and report its end with the last one."""
        if table in self._initial_remaining:
            self._initial_remaining.discard(table)
            if not self._initial_remaining:
                self._notifications.send(AggregateType.INITIAL, NotificationType.COMPLETED)

    def _incremental_completed(self, table: TableId, rows: int, status: str) -> None:
        """Report the end of a table unless it was stopped, and remove its request."""
        request, tables = self.queue.first_request(table), self.queue.tables
        if request is not None and not request.stopped:
            data = table_scan_data(tables, table, rows, status)
            self._notify_incremental(NotificationType.TABLE_SCAN_COMPLETED, data)
            if tables == (table,):
                self._notify_incremental(NotificationType.COMPLETED)
        self._store(self.queue.without(table))

    def _notify_incremental(self, notification_type: NotificationType, data: Mapping[str, str] | None = None) -> None:
        self._notifications.send(
            AggregateType.INCREMENTAL, notification_type, data, correlation_id=self.queue.correlation_id
        )
