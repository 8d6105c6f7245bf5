"""Log reader: the one reader of the binlog, from the first second, in one pass.

Everything here runs on one thread. Other threads speak to it through the inbox, which is emptied between batches of
events and while a change is held; a split can be opened at any moment, since its barrier takes in the transaction
under way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tailrace.producer.errors import SourceUnavailableError
from tailrace.producer.kafka.state_store import OFFSET_KEY, TableState
from tailrace.producer.kafka.transactional_producer import Headers, TransactionalProducer
from tailrace.producer.model.binlog_events import (
    PositionAdvanced,
    QueryEvent,
    RowsEvent,
    TableVersion,
    TransactionBegin,
    TransactionCommit,
)
from tailrace.producer.model.codec import EventEnvelope, EventRows, KeyChange, RowsEncoders
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.binlog.stream import BinlogStream
from tailrace.producer.mysql.key_order import KeyOrder
from tailrace.producer.ops.status import Status
from tailrace.producer.serialization.captured_tables import CapturedTable, CapturedTables
from tailrace.producer.serialization.envelope.headers import event_header
from tailrace.producer.signals.processor import SignalProcessor
from tailrace.producer.signals.source_channel import SourceSignalChannel
from tailrace.producer.snapshot.split_registry import ChangeDecision, Phase, SplitRegistry, TrackedTable
from tailrace.producer.streaming.auxiliary_topics import AuxiliaryTopics
from tailrace.producer.streaming.change_router import ChangeRouter
from tailrace.producer.streaming.mailbox import Mailbox
from tailrace.producer.streaming.offset import StreamOffset
from tailrace.producer.streaming.snapshot_coordinator import SnapshotCoordinator
from tailrace.producer.streaming.table_lifecycle import SnapshotRestartError, TableLifecycle
from tailrace.producer.streaming.transaction_metadata import with_transaction_block
from tailrace.runtime.errors import SchemaError
from tailrace.schemas.names import schemas_topic, state_topic

_PLAIN = (ChangeDecision.PLAIN, None)


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """How often the log's transactions are committed."""

    prefix: str
    commit_interval_s: float = 0.2
    idle_interval_s: float = 1.0
    """How often a position without records is stored."""
    max_records: int = 20_000
    skipped_operations: frozenset[str] = frozenset()
    tombstones: bool = True
    include_query: bool = False


class StoppedError(Exception):
    """The capture was asked to stop while a change was held."""


class _Version:
    """A table version met in the log: all that its rows events need, found by one look."""

    __slots__ = ("captured", "encode", "mapped", "tracked")

    def __init__(self, mapped: TableVersion, captured: CapturedTable, tracked: TrackedTable) -> None:
        self.mapped = mapped
        self.captured = captured
        self.tracked = tracked
        self.encode: RowsEncoders = captured.codec.encoders


class BinlogReader:
    """Reads events, judges them by the splits' states, writes them with the position, transaction by transaction."""

    def __init__(
        self,
        stream: BinlogStream,
        publisher: TransactionalProducer,
        *,
        tables: CapturedTables,
        registry: SplitRegistry,
        place: StreamOffset,
        settings: StreamSettings,
        context_headers: Headers,
        ensure_topic: Callable[[TableId], None],
        wanted: Callable[[TableId], bool],
        companions: AuxiliaryTopics,
        status: Status,
        stop: threading.Event,
    ) -> None:
        self.wake = stream.wake
        self.stop_when_ended = False
        """Stop by itself once no table's first snapshot is under way (snapshot.mode=initial_only)."""
        self.inbox = Mailbox(stream.wake)
        self._stream = stream
        self._publisher = publisher
        self._wanted = wanted
        self._tables = tables
        self._registry = registry
        self._place = place
        self._settings = settings
        self._context_headers = context_headers
        self._ensure_topic = ensure_topic
        self._status = status
        self._stop = stop
        self._router = ChangeRouter(registry, publisher, tombstones=settings.tombstones)
        self.progress = SnapshotCoordinator(
            registry,
            tables,
            publisher,
            place,
            prefix=settings.prefix,
            status=status,
            open_transaction=self.open_transaction,
            commit=self.commit,
            left=self._forget_versions,
        )
        self._heartbeats = companions.heartbeats
        self._metadata = companions.transactions
        self._definitions = TableLifecycle(
            registry,
            publisher,
            tables,
            prefix=settings.prefix,
            wanted=wanted,
            truncates="t" not in settings.skipped_operations,
            schema_changes=companions.schema_changes,
            context_headers=context_headers,
            ensure_topic=ensure_topic,
            leave=self.progress.leave,
            wait=self._wait,
        )
        self._versions: dict[int, _Version] = {}
        self._counts: dict[tuple[_Version, str], list[int]] = {}
        """Rows events and records not yet told to the status, by operation."""
        self._transactions = self._last_ts_us = 0
        self._published: set[str] = set()
        self._skip = 0
        self._stored = place.position
        self._opened_at = time.monotonic()
        self._take: dict[type, Callable[..., None]] = {
            RowsEvent: self._rows,
            TransactionBegin: self._begin,
            TransactionCommit: self._commit_event,
            QueryEvent: self._statement,
            PositionAdvanced: self._progress,
        }

    def attend(self, desk: SignalProcessor, table: SourceSignalChannel | None) -> None:
        """Tell the desk what becomes of snapshots, and have it take what is inserted into the signal table."""
        self.progress.witness = desk
        if table is not None:
            self._take[RowsEvent] = partial(self._rows_or_signal, desk, table)

    def _rows_or_signal(self, desk: SignalProcessor, table: SourceSignalChannel, event: RowsEvent) -> None:
        if event.table.id != table.id:
            self._rows(event)
            return
        place = self._place
        if place.events + 1 > self._skip:
            assert place.transaction is not None, "a rows event outside a transaction"
            desk.process_row(table, event, place.transaction.gtid, place.events + 1)
        if self._wanted(table.id):
            self._rows(event)
        else:
            place.events += 1

    # -- the loop ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Read until asked to stop; what was read is committed before returning."""
        take = self._take
        interval = self._settings.commit_interval_s
        while not self._stop.is_set():
            self.inbox.drain()
            if self.stop_when_ended and not self.progress.running:
                break
            events = self._stream.poll(interval if self._publisher.sent == 0 else self._until_due())
            for event in events:
                take[type(event)](event)
            if not events:
                self._status.log_caught_up()
            self.progress.end_splits()
            self._tell_status()
            self._commit_if_due()
        self.commit()

    def _until_due(self) -> float:
        return max(0.0, self._opened_at + self._settings.commit_interval_s - time.monotonic())

    def _tell_status(self) -> None:
        """Tell what a batch of events came to: the status's lock is too dear for each event."""
        for (version, op), (events, records) in self._counts.items():
            self._status.log_rows(version.mapped.id, op, records, events=events)
        self._counts.clear()
        if self._transactions:
            self._status.log_transaction(ts_us=self._last_ts_us, count=self._transactions)
            self._transactions = 0

    def _commit_if_due(self) -> None:
        now = time.monotonic()
        sent, place = self._publisher.sent, self._place
        if sent:
            if sent >= self._settings.max_records or now - self._opened_at >= self._settings.commit_interval_s:
                self.commit()
        elif self._beat_due or (
            place.position != self._stored and now - self._opened_at >= self._settings.idle_interval_s
        ):
            self.commit()

    @property
    def _beat_due(self) -> bool:
        return self._heartbeats is not None and self._heartbeats.due

    def commit(self) -> None:
        """Commit what was written since the last commit, with the position it belongs to."""
        place = self._place
        if self._publisher.sent == 0 and place.position == self._stored and not self._beat_due:
            return
        self._publisher.begin()
        if self._heartbeats is not None and self._heartbeats.due:
            self._heartbeats.beat()
        state = place.state(self._registry.open_backfills())
        self._publisher.send(state_topic(self._settings.prefix), OFFSET_KEY, state.to_json())
        self._publisher.commit()
        self._publisher.sent = 0
        self._stored = place.position
        self._opened_at = time.monotonic()
        self._status.log_committed(place.position.to_json())

    def open_transaction(self) -> None:
        """Have a Kafka transaction open, for a record that is about to be written."""
        if not self._publisher.in_transaction:
            self._publisher.begin()
            self._opened_at = time.monotonic()

    # -- events ------------------------------------------------------------------------------------------------------

    def _begin(self, event: TransactionBegin) -> None:
        self._skip = self._place.begin(event)

    def _commit_event(self, event: TransactionCommit) -> None:
        transaction = self._place.transaction
        if self._metadata is not None:
            self._metadata.end(event)
        self._place.commit(event)
        if self._registry.waiting_for_end:
            self.progress.end_splits()
        self._transactions += 1
        self._last_ts_us = (transaction.commit_ts_us if transaction else 0) or event.ts * 1_000_000

    def _progress(self, event: PositionAdvanced) -> None:
        if self._place.transaction is None:
            self._place.advance(event)

    def _statement(self, event: QueryEvent) -> None:
        place = self._place
        if event.within:  # CREATE TABLE … SELECT: an event of a transaction that goes on to its Commit
            place.events += 1
            if place.events > self._skip:
                self._definitions.statement(event, place)
            return
        anew = self._definitions.statement(event, place)
        place.commit(event)
        if self._registry.waiting_for_end:
            self.progress.end_splits()
        if anew:
            self.commit()
            tables = ", ".join(map(str, anew))
            raise SnapshotRestartError(f"{tables} was emptied while its snapshot was under way: it is read anew")

    def _rows(self, event: RowsEvent) -> None:
        place = self._place
        place.events += 1
        if place.events <= self._skip or event.op in self._settings.skipped_operations:
            return
        known = self._versions.get(id(event.table))
        version = known if known is not None else self._version(event)
        captured, tracked = version.captured, version.tracked
        transaction = place.transaction
        assert transaction is not None, "a rows event outside a transaction"
        stamp = captured.source.rows_event_envelope(event, transaction, query=self._settings.include_query)
        headers: Headers = [event_header(place.epoch, place.events), *self._context_headers]
        if tracked.phase is Phase.LOG:
            if place.rows and (first := place.rows_to_skip()):
                rows = version.encode[event.op](event.data, event.start, event.stop, stamp, keys=True).skip_rows(first)
            else:
                rows = version.encode[event.op](event.data, event.start, event.stop, stamp)
            self.open_transaction()
            if self._metadata is not None:
                rows = with_transaction_block(rows, self._metadata.numbering(event.table.id, captured.codec, stamp))
            self._send(captured.topic, rows, headers)
            counts = self._counts.setdefault((version, event.op), [0, 0])
            counts[0] += 1
            counts[1] += len(rows.records)
        elif tracked.phase is not Phase.WAITING:
            self._routed(event, version, stamp, headers)
        if self._publisher.sent >= self._settings.max_records:
            self.commit()

    def _send(self, topic: str, rows: EventRows, headers: Headers) -> None:
        records = rows.records
        if KeyChange in map(type, records):
            for record in records:
                if isinstance(record, KeyChange):
                    self._router.write_key_change(topic, record, headers, old=_PLAIN, new=_PLAIN)
                else:
                    self._publisher.send(topic, record[0], record[1], headers)
        else:
            self._publisher.send_all(topic, records, headers)  # type: ignore[arg-type]

    def _routed(self, event: RowsEvent, version: _Version, stamp: EventEnvelope, headers: Headers) -> None:
        """Write the changes of a table under snapshot that its splits let through."""
        tracked = version.tracked
        transaction = self._place.transaction
        assert transaction is not None
        first = self._place.rows_to_skip()
        # This event is not done while it is held: a commit meanwhile must let a restart read it again.
        self._place.events -= 1
        while tracked.phase is Phase.RANGING:
            self._wait()
        rows = version.encode[event.op](event.data, event.start, event.stop, stamp, keys=True).skip_rows(first)
        self.open_transaction()
        written = self._router.route(
            rows,
            tracked,
            self.progress.orders[event.table.id],
            topic=version.captured.topic,
            headers=headers,
            transaction=transaction,
            begin=self._place.position,
            wait=self._wait,
            number=self._metadata.numbering(event.table.id, version.captured.codec, stamp)
            if self._metadata is not None
            else None,
        )
        self._place.events += 1
        self._status.log_rows(event.table.id, event.op, written)

    def _wait(self) -> None:
        """Let the other threads move a split on; what is written already is committed when its time has come."""
        while not self.inbox.wait(0.05):
            if self._stop.is_set():
                raise StoppedError
            self._commit_if_due()
        self.progress.end_splits()
        self.open_transaction()

    def _version(self, event: RowsEvent) -> _Version:
        """Compile a table version met for the first time, and publish its schema before its first row."""
        mapped = event.table
        captured = self._tables.version_of(mapped)
        tracked = self._registry.tables.get(mapped.id)
        if tracked is not None and (order := self.progress.orders.get(mapped.id)) is not None:
            self._require_same_key(order, tracked, captured)
        if tracked is None:
            # Not there when the capture listed its tables, behind the start of the log: all its rows come from the log.
            tracked = self._registry.track(mapped.id, Phase.LOG)
            self._ensure_topic(mapped.id)
            self.progress.store_table(mapped.id, TableState(phase="log"))
        self.open_transaction()
        schema = captured.codec.schema
        if schema.fingerprint not in self._published:
            transaction = self._place.transaction
            version = (transaction.commit_ts_us if transaction else 0) or event.ts * 1_000_000
            topic = schemas_topic(self._settings.prefix)
            self._publisher.send(topic, schema.record_key(), schema.to_json(version=version))
            self._published.add(schema.fingerprint)
        found = _Version(mapped, captured, tracked)
        self._versions[id(mapped)] = found
        return found

    def _require_same_key(self, order: KeyOrder, tracked: TrackedTable, captured: CapturedTable) -> None:
        """Raise where keys of a table under snapshot cannot be placed any more."""
        try:
            order.require_same_key(tracked.id, captured.table.key_columns)
        except SchemaError as error:
            if tracked.phase is not Phase.INCREMENTAL:
                raise
            # This event is not done: a restart must read it again, now that its table is followed alone.
            self._place.events -= 1
            self.progress.cancel_incremental(tracked.id)
            raise SourceUnavailableError(
                "going on without reading a table again: its key changed", table=str(tracked.id)
            ) from error

    def _forget_versions(self, table: TableId) -> None:
        """Forget a table that has left: one of its name that comes later is a new one."""
        for known in [known for known, version in self._versions.items() if version.mapped.id == table]:
            del self._versions[known]
