"""One session of the capture: the stream on the calling thread, snapshots on another, until a stop or a failure."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

import structlog

from tailrace.producer.app.signals import SignalService
from tailrace.producer.snapshot.enumerator import Enumerator
from tailrace.producer.snapshot.incremental import EnumeratorFactory, IncrementalSnapshotRunner
from tailrace.producer.streaming.binlog_reader import BinlogReader
from tailrace.producer.streaming.mailbox import CaptureStoppedError

log = structlog.get_logger(__name__)

_SNAPSHOT_END_S: Final = 3.0
"""How long the snapshot thread may take to end, before and after its sessions are closed."""


@dataclass(frozen=True, slots=True)
class SessionStop:
    """``requested`` ends the process, ``session`` ends this session alone."""

    requested: threading.Event
    session: threading.Event


@dataclass(frozen=True, slots=True)
class SessionSnapshots:
    """What the snapshot thread runs: the initial snapshot, then the incremental ones."""

    initial: Enumerator | None
    """None: no table needs an initial snapshot."""
    incremental: IncrementalSnapshotRunner
    factory: EnumeratorFactory
    stop_after_initial: bool

    def close(self) -> None:
        """Close the sessions; a thread that waits for a response in one of them gets an error."""
        if self.initial is not None:
            self.initial.close()
        self.incremental.close()


class CaptureSession:
    """Runs what the builder has built; a session runs once."""

    def __init__(
        self, reader: BinlogReader, snapshots: SessionSnapshots, signals: SignalService, stop: SessionStop
    ) -> None:
        self._reader = reader
        self._snapshots = snapshots
        self._signals = signals
        self._stop = stop
        self._failure: BaseException | None = None

    def run(self) -> None:
        """Run until stopped, or until the stream or a snapshot has failed."""
        snapshots = self._snapshots
        threading.Thread(target=self._forward_stop, name="stop-watch", daemon=True).start()
        self._reader.stop_after_snapshot = snapshots.stop_after_initial and snapshots.initial is None
        snapshot_thread = threading.Thread(target=self._run_snapshots, name="enumerator", daemon=True)
        snapshot_thread.start()
        self._signals.start()
        try:
            self._reader.run()
        except CaptureStoppedError:
            log.debug("stopped while a change was held")
        finally:
            self._stop.session.set()
            self._end(snapshot_thread)
        if self._failure is not None:
            raise self._failure

    def _end(self, snapshot_thread: threading.Thread) -> None:
        """Wait for the snapshot thread; cut off the query that it waits for, as the server may never answer it."""
        snapshot_thread.join(timeout=_SNAPSHOT_END_S)
        if snapshot_thread.is_alive():
            self._snapshots.close()
            snapshot_thread.join(timeout=_SNAPSHOT_END_S)
        if snapshot_thread.is_alive():
            # It belongs to this session alone: what it still does fails, and the next session fences its readers.
            log.warning("the snapshot thread has not ended yet")

    def _run_snapshots(self) -> None:
        snapshots = self._snapshots
        try:
            if snapshots.initial is not None:
                workers = snapshots.factory.start_workers()
                try:
                    snapshots.initial.run(workers)
                finally:
                    workers.close()
                log.info("all splits of the initial snapshot are read")
            if snapshots.stop_after_initial:
                self._reader.stop_after_snapshot = True
                return
            snapshots.incremental.run()
        except CaptureStoppedError:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that owns the session
            if self._stop.session.is_set():
                # An end that was wanted cuts off what this thread waits for: raised, it would begin a new session.
                log.debug("the snapshot thread ended with the session", error=str(error))
                return
            self._failure = error
            self._stop.session.set()
            self._reader.wake()

    def _forward_stop(self) -> None:
        while not self._stop.session.wait(0.1):
            if self._stop.requested.is_set():
                self._stop.session.set()
                self._reader.wake()
