"""The enumerator and the limits of what is read: only the next split waits for them."""

from __future__ import annotations

import queue
from collections.abc import Callable, Collection, Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from tailrace.producer.kafka.state_store import State
from tailrace.producer.model.split import WHOLE, Split
from tailrace.producer.model.table import TableId
from tailrace.producer.ops.status import Status
from tailrace.producer.snapshot.enumerator import Enumerator
from tailrace.producer.snapshot.pace import Pace
from tailrace.producer.snapshot.reader import SplitTask
from tailrace.producer.snapshot.table_planner import TablePlan
from tailrace.producer.snapshot.workers import SplitFinished
from tests.support.stream import START

FIRST, SECOND = TableId("db", "first"), TableId("db", "second")
ROWS = 1_000_000


class Snapshot:
    """One reader, one row a second, and splits of a million rows; time stands still."""

    count = 1

    def __init__(self, splits: dict[TableId, int], *, on_wait: Callable[[Snapshot], None] = lambda _: None) -> None:
        """``on_wait`` is called while no split can be read."""
        self.now, self.waits = 1000.0, 0
        self.stopped: set[TableId] = set()
        self.events: list[tuple[str, TableId]] = []
        """What was read, and which tables were complete."""
        self._on_wait = on_wait
        self._results: queue.SimpleQueue[SplitFinished] = queue.SimpleQueue()
        coordinator: Any = SimpleNamespace(
            mailbox=SimpleNamespace(call=lambda work: work(), check_stopped=self._check),
            hold=SimpleNamespace(overdue=()),
            max_hold_s=1.0,
            too_many_splits_wait=lambda: False,
            open_split=lambda _: START,
            commit_split=lambda *_, **__: False,
            all_read=lambda table: self.events.append(("complete", table)),
        )
        policy: Any = SimpleNamespace(
            paused=False,
            stopped=lambda table: table in self.stopped,
            condition=lambda _: "",
            keys=lambda _: None,
            requested=list,
        )
        planner: Any = SimpleNamespace(session=SimpleNamespace(shared_lock=lambda _: nullcontext()))
        self.enumerator = Enumerator(planner, coordinator, policy, list(splits), state=State(), status=Status())
        self.enumerator.pace = Pace(1, 0, split_rows=1, clock=lambda: self.now)
        self.enumerator._plans = {table: TablePlan(table, (), self._planned(table, splits[table])) for table in splits}

    def _planned(self, table: TableId, count: int) -> Iterator[Split]:
        return (Split(table, "s", number, WHOLE, None, None) for number in range(count))

    def _check(self) -> None:
        if self._results.empty() and self.enumerator.pace.exceeded:
            self.waits += 1
            assert self.waits < 40, f"the snapshot waits for its limits: {self.events}"
            self._on_wait(self)

    # -- the workers --------------------------------------------------------------------------------------------------

    def submit(self, worker: int, task: SplitTask) -> None:
        self.events.append(("read", task.split.table))
        state: Any = SimpleNamespace(rows=ROWS)
        done: Any = SimpleNamespace(
            split=task.split, state=state, bytes=1, seconds=0.0, values_replaced=0, partitions={}
        )
        self._results.put(SplitFinished(worker, done))

    def next(self, timeout_s: float) -> SplitFinished | None:
        try:
            return self._results.get(timeout=min(timeout_s, 0.01))
        except queue.Empty:
            return None

    def give_up(self, _splits: Collection[str]) -> None:
        return None

    def close(self) -> None:
        """There is nothing to close."""


def test_a_table_that_is_read_does_not_wait_for_the_limits() -> None:
    """It may be a single split, for whose rows the limits allow hours."""
    snapshot = Snapshot({FIRST: 1})

    snapshot.enumerator.run(snapshot)

    assert snapshot.events == [("read", FIRST), ("complete", FIRST)]


def test_the_next_split_waits_for_the_limits() -> None:
    def go_on(snapshot: Snapshot) -> None:
        events.append(list(snapshot.events))
        if snapshot.waits % 3 == 0:
            snapshot.now += ROWS + 1

    events: list[object] = []
    snapshot = Snapshot({FIRST: 2, SECOND: 1}, on_wait=go_on)

    snapshot.enumerator.run(snapshot)

    assert snapshot.events == [
        ("read", FIRST),
        ("read", FIRST),
        ("complete", FIRST),
        ("read", SECOND),
        ("complete", SECOND),
    ]
    assert [("read", FIRST)] in events
    assert snapshot.events[:3] in events


def test_a_table_that_is_stopped_does_not_wait_for_the_limits() -> None:
    """Its next split is planned, and is not read."""
    snapshot = Snapshot({FIRST: 5}, on_wait=lambda found: found.stopped.add(FIRST) if found.waits == 3 else None)

    snapshot.enumerator.run(snapshot)

    assert snapshot.events == [("read", FIRST), ("complete", FIRST)]
