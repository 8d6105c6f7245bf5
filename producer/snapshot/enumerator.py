"""Enumerator: plans tables, hands splits to idle workers, tells the log reader what was opened and done.

It runs on a thread of its own and touches the log reader's state only through the inbox. Planning is lazy: a split is
planned when a worker is free for it, so a table of a billion rows costs no memory and no wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import structlog
from pymysql.connections import Connection

from tailrace.producer.errors import SourceError, SourceUnavailableError
from tailrace.producer.kafka.state_store import SplitState, State, TableState
from tailrace.producer.model.split import Range, Split
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql import connection as database
from tailrace.producer.mysql.catalog import CatalogTable, exists, read_table
from tailrace.producer.mysql.key_order import KeyColumn, KeyOrder, QueryServer, from_json, to_json
from tailrace.producer.mysql.offset import mysql_offset
from tailrace.producer.mysql.watermark import wait_until_visible
from tailrace.producer.ops.status import Status
from tailrace.producer.serialization.captured_tables import CapturedTables
from tailrace.producer.snapshot.reader import SplitDone, SplitTask
from tailrace.producer.snapshot.splitter import ChunkSplitter, SplitterSettings
from tailrace.producer.snapshot.workers import RowsRead, SplitFailed, SplitFinished, Workers
from tailrace.producer.streaming.binlog_reader import BinlogReader
from tailrace.runtime.errors import SchemaError

log = structlog.get_logger(__name__)

T = TypeVar("T")

_MAX_MISSING_TABLE_RETRIES = 20
"""How often a table may be missed that is there when looked for: its name is being passed on again and again."""


class SnapshotControl(Protocol):
    """What people want of tables that are read again; may change at any moment."""

    @property
    def paused(self) -> bool:
        """Whether no split may be handed out now."""

    def stopped(self, table: TableId) -> bool:
        """Tell whether the rest of a table is not wanted any more."""

    def condition(self, table: TableId) -> str:
        """Return the SQL that the rows of a table must meet; empty: all rows."""


class CaptureStoppedError(Exception):
    """The capture is stopping; the enumerator leaves quietly."""


class TableUnreadableError(Exception):
    """A table cannot be read again, and is to be given up as soon as no reader is at work."""

    def __init__(self, table: TableId, why: str) -> None:
        super().__init__(why)
        self.table = table


@dataclass(slots=True)
class TablePlan:
    """One table's plan under way."""

    table: TableId
    snapshot: str
    columns: tuple[KeyColumn, ...]
    planner: ChunkSplitter
    unread_ranges: Sequence[Range]
    next_number: int
    estimated_rows: int
    in_flight: int = 0
    exhausted: bool = False
    gone: bool = False
    """The source no longer has the table; what is in flight is waited for."""

    @property
    def all_read(self) -> bool:
        """Tell whether nothing of the plan is left to plan or read."""
        return self.exhausted and self.in_flight == 0 and not self.gone


class Enumerator:
    """Runs the snapshot of the given tables."""

    def __init__(
        self,
        session: Connection,
        log_reader: BinlogReader,
        tables: CapturedTables,
        state: State,
        todo: Sequence[TableId],
        *,
        settings: SplitterSettings,
        status: Status,
        stop: threading.Event,
        log_asks: QueryServer,
        barrier_timeout_s: float = 60.0,
        guide: SnapshotControl | None = None,
    ) -> None:
        """``guide`` is there for tables that are read again beside their log."""
        self._session = session
        self._inbox = log_reader.inbox
        self._log = log_reader.progress
        self._tables = tables
        self._state = state
        self._todo = list(todo)
        self._settings = settings
        self._status = status
        self._stop = stop
        self._log_asks = log_asks
        self._barrier_timeout_s = barrier_timeout_s
        self._plans: dict[TableId, TablePlan] = {}
        self._tasks: dict[int, SplitTask] = {}
        self._misses = 0
        self._closing = False
        self._guide = guide
        self._incremental = guide is not None

    def restore(self) -> None:
        """Tell the log reader of every stored plan. Called before its first event, on its thread.

        A change of a key whose split was committed before the restart would else be taken for one not selected yet.
        """
        for table in self._todo:
            stored = self._state.tables.get(str(table))
            if stored is not None:
                self._plans[table] = self._resumed(table, stored)

    def run(self, workers: Workers) -> None:
        """Read every table; returns when all splits are in Kafka."""
        idle = list(range(workers.count))
        splits = self._splits()
        exhausted = False
        while True:
            while idle and not exhausted and not self._closing and not self._paused:
                split = next(splits, None)
                if split is None:
                    exhausted = True
                elif self._hand_out(workers, idle[-1], split):
                    idle.pop()
                else:
                    self._closing = True  # the capture is about to start again; splits that are read go on to their end
            if exhausted and len(idle) == workers.count:
                return
            self._check_stop()
            message = workers.next(0.2)
            if isinstance(message, RowsRead):
                continue
            if isinstance(message, SplitFinished):
                idle.append(message.worker)
                self._done(message.result)
            elif isinstance(message, SplitFailed) and message.missing is not None:
                if self._abandoned(workers, message):
                    idle.append(message.worker)
            elif isinstance(message, SplitFailed):
                raise self._failure(message)

    @property
    def _paused(self) -> bool:
        return self._guide is not None and self._guide.paused

    def _stopped(self, table: TableId) -> bool:
        return self._guide is not None and self._guide.stopped(table)

    def _failure(self, message: SplitFailed) -> Exception:
        """Return what to raise for a reader that failed; a table that is read again must not stop the log."""
        if message.retryable:
            return SourceUnavailableError(message.message)
        if self._guide is None:
            return SourceError(message.message)
        return TableUnreadableError(self._tasks[message.worker].split.table, message.message)

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise CaptureStoppedError

    def _hand_out(self, workers: Workers, worker: int, split: Split) -> bool:
        barrier = self._asked(lambda: self._log.open_split(split))
        if barrier is None:
            return False
        condition = self._guide.condition(split.table) if self._guide is not None else ""
        self._tasks[worker] = SplitTask(split, self._plans[split.table].columns, barrier, condition)
        workers.submit(worker, self._tasks[worker])
        return True

    def _done(self, done: SplitDone) -> None:
        split = done.split
        state = SplitState(
            database=split.table.database,
            table=split.table.table,
            snapshot=split.snapshot,
            number=split.number,
            lower=to_json(split.range.lower),
            upper=to_json(split.range.upper),
            closed=split.range.closed,
            low=done.low,
            high=done.high,
            rows=done.rows,
            checksum=done.checksum,
            schema=done.schema,
        )
        self._asked(lambda: self._log.commit_split(split, state))
        plan = self._plans[split.table]
        plan.in_flight -= 1
        self._status.split_read(split.table, rows=done.rows)
        log.debug("split read", split=split.id, rows=done.rows, seconds=round(done.seconds, 3))
        self._settle(plan)

    # -- tables that go away -----------------------------------------------------------------------------------------

    def _abandoned(self, workers: Workers, failed: SplitFailed) -> bool:
        """Give a split up whose table is gone; where there is one again, have it read after all and return False."""
        split = failed.missing
        assert split is not None
        if exists(self._session, split.table) or not self._asked(lambda: self._log.abandon_split(split)):
            self._misses += 1
            if self._misses > _MAX_MISSING_TABLE_RETRIES:
                raise SourceError(failed.message)
            workers.submit(failed.worker, self._tasks[failed.worker])
            return False
        plan = self._plans[split.table]
        plan.in_flight -= 1
        self._give_up(split.table)
        return True

    def _give_up(self, table: TableId) -> None:
        """Leave the rest of a table out: the source no longer has it."""
        plan = self._plans.get(table)
        if plan is None or not plan.gone:
            log.warning("table is gone from the source: the rest of its snapshot is left out", table=str(table))
        if plan is None:
            self._leave(table)
            return
        plan.gone = plan.exhausted = True
        self._settle(plan)

    def _leave(self, table: TableId) -> None:
        if not self._asked(lambda: self._log.abandon_table(table)):
            raise SourceUnavailableError("a table was dropped and made again while it was planned", table=str(table))

    def _settle(self, plan: TablePlan) -> None:
        if self._plans.get(plan.table) is not plan:
            return
        if plan.gone and plan.in_flight == 0:
            self._leave(plan.table)
            del self._plans[plan.table]
        elif plan.all_read:
            self._asked(lambda: self._log.all_read(plan.table))
            del self._plans[plan.table]

    # -- planning ----------------------------------------------------------------------------------------------------

    def _splits(self) -> Iterator[Split]:
        """Yield the splits of all tables; a table is begun when the one before it is planned to its end."""
        for table in self._todo:
            self._check_stop()
            try:
                plan = self._plans.get(table) or self._begun(table)
                if plan is None:
                    continue
                self._plans[table] = plan
                yield from self._planned(plan)
            except (SourceError, SchemaError) as error:
                if isinstance(error, SourceUnavailableError):
                    raise
                if exists(self._session, table):
                    if self._guide is None:
                        raise
                    raise TableUnreadableError(table, str(error)) from error
                self._give_up(table)
            else:
                plan.exhausted = True
                self._settle(plan)

    def _planned(self, plan: TablePlan) -> Iterator[Split]:
        ranges = plan.planner.ranges(plan.unread_ranges, plan.estimated_rows)
        for split in plan.planner.splits(ranges, plan.snapshot, plan.next_number, incremental=self._incremental):
            if plan.gone or self._stopped(plan.table):
                return
            plan.in_flight += 1
            self._status.split_planned(plan.table)
            yield split

    def _catalog(self, table: TableId) -> tuple[CatalogTable, tuple[KeyColumn, ...]]:
        found = read_table(self._session, table)
        return found, self._tables.split_columns(found)

    def _planner(self, table: TableId, columns: tuple[KeyColumn, ...]) -> ChunkSplitter:
        return ChunkSplitter(table, KeyOrder(columns, lambda sql: self._run(sql)[0]), self._run, self._settings)

    def _begun(self, table: TableId) -> TablePlan | None:
        """Fix the greatest key behind the barrier: what lies above it comes from the log, all of it.

        None: the log has brought the table's end.
        """
        found, columns = self._catalog(table)
        order = KeyOrder(columns, self._log_asks)
        barrier = self._asked(lambda: self._log.begin_table(table, order))
        if barrier is None:
            return None
        wait_until_visible(self._session, mysql_offset(barrier), self._barrier_timeout_s)
        planner = self._planner(table, columns)
        greatest = planner.greatest()
        if greatest is None:  # nothing to cut: one split over every key
            columns = ()
            whole = KeyOrder(columns, self._log_asks)
            self._asked(lambda: self._log.reorder(table, whole))
        snapshot = f"{time.time_ns() // 1_000_000:x}"
        placed = planner.place(greatest)
        names = tuple(c.column.name for c in columns)
        state = TableState(phase="snapshot", snapshot=snapshot, greatest=to_json(greatest), key=names)
        self._asked(lambda: self._log.set_range(table, state, placed))
        self._status.table_begun(table, estimated_rows=found.rows)
        log.info("snapshot of table begun", table=str(table), estimated_rows=found.rows, split_on=list(names))
        return TablePlan(table, snapshot, columns, planner, planner.unread_ranges(greatest, []), 0, found.rows)

    def _resumed(self, table: TableId, stored: TableState) -> TablePlan:
        """Take up a stored plan: finished splits stay, what lies between them is planned anew."""
        found, columns = self._catalog(table)
        columns = columns[: len(stored.key)]
        if tuple(c.column.name for c in columns) != stored.key:
            raise SourceError(
                f"the key of {table} changed while its snapshot was under way",
                hint="take the snapshot of this table again: exclude it, start, stop, include it, start",
                was=", ".join(stored.key),
            )
        planner = self._planner(table, columns)
        greatest = from_json(stored.greatest)
        order = KeyOrder(columns, self._log_asks)
        if self._incremental:
            self._log.resume_incremental(table, order, stored)
        else:
            self._log.resume_table(table, order, planner.place(greatest), stored)
        self._status.table_begun(table, estimated_rows=found.rows)
        finished = [
            self._restored(planner, table, state)
            for state in self._state.splits.values()
            if (state.database, state.table, state.snapshot) == (*table, stored.snapshot)
        ]
        unread_ranges = planner.unread_ranges(greatest, finished)
        number = max((s.number for s in finished), default=-1) + 1
        log.info(
            "snapshot of table resumed", table=str(table), splits_done=len(finished), unread_ranges=len(unread_ranges)
        )
        return TablePlan(table, stored.snapshot, columns, planner, unread_ranges, number, found.rows)

    def _restored(self, planner: ChunkSplitter, table: TableId, state: SplitState) -> Split:
        span = Range(from_json(state.lower), from_json(state.upper), state.closed)
        bounds = planner.place(span.lower), planner.place(span.upper)
        split = Split(table, state.snapshot, state.number, span, *bounds, incremental=self._incremental)
        backfill = self._state.log.backfill.get(split.id, 0) if self._state.log is not None else 0
        self._log.restore_split(split, state, backfill)
        self._status.split_planned(table)
        self._status.split_read(table, rows=state.rows)
        if state.ended:
            self._status.split_ended(table)
        return split

    def _run(self, sql: str) -> Sequence[tuple[object, ...]]:
        return database.query(self._session, sql)

    def _asked(self, work: Callable[[], T]) -> T:
        future = self._inbox.ask(work)
        while True:
            self._check_stop()
            try:
                return future.result(timeout=0.5)
            except TimeoutError:
                continue
