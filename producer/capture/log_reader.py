"""Log reader: the one reader of the binlog, from the first second, in one pass.

Everything here runs on one thread. Other threads speak to it through the inbox, which is emptied between batches of
events and while a change is held; a split can be opened at any moment, since its barrier takes in the transaction
under way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from producer.binlog.events import Begin, Commit, MappedTable, Progress, Rows, Statement
from producer.binlog.stream import BinlogStream
from producer.capture.inbox import Inbox
from producer.capture.partial import rows_from
from producer.capture.place import Place, file_number
from producer.capture.router import Router
from producer.capture.tables import CapturedTable, Tables
from producer.codec.contract import EventRows, EventStamp, KeyChange
from producer.database.gtid import GtidSet
from producer.database.table import TableId
from producer.envelope.headers import event_header
from producer.kafka.publisher import Headers, Publisher
from producer.kafka.state import LOG_KEY, SplitState, TableState, split_key, table_key
from producer.ops.status import Status
from producer.snapshot.reader import watermark_record
from producer.snapshot.watermark import Barrier
from producer.split.key_order import KeyOrder
from producer.split.registry import Phase, Registry, TrackedSplit, TrackedTable, Verdict
from producer.split.split import Split
from schemas.names import schemas_topic, state_topic, watermarks_topic
from schemas.watermark import WatermarkKind

log = structlog.get_logger(__name__)

_PLAIN = (Verdict.PLAIN, None)


@dataclass(frozen=True, slots=True)
class LogSettings:
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

    def __init__(self, mapped: MappedTable, captured: CapturedTable, tracked: TrackedTable) -> None:
        self.mapped = mapped
        self.captured = captured
        self.tracked = tracked
        codec = captured.codec
        self.encode = {"c": codec.inserts, "u": codec.updates, "d": codec.deletes}


class LogReader:
    """Reads events, judges them by the splits' states, writes them with the position, transaction by transaction."""

    def __init__(
        self,
        stream: BinlogStream,
        publisher: Publisher,
        *,
        tables: Tables,
        registry: Registry,
        place: Place,
        settings: LogSettings,
        context_headers: Headers,
        ensure_topic: Callable[[TableId], None],
        status: Status,
        stop: threading.Event,
    ) -> None:
        self.wake = stream.wake
        self.stop_when_ended = False
        """Stop by itself once every table is in pure log mode (snapshot.mode=initial_only)."""
        self.inbox = Inbox(stream.wake)
        self._stream = stream
        self._publisher = publisher
        self._tables = tables
        self._registry = registry
        self._place = place
        self._settings = settings
        self._context_headers = context_headers
        self._ensure_topic = ensure_topic
        self._status = status
        self._stop = stop
        self._router = Router(registry, publisher, tombstones=settings.tombstones)
        self._orders: dict[TableId, KeyOrder] = {}
        self._splits: dict[str, tuple[Split, SplitState]] = {}
        self._versions: dict[int, _Version] = {}
        self._counts: dict[tuple[_Version, str], list[int]] = {}
        """Rows events and records not yet told to the status, by operation."""
        self._transactions = self._last_ts_us = 0
        self._published: set[str] = set()
        self._skip = 0
        self._stored: tuple[str, int] = (place.file, place.pos)
        self._opened_at = time.monotonic()
        self._take = {
            Rows: self._rows,
            Begin: self._begin,
            Commit: self._commit_event,
            Statement: self._statement,
            Progress: self._progress,
        }

    # -- the loop ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Read until asked to stop; what was read is committed before returning."""
        take = self._take
        interval = self._settings.commit_interval_s
        while not self._stop.is_set():
            self.inbox.drain()
            events = self._stream.poll(interval if self._publisher.sent == 0 else self._until_due())
            for event in events:
                take[type(event)](event)  # type: ignore[operator]
            if not events:
                self._status.log_caught_up()
            self._end_splits()
            self._tell_status()
            self._commit_if_due()
            if self.stop_when_ended and not self.snapshot_running:
                break
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
        elif (place.file, place.pos) != self._stored and now - self._opened_at >= self._settings.idle_interval_s:
            self.commit()

    def commit(self) -> None:
        """Commit what was written since the last commit, with the position it belongs to."""
        place = self._place
        if self._publisher.sent == 0 and (place.file, place.pos) == self._stored:
            return
        self._publisher.begin()
        state = place.state(self._registry.unended())
        self._publisher.send(state_topic(self._settings.prefix), LOG_KEY, state.to_json())
        self._publisher.commit()
        self._publisher.sent = 0
        self._stored = (place.file, place.pos)
        self._opened_at = time.monotonic()
        self._status.log_committed(file=place.file, pos=place.pos, gtids=state.position.gtids)

    def _open_transaction(self) -> None:
        if not self._publisher.in_transaction:
            self._publisher.begin()
            self._opened_at = time.monotonic()

    # -- events ------------------------------------------------------------------------------------------------------

    def _begin(self, event: Begin) -> None:
        self._skip = self._place.begin(event)

    def _commit_event(self, event: Commit) -> None:
        transaction = self._place.transaction
        self._place.finish(event.gtid, event.file, event.end)
        if self._registry.waiting_for_end:
            self._end_splits()
        self._transactions += 1
        self._last_ts_us = (transaction.commit_ts_us if transaction else 0) or event.ts * 1_000_000

    def _progress(self, event: Progress) -> None:
        if self._place.transaction is None:
            self._place.advance(event.file, event.end)

    def _statement(self, event: Statement) -> None:
        self._tables.definition_changed()
        if event.within:
            return  # CREATE TABLE … SELECT: its transaction goes on to its Commit
        self._place.finish(event.gtid, event.file, event.end)
        if self._registry.waiting_for_end:
            self._end_splits()

    def _rows(self, event: Rows) -> None:
        place = self._place
        place.events += 1
        if place.events <= self._skip or event.op in self._settings.skipped_operations:
            return
        known = self._versions.get(id(event.table))
        version = known if known is not None else self._version(event)
        captured, tracked = version.captured, version.tracked
        transaction = place.transaction
        assert transaction is not None, "a rows event outside a transaction"
        stamp = captured.source.rows_event(event, transaction, query=self._settings.include_query)
        headers: Headers = [event_header(place.epoch, place.events), *self._context_headers]
        if tracked.phase is Phase.LOG:
            if place.rows and (first := place.first_row()):
                rows = rows_from(version.encode[event.op](event.data, event.start, event.stop, stamp, keys=True), first)
            else:
                rows = version.encode[event.op](event.data, event.start, event.stop, stamp)
            self._open_transaction()
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

    def _routed(self, event: Rows, version: _Version, stamp: EventStamp, headers: Headers) -> None:
        """Write the changes of a table under snapshot that its splits let through."""
        tracked = version.tracked
        transaction = self._place.transaction
        assert transaction is not None
        first = self._place.first_row()
        # This event is not done while it is held: a commit meanwhile must let a restart read it again.
        self._place.events -= 1
        while tracked.phase is Phase.RANGING:
            self._wait()
        rows = rows_from(version.encode[event.op](event.data, event.start, event.stop, stamp, keys=True), first)
        self._open_transaction()
        sent = self._publisher.sent
        self._router.route(
            rows,
            tracked,
            self._orders[event.table.id],
            topic=version.captured.topic,
            headers=headers,
            gtid=transaction.gtid,
            begin=(file_number(transaction.file), transaction.pos),
            wait=self._wait,
        )
        self._place.events += 1
        self._status.log_rows(event.table.id, event.op, self._publisher.sent - sent)

    def _wait(self) -> None:
        """Let the other threads move a split on; what is written already is committed when its time has come."""
        while not self.inbox.wait(0.05):
            if self._stop.is_set():
                raise StoppedError
            self._commit_if_due()
        self._end_splits()
        self._open_transaction()

    def _version(self, event: Rows) -> _Version:
        """Compile a table version met for the first time, and publish its schema before its first row."""
        mapped = event.table
        captured = self._tables.capture(mapped.id, mapped.columns, mapped.primary_key)
        tracked = self._registry.tables.get(mapped.id)
        if tracked is None:
            # Not there when the capture listed its tables, behind the start of the log: all its rows come from the log.
            tracked = self._registry.track(mapped.id, Phase.LOG)
            self._ensure_topic(mapped.id)
            self._store_table(mapped.id, TableState(phase="log"))
        self._open_transaction()
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

    # -- asked by the enumerator, through the inbox ------------------------------------------------------------------

    def begin_table(self, table: TableId, order: KeyOrder) -> Barrier:
        """Hold the table's changes until its range is known; return the barrier for reading its greatest key."""
        self._orders[table] = order
        self._registry.begin(table)
        return self._place.barrier()

    def reorder(self, table: TableId, order: KeyOrder) -> None:
        """Place the table's keys by another order: it turned out that there is nothing to cut."""
        self._orders[table] = order

    def set_range(self, split_table: TableId, state: TableState, greatest: tuple[object, ...] | None) -> None:
        """Let changes above the greatest planned key pass; durable on return, before any split can be."""
        self._registry.set_range(split_table, greatest)
        self._store_table(split_table, state)
        self.commit()

    def resume_table(self, table: TableId, order: KeyOrder, greatest: tuple[object, ...] | None) -> None:
        """Take up a table whose plan was stored before a restart."""
        self._orders[table] = order
        self._registry.begin(table)
        self._registry.set_range(table, greatest)

    def restore_split(self, split: Split, state: SplitState, backfill: int) -> None:
        """Take up a split that was committed before a restart."""
        self._registry.open(split)
        self.commit_split(split, state, backfill=backfill)
        if state.ended:
            self._registry.mark_ended(split)

    def open_split(self, split: Split) -> Barrier:
        """Hold the split's changes from here on; return the barrier for its low watermark."""
        self._registry.open(split)
        return self._place.barrier()

    def commit_split(self, split: Split, state: SplitState, *, backfill: int = 0) -> None:
        """The split's rows are in Kafka: its changes go on."""
        self._splits[split.id] = (split, state)
        high = (file_number(state.high.file), state.high.pos)
        self._registry.commit(split, GtidSet.parse(state.low.gtids), high, backfill=backfill)

    def all_read(self, table: TableId) -> None:
        """The table's plan is finished and every split committed."""
        self._registry.mark_all_read(table)

    # -- ends --------------------------------------------------------------------------------------------------------

    def _end_splits(self) -> None:
        """Write END of the splits whose HW is passed, and let finished tables go."""
        for tracked in self._registry.passed(self._place.log_place):
            self._end(tracked)
        for table in self._registry.finished_tables():
            self._finish(table)

    def _end(self, tracked: TrackedSplit) -> None:
        split, state = self._splits[tracked.split.id]
        self._open_transaction()
        record = watermark_record(
            WatermarkKind.END,
            split,
            self._tables.topic(split.table),
            state.high,
            state.schema,
            rows=state.rows,
            checksum=state.checksum,
            backfill=tracked.backfill,
        )
        self._publisher.send(watermarks_topic(self._settings.prefix), record.record_key(), record.to_json())
        ended = replace(state, ended=True)
        self._publisher.send(state_topic(self._settings.prefix), split_key(split.id), ended.to_json())
        self._status.split_ended(split.table)

    def _finish(self, table: TableId) -> None:
        """Go to pure log mode; the table's splits leave the state."""
        self._open_transaction()
        for split_id in self._registry.tables[table].opened:
            self._publisher.send(state_topic(self._settings.prefix), split_key(split_id), None)
            del self._splits[split_id]
        self._registry.to_log(table)
        self._orders.pop(table, None)
        self._store_table(table, TableState(phase="log"))
        self._status.table_finished(table)
        log.info("snapshot of table finished", table=str(table))

    def _store_table(self, table: TableId, state: TableState) -> None:
        self._open_transaction()
        self._publisher.send(state_topic(self._settings.prefix), table_key(table), state.to_json())

    @property
    def snapshot_running(self) -> bool:
        """Tell whether any table is not in pure log mode."""
        return any(t.phase is not Phase.LOG for t in self._registry.tables.values())
