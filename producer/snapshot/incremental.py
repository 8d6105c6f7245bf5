"""Reads tables again beside their log: the enumerator of signals, one batch of tables after another.

Nothing holds changes back but the split that a reader is at, so that the greatest key needs no barrier, and a plan that
cannot be taken up after a restart is simply begun anew.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from tailrace.producer.errors import SourceUnavailableError
from tailrace.producer.kafka.state_store import TableState
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.catalog import exists
from tailrace.producer.mysql.key_order import KeyOrder, to_json
from tailrace.producer.mysql.watermark import current_offset
from tailrace.producer.signals.processor import SignalProcessor
from tailrace.producer.snapshot.enumerator import Enumerator, TablePlan, TableUnreadableError
from tailrace.producer.snapshot.workers import Workers

log = structlog.get_logger(__name__)


class IncrementalEnumerator(Enumerator):
    """Runs the reading of tables whose changes are in the topic."""

    def settled(self, under_way: Callable[[TableId], bool]) -> bool:
        """Tell whether the log has ended all that was read: only then is a table free to be read once more."""
        return not self._asked(lambda: any(under_way(table) for table in self._todo))

    def restore(self) -> None:
        """Take up the plans that were under way, on the log reader's thread before its first event."""
        for table in self._todo:
            stored = self._state.tables.get(str(table))
            if stored is not None and stored.phase == "incremental" and self._can_go_on(table, stored):
                self._plans[table] = self._resumed(table, stored)

    def _can_go_on(self, table: TableId, stored: TableState) -> bool:
        if not exists(self._session, table):
            return False
        current = current_offset(self._session)
        _, columns = self._catalog(table)
        return tuple(c.column.name for c in columns[: len(stored.key)]) == stored.key and all(
            split.low.same_server(current)
            for split in self._state.splits.values()
            if (split.database, split.table, split.snapshot) == (*table, stored.snapshot)
        )

    def _begun(self, table: TableId) -> TablePlan | None:
        """Plan what is there now; None: the table is not wanted any more, or is gone."""
        if self._stopped(table):
            self._asked(lambda: self._log.cancel_incremental(table))
            return None
        found, columns = self._catalog(table)
        assert self._guide is not None
        condition = self._guide.condition(table)
        if condition:
            self._run(f"SELECT 1 FROM {table.quoted} WHERE ({condition}) LIMIT 0")
        planner = self._planner(table, columns)
        greatest = planner.greatest()
        if greatest is None:
            columns = ()
        order = KeyOrder(columns, self._log_asks)
        snapshot = f"{time.time_ns() // 1_000_000:x}"
        names = tuple(c.column.name for c in columns)
        state = TableState(phase="incremental", snapshot=snapshot, greatest=to_json(greatest), key=names)
        stale = [i for i, s in self._state.splits.items() if (s.database, s.table) == table]
        if not self._asked(lambda: self._log.begin_incremental(table, order, state, stale)):
            self._asked(lambda: self._log.cancel_incremental(table))
            return None
        self._status.table_begun(table, estimated_rows=found.rows)
        log.info("table is read again", table=str(table), estimated_rows=found.rows, split_on=list(names))
        return TablePlan(table, snapshot, columns, planner, planner.unread_ranges(greatest, []), 0, found.rows)

    def given_up(self, error: TableUnreadableError) -> SourceUnavailableError:
        """Give up a table that is there and cannot be read; no reader may be at work. Return what to start again by."""
        log.error("a table cannot be read again: it is left as it is", table=str(error.table), error=str(error))
        self._asked(lambda: self._log.cancel_incremental(error.table))
        return SourceUnavailableError("going on without a table that could not be read again", table=str(error.table))

    def _give_up(self, table: TableId) -> None:
        plan = self._plans.get(table)
        if plan is None:
            log.warning("table is gone from the source: it is not read again", table=str(table))
            self._asked(lambda: self._log.cancel_incremental(table))
            return
        super()._give_up(table)


class IncrementalSnapshotRunner:
    """Waits for tables to read, and reads them, batch by batch; on the enumerator's thread."""

    def __init__(
        self,
        desk: SignalProcessor,
        make: Callable[[list[TableId]], IncrementalEnumerator],
        start_workers: Callable[[], Workers],
        release: Callable[[IncrementalEnumerator], None],
        over: threading.Event,
    ) -> None:
        """``make`` builds an enumerator with sessions of its own, which ``release`` closes."""
        self._desk = desk
        self._make = make
        self._start_workers = start_workers
        self._release = release
        self._over = over
        self._first: IncrementalEnumerator | None = None

    def restore(self) -> None:
        """Take up what was under way; before the log reader's first event."""
        todo = self._desk.todo()
        if todo:
            self._first = self._make(todo)
            self._first.restore()

    def run(self) -> None:
        """Serve until the capture is over."""
        while not self._over.is_set():
            if not self._desk.work.wait(0.2) or self._desk.paused:
                self._over.wait(0.05)
                continue
            enumerator, self._first = self._first or self._make(self._desk.todo()), None
            workers = self._start_workers()
            try:
                enumerator.run(workers)
            except TableUnreadableError as error:
                # Changes are held while a reader is at their split; only behind its rows may they go on.
                workers.close()
                raise enumerator.given_up(error) from error
            finally:
                workers.close()
            while not enumerator.settled(self._desk.under_way):
                self._over.wait(0.05)
            self._release(enumerator)
