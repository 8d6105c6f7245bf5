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
from types import SimpleNamespace
from typing import Any, Final

import pytest
from pymysql import OperationalError
from structlog.testing import capture_logs

from tailrace.producer.errors import SourceUnavailableError, TableFailedError
from tailrace.producer.kafka.state_store import State
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.connection import translate_error
from tailrace.producer.ops.status import Status
from tailrace.producer.snapshot import workers
from tailrace.producer.snapshot.enumerator import Enumerator
from tailrace.producer.snapshot.policy import InitialSnapshot
from tailrace.producer.snapshot.workers import ProcessWorkers, SpawnedProcess, SplitFailed, serve, serve_pipe
from tailrace.producer.streaming.refused_changes import table_fault
from tailrace.runtime.errors import SchemaError
from tests.support.capture import eventually
from tests.support.idle_worker import main
from tests.support.stream import NO_SOURCE

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
print(json.dumps([(message.worker, *message.error.message.split()) for message in found]), flush=True)
{then}
"""
_ROW: Final = "alice@example.org"
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

    assert isinstance(found, SplitFailed)
    assert found.error.message == f"process {process.pid}"


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


@pytest.mark.parametrize(
    "error",
    [
        translate_error(OperationalError(3141, f"Invalid JSON text: {_ROW!r}"), "h:1", "", f"SELECT … > '{_ROW}'"),
        SchemaError("text is not valid latin1", value=_ROW),
        UnicodeDecodeError("utf-8", _ROW.encode(), 0, 1, f"not text: {_ROW}"),
    ],
    ids=["source", "row", "unexpected"],
)
def test_the_reason_of_a_table_whose_reader_fails_quotes_no_row(error: Exception) -> None:
    """It is in the state topic and in the status; the log has all."""
    table = TableId("db", "t")
    task: Any = SimpleNamespace(split=SimpleNamespace(table=table, id="t:1"))
    tasks = iter([task])
    ours, theirs = multiprocessing.Pipe()

    def read(*_: object) -> None:
        raise error

    serve(0, lambda: SimpleNamespace(read=read), lambda: next(tasks, None), theirs.send)  # type: ignore[arg-type, return-value]
    coordinator: Any = SimpleNamespace(mailbox=SimpleNamespace(call=None), every_fault_stops=False, max_hold_s=1.0)
    policy = InitialSnapshot(NO_SOURCE, coordinator)
    enumerator = Enumerator(NO_SOURCE, coordinator, policy, [table], state=State(), status=Status())
    enumerator._tasks[0] = task
    with pytest.raises(TableFailedError) as caught:
        enumerator._raise_failure(ours.recv())
    with capture_logs() as logs:
        fault = table_fault(table, caught.value.fault, "settings")

    assert fault.reason
    assert _ROW not in f"{fault}"
    assert _ROW in str(logs)
