"""Incremental snapshots wait until the initial snapshot has ended in the binlog, not only in the readers."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from tailrace.producer.snapshot.incremental import IncrementalSnapshotRunner
from tailrace.producer.streaming.mailbox import CaptureStoppedError, Mailbox


def test_requests_wait_until_the_stream_has_ended_the_initial_snapshot() -> None:
    """All splits may be in Kafka while the stream is far behind: then no table can be read a second time."""
    stop, seen = threading.Event(), []
    mailbox = Mailbox(lambda: None, stop)
    coordinator: Any = SimpleNamespace(mailbox=mailbox, initial_snapshot_running=True)

    def incremental(tables: list[str]) -> Any:
        seen.append((tables, coordinator.initial_snapshot_running))
        stop.set()
        return SimpleNamespace(close=lambda: None, run=lambda _workers: None, tables=[])

    work = threading.Event()
    work.set()
    control: Any = SimpleNamespace(work=work, paused=False, pending_tables=lambda: ["db.t"])
    factory: Any = SimpleNamespace(incremental=incremental, start_workers=lambda: SimpleNamespace(close=lambda: None))
    runner = threading.Thread(target=lambda: _ignoring_stop(IncrementalSnapshotRunner(coordinator, control, factory)))
    runner.start()

    for _ in range(3):  # the stream answers, and is not at the end of the snapshot yet
        assert mailbox.wait(10)
    coordinator.initial_snapshot_running = False
    while runner.is_alive():
        mailbox.wait(0.1)

    assert seen == [(["db.t"], False)]


def _ignoring_stop(runner: IncrementalSnapshotRunner) -> None:
    try:
        runner.run()
    except CaptureStoppedError:
        return
