"""Binlog reader: reads the binlog in one pass, from the capture's first second on.

It owns the stream's thread. Other threads submit requests to the mailbox, which the reader empties between batches of
events and while it holds a change. A split can be opened at any moment, since its barrier includes the transaction that
is being read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from tailrace.producer.errors import RecordRefusedError, RecordTooLargeError, SourceUnavailableError
from tailrace.producer.model.binlog_events import (
    ChangeRefused,
    Event,
    PositionAdvanced,
    PreparedTransactionEnded,
    QueryEvent,
    RowsEvent,
    TransactionBegin,
    TransactionCommit,
    TransactionPrepared,
)
from tailrace.producer.model.codec import EventEnvelope, EventRows, RowKeys
from tailrace.producer.model.ddl import DdlEffect
from tailrace.producer.model.protocols import ChangeStream
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.serialization.envelope.source_info import source_time_us
from tailrace.producer.streaming.change_emitter import ChangeEmitter
from tailrace.producer.streaming.change_router import ChangeRouter, Destination, RowDecisions
from tailrace.producer.streaming.context import SignalTable, StreamContext
from tailrace.producer.streaming.refused_changes import RefusedChanges, location
from tailrace.producer.streaming.snapshot_coordinator import SnapshotCoordinator
from tailrace.producer.streaming.stop_point import StopPoint
from tailrace.producer.streaming.stream_transaction import PreparedTransactions
from tailrace.producer.streaming.table_lifecycle import SnapshotRestartError, TableLifecycle
from tailrace.producer.streaming.table_versions import IncrementalKeyChangedError, StreamedVersion, TableVersions
from tailrace.producer.streaming.tracked_table import TrackedTable
from tailrace.producer.streaming.transaction_metadata import TransactionBlockWriter, with_transaction_block
from tailrace.runtime.errors import SchemaError, TailraceError

T = TypeVar("T")

# The class of an enumeration looks its members up slowly, and these are needed for each event.
_STREAMING: Final = TableMode.STREAMING
_WAITING: Final = TableMode.WAITING
_PLANNING: Final = TableMode.PLANNING
_HANDLED_EVENTS: Final = 4
"""Events after which the emitter is asked again: one that it declines is often followed by others."""


@dataclass(frozen=True, slots=True)
class Handlers:
    """What handles some of the events, where it is there; used by the stream's thread."""

    metadata: TransactionBlockWriter | None = None
    signal_table: SignalTable | None = None
    """Gets the rows of its table."""
    prepared: PreparedTransactions | None = None
    """Keeps the state of prepared transactions."""
    refused: RefusedChanges | None = None
    """Decides on changes that cannot be written; None: they stop the producer."""
    emitter: ChangeEmitter | None = None
    """Emits the changes that need no decision."""


class BinlogReader:
    """Reads events, decides on them by the state of their splits, and writes them with the offset behind them."""

    def __init__(
        self,
        context: StreamContext,
        stream: ChangeStream,
        coordinator: SnapshotCoordinator,
        versions: TableVersions,
        *,
        lifecycle: TableLifecycle,
        handlers: Handlers,
    ) -> None:
        self.stop_after_snapshot = False
        """Stop when no initial snapshot is running (snapshot.mode=initial_only)."""
        self._stream = stream
        self._read_events: Callable[[list[Event]], bool] = self._read
        self._settings = context.settings
        self._transaction = context.transaction
        self._offset = context.transaction.offset
        self._registry = context.registry
        self._tables = context.tables
        self._mailbox = context.mailbox
        self._status = context.status
        self._coordinator = coordinator
        self._versions = versions
        self._lifecycle = lifecycle
        self._router = ChangeRouter(context)
        self._metadata = handlers.metadata
        self._signal_table = signal_table = handlers.signal_table
        self._refused, self._emitter = handlers.refused, handlers.emitter
        self._counts: dict[tuple[StreamedVersion, str], list[int]] = {}
        """Rows events, their records, and the events without records, not reported to the status yet, by operation."""
        self._transactions = self._last_ts_us = 0
        self._handlers: dict[type, Callable[..., None]] = {
            RowsEvent: self._on_rows if signal_table is None else self._on_rows_or_signal,
            TransactionBegin: self._offset.begin,
            TransactionCommit: self._on_commit,
            QueryEvent: self._on_query,
            PositionAdvanced: self._on_position,
        }
        if handlers.refused is not None:
            self._handlers[ChangeRefused] = self._on_refused
        if handlers.prepared is not None:
            self._handlers[TransactionPrepared] = handlers.prepared.on_prepared
            self._handlers[PreparedTransactionEnded] = handlers.prepared.on_ended

    def wake(self) -> None:
        """Interrupt the wait for events; any thread may call this."""
        self._stream.wake()

    def run(self) -> None:
        """Read until the capture session stops; everything read is committed on return."""
        try:
            self._run()
        except RecordTooLargeError as error:
            if self._refused is None:
                raise
            self._refused.raise_too_large(error)

    def _run(self) -> None:
        transaction = self._transaction
        while not self._mailbox.stopped:
            self._status.stream_loop()
            self._mailbox.run_pending()
            if self.stop_after_snapshot and not self._coordinator.initial_snapshot_running:
                break
            events = self._stream.poll(transaction.seconds_until_commit())
            try:
                stops = self._read_events(events)
            finally:
                self._report_status()
            caught_up = self._stream.caught_up
            self._coordinator.end_splits()
            self._lifecycle.end_replay()
            transaction.commit_if_due(caught_up=caught_up)
            complete = caught_up and not transaction.records and self._offset.transaction is None
            self._status.stream_received(self._stream.received_at, complete=complete)
            if stops:
                break
        transaction.commit()

    def stop_at(self, point: StopPoint) -> None:
        """Stop at a point, but not while an initial snapshot is running; to be called before ``run``."""
        self._read_events = partial(
            point.read,
            offset=self._offset,
            read=self._read,
            may_stop=lambda: not self._coordinator.initial_snapshot_running,
        )

    def _read(self, events: list[Event]) -> bool:
        """Emit many events in one call; what is declined is handled here, and some of what follows it.

        Return whether the stream stops behind them: without a point to stop at it does not.
        """
        handlers, emitter, transaction = self._handlers, self._emitter, self._transaction
        at, count = 0, len(events)
        while at < count:
            if emitter is not None:
                at = emitter.emit(events, at, self)
                if transaction.full:
                    transaction.commit()
                    continue
            until = at + _HANDLED_EVENTS
            try:
                while at < count:
                    event = events[at]
                    handlers[type(event)](event)
                    at += 1
                    if emitter is not None and (at >= until or type(event) is TransactionCommit):
                        break
            except (SchemaError, RecordTooLargeError) as error:
                if not isinstance(error, RecordRefusedError):
                    error.add_context(**location(event, self._offset.transaction))
                raise
        return False

    def _report_status(self) -> None:
        """Report a batch of events at once: taking the status's lock for each event costs too much."""
        for (version, op), (events, records, skipped) in self._counts.items():
            self._status.stream_rows(version.definition.id, op, records, events=events, skipped=skipped)
        self._counts.clear()
        for table, count in self._tables.failures.take().items():
            self._status.values_replaced(table, count)
        if self._transactions:
            self._status.stream_transaction(ts_us=self._last_ts_us, count=self._transactions)
            self._transactions = 0

    # -- transactions ------------------------------------------------------------------------------------------------

    def _on_commit(self, event: TransactionCommit) -> None:
        begin = self._offset.transaction
        if self._metadata is not None:
            self._metadata.end(event)
        self._offset.commit(event)
        if self._registry.reaches_end(event):
            self._coordinator.end_splits()
        self.on_transactions(1, source_time_us(event, begin))

    def _on_position(self, event: PositionAdvanced) -> None:
        if self._offset.transaction is None:
            self._offset.advance(event)

    def _on_query(self, event: QueryEvent) -> None:
        offset = self._offset
        self._report_status()  # before the statement waits, or ends the table that was counted
        if event.in_transaction:  # CREATE TABLE ... SELECT: an event of a transaction that continues to its commit
            if not offset.is_done(event):
                self._lifecycle.apply(event, self._effects(event))
                offset.done(event)
            return
        offset.statement = event
        restarting = self._lifecycle.apply(event, self._effects(event))
        offset.commit(event)
        if self._registry.reaches_end(event):
            self._coordinator.end_splits()
        if restarting:
            self._transaction.commit()
            tables = ", ".join(map(str, restarting))
            raise SnapshotRestartError(f"{tables}: TRUNCATE during the snapshot, or GRANT for a table in error")

    def _effects(self, event: QueryEvent) -> Sequence[DdlEffect]:
        effects = self._stream.ddl_effects(event)
        return effects if self._refused is None else self._refused.known_effects(event, effects)

    # -- rows --------------------------------------------------------------------------------------------------------

    def _on_rows_or_signal(self, event: RowsEvent) -> None:
        table, offset = self._signal_table, self._offset
        assert table is not None
        if event.table.id != table.id:
            self._on_rows(event)
            return
        if offset.is_done(event):
            return
        assert offset.transaction is not None, "a rows event outside a transaction"
        table.on_rows(event, offset.transaction.gtid, event.number)
        if self._settings.table_filter.includes(table.id):
            self._on_rows(event)
        else:
            offset.done(event)

    def _on_rows(self, event: RowsEvent) -> None:
        offset = self._offset
        if offset.resuming and offset.is_done(event):
            return
        if event.op in self._settings.skipped_operations:
            offset.done(event)
            return
        current = self._versions.in_use.get(event.table.fingerprint)
        version = current if current is not None else self._change_version(event)
        if version is None:
            return
        rows, mode = 0, version.tracked.mode
        if mode is _STREAMING:
            rows = self._emit(event, version)
        elif mode is not _WAITING:
            rows = self._emit_through_splits(event, version)
        # Not before all is written: if a commit happens while the event is held, a restart must read it again.
        offset.done(event, version.definition.id, rows)
        if self._transaction.full:
            self._transaction.commit()

    def _on_refused(self, event: ChangeRefused) -> None:
        if not self._offset.is_done(event):
            event.error.add_context(**location(event, self._offset.transaction))
            self._refuse(event.error, event.tables, others=event.others, triggers=event.triggers)
            self._offset.done(event)

    def _refuse(
        self, error: TailraceError, tables: Sequence[TableId], *, others: bool = False, triggers: bool = False
    ) -> None:
        if self._refused is None:
            raise error
        self._report_status()
        self._refused.refuse(error, tables, others=others, triggers=triggers)

    def _encode(
        self, event: RowsEvent, version: StreamedVersion, *, keys: bool = False
    ) -> tuple[EventRows, EventEnvelope] | None:
        """Return the records of a rows event, and what encloses them; None: it was refused and is skipped."""
        begin = self._offset.transaction
        assert begin is not None, "a rows event outside a transaction"
        envelope = version.captured.source.rows_event_envelope(event, begin, query=self._settings.include_query)
        try:
            return version.encode[event.op](event.data, event.start, event.stop, envelope, keys=keys), envelope
        except SchemaError as error:
            error.add_context(**location(event, self._offset.transaction))
            self._refuse(error, [event.table.id])
            return None

    def _change_version(self, event: RowsEvent) -> StreamedVersion | None:
        """Return the version of an event; None: it is skipped, because its table waits or is in error."""
        try:
            if self._refused is None:
                return self._versions.change(event)
            with self._refused.confined_to(event.table.id, event):
                return self._versions.change(event)
        except IncrementalKeyChangedError as error:
            # The event is not done: after the restart it is read again, and its table only streams.
            self._coordinator.cancel_incremental(event.table.id)
            raise SourceUnavailableError(
                "an incremental snapshot was cancelled: the key of its table changed", table=str(event.table.id)
            ) from error
        return None

    def _emit(self, event: RowsEvent, version: StreamedVersion) -> int:
        """Write all changes of an event; return the number of its rows."""
        done = self._offset.rows_to_skip(event) if self._offset.resuming else 0
        encoded = self._encode(event, version, keys=done > 0)
        if encoded is None:
            return 0
        rows, envelope = encoded
        if done:
            rows = self._skip_rows(rows, done)
        if self._metadata is not None:
            rows = with_transaction_block(
                rows, self._metadata.numbering(event.table.id, version.captured.codec, envelope)
            )
        self._router.emit(rows, version.captured.topic, version.headers_of(event.number))
        self._count(version, event.op, len(rows.records))
        return rows.row_count

    def _emit_through_splits(self, event: RowsEvent, version: StreamedVersion) -> int:
        """Write the changes of a table under snapshot that its splits let through; return the number of its rows.

        What its keys decide is known before its rows are encoded, since most are skipped while a backlog is read.
        """
        tracked = version.tracked
        if tracked.mode is _PLANNING:
            self._wait_for(lambda: tracked.mode is not _PLANNING, tracked)
        done = self._offset.rows_to_skip(event) if self._offset.resuming else 0
        keys = version.key_readers[event.op](event.data, event.start, event.stop) if not done else None
        encoded = None
        if keys is None:
            encoded = self._encode(event, version, keys=True)
            if encoded is None:
                return 0
            encoded = self._skip_rows(encoded[0], done), encoded[1]
            keys = encoded[0].keys
        decisions = self._decide(keys, tracked)
        if decisions.skips_all:
            self._count(version, event.op, 0)
            return len(keys) if encoded is None else encoded[0].row_count
        encoded = encoded or self._encode(event, version, keys=decisions.shared is None)
        if encoded is None:
            return 0
        rows, envelope = encoded
        add_block = (
            self._metadata.numbering(event.table.id, version.captured.codec, envelope)
            if self._metadata is not None
            else None
        )
        to = Destination(version.captured.topic, version.headers_of(event.number), add_block)
        self._count(version, event.op, self._router.emit_through_splits(rows, decisions, to))
        return rows.row_count

    def _skip_rows(self, rows: EventRows, done: int) -> EventRows:
        return rows.skip_rows(done, repeat_key_change=self._offset.skips_rows_of_connector)

    def _decide(self, keys: RowKeys, tracked: TrackedTable) -> RowDecisions:
        """Return the decisions on the rows of an event; wait while one of its keys is held."""
        assert tracked.order is not None, f"{tracked.id} has no key order"
        decide = partial(self._router.decide, tracked.order.sort_rows(keys), tracked)
        return decide() or self._wait_for(decide, tracked)

    def _wait_for(self, ready: Callable[[], T | None], tracked: TrackedTable) -> T:
        """Let other threads make progress with a split; what was counted so far does not wait for that."""
        self._report_status()
        return self._coordinator.hold.wait_for(ready, tracked.id)

    def _count(self, version: StreamedVersion, op: str, records: int) -> None:
        """Count a rows event; it is reported with the others of its batch."""
        self.on_emitted(version, op, events=1, records=records, skipped=not records)

    def on_transactions(self, count: int, last_ts_us: int) -> None:
        self._transactions += count
        self._last_ts_us = last_ts_us

    def on_emitted(self, version: StreamedVersion, op: str, *, events: int, records: int, skipped: int) -> None:
        counts = self._counts.get((version, op))
        if counts is None:
            counts = self._counts[version, op] = [0, 0, 0]
        counts[0] += events
        counts[1] += records
        counts[2] += skipped
