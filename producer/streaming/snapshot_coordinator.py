"""How far the snapshot is, as the log reader knows it: what the enumerator tells of splits, and what follows in Kafka.

Used by the log reader's thread alone; the enumerator asks through the inbox.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol

import structlog

from tailrace.producer.kafka.state_store import SplitState, TableState, split_key, table_key
from tailrace.producer.kafka.transactional_producer import TransactionalProducer
from tailrace.producer.model.protocols import Offset
from tailrace.producer.model.split import Split
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.key_order import KeyOrder
from tailrace.producer.ops.status import Status
from tailrace.producer.serialization.captured_tables import CapturedTables
from tailrace.producer.snapshot.reader import watermark_record
from tailrace.producer.snapshot.split_registry import Phase, SplitRegistry, TrackedSplit
from tailrace.producer.streaming.offset import StreamOffset
from tailrace.schemas.names import state_topic, watermarks_topic
from tailrace.schemas.watermark import WatermarkKind

log = structlog.get_logger(__name__)


class SnapshotProgressListener(Protocol):
    """Who is told what becomes of snapshots, on the log reader's thread, within the Kafka transaction that says it."""

    def table_begun(self, table: TableId, *, incremental: bool) -> None:
        """A table is being read."""

    def split_read(self, table: TableId, state: SplitState, plan: TableState, *, incremental: bool) -> None:
        """A split's rows are in Kafka."""

    def table_finished(self, table: TableId, rows: int, *, incremental: bool) -> None:
        """Every split of a table is ended."""

    def on_table_removed(self, table: TableId, *, incremental: bool) -> None:
        """A table's snapshot is given up: the source no longer has it, or it cannot go on."""


class SnapshotCoordinator:
    """Moves tables and splits through the registry's states, and writes ENDs and states."""

    def __init__(
        self,
        registry: SplitRegistry,
        tables: CapturedTables,
        publisher: TransactionalProducer,
        place: StreamOffset,
        *,
        prefix: str,
        status: Status,
        open_transaction: Callable[[], None],
        commit: Callable[[], None],
        left: Callable[[TableId], None],
    ) -> None:
        """``left`` is told of a table whose versions met in the log are to be looked at anew.

        So where a plan begins: the log may be behind the definition that it was made by, and its key is then another.
        """
        self.orders: dict[TableId, KeyOrder] = {}
        """How the keys of tables under snapshot are placed."""
        self.witness: SnapshotProgressListener | None = None
        self._plans: dict[TableId, TableState] = {}
        self._splits: dict[str, tuple[Split, SplitState]] = {}
        self._registry = registry
        self._tables = tables
        self._publisher = publisher
        self._place = place
        self._prefix = prefix
        self._status = status
        self._open_transaction = open_transaction
        self._commit = commit
        self._left = left

    # -- asked by the enumerator -------------------------------------------------------------------------------------

    def begin_table(self, table: TableId, order: KeyOrder) -> Offset | None:
        """Hold the table's changes until its range is known; return the barrier for reading its greatest key.

        None: the log has brought its end.
        """
        if table not in self._registry.tables:
            return None
        self.orders[table] = order
        self._registry.begin(table)
        self._left(table)
        return self._place.barrier()

    def reorder(self, table: TableId, order: KeyOrder) -> None:
        """Place the table's keys by another order: it turned out that there is nothing to cut."""
        self.orders[table] = order

    def set_range(self, table: TableId, state: TableState, greatest: tuple[object, ...] | None) -> None:
        """Let changes above the greatest planned key pass; durable on return, before any split can be."""
        self._registry.set_range(table, greatest)
        self._plans[table] = state
        self.store_table(table, state)
        if self.witness is not None:
            self.witness.table_begun(table, incremental=False)
        self._commit()

    def begin_incremental(self, table: TableId, order: KeyOrder, state: TableState, stale: Iterable[str]) -> bool:
        """Begin to read a table again; durable on return. ``stale`` are splits of a run that is given up.

        False: the table is not followed now, the log has brought its end.
        """
        tracked = self._registry.tables.get(table)
        if tracked is None or tracked.phase is not Phase.LOG:
            return False
        self.orders[table] = order
        self._plans[table] = state
        self._registry.start_incremental(table)
        self._left(table)
        self.store_table(table, state)
        for split_id in stale:
            self._publisher.send(state_topic(self._prefix), split_key(split_id), None)
        if self.witness is not None:
            self.witness.table_begun(table, incremental=True)
        self._commit()
        return True

    def resume_incremental(self, table: TableId, order: KeyOrder, state: TableState) -> None:
        """Take up a table that was being read again when the capture stopped."""
        self.orders[table] = order
        self._plans[table] = state
        self._registry.start_incremental(table)

    def cancel_incremental(self, table: TableId) -> None:
        """Leave a table that is read again as it is: the log goes on, and what was read stays. Durable on return.

        No reader may be at it any more, unless the log reader stops: its rows would stand behind changes they lack.
        """
        tracked = self._registry.tables.get(table)
        if tracked is not None and tracked.phase is Phase.INCREMENTAL:
            for split_id in tracked.opened:
                if self._splits.pop(split_id, None) is not None:
                    self._open_transaction()
                    self._publisher.send(state_topic(self._prefix), split_key(split_id), None)
            self._registry.finish_table(table)
            self.orders.pop(table, None)
            self.store_table(table, TableState(phase="log"))
            self._status.table_finished(table)
        if self.witness is not None:
            self._open_transaction()
            self.witness.on_table_removed(table, incremental=True)
        self._commit()

    def resume_table(
        self, table: TableId, order: KeyOrder, greatest: tuple[object, ...] | None, state: TableState
    ) -> None:
        """Take up a table whose plan was stored before a restart."""
        self.orders[table] = order
        self._plans[table] = state
        self._registry.begin(table)
        self._registry.set_range(table, greatest)

    def restore_split(self, split: Split, state: SplitState, backfill: int) -> None:
        """Take up a split that was committed before a restart."""
        self._registry.open(split)
        self._commit_split(split, state, backfill)
        if state.ended:
            self._registry.mark_ended(split)

    def open_split(self, split: Split) -> Offset | None:
        """Hold the split's changes from here on; return the barrier for its low watermark.

        None: the table's snapshot is about to begin anew, nothing more of it may be read.

        Of a table that is read again, what was written comes first in the topic: the rows will show it.
        """
        if self._registry.tables[split.table].closed:
            return None
        if split.incremental:
            self._commit()
        self._registry.open(split)
        return self._place.barrier()

    def commit_split(self, split: Split, state: SplitState) -> None:
        """The split's rows are in Kafka: its changes go on."""
        self._commit_split(split, state, 0)
        if self.witness is not None:
            self._open_transaction()
            self.witness.split_read(split.table, state, self._plans[split.table], incremental=split.incremental)

    def _commit_split(self, split: Split, state: SplitState, backfill: int) -> None:
        self._splits[split.id] = (split, state)
        self._registry.commit(split, state.low, state.high, backfill=backfill)

    def all_read(self, table: TableId) -> None:
        """The table's plan is finished and every split committed."""
        self._registry.mark_all_read(table)

    def abandon_split(self, split: Split) -> bool:
        """The split's table is gone: let go of the changes that are held for it.

        False: the log has brought a table of that name again, whose changes were judged by this plan: it must be read.
        """
        tracked = self._registry.tables[split.table]
        if tracked.recreated:
            return False
        tracked.abandoned = True
        self._registry.abandon_split(split)
        return True

    def abandon_table(self, table: TableId) -> bool:
        """The source no longer has the table, and no reader is at it: it leaves once the log has brought its end.

        False as above.
        """
        tracked = self._registry.tables.get(table)
        if tracked is None or tracked.phase is Phase.LOG:
            return True  # it has left, and may have come again
        if tracked.recreated and not tracked.abandoned:
            return False
        self._registry.abandon(table)
        if tracked.dropped:
            self.leave(table)
        return True

    # -- ends --------------------------------------------------------------------------------------------------------

    def end_splits(self) -> None:
        """Write END of the splits whose HW is passed, and let finished tables go."""
        for tracked in self._registry.end_passed(self._place.position):
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
        self._publisher.send(watermarks_topic(self._prefix), record.record_key(), record.to_json())
        ended = replace(state, ended=True)
        self._publisher.send(state_topic(self._prefix), split_key(split.id), ended.to_json())
        self._status.split_ended(split.table)

    def _finish(self, table: TableId) -> None:
        """Go to pure log mode; the table's splits leave the state."""
        self._open_transaction()
        incremental = self._registry.tables[table].phase is Phase.INCREMENTAL
        opened = self._registry.tables[table].opened
        rows = sum(self._splits[split_id][1].rows for split_id in opened if split_id in self._splits)
        self._drop_splits(table)
        self._registry.finish_table(table)
        self.orders.pop(table, None)
        self._plans.pop(table, None)
        self.store_table(table, TableState(phase="log"))
        self._status.table_finished(table)
        if self.witness is not None:
            self.witness.table_finished(table, rows, incremental=incremental)
        log.info("snapshot of table finished", table=str(table))

    def leave(self, table: TableId) -> None:
        """Forget a table: what its splits wrote is certified as far as it goes, nothing of it stays in the state."""
        self._open_transaction()
        incremental = self._registry.tables[table].phase is Phase.INCREMENTAL
        self._drop_splits(table)
        for tracked in self._registry.forget(table):
            self._end(tracked)
            self._publisher.send(state_topic(self._prefix), split_key(tracked.split.id), None)
            del self._splits[tracked.split.id]
        self.orders.pop(table, None)
        self._publisher.send(state_topic(self._prefix), table_key(table), None)
        self._plans.pop(table, None)
        self._status.forget(table)
        self._left(table)
        if self.witness is not None:
            self.witness.on_table_removed(table, incremental=incremental)

    def _drop_splits(self, table: TableId) -> None:
        """Take the table's ended splits out of the state."""
        for split_id, tracked in self._registry.tables[table].opened.items():
            if tracked.ended:
                self._publisher.send(state_topic(self._prefix), split_key(split_id), None)
                del self._splits[split_id]

    def store_table(self, table: TableId, state: TableState) -> None:
        """Write where a table stands."""
        self._open_transaction()
        self._publisher.send(state_topic(self._prefix), table_key(table), state.to_json())

    @property
    def running(self) -> bool:
        """Tell whether any table's first snapshot is not over."""
        return any(
            t.phase not in {Phase.LOG, Phase.INCREMENTAL} and not t.abandoned for t in self._registry.tables.values()
        )
