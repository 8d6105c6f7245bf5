"""Runs incremental snapshots: waits for requested tables, plans and reads them while their changes keep streaming."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import structlog

from tailrace.producer.errors import SourceUnavailableError
from tailrace.producer.model.table import TableId
from tailrace.producer.snapshot.enumerator import Enumerator
from tailrace.producer.snapshot.policy import SnapshotControl, TableUnreadableError
from tailrace.producer.snapshot.workers import Workers
from tailrace.producer.streaming.snapshot_coordinator import SnapshotCoordinator

log = structlog.get_logger(__name__)


class EnumeratorFactory(Protocol):
    """Builds what a batch of tables needs."""

    def incremental(self, tables: Sequence[TableId]) -> Enumerator:
        """Return an enumerator with sessions of its own; the caller closes it."""

    def start_workers(self) -> Workers:
        """Start the snapshot readers; the caller closes them."""


class IncrementalSnapshotRunner:
    """Runs one batch of requested tables after another, on the enumerator's thread."""

    def __init__(self, coordinator: SnapshotCoordinator, control: SnapshotControl, factory: EnumeratorFactory) -> None:
        self._coordinator = coordinator
        self._mailbox = coordinator.mailbox
        self._control = control
        self._factory = factory
        self._current: Enumerator | None = None

    def restore(self) -> None:
        """Continue what was running; called on the stream's thread before its first event."""
        tables = self._control.pending_tables()
        if tables:
            self._current = self._factory.incremental(tables)
            self._current.restore()

    def run(self) -> None:
        """Serve requests until the capture session stops; those that are pending wait for the initial snapshot.

        Its splits may all be read while the stream is still before their ends: until then its tables are not streaming,
        and could not be read.
        """
        while self._mailbox.call(lambda: self._coordinator.initial_snapshot_running):
            self._mailbox.pause(0.05)
        while not self._mailbox.stopped:
            if not self._control.work.wait(0.2) or self._control.paused:
                self._mailbox.pause(0.05)
                continue
            if self._current is None:
                self._current = self._factory.incremental(self._control.pending_tables())
            self._run_batch(self._current)
            self._current.close()
            self._current = None

    def close(self) -> None:
        """Close the sessions of a batch that was not completed; the stream's thread may have used them until now."""
        if self._current is not None:
            self._current.close()

    def _run_batch(self, enumerator: Enumerator) -> None:
        workers = self._factory.start_workers()
        try:
            enumerator.run(workers)
        except TableUnreadableError as error:
            # Changes are held while a reader is active on their split; they may continue only after its rows.
            workers.close()
            raise self._cancel(error) from error
        finally:
            workers.close()
        while self._any_running(enumerator.tables):
            self._mailbox.pause(0.05)

    def _any_running(self, tables: list[TableId]) -> bool:
        """Whether the stream has not ended all that was read; until then no table can be read again."""
        return self._mailbox.call(lambda: any(self._control.is_running(table) for table in tables))

    def _cancel(self, error: TableUnreadableError) -> SourceUnavailableError:
        """Cancel the incremental snapshot of an unreadable table; no reader is active. Return the error to raise."""
        table, request = error.table, error.request
        log.error("an incremental snapshot was cancelled: its table cannot be read", table=str(table), error=error)
        self._mailbox.call(lambda: self._coordinator.cancel_incremental(table, request))
        return SourceUnavailableError("an incremental snapshot was cancelled", table=str(table))
