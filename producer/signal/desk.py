"""Signal desk: takes signals on the log reader's thread, keeps what is left of them, and notifies of snapshots.

All that it changes is written into the log's Kafka transaction. So a signal is taken exactly if the position, or the
mark of its channel, says so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace

import structlog

from producer.binlog.events import Rows
from producer.database.table import TableId
from producer.kafka.publisher import Publisher
from producer.kafka.state import SIGNALS_KEY, SplitState, TableState
from producer.notify.notification import Aggregate, Kind, chunk, names, scanned
from producer.notify.notifier import Notifier
from producer.signal.control import Control, Marks, Wanted, decide
from producer.signal.request import Log, Signal, SignalFault, read
from producer.signal.source_table import SourceTable
from producer.split.registry import Phase, Registry
from schemas.names import state_topic

log = structlog.get_logger(__name__)


class SignalDesk:
    """The one place where signals take effect; used by the log reader's thread, but for what says otherwise."""

    def __init__(
        self,
        control: Control,
        registry: Registry,
        publisher: Publisher,
        notifier: Notifier,
        *,
        prefix: str,
        wanted: Callable[[TableId], bool],
        open_transaction: Callable[[], None],
    ) -> None:
        self.control = control
        """A value that is replaced as a whole: any thread may look at it."""
        self.work = threading.Event()
        """Set while tables are to be read again; any thread may wait for it."""
        self._registry = registry
        self._publisher = publisher
        self._notifier = notifier
        self._prefix = prefix
        self._wanted = wanted
        self._open_transaction = open_transaction
        self._initial: tuple[TableId, ...] = ()
        self._left: set[TableId] = set()
        if control.queue:
            self.work.set()

    # -- signals -----------------------------------------------------------------------------------------------------

    @property
    def marks(self) -> Marks:
        """The last signals taken; any thread may ask."""
        return self.control.marks

    def take(self, signals: Iterable[Signal | SignalFault], marks: Marks) -> None:
        """Follow signals of one channel and remember that they were taken."""
        for signal in signals:
            if isinstance(signal, SignalFault):
                log.warning("a signal cannot be followed", reason=str(signal))
            else:
                self._follow(signal)
        self._store(replace(self.control, marks=marks))

    def _follow(self, signal: Signal) -> None:
        facts = {"id": signal.id, "type": signal.type}
        try:
            request = read(signal)
        except SignalFault as fault:
            log.warning("a signal cannot be followed", **facts, reason=str(fault))
            return
        if isinstance(request, Log):
            log.info(request.message, signal=signal.id)
            return
        log.info("signal", **facts, data=dict(signal.data))
        captured = [table for table in self._registry.tables if self._wanted(table)]
        after, told, odd = decide(self.control, request, signal.id, captured, self.under_way)
        if odd:
            log.warning("signal followed in part" if after != self.control else "signal not followed", **facts, why=odd)
        about = after.about or self.control.about
        self._store(after)
        for kind, data in told:
            self._notifier.send(Aggregate.INCREMENTAL, kind, data, about=about)

    def take_from_table(self, table: SourceTable, event: Rows, gtid: str, number: int) -> None:
        """Follow what was inserted into the signal table by rows event ``number`` of a transaction."""
        seen, last = self.marks.source
        if event.op != "c" or (gtid == seen and number <= last):
            return
        self.take(table.signals(event), replace(self.marks, source=(gtid, number)))

    def ask_again(self, tables: Iterable[TableId]) -> None:
        """Have tables read again without a signal; those that are asked for already stay as they are."""
        present = set(self.control.tables)
        fresh = tuple(Wanted(table) for table in tables if table not in present)
        if fresh:
            self._store(replace(self.control, queue=self.control.queue + fresh))
            data = {"data_collections": names(self.control.tables)}
            self._notifier.send(Aggregate.INCREMENTAL, Kind.STARTED, data)

    def under_way(self, table: TableId) -> bool:
        """Tell whether a table is being read again; on the log reader's thread."""
        tracked = self._registry.tables.get(table)
        return tracked is not None and tracked.phase is Phase.AGAIN

    def _store(self, control: Control) -> None:
        self.control = control
        self._open_transaction()
        self._publisher.send(state_topic(self._prefix), SIGNALS_KEY, control.to_json())
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

    def todo(self) -> list[TableId]:
        """Return the tables to read again, in the order they were asked for."""
        return list(dict.fromkeys(wanted.table for wanted in self.control.queue))

    def _entry(self, table: TableId) -> Wanted | None:
        return self.control.wanted(table)

    # -- what becomes of snapshots -----------------------------------------------------------------------------------

    def initial(self, todo: Iterable[TableId], *, begun: bool) -> None:
        """Set the tables of the first snapshot that are left; ``begun``: it was under way before."""
        self._initial = tuple(todo)
        self._left = set(self._initial)
        if not self._initial:
            self._notifier.send(Aggregate.INITIAL, Kind.SKIPPED)
        elif not begun:
            self._notifier.send(Aggregate.INITIAL, Kind.STARTED)

    def table_begun(self, table: TableId, *, again: bool) -> None:
        """See ``Witness``; an incremental snapshot tells after each split instead."""
        if not again:
            data = {"current_collection_in_progress": str(table), "data_collections": names(self._initial)}
            self._notifier.send(Aggregate.INITIAL, Kind.IN_PROGRESS, data)

    def split_read(self, table: TableId, state: SplitState, plan: TableState, *, again: bool) -> None:
        """See ``Witness``; of a table that was stopped meanwhile, ABORTED was the last word."""
        entry = self._entry(table)
        if again and state.rows and entry is not None and not entry.stopped:
            data = dict(chunk(self.control.tables, table, plan.greatest, state.upper))
            self._notifier.send(Aggregate.INCREMENTAL, Kind.IN_PROGRESS, data, about=self.control.about)

    def table_finished(self, table: TableId, rows: int, *, again: bool) -> None:
        """See ``Witness``."""
        if not again:
            self._notifier.send(
                Aggregate.INITIAL, Kind.TABLE_SCAN_COMPLETED, scanned(self._initial, table, rows, "SUCCEEDED")
            )
            self._less_initial(table)
            return
        before = self.control
        entry = before.wanted(table)
        if entry is not None and not entry.stopped:
            status = "SUCCEEDED" if rows else "EMPTY"
            data = scanned(before.tables, table, rows, status)
            self._notifier.send(Aggregate.INCREMENTAL, Kind.TABLE_SCAN_COMPLETED, data, about=before.about)
            if before.tables == (table,):
                self._notifier.send(Aggregate.INCREMENTAL, Kind.COMPLETED, about=before.about)
        self._store(before.without(table))

    def table_left(self, table: TableId, *, again: bool) -> None:
        """See ``Witness``; also for a table that is asked for and not there when its turn comes."""
        self._less_initial(table)
        before = self.control
        entry = before.wanted(table)
        if entry is None:
            return
        if again and not entry.stopped:
            data = scanned(before.tables, table, 0, "SQL_EXCEPTION")
            self._notifier.send(Aggregate.INCREMENTAL, Kind.TABLE_SCAN_COMPLETED, data, about=before.about)
            if before.tables == (table,):
                self._notifier.send(Aggregate.INCREMENTAL, Kind.COMPLETED, about=before.about)
        self._store(before.without(table))

    def _less_initial(self, table: TableId) -> None:
        if table in self._left:
            self._left.discard(table)
            if not self._left:
                self._notifier.send(Aggregate.INITIAL, Kind.COMPLETED)
