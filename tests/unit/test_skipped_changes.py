"""Requests for tables of which a change was skipped: none is lost, none is repeated without need."""

from __future__ import annotations

import pytest

from tailrace.producer.config.filters import TableFilter
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.notifications.notification import NotificationService
from tailrace.producer.signals.moves import Moves
from tailrace.producer.signals.processor import SignalProcessor
from tailrace.producer.signals.queue import IncrementalSnapshotQueue, SnapshotRequest
from tailrace.producer.streaming.replay import Replay
from tailrace.producer.streaming.split_registry import SplitRegistry
from tests.support.stream import FakeProducer, stream_transaction

T, U = TableId("d", "t"), TableId("d", "u")


@pytest.mark.parametrize(
    ("queued", "running", "expected"),
    [
        ([], False, [""]),
        ([SnapshotRequest(T)], False, [""]),
        ([SnapshotRequest(T)], True, ["", ""]),
        ([SnapshotRequest(T), SnapshotRequest(T)], True, ["", ""]),
        ([SnapshotRequest(T, "id > 5")], False, ["id > 5", ""]),
        ([SnapshotRequest(T, stopped=True)], True, ["", ""]),
    ],
    ids=["first", "requested", "running", "running and requested", "with a filter", "stopped"],
)
def test_a_snapshot_follows_that_begins_after_the_change(
    queued: list[SnapshotRequest], running: bool, expected: list[str]
) -> None:
    """Only a request without a filter that is not executed yet reads every row after the change."""
    producer, registry = FakeProducer(), SplitRegistry()
    for table in (T, U):
        registry.track(table, TableMode.STREAMING)
    if running:
        registry.start_incremental(T)
    transaction = stream_transaction(producer, registry)
    processor = SignalProcessor(
        IncrementalSnapshotQueue(tuple(queued)),
        registry,
        transaction,
        NotificationService(transaction, topic=None, to_log=False),
        TableFilter(),
        condition_problem=lambda _: "",
        moves=Moves(lambda text, _epoch: pytest.fail(text), {}, Replay()),
    )

    processor.on_change_skipped([T])

    assert [request.condition for request in processor.queue.requests if request.table == T] == expected
    assert processor.work.is_set()
    waiting = processor.queue.requests[1 if running else 0 :]
    assert any(request.required for request in waiting if not request.condition), "no signal stops it"
    assert producer.open
    assert producer.committed == [], "the request is committed with the offset"
