"""Enumerator: plans tables, assigns splits to idle workers, and tells the stream which splits are opened and committed.

It runs on its own thread and reaches the stream only through the mailbox; ``SplitResults`` does so meanwhile.
Planning is lazy: a split is planned when a worker is free for it, so a table of a billion rows costs no memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn

import structlog

from tailrace.producer.errors import (
    RecordTooLargeError,
    SourceError,
    SourceUnavailableError,
    SplitTooSlowError,
    StatementTooSlowError,
    TableAccessError,
    TableLockedError,
    as_definition,
)
from tailrace.producer.kafka.state_store import SplitState, State, TableState
from tailrace.producer.model.split import EndedRange, Range, SortKey, Split, key_changed, key_from_json
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.ops.status import Status
from tailrace.producer.snapshot.pace import Pace
from tailrace.producer.snapshot.policy import SnapshotPolicy, definitions
from tailrace.producer.snapshot.reader import SplitDone, SplitTask
from tailrace.producer.snapshot.results import SplitResults
from tailrace.producer.snapshot.splitter import ChunkSplitter
from tailrace.producer.snapshot.table_planner import TablePlan, TablePlanner
from tailrace.producer.snapshot.table_queue import TableQueue
from tailrace.producer.snapshot.workers import SplitFailed, SplitFinished, Workers
from tailrace.producer.streaming.snapshot_coordinator import SnapshotCoordinator
from tailrace.runtime.errors import Retryable, SchemaError

log = structlog.get_logger(__name__)

MAX_MISSING_TABLE_RETRIES = 20
"""Retries when a reader does not find a table that exists: online schema change tools rename tables repeatedly."""
_UNWRITABLE: Final = (SchemaError, RecordTooLargeError, SplitTooSlowError)


class Enumerator:
    """Runs the snapshot of the given tables, initial or incremental."""

    def __init__(
        self,
        planner: TablePlanner,
        coordinator: SnapshotCoordinator,
        policy: SnapshotPolicy,
        tables: Sequence[TableId],
        *,
        state: State,
        status: Status,
    ) -> None:
        """``state`` is the one that was stored before the start. ``close`` closes ``planner``."""
        self._planner = planner
        self._coordinator = coordinator
        self._mailbox = coordinator.mailbox
        self._policy = policy
        self.tables = list(tables)
        self._queue = TableQueue(self.tables, status, coordinator.max_hold_s)
        self._state = state
        self._status = status
        self.pace = Pace(0, 0, split_rows=0)
        """The limits of what is read."""
        self._ahead: TablePlan | None = None
        """The plan whose next split is known and waits for the limits."""
        self._plans: dict[TableId, TablePlan] = {}
        self._tasks: dict[int, SplitTask] = {}
        self._missing_retries = 0
        self._restarting = False
        self._stream_behind = True
        """Whether too many splits waited for the binlog reader when it was last known."""
        self._waits_for_stream = False

    def restore(self) -> None:
        """Tell the stream about every stored plan; called on its thread before its first event.

        Otherwise the stream would take a change in a committed split for one that is not selected yet.
        """
        for table in self.tables:
            stored = self._state.tables.get(str(table))
            if stored is None or stored.mode is TableMode.ERROR:
                continue  # nothing of it is read, and there is no plan
            try:
                splits = self._state.splits_of(table).of_run(stored.snapshot).splits
                if self._policy.can_resume(table, stored, splits):
                    self._plans[table] = self._resume_plan(table, stored)
                elif stored.mode is TableMode.INCREMENTAL:
                    self._coordinator.end_stored(table, self._state)
            except (SourceError, SchemaError) as error:
                if isinstance(error, SourceUnavailableError):
                    raise
                if isinstance(error, TableAccessError) or self._planner.session.exists(table):
                    self._policy.fail(table, as_definition(error))
                # It existed when the session began. A session that begins without it ends its splits.
                raise SourceUnavailableError("a table was dropped while its snapshot resumed", table=table) from error

    def run(self, workers: Workers) -> None:
        """Read every table; returns when all splits are in Kafka."""
        call, stream = self._mailbox.call, self._coordinator
        on_read, on_put_off = self._report_split, lambda split: call(lambda: stream.close_split(split))
        with SplitResults(workers, stream.hold, on_read, on_put_off) as results:
            self._run(workers, results)

    def _run(self, workers: Workers, results: SplitResults) -> None:
        idle = list(range(workers.count))
        while True:
            while idle and not self._restarting and not self._paused:
                split = self._next_due_split()
                if split is None:
                    break
                if self._assign(workers, idle[-1], split):
                    idle.pop()
                else:
                    self._restarting = True  # the capture is about to restart; splits in flight are completed
            if not self._queue and not self._restarting and len(idle) == workers.count:
                return
            self._mailbox.check_stopped()
            message = results.next(0.2)
            if isinstance(message, SplitFinished):
                idle.append(message.worker)
                self._on_split_read(message.result)
            elif isinstance(message, SplitFailed) and message.missing is not None:
                if self._on_table_missing(workers, message, message.missing):
                    idle.append(message.worker)
            elif isinstance(message, SplitFailed) and message.put_off is not None:
                self._on_put_off(message, message.put_off)
                idle.append(message.worker)
            elif isinstance(message, SplitFailed):
                self._raise_failure(message)

    @property
    def _paused(self) -> bool:
        """Whether no split may be started now: by request, or because too many wait for the binlog reader.

        Each of those costs memory and a state record until the binlog reader passes its HW.
        """
        if self._policy.paused:
            return True
        if self._stream_behind:
            self._stream_behind = self._mailbox.call(self._coordinator.too_many_splits_wait)
        if self._stream_behind is not self._waits_for_stream:
            self._waits_for_stream = self._stream_behind
            self._status.snapshot_waits_for_stream(self._stream_behind)
            log.info(
                "the snapshot waits for the binlog reader: too many splits have no END certificate"
                if self._stream_behind
                else "the snapshot continues: the binlog reader has passed enough splits"
            )
        return self._stream_behind

    def _raise_failure(self, failed: SplitFailed) -> NoReturn:
        """Raise the error of a reader; one that could not start has no split."""
        error, task = failed.error, self._tasks.get(failed.worker)
        if task is None or isinstance(error, Retryable):
            raise error
        if isinstance(error, _UNWRITABLE):
            self._policy.raise_unwritable(task.split.table, error)
        self._policy.raise_unreadable(task.split.table, error)

    def close(self) -> None:
        self._planner.close()

    def _assign(self, workers: Workers, worker: int, split: Split) -> bool:
        barrier = self._mailbox.call(lambda: self._coordinator.open_split(split))
        if barrier is None:
            return False
        condition, keys = self._policy.condition(split.table), self._policy.keys(split.table)
        self._tasks[worker] = SplitTask(split, self._plans[split.table].columns, barrier, condition, keys)
        workers.submit(worker, self._tasks[worker])
        self.pace.started(split.id)
        return True

    def _report_split(self, done: SplitDone) -> None:
        """Tell the stream about a split that is in Kafka; on the thread of the results."""
        self._stream_behind = self._mailbox.call(
            lambda: self._coordinator.commit_split(done.split, done.state, partitions=done.partitions)
        )

    def _on_split_read(self, done: SplitDone) -> None:
        split = done.split
        plan = self._plans[split.table]
        plan.in_flight -= 1
        self.pace.read(split.id, done.state.rows, done.bytes)
        self._status.split_read(split.table, rows=done.state.rows)
        if done.values_replaced:
            self._status.values_replaced(split.table, done.values_replaced)
        log.debug("split read", split=split.id, rows=done.state.rows, seconds=round(done.seconds, 3))
        self._finish_if_done(plan)

    # -- missing tables ----------------------------------------------------------------------------------------------

    def _on_table_missing(self, workers: Workers, failed: SplitFailed, split: Split) -> bool:
        """Abandon a split whose table is missing; if the table exists, read the split again and return False."""
        exists = self._planner.session.exists(split.table)
        if exists or not self._mailbox.call(lambda: self._coordinator.abandon_split(split)):
            self._missing_retries += 1
            if self._missing_retries > MAX_MISSING_TABLE_RETRIES:
                if exists:
                    self._policy.raise_unreadable(split.table, failed.error)
                # The new table of that name is gone as well. The stream may hold a change of it, and so not reach its
                # end: a session that begins without the table does.
                raise SourceUnavailableError("a table was dropped, created and dropped again", table=split.table)
            workers.submit(failed.worker, self._tasks[failed.worker])
            return False
        plan = self._plans[split.table]
        plan.in_flight -= 1
        self._abandon(split.table)
        return True

    def _abandon(self, table: TableId) -> None:
        """Leave out the rest of a table that the source no longer has."""
        plan = self._plans.get(table)
        self._queue.remove(table)
        if plan is None or not plan.missing:
            log.warning("the source no longer has a table: the rest of its snapshot is skipped", table=str(table))
        if plan is None:
            self._policy.remove_missing(table, planned=False)
            return
        plan.missing = plan.exhausted = True
        self._finish_if_done(plan)

    def _finish_if_done(self, plan: TablePlan) -> None:
        table = plan.table
        if self._plans.get(table) is not plan:
            return
        if plan.missing and plan.in_flight == 0:
            self._policy.remove_missing(table, planned=True)
            del self._plans[table]
        elif plan.all_read:
            self._mailbox.call(lambda: self._coordinator.all_read(table))
            del self._plans[table]

    # -- planning ----------------------------------------------------------------------------------------------------

    def _next_due_split(self) -> Split | None:
        """Return the next split; None: there is none now, or it waits for the limits.

        It is planned before its time: only then is it known whether a table has one, and a table of which all is read,
        or whose rest is not requested any more, must not wait for the limits.
        """
        exceeded, ahead = self.pace.exceeded, self._ahead
        if exceeded and ahead is not None and not ahead.missing and not self._policy.stopped(ahead.table):
            return None
        split, self._ahead = self._next_split(), None
        if split is None or not exceeded:
            return split
        self._ahead = self._plans[split.table]
        self._ahead.in_flight -= 1
        self._ahead.put_off.append(split)
        return None

    def _next_split(self) -> Split | None:
        """Return the next split of the first table that can be read; None: there is none now.

        A table is planned when the one before it is planned completely, or is put off.
        """
        for table in self._queue.turns():
            self._mailbox.check_stopped()
            plan = self._plans.get(table)
            try:
                if plan is None:
                    with self._planner.session.shared_lock(table):
                        pass  # most often, a table that is locked holds no change
                    plan = self._start_plan(table)
                split = None if plan is None else self._next_of(plan)
            except TableLockedError:
                self._on_locked(table)
            except StatementTooSlowError:  # only the query of the greatest key has a limit
                self._queue.put_off_held(table, cut=True)
            except (SourceError, SchemaError) as error:
                if isinstance(error, SourceUnavailableError):
                    raise
                if isinstance(error, TableAccessError) or self._planner.session.exists(table):
                    self._policy.raise_unreadable(table, as_definition(error))
                self._abandon(table)
            else:
                self._queue.goes_on(table)
                if split is not None:
                    return split
                self._queue.remove(table)
                if plan is not None:
                    plan.exhausted = True
                    self._finish_if_done(plan)
        if self._queue:  # what is requested meanwhile does not wait for a table that is put off
            requested = [table for table in self._policy.requested() if table not in self.tables]
            self.tables += requested
            self._queue.extend(requested)
        return None

    def _next_of(self, plan: TablePlan) -> Split | None:
        """Return the next split of a plan; None: all are assigned. The lock is held, so that no query waits for it."""
        self._plans[plan.table] = plan
        if plan.missing or self._policy.stopped(plan.table):
            plan.put_off.clear()
            return None
        with self._planner.session.shared_lock(plan.table):
            split = plan.put_off.pop() if plan.put_off else self._plan_next(plan)
        plan.in_flight += split is not None
        return split

    def _plan_next(self, plan: TablePlan) -> Split | None:
        try:
            split = next(plan.planned, None)
        except (TableLockedError, StatementTooSlowError) as error:
            # What has raised yields nothing more: taken for its end, the rest of the table would never be read.
            raise SourceUnavailableError("the rest of a table could not be planned", table=plan.table) from error
        if split is not None:
            self._status.split_planned(plan.table)
        return split

    # -- tables that cannot be read now ------------------------------------------------------------------------------

    def _on_put_off(self, failed: SplitFailed, split: Split) -> None:
        """Read a split later; the stream has closed it."""
        plan = self._plans[split.table]
        plan.in_flight -= 1
        if plan.missing:
            self._finish_if_done(plan)
            return
        plan.put_off.append(split)
        if failed.held is not None:
            del self._tasks[failed.worker]  # it has another process now
            self._queue.put_off_held(split.table, cut=bool(plan.columns))
        else:
            self._on_locked(split.table)

    def _on_locked(self, table: TableId) -> None:
        self._queue.put_off(
            table, f"it is locked: {self._planner.session.lock_holders(table) or 'by an unknown thread'}"
        )

    def _start_plan(self, table: TableId) -> TablePlan | None:
        started = self._policy.start(table)
        if started is None:
            return None
        self._status.table_started(table, estimated_rows=started.size.rows)
        log.info(
            "snapshot of table started",
            table=str(table),
            incremental=self._policy.incremental,
            estimated_rows=started.size.rows,
            split_on=list(started.state.key),
        )
        state, splitter = started.state, started.splitter
        ranges = splitter.ranges(splitter.unread_ranges(key_from_json(state.greatest), []), started.size)
        planned = splitter.splits(ranges, state.snapshot, 0, incremental=self._policy.incremental)
        return TablePlan(table, started.columns, planned)

    def _resume_plan(self, table: TableId, stored: TableState) -> TablePlan:
        """Continue a stored plan: finished splits stay, the ranges between them are planned again."""
        found = self._planner.plan_input(table)
        columns = found.columns[: len(stored.key)]
        if definitions(columns) != stored.key_order:
            raise key_changed(table, stored.key_order, definitions(found.columns))
        self._policy.resume(table, stored, columns)
        self._status.table_started(table, estimated_rows=found.size.rows)
        splitter = self._planner.splitter(table, columns)
        finished = self._restore_splits(splitter, table, stored)
        unread_ranges = splitter.unread_ranges(key_from_json(stored.greatest), finished)
        number = max((each.next_number for each in finished), default=0)
        splits_done = sum(each.splits for each in finished)
        log.info(
            "snapshot of table resumed", table=str(table), splits_done=splits_done, unread_ranges=len(unread_ranges)
        )
        ranges = splitter.ranges(unread_ranges, found.size)
        planned = splitter.splits(ranges, stored.snapshot, number, incremental=self._policy.incremental)
        return TablePlan(table, columns, planned)

    def _restore_splits(self, splitter: ChunkSplitter, table: TableId, stored: TableState) -> list[EndedRange]:
        """Tell the stream about the splits of a stored plan; return the ranges that are read."""
        known = self._state.splits_of(table).of_run(stored.snapshot)
        # One request for the order of all bounds: the server is asked about text, some hundred values at a time.
        bounds = [bound for split in known.splits for bound in (split.lower, split.upper)]
        bounds += [bound for ended in known.ranges for bound in (ended.lower, ended.upper)]
        orders = iter(splitter.sort_keys([key_from_json(bound) for bound in bounds]))
        finished = [self._restore_split(table, state, next(orders), next(orders)) for state in known.splits]
        finished = [each for each in finished if not each.range.lower_open]
        for stored_range in known.ranges:
            ended = stored_range.ended_range(next(orders), next(orders))
            self._coordinator.restore_ended(ended)
            self._status.splits_restored(table, ended.splits, rows=ended.rows, ended=ended.splits)
            finished.append(ended)
        return finished

    def _restore_split(
        self, table: TableId, state: SplitState, lower: SortKey | None, upper: SortKey | None
    ) -> EndedRange:
        span = Range(key_from_json(state.lower), key_from_json(state.upper), state.closed, state.lower_open)
        split = Split(table, state.snapshot, state.number, span, lower, upper, incremental=self._policy.incremental)
        self._coordinator.restore_split(split, state, self._state.backfill.get(split.id, 0))
        if not span.lower_open:
            self._status.splits_restored(table, 1, rows=state.rows)
        return EndedRange.of(split, state.rows)
