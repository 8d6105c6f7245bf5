"""A snapshot reader whose parent was killed."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tailrace.producer.errors import SourceUnavailableError
from tailrace.producer.snapshot import workers
from tailrace.producer.snapshot.workers import serve_pipe


@pytest.fixture
def signals() -> Iterator[None]:
    """Restore the handlers that a worker process replaces."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals")
def test_a_reader_without_its_parent_ends_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is fenced or disconnected soon after, and nobody listens to what it reports."""
    monkeypatch.setattr(workers, "_end_with_parent", lambda: None)
    pipe, parent = multiprocessing.Pipe()
    parent.close()

    def open_reader(_: Any) -> Any:
        raise SourceUnavailableError("the source cannot be reached")

    serve_pipe(0, open_reader, pipe)
