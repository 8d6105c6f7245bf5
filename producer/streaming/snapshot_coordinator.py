"""Moves tables and splits through the registry's states, and writes END watermarks and snapshot state.

All methods run on the stream's thread. The enumerator, on its own thread, calls them through the mailbox.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import structlog

from tailrace.producer.kafka.state_store import (
    RangeState,
    SplitState,
    State,
    TableState,
    backfill_key,
    split_key,
    table_key,
)
from tailrace.producer.model.protocols import KeyOrdering, Offset
from tailrace.producer.model.split import EndedRange, SortKey, Split
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableFault, TableMode, TablePresence
from tailrace.producer.streaming import former_tables
from tailrace.producer.streaming.context import SnapshotProgressListener, StreamContext
from tailrace.producer.streaming.mailbox import Mailbox
from tailrace.producer.streaming.stream_hold import StreamHold
from tailrace.producer.streaming.table_versions import TableVersions
from tailrace.producer.streaming.tracked_table import TrackedSplit, TrackedTable
from tailrace.producer.streaming.watermark_record import (
    end_watermark,
    ends_of_stored_splits,
    high_watermark,
    low_watermark,
)
from tailrace.schemas.names import watermarks_topic
from tailrace.schemas.watermark import Watermark

_NOT_READ: Final = "the incremental snapshot that all rows of the table need was cancelled"
log = structlog.get_logger(__name__)


class SnapshotCoordinator:
    """The snapshots of all tables, as the stream sees them."""

    def __init__(self, context: StreamContext, versions: TableVersions, listener: SnapshotProgressListener) -> None:
        self.mailbox: Mailbox = context.mailbox
        self._context = context
        self._transaction = context.transaction
        self._registry = context.registry
        self._status = context.status
        self._versions = versions
        self._listener = listener
        self._plans: dict[TableId, TableState] = {}
        self._splits: dict[str, tuple[Split, SplitState]] = {}
        self._partitions: dict[str, int] = {}
        """Topic to the number of partitions that the stream's client was last told."""
        self.hold = StreamHold(context, self.end_splits)

    def known_keys(self) -> dict[str, Mapping[str, Any]]:
        """Return what is known of keys, for snapshot readers; any thread may call this."""
        return self._context.tables.keys.dump()

    def confirm_ownership(self) -> None:
        """Commit. Raises ProducerFencedError if another instance has taken over."""
        self._transaction.commit(always=True)

    @property
    def max_hold_s(self) -> float:
        """How long a split may hold the stream; any thread may read this."""
        return self._context.settings.max_hold_s

    @property
    def every_fault_stops(self) -> bool:
        """Whether the fault of one table stops the producer; any thread may ask."""
        return self._context.settings.processing_failures == "fail"

    # -- initial snapshots -------------------------------------------------------------------------------------------

    def start_table(
        self, table: TableId, order: KeyOrdering, stand_in_key: tuple[tuple[str, ...], Offset] | None = None
    ) -> Offset | None:
        """Hold the table's changes until its range is known; return the barrier for reading its greatest key.

        None: the binlog has the table's end. ``stand_in_key``: the unique index that replaces a primary key, and what
        the source had executed before it was read.
        """
        tracked = self._registry.tables.get(table)
        if tracked is None:
            return None
        self._registry.start_planning(table)
        tracked.compare_by(order)
        self._status.table_mode(table, tracked.mode)
        # The stream may be behind the planned definition: known versions must be checked against its key.
        self._versions.forget(table)
        if stand_in_key is not None:
            self._versions.plan_key(table, *stand_in_key)
        return self._transaction.offset.barrier()

    def put_off_table(self, table: TableId) -> None:
        """Give up the plan of a table whose greatest key cannot be read now; it is planned again later."""
        tracked = self._registry.tables.get(table)
        if tracked is not None and tracked.mode is TableMode.PLANNING:
            self._registry.stop_planning(table)
            self._status.table_mode(table, tracked.mode)

    def replace_order(self, table: TableId, order: KeyOrdering) -> None:
        """Compare the table's keys in another order: the table turned out to be one split."""
        self._registry.tables[table].compare_by(order)

    def set_range(
        self,
        table: TableId,
        state: TableState,
        greatest: SortKey | None,
        above: tuple[Split, SplitState] | None,
        *,
        low: Offset,
    ) -> None:
        """Start the initial snapshot of a planned table; durable on return, before any split can be.

        ``low`` is the first low watermark: no row of the table will have a smaller sequence. ``above`` is the split of
        the keys above the greatest planned one, which has no rows: it is read already. A change of such a key is in
        doubt if it was made while the greatest key was read, as in any other split.
        """
        self._registry.set_range(table, greatest)
        former_tables.enter(self._context, table, low)
        self._start_snapshot(table, state)
        self._store_table(table, state)
        if above is not None:
            self._write_split_without_rows(*above)
        self._listener.on_table_started(table, incremental=False)
        self._transaction.commit()

    def _write_split_without_rows(self, split: Split, state: SplitState) -> None:
        topic = self._context.tables.topic(split.table)
        partitions = self._partitions[topic] = self._transaction.partitions(topic)
        self._send_watermark(low_watermark(split, topic, state.low, state.schema, partitions=partitions))
        self._send_watermark(high_watermark(split, topic, state))
        self._transaction.store(state.key, state.to_json())
        self._registry.open(split)
        self._commit_split(split, state, 0)

    def resume_table(self, table: TableId, order: KeyOrdering, state: TableState, greatest: SortKey | None) -> None:
        """Continue the initial snapshot of a table whose plan was stored before a restart."""
        self._registry.start_planning(table)
        self._registry.set_range(table, greatest)
        self._registry.tables[table].compare_by(order)
        self._start_snapshot(table, state)
        if str(table) in self._registry.former:  # readers remove also what splits have brought, so it is read again
            former_tables.enter(self._context, table, self._transaction.offset.position)
            self._listener.request_reading(table)
            self._transaction.commit()

    # -- incremental snapshots ---------------------------------------------------------------------------------------

    def prepare_incremental(self, table: TableId, *, whole: bool) -> Offset | None:
        """Take up a table in error; return the barrier for reading the greatest key: changes before it may be skipped.

        None: the table cannot be read now. ``whole``: all of its rows are to be read, as a table in error needs, until
        that is done.
        """
        tracked = self._registry.tables.get(table)
        if tracked is None or (not whole and (tracked.mode is TableMode.ERROR or tracked.fault is not None)):
            return None
        return self._transaction.offset.barrier() if self._versions.new_tables.take_up(table) else None

    def start_incremental(self, table: TableId, order: KeyOrdering, state: TableState) -> bool:
        """Start an incremental snapshot; durable on return.

        False: the table is not streamed now, the binlog has its end.
        """
        tracked = self._registry.tables.get(table)
        if tracked is None or tracked.mode is not TableMode.STREAMING:
            return False
        state = replace(state, fault=tracked.fault)
        self.resume_incremental(table, order, state)
        self._versions.forget(table)
        self._store_table(table, state)
        self._listener.on_table_started(table, incremental=True)
        self._transaction.commit()
        return True

    def resume_incremental(self, table: TableId, order: KeyOrdering, state: TableState) -> None:
        """Continue an incremental snapshot that was running when the capture stopped."""
        self._registry.start_incremental(table)
        self._registry.tables[table].compare_by(order)
        self._start_snapshot(table, state)

    def end_stored(self, table: TableId, state: State) -> None:
        """Remove an incremental snapshot of ``state`` that is not continued: the splits that it has get their END."""
        topic = self._context.tables.topic
        for end in ends_of_stored_splits(state, topic, lambda other: other == table):
            self._send_watermark(end)
        for key in state.splits_of(table).record_keys():
            self._transaction.store(key, None)
        # A later start must not continue it: its splits would get the ids of those that have ended.
        self._store_table(table, TableState(TableMode.STREAMING, fault=self._registry.tables[table].fault))

    def cancel_incremental(self, table: TableId, request: int | None = None, *, missing: bool = False) -> None:
        """Cancel an incremental snapshot: written rows get their END. Durable on return.

        The table keeps streaming, unless its topic lacks rows that the snapshot had to bring: then it is in error, so
        that it is read when that is possible. ``missing``: it leaves, since the log will bring its end. No reader
        may be active, unless the stream stops: its rows would follow changes that they do not contain. ``request``: the
        number of the one that is removed, and no other; None: that of the snapshot that is running.
        """
        tracked = self._registry.tables.get(table)
        if tracked is not None and tracked.mode is TableMode.INCREMENTAL:
            for split in tracked.opened.values():
                if split.id in self._splits:
                    self._end(split)
            self._forget_ended(tracked)
            self._stream_only(table)
        lacks_rows = self._listener.on_table_removed(table, incremental=True, request=request)
        if tracked is not None and tracked.mode is TableMode.STREAMING:
            if tracked.fault is not None or (lacks_rows and not missing):
                self._versions.fail(table, tracked.fault or TableFault(_NOT_READ, {}, defined=True))
            elif lacks_rows:
                former_tables.leave(self._context, table)  # a copy that replaces it has rows that the topic lacks
        self._transaction.commit()

    # -- splits ------------------------------------------------------------------------------------------------------

    def restore_split(self, split: Split, state: SplitState, backfill: int) -> None:
        self._registry.open(split)
        self._commit_split(split, state, backfill)

    def restore_ended(self, ended: EndedRange) -> None:
        self._registry.restore_ended(ended)

    def open_split(self, split: Split) -> Offset | None:
        """Hold the split's changes from here on; return the barrier for its low watermark.

        None: the table's snapshot is about to restart, none of its splits may be read any more.
        """
        if self._registry.tables[split.table].mode is TableMode.RESTARTING:
            return None
        if split.incremental:
            # Changes that are written already precede the split's rows in the topic; the rows contain them.
            self._transaction.commit()
        self._registry.open(split)
        return self._transaction.offset.barrier()

    def close_split(self, split: Split) -> None:
        """Hold the split's changes no longer: nothing of it is in Kafka, and it is opened again later."""
        tracked = self._registry.tables.get(split.table)
        if tracked is not None and split.id in tracked.opened:
            self._registry.close(split)

    def commit_split(self, split: Split, state: SplitState, *, partitions: int) -> bool:
        """The split's rows are in Kafka: its held changes continue. Return ``too_many_splits_wait``.

        ``partitions`` are those that its rows were divided among. Its changes must not be divided among fewer.
        """
        topic = self._context.tables.topic(split.table)
        if self._partitions.get(topic) != partitions:
            self._partitions[topic] = self._transaction.partitions(topic)
        self._commit_split(split, state, 0)
        plan = self._plans[split.table]
        self._listener.on_split_completed(split.table, state, plan, incremental=split.incremental)
        return self.too_many_splits_wait()

    def too_many_splits_wait(self) -> bool:
        """Return whether no split should be started until the binlog reader has passed the HW of some.

        Each split costs memory and a state record until then, and the backlog of the binlog has no limit.
        """
        return self._registry.waiting_for_end >= self._context.settings.max_waiting_splits

    def _commit_split(self, split: Split, state: SplitState, backfill: int) -> None:
        self._splits[split.id] = (split, state)
        self._registry.commit(split, state.low, state.high, rows=state.rows, backfill=backfill)

    def all_read(self, table: TableId) -> None:
        self._registry.mark_all_read(table)

    # -- tables that the readers no longer find ----------------------------------------------------------------------

    def abandon_split(self, split: Split) -> bool:
        """Give up a split whose table is missing: its held changes are skipped.

        False: the binlog has a new table of that name, whose changes this plan has already skipped; it must be read.
        """
        if not self._not_found(self._registry.tables[split.table]):
            return False
        self._registry.abandon_split(split)
        return True

    def abandon_table(self, table: TableId) -> bool:
        """Give up a missing table, which no reader reads: it is removed when the binlog has its end.

        False as in ``abandon_split``.
        """
        tracked = self._registry.tables.get(table)
        if tracked is None or tracked.mode is TableMode.STREAMING:
            return True  # removed already, and possibly created again
        if not self._not_found(tracked):
            return False
        self._registry.abandon(table)
        self._status.table_mode(table, tracked.mode)
        if tracked.presence is TablePresence.GONE:
            self.remove_table(table)
        return True

    @staticmethod
    def _not_found(table: TrackedTable) -> bool:
        table.presence = table.presence.after_not_found()
        return table.presence is not TablePresence.RECREATED

    def restart_table(self, table: TableId) -> None:
        """Open no more splits of a table: its initial snapshot restarts with the capture session."""
        self._registry.restart(table)
        self._status.table_mode(table, TableMode.RESTARTING)

    # -- ends --------------------------------------------------------------------------------------------------------

    def end_splits(self) -> None:
        """Write END for splits whose high watermark is passed, and finish tables whose splits have all ended."""
        for ending in self._registry.end_passed(self._transaction.offset.position):
            self._end(ending.split)
            if ending.merged is not None:
                merged = RangeState.of(ending.merged)
                self._transaction.store(merged.key, merged.to_json())
            if ending.absorbed is not None:
                self._transaction.store(RangeState.of(ending.absorbed).key, None)
        for table in self._registry.finished_tables():
            self._finish(table)

    def _end(self, tracked: TrackedSplit) -> None:
        """Write END; the state no longer needs the split itself."""
        split, state = self._splits.pop(tracked.id)
        self._send_watermark(end_watermark(split, self._context.tables.topic(split.table), state, tracked.backfill))
        self._forget_split(tracked)
        if not split.range.lower_open:
            self._status.split_ended(split.table)

    def _send_watermark(self, record: Watermark) -> None:
        self._transaction.send(watermarks_topic(self._context.settings.prefix), record.record_key(), record.to_json())

    def _forget_split(self, tracked: TrackedSplit) -> None:
        self._transaction.store(split_key(tracked.id), None)
        if tracked.backfill:
            self._transaction.store(backfill_key(tracked.id), None)

    def _finish(self, table: TableId) -> None:
        tracked = self._registry.tables[table]
        incremental = tracked.mode is TableMode.INCREMENTAL
        rows = sum(ended.rows for ended in tracked.ended_ranges)
        self._forget_ended(tracked)
        self._plans.pop(table, None)
        tracked.fault = None
        self._stream_only(table)
        self._listener.on_table_completed(table, rows, incremental=incremental)
        log.info("snapshot of table completed", table=str(table), rows=rows, incremental=incremental)

    def _stream_only(self, table: TableId) -> None:
        self._registry.finish_table(table)
        self._store_table(table, TableState(TableMode.STREAMING, fault=self._registry.tables[table].fault))
        self._status.table_mode(table, TableMode.STREAMING)

    def remove_table(self, table: TableId) -> None:
        """Remove a table: committed splits get their END, and nothing of the table stays in the state."""
        tracked = self._registry.tables[table]
        incremental = tracked.mode is TableMode.INCREMENTAL
        self._forget_ended(tracked)
        for split in self._registry.forget(table):
            self._end(split)
        self._context.tables.topics.release(table)  # no reader writes to it any more
        self._transaction.store(table_key(table), None)
        self._plans.pop(table, None)
        self._status.table_removed(table)
        self._versions.forget(table)
        self._listener.on_table_removed(table, incremental=incremental)

    def _forget_ended(self, table: TrackedTable) -> None:
        for ended in table.ended_ranges:
            self._transaction.store(RangeState.of(ended).key, None)

    def _start_snapshot(self, table: TableId, plan: TableState) -> None:
        self._plans[table] = plan
        self._status.table_mode(table, plan.mode)

    def _store_table(self, table: TableId, state: TableState) -> None:
        self._transaction.store(table_key(table), state.to_json())

    @property
    def initial_snapshot_running(self) -> bool:
        done = {TableMode.STREAMING, TableMode.INCREMENTAL, TableMode.ERROR}
        missing = {TablePresence.MISSING, TablePresence.GONE}
        return any(t.mode not in done and t.presence not in missing for t in self._registry.tables.values())
