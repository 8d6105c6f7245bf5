"""An XA commit whose GTID is executed and whose rows are not visible yet, while a split takes its low watermark."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tailrace.producer.snapshot.hooks import SnapshotHooks
from tests.support.capture import CaptureThread, eventually, properties, records_of
from tests.support.commit_hold import HeldServer, prepare_commit
from tests.support.replication import run

if TYPE_CHECKING:
    from tailrace.producer.model.split import Split
    from tests.embedded.kafka import KafkaBroker

pytestmark = [pytest.mark.mysql("8.0.15", "8.0.33"), pytest.mark.kafka]

LAST_LOOK = (
    "SELECT COALESCE(MAX(TIMER_START), 0) FROM performance_schema.events_statements_current "
    "WHERE SQL_TEXT LIKE 'SELECT ID, IF(USER%'"
)
"""When a reader last looked at the commits that are running."""


class HeldCommit:
    """A commit that is held from before the first low watermark until its reader waits for it, or reads rows."""

    def __init__(self, server: HeldServer, kind: str, value: str) -> None:
        self._server = server
        self._commit = prepare_commit(server, kind, f"UPDATE d.t SET v = '{value}' WHERE id > 2", f"x-{value}")
        self._threads: list[threading.Thread] = []
        self._rows_are_read = threading.Event()

    def before_low(self, written: bool, broker: KafkaBroker, prefix: str) -> None:
        """Begin the commit; if ``written``, wait until the stream has written it."""
        if self._threads:
            return
        self._server.hold()
        self._start(self._commit)
        self._server.wait_held()
        if written:
            records = partial(records_of, broker.bootstrap, prefix, "d", "t")
            eventually(lambda: any(r.json["op"] == "u" for r in records()), "the change in the topic")
        looked = run(self._server, LAST_LOOK)
        self._start(lambda: self._release(looked))

    def before_high(self, split: Split) -> None:
        """The rows of a split were read; the commit changes those of the second one."""
        if split.number == 0:
            return
        self._rows_are_read.set()
        for thread in self._threads:
            thread.join(60)

    def _start(self, target: Callable[[], object]) -> None:
        self._threads.append(threading.Thread(target=target))
        self._threads[-1].start()

    def _release(self, looked: list[tuple[object, ...]]) -> None:
        try:
            eventually(lambda: self._rows_are_read.is_set() or run(self._server, LAST_LOOK) != looked, "a reader", 60)
        finally:
            self._server.release()


@pytest.mark.parametrize("kind", ["other session", "one phase"])
@pytest.mark.parametrize("version", ["8.0.15", pytest.param("8.0.33", marks=pytest.mark.long)])
def test_no_snapshot_loses_an_xa_commit(kafka_broker: KafkaBroker, prefix: str, version: str, kind: str) -> None:
    """An initial snapshot, then an incremental one: no row is older than what precedes it, and no change is gone."""
    with HeldServer(version=version) as server:
        run(server, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(20))")
        run(server, "INSERT INTO d.t VALUES (1, 'v'), (2, 'v'), (3, 'v'), (4, 'v')")
        two_splits = {"snapshot.max.threads": 1, "incremental.snapshot.chunk.size": 2}
        base = properties(server, kafka_broker, prefix, "d", two_splits)
        for mode in ("initial", "always"):
            held = HeldCommit(server, kind, mode)

            def before_low(_split: Split, held: HeldCommit = held, written: bool = mode == "always") -> None:
                held.before_low(written, kafka_broker, prefix)

            hooks = SnapshotHooks(before_low=before_low, before_high=held.before_high)
            with CaptureThread({**base, "snapshot.mode": mode}, hooks) as capture:
                eventually(lambda: capture.status.snapshot()["snapshot"]["splits_done"], "a split")
                capture.wait_snapshot()
                capture.wait_position(server)
            changes = [r.json["after"] for r in records_of(kafka_broker.bootstrap, prefix, "d", "t")]
            assert {after["id"]: after["v"] for after in changes} == dict(run(server, "SELECT id, v FROM d.t"))
            assert any(after["v"] == mode for after in changes)
