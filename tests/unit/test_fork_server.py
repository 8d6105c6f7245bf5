"""The process that forks snapshot readers. A test has threads, so each runs a program that has none."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any, Final

import pytest

from tailrace.producer.app import snapshot_factory
from tailrace.producer.config import ProducerConfig, load
from tailrace.producer.snapshot.fork_server import ForkServerLostError
from tests.unit.test_config_load import BASE

_ROOT: Final = Path(__file__).parents[2]
_BEGIN: Final = """
import json, os, signal, threading
from tailrace.producer.errors import SourceUnavailableError
from tailrace.producer.snapshot.fork_server import ForkServer, ForkServerLostError
from tailrace.producer.snapshot.workers import ProcessWorkers, serve_pipe

def main(worker, pipe):
    def opener(word):
        def open_reader():
            pipe.send((word + " " + memory, os.getpid()))
            threading.Event().wait()
        return open_reader
    serve_pipe(worker, opener, pipe)

memory = "before"
server = ForkServer(main)
memory = "after"

def start(count):
    workers = ProcessWorkers(count, server.start)
    workers.begin("said")
    return workers, [workers.next(60) for _ in range(count)]
"""


def _config() -> ProducerConfig:
    return load(None, {}, {**BASE, "snapshot.max.threads": "3"})


def _run(program: str) -> Any:
    """Run a program that prints JSON; it must end, and say nothing else."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", _BEGIN + program + "server.close()"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return json.loads(ended.stdout)


def test_readers_have_the_memory_of_the_producer_at_the_fork() -> None:
    """They import nothing, also when the producer has threads by now; each start has new processes."""
    found = _run("""
threading.Thread(target=threading.Event().wait, daemon=True).start()
(first, said), (second, again) = start(2), start(1)
readers = said + again
print(json.dumps([[word for word, _ in readers], len({process for _, process in readers})]))
for workers in (first, second):
    workers.close()
""")

    assert found == [["said before"] * 3, 3]


def test_interrupts_reach_neither_the_readers_nor_their_parent() -> None:
    """Ctrl-C in a terminal goes to the whole group; the producer ends them."""
    found = _run("""
signal.signal(signal.SIGINT, signal.SIG_IGN)
workers, (said,) = start(1)
os.setpgid(0, 0)
for process in (said[1], server._pid):
    os.kill(process, signal.SIGINT)
more, (again,) = start(1)
print(json.dumps([workers.next(0.2), again[0]]))
workers.close()
more.close()
""")

    assert found == [None, "said before"]


def test_the_end_of_a_reader_is_reported_with_its_code() -> None:
    found = _run("""
workers, (said,) = start(1)
os.kill(said[1], signal.SIGKILL)
failed = workers.next(60)
print(json.dumps([failed.error.message, isinstance(failed.error, SourceUnavailableError)]))
workers.close()
""")

    assert found == ["snapshot reader 0 ended with code -9", True]


def test_readers_are_gone_when_they_are_closed() -> None:
    found = _run("""
workers, said = start(2)
workers.close()
workers.close()
print(json.dumps([os.path.exists(f"/proc/{process}") for _, process in said]))
""")

    assert found == [False, False]


def test_readers_end_with_their_parent() -> None:
    """A machine without memory may kill it. Its readers fail, and it starts no others."""
    found = _run("""
workers, (said,) = start(1)
os.kill(server._pid, signal.SIGKILL)
failed = workers.next(60)
workers.close()
try:
    start(1)
except ForkServerLostError as error:
    print(json.dumps([failed.error.message, str(error)]))
""")

    assert found == ["snapshot reader 0 ended with code None", "the process that starts snapshot readers has ended"]


def test_a_process_with_threads_does_not_fork() -> None:
    ended = threading.Event()
    other = threading.Thread(target=ended.wait)
    other.start()
    try:
        assert snapshot_factory.fork_server(_config()) is None
    finally:
        ended.set()
        other.join()


@pytest.mark.parametrize("lost", [True, False])
def test_readers_are_spawned_without_a_process_that_forks(monkeypatch: pytest.MonkeyPatch, lost: bool) -> None:
    class Lost:
        def start(self, worker: int, pipe: Pipe) -> Any:
            raise ForkServerLostError(f"{worker}, {pipe}")

    spawned: list[int] = []
    monkeypatch.setattr(snapshot_factory, "SpawnedProcess", lambda _main, worker, _pipe: spawned.append(worker))
    server: Any = Lost() if lost else None

    snapshot_factory.new_workers(_config(), server)

    assert spawned == [0, 1, 2]
