"""Processes of snapshot readers: how they start, and how they end when the producer was killed."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tailrace.producer.errors import SourceUnavailableError
from tailrace.producer.snapshot import workers
from tailrace.producer.snapshot.workers import ProcessWorkers, SpawnedProcess, SplitFailed, serve_pipe
from tests.support.capture import eventually
from tests.support.idle_worker import main

_ROOT: Final = Path(__file__).parents[2]
_PRODUCER: Final = """
import json, os, signal, sys
from functools import partial
from tailrace.producer.snapshot.fork_server import ForkServer
from tailrace.producer.snapshot.workers import ProcessWorkers, SpawnedProcess
from tests.support.idle_worker import main

workers = ProcessWorkers(2, {start})
workers.begin("process")
found = [workers.next(60) for _ in range(2)]
print(json.dumps([(message.worker, *message.message.split()) for message in found]), flush=True)
{then}
"""
_SPAWN: Final = "partial(SpawnedProcess, main)"
_FORK: Final = "ForkServer(main).start"


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
    parent.send(())
    parent.close()

    def open_reader() -> Any:
        raise SourceUnavailableError("the source cannot be reached")

    serve_pipe(0, lambda: open_reader, pipe)


@pytest.mark.parametrize("start", [_SPAWN, _FORK])
def test_readers_end_with_a_killed_producer(start: str) -> None:
    """Also one that waits for a server, and does not notice that its pipe is closed."""
    with subprocess.Popen(
        [sys.executable, "-c", _PRODUCER.format(start=start, then="sys.stdin.read()")],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as producer:
        try:
            assert producer.stdout is not None
            found = {worker: int(process) for worker, word, process in json.loads(producer.stdout.readline())}
        finally:
            producer.kill()
    assert sorted(found) == [0, 1]
    eventually(lambda: not any(map(_runs, found.values())), "the end of the readers")


def test_readers_that_import_are_not_interrupted() -> None:
    """Ctrl-C in a terminal reaches them too; the producer ends them."""
    workers = ProcessWorkers(1, partial(SpawnedProcess, main))
    [process] = workers._processes
    try:
        assert isinstance(process, SpawnedProcess)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGINT)
        workers.begin("process")
        found = workers.next(60)
    finally:
        workers.close()

    assert found == SplitFailed(0, f"process {process.pid}", retryable=False)


def test_readers_that_are_not_needed_end_when_they_are_closed() -> None:
    """A start that fails closes them while they import or wait for ``begin``."""
    workers = ProcessWorkers(2, partial(SpawnedProcess, main))

    workers.close()

    assert [process.exit_code() for process in workers._processes] == [-signal.SIGKILL] * 2
    workers.close()


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    # A container may have nobody who takes the result of a process that has ended.
    return "State:\tZ" not in Path(f"/proc/{process}/status").read_text(encoding="utf-8")
