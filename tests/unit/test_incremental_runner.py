"""Incremental snapshots wait until the initial snapshot has ended in the binlog, not only in the readers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from structlog.testing import capture_logs

from tailrace.producer.model.protocols import TableSize
from tailrace.producer.model.table import TableId
from tailrace.producer.ops.status import Status
from tailrace.producer.signals.moves import Moves
from tailrace.producer.signals.processor import SignalProcessor
from tailrace.producer.signals.queue import IncrementalSnapshotQueue
from tailrace.producer.snapshot.incremental import IncrementalSnapshotRunner
from tailrace.producer.snapshot.policy import IncrementalSnapshot
from tailrace.producer.snapshot.table_planner import PlanInput
from tailrace.producer.streaming.mailbox import CaptureStoppedError, Mailbox
from tailrace.producer.streaming.replay import Replay
from tailrace.producer.streaming.snapshot_coordinator import SnapshotCoordinator
from tailrace.producer.streaming.split_registry import SplitRegistry
from tests.support.stream import START, FakeProducer, stream_transaction


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


def test_cancellation_removes_the_request_that_was_taken_and_no_other() -> None:
    """The table was renamed away and back while the enumerator decided: the stream requests it a second time."""
    table, registry, producer = TableId("db", "t"), SplitRegistry(), FakeProducer()
    transaction, notifications = stream_transaction(producer, registry), SimpleNamespace(send=lambda *_, **__: None)
    processor = SignalProcessor(
        IncrementalSnapshotQueue(),
        registry,
        transaction,
        notifications,  # type: ignore[arg-type]
        SimpleNamespace(includes=lambda _table: True),  # type: ignore[arg-type]
        condition_problem=lambda _condition: "",
        moves=Moves(lambda _text, epoch: START._replace(epoch=epoch), {}, Replay()),
    )
    processor.request_reading(table)

    def call(action: Callable[[], Any]) -> Any:
        if not processor.queue.requests[0].number > 1:
            processor.on_table_removed(table, incremental=False)
            processor.request_reading(table)
        return action()

    context: Any = SimpleNamespace(
        mailbox=SimpleNamespace(call=call), transaction=transaction, registry=registry, status=Status()
    )
    coordinator = SnapshotCoordinator(context, SimpleNamespace(), processor)  # type: ignore[arg-type]
    planner: Any = SimpleNamespace(
        plan_input=lambda _table: PlanInput((), TableSize(0, 0)),
        splitter=lambda *_: SimpleNamespace(max_key=lambda _size: None),
        stream_order=lambda _columns: None,
    )
    with capture_logs() as logs:
        assert IncrementalSnapshot(planner, coordinator, processor).start(table) is None
    assert [(request.table, request.number) for request in processor.queue.requests] == [(table, 2)]
    assert [(entry["event"], entry["request"]) for entry in logs] == [("an incremental snapshot is cancelled", 1)]
