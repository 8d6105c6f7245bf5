"""A session of the capture whose snapshot thread fails: by itself, or because the session ends."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.producer.app import session as capture_session
from tailrace.producer.app.session import CaptureSession, SessionSnapshots, SessionStop
from tailrace.producer.errors import SourceUnavailableError


class Session:
    """A session whose incremental snapshot waits in a query, until ``close`` cuts it off."""

    def __init__(self, *, reads: threading.Event) -> None:
        """``reads``: set when the stream ends by itself."""
        self.stop, self._cut, self._reads = SessionStop(threading.Event(), threading.Event()), threading.Event(), reads
        stub: Any = self
        snapshots = SessionSnapshots(None, stub, SimpleNamespace(), stop_after_initial=False)
        signals: Any = SimpleNamespace(start=lambda: None)
        self.session = CaptureSession(SimpleNamespace(run=self.stream, wake=reads.set), snapshots, signals, self.stop)  # type: ignore[arg-type]

    def run(self) -> None:
        assert self._cut.wait(30)
        raise SourceUnavailableError("the query was cut off")

    def close(self) -> None:
        self._cut.set()

    def stream(self) -> None:
        assert self._reads.wait(30)


def test_a_query_that_the_end_cuts_off_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream has reached where it stops: an error would begin a new session, which stops there too, and so on."""
    monkeypatch.setattr(capture_session, "_SNAPSHOT_END_S", 0.3)
    reached = threading.Event()
    reached.set()

    Session(reads=reached).session.run()


def test_a_snapshot_that_fails_ends_the_session() -> None:
    running = Session(reads=threading.Event())
    running.close()

    with pytest.raises(SourceUnavailableError):
        running.session.run()

    assert running.stop.session.is_set()
