"""What differs between initial and incremental snapshots; the enumerator asks its policy.

An initial snapshot reads tables whose changes are not in Kafka yet, so the stream must know which keys the splits cover
before it emits a change. An incremental snapshot reads tables whose changes are all emitted: only the split that is
being read holds changes back, so the greatest key needs no barrier, and a plan that cannot be resumed starts over.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NoReturn, Protocol

import structlog

from tailrace.producer.errors import (
    SourceUnavailableError,
    SplitTooSlowError,
    StatementTooSlowError,
    TableDefinitionError,
    TableFailedError,
    TableLockedError,
)
from tailrace.producer.kafka.state_store import SplitState, TableState
from tailrace.producer.model.codec import KeyTuple
from tailrace.producer.model.protocols import Offset, TableSize
from tailrace.producer.model.split import KeyColumn, Range, Split, key_from_json, key_to_json
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.snapshot.splitter import ChunkSplitter
from tailrace.producer.snapshot.table_planner import TablePlanner
from tailrace.producer.streaming.snapshot_coordinator import SnapshotCoordinator
from tailrace.runtime.errors import TailraceError
from tailrace.schemas.verification import ChosenKeys

log = structlog.get_logger(__name__)


ABOVE_NUMBER: Final = -1
"""Number of the split of the keys above the greatest planned one; those that are read count from 0."""


class TableUnreadableError(Exception):
    """A table cannot be read; its incremental snapshot is cancelled when no reader is active."""

    def __init__(self, table: TableId, reason: str, request: int | None) -> None:
        """``request``: its number; None: the snapshot was running before this session."""
        super().__init__(reason)
        self.table = table
        self.request = request


class TakenRequest(Protocol):
    """A requested incremental snapshot of one table."""

    @property
    def number(self) -> int:
        """Return what tells it from another request of the table."""

    @property
    def condition(self) -> str:
        """Return the SQL condition on the rows; empty: all rows."""

    @property
    def keys(self) -> ChosenKeys | None:
        """Return the keys whose rows are read, in one split; None: all."""

    @property
    def stopped(self) -> bool:
        """Whether the rest of the table is not requested any more."""


class SnapshotControl(Protocol):
    """What signals request of incremental snapshots; may change at any moment, may be read by any thread."""

    work: threading.Event
    """Set while tables are pending."""

    @property
    def paused(self) -> bool:
        """Whether no split may be started now."""

    def pending_tables(self) -> list[TableId]:
        """Return the tables to read, in the order of their requests."""

    def first_request(self, table: TableId) -> TakenRequest | None:
        """Return the request that is served next, or that is being served; None if the table is not requested."""

    def is_running(self, table: TableId) -> bool:
        """Whether an incremental snapshot of a table is running; on the stream's thread."""


@dataclass(frozen=True, slots=True)
class StartedPlan:
    """A plan that the stream knows and the state holds."""

    state: TableState
    columns: tuple[KeyColumn, ...]
    splitter: ChunkSplitter
    size: TableSize


class SnapshotPolicy(ABC):
    """Decides what a snapshot reads, and talks to the stream about tables. Used by the enumerator's thread."""

    incremental: bool

    def __init__(self, planner: TablePlanner, coordinator: SnapshotCoordinator) -> None:
        self._planner = planner
        self._coordinator = coordinator
        self._call = coordinator.mailbox.call

    @property
    def paused(self) -> bool:
        """Whether no split may be started now."""
        return False

    def stopped(self, table: TableId) -> bool:  # noqa: ARG002 - the same for every table
        """Whether the rest of a table is not requested any more."""
        return False

    def condition(self, table: TableId) -> str:  # noqa: ARG002 - the same for every table
        """Return the SQL condition on the rows of a table; empty: all rows."""
        return ""

    def keys(self, table: TableId) -> ChosenKeys | None:  # noqa: ARG002 - the same for every table
        """Return the keys of a table whose rows are read; None: all."""
        return None

    def requested(self) -> list[TableId]:
        """Return the tables that are to be read as far as is known now; they may be more than at the start."""
        return []

    @abstractmethod
    def can_resume(self, table: TableId, stored: TableState, splits: Iterable[SplitState]) -> bool:
        """Whether a stored plan can be continued; ``splits`` are its committed splits."""

    @abstractmethod
    def resume(self, table: TableId, stored: TableState, columns: tuple[KeyColumn, ...]) -> None:
        """Tell the stream about a stored plan; called on the stream's thread before its first event."""

    @abstractmethod
    def start(self, table: TableId) -> StartedPlan | None:
        """Plan a table; durable on return. None: not to be read."""

    @abstractmethod
    def remove_missing(self, table: TableId, *, planned: bool) -> None:
        """Tell the stream that the source no longer has a table, and that no reader is active on it."""

    @abstractmethod
    def raise_unreadable(self, table: TableId, error: TailraceError) -> NoReturn:
        """Raise: a table exists but cannot be planned or read."""

    @abstractmethod
    def raise_unwritable(self, table: TableId, error: TailraceError) -> NoReturn:
        """Raise: a row of a table cannot be written, or its split not be read in time."""

    def fail(self, table: TableId, error: TailraceError) -> NoReturn:
        """Raise: the next session begins with the table in error, unless every fault stops the producer."""
        if self._coordinator.every_fault_stops:
            raise error
        raise TableFailedError(table, error) from error

    def _remove_planned(self, table: TableId) -> None:
        if not self._call(lambda: self._coordinator.abandon_table(table)):
            raise SourceUnavailableError("a table was dropped and created again during planning", table=str(table))


class InitialSnapshot(SnapshotPolicy):
    """The first snapshot of tables: one that cannot be read is in error, and the others are read."""

    incremental = False

    def can_resume(self, table: TableId, stored: TableState, splits: Iterable[SplitState]) -> bool:  # noqa: ARG002
        """Every stored plan is continued: changes were skipped because its splits cover them."""
        return True

    def resume(self, table: TableId, stored: TableState, columns: tuple[KeyColumn, ...]) -> None:
        greatest = self._planner.splitter(table, columns).sort_key(key_from_json(stored.greatest))
        self._coordinator.resume_table(table, self._planner.stream_order(columns), stored, greatest)

    def start(self, table: TableId) -> StartedPlan | None:
        """Fix the greatest key behind a barrier: the keys above it are a split that had no rows then."""
        planner, coordinator = self._planner, self._coordinator
        found = planner.plan_input(table)
        order = planner.stream_order(found.columns)
        barrier = self._call(lambda: coordinator.start_table(table, order, found.stand_in_key))
        if barrier is None:
            return None
        splitter = planner.splitter(table, found.columns)
        low = planner.low_watermark(barrier)
        try:
            greatest = splitter.max_key(found.size)
        except (TableLockedError, StatementTooSlowError):
            self._call(lambda: coordinator.put_off_table(table))
            raise
        high = planner.session.high_watermark(low)
        columns = found.columns
        if greatest is None:
            columns = ()
            one_split = planner.stream_order(columns)
            self._call(lambda: coordinator.replace_order(table, one_split))
        state = _new_plan(TableMode.SNAPSHOT, columns, greatest)
        greatest_order = splitter.sort_key(greatest)
        above = None
        if greatest is not None:
            split = Split(
                table, state.snapshot, ABOVE_NUMBER, Range(greatest, None, lower_open=True), greatest_order, None
            )
            above = split, _state_without_rows(split, low, high)
        self._call(lambda: coordinator.set_range(table, state, greatest_order, above, low=low))
        return StartedPlan(state, columns, splitter, found.size)

    def remove_missing(self, table: TableId, *, planned: bool) -> None:  # noqa: ARG002 - the same
        self._remove_planned(table)

    def raise_unreadable(self, table: TableId, error: TailraceError) -> NoReturn:
        self.fail(table, error)

    def raise_unwritable(self, table: TableId, error: TailraceError) -> NoReturn:
        self.fail(table, error)


class IncrementalSnapshot(SnapshotPolicy):
    """A snapshot on request, of tables that keep streaming: a table that cannot be read must not stop the stream."""

    incremental = True

    def __init__(self, planner: TablePlanner, coordinator: SnapshotCoordinator, control: SnapshotControl) -> None:
        super().__init__(planner, coordinator)
        self._control = control
        self._taken: dict[TableId, TakenRequest] = {}
        """The requests that are served here. The stream may have removed one, and have another of the same table."""

    @property
    def paused(self) -> bool:
        return self._control.paused

    def stopped(self, table: TableId) -> bool:
        request, taken = self._control.first_request(table), self._taken.get(table)
        return request is None or request.stopped or (taken is not None and request.number != taken.number)

    def requested(self) -> list[TableId]:
        return self._control.pending_tables()

    def condition(self, table: TableId) -> str:
        request = self._control.first_request(table)
        return request.condition if request is not None else ""

    def keys(self, table: TableId) -> ChosenKeys | None:
        request = self._control.first_request(table)
        return request.keys if request is not None else None

    def can_resume(self, table: TableId, stored: TableState, splits: Iterable[SplitState]) -> bool:
        """Continue on the same server with the same key."""
        if stored.mode is not TableMode.INCREMENTAL or not self._planner.session.exists(table):
            return False
        current = self._planner.session.current_offset()
        columns = self._planner.plan_input(table).columns[: len(stored.key)]
        return definitions(columns) == stored.key_order and all(split.high.same_server(current) for split in splits)

    def resume(self, table: TableId, stored: TableState, columns: tuple[KeyColumn, ...]) -> None:
        request = self._control.first_request(table)
        if request is not None:
            self._taken[table] = request
        self._coordinator.resume_incremental(table, self._planner.stream_order(columns), stored)

    def start(self, table: TableId) -> StartedPlan | None:
        request = self._control.first_request(table)
        if request is None:
            return None
        self._taken[table] = request
        if request.stopped:
            self._cancel(table, "it was stopped by a signal")
            return None
        planner = self._planner
        found = planner.plan_input(table)
        condition = self.condition(table)
        if condition:
            planner.session.check_condition(table, condition)
        whole = not condition and request.keys is None
        barrier = self._call(lambda: self._prepare(table, whole=whole))
        if barrier is None:
            reason = "it ended or is in error" if whole else "a table in error is read as a whole, without a condition"
            self._cancel(table, reason)
            return None
        planner.low_watermark(barrier)
        splitter = planner.splitter(table, found.columns)
        greatest = splitter.max_key(found.size) if request.keys is None else None  # the rows of keys are one split
        columns = found.columns if greatest is not None else ()
        order = planner.stream_order(columns)
        state = _new_plan(TableMode.INCREMENTAL, columns, greatest)
        if not self._call(lambda: self._coordinator.start_incremental(table, order, state)):
            self._cancel(table, "the log has the end of the table")
            return None
        return StartedPlan(state, columns, splitter, found.size)

    def remove_missing(self, table: TableId, *, planned: bool) -> None:
        if planned:
            self._remove_planned(table)
        else:
            self._cancel(table, "the source does not have the table", missing=True)

    def raise_unreadable(self, table: TableId, error: TailraceError) -> NoReturn:
        """See ``SnapshotPolicy``: the request is at fault, or the table is no more what was planned."""
        raise TableUnreadableError(table, str(error), self._number(table)) from error

    def raise_unwritable(self, table: TableId, error: TailraceError) -> NoReturn:
        """See ``SnapshotPolicy``: the topic cannot have what the table has."""
        if self._coordinator.every_fault_stops or isinstance(error, (TableDefinitionError, SplitTooSlowError)):
            self.raise_unreadable(table, error)
        self.fail(table, error)

    def _prepare(self, table: TableId, *, whole: bool) -> Offset | None:
        """See ``SnapshotCoordinator``; None also if the request has been withdrawn since. On the stream's thread."""
        return None if self.stopped(table) else self._coordinator.prepare_incremental(table, whole=whole)

    def _cancel(self, table: TableId, reason: str, *, missing: bool = False) -> None:
        number = self._number(table)
        log.info("an incremental snapshot is cancelled", table=str(table), request=number, reason=reason)
        self._call(lambda: self._coordinator.cancel_incremental(table, number, missing=missing))

    def _number(self, table: TableId) -> int | None:
        taken = self._taken.get(table)
        return None if taken is None else taken.number


def _state_without_rows(split: Split, low: Offset, high: Offset) -> SplitState:
    return SplitState(
        split.table.database,
        split.table.table,
        split.snapshot,
        split.number,
        key_to_json(split.range.lower),
        None,
        closed=False,
        lower_open=True,
        low=low,
        high=high,
        rows=0,
        checksum=0,
        schema="",
    )


def definitions(columns: tuple[KeyColumn, ...]) -> tuple[str, ...]:
    """Return what the order of key columns depends on."""
    return tuple(column.definition for column in columns)


def _new_plan(mode: TableMode, columns: tuple[KeyColumn, ...], greatest: KeyTuple | None) -> TableState:
    run = f"{time.time_ns() // 1_000_000:x}"
    key = tuple(column.column.name for column in columns)
    return TableState(mode, snapshot=run, greatest=key_to_json(greatest), key=key, key_order=definitions(columns))
