"""Processes of snapshot readers: how they start, and how they end when the producer was killed."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tailrace.producer.errors import SourceUnavailableError
from tailrace.producer.snapshot import workers
from tailrace.producer.snapshot.workers import serve_pipe
from tests.support.capture import eventually

_ROOT: Final = Path(__file__).parents[2]
_PRODUCER: Final = """
import json, sys
from tailrace.producer.snapshot.workers import ProcessWorkers
from tests.support.idle_worker import main

ProcessWorkers.start_early(main.__module__)
workers = ProcessWorkers(2, main)
found = [workers.next(60) for _ in range(4)]
print(json.dumps([(message.worker, message.split, message.rows) for message in found]), flush=True)
sys.stdin.read()
"""


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


def test_readers_are_forked_and_end_with_a_killed_producer() -> None:
    """One process imports what they need, and they end although their parent is not the producer."""
    with subprocess.Popen(
        [sys.executable, "-c", _PRODUCER], cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as producer:
        try:
            assert producer.stdout is not None
            found = {(worker, name): number for worker, name, number in json.loads(producer.stdout.readline())}
        finally:
            producer.kill()
    readers = {found[worker, "process"] for worker in range(2)}
    [server] = {found[worker, "imported in"] for worker in range(2)}
    assert len(readers) == 2
    assert server not in {producer.pid, *readers}
    eventually(lambda: not any(map(_runs, {server, *readers})), "the end of the readers")


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    # A container may have nobody who takes the result of a process that has ended.
    return "State:\tZ" not in Path(f"/proc/{process}/status").read_text(encoding="utf-8")
