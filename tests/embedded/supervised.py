"""Starts child processes that end with this process, also if it is killed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import random
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Final

_PR_SET_PDEATHSIG: Final = 1
_PORTS: Final = range(20_000, 32_000)
"""Below those that Linux gives to outgoing connections: none of them takes the port of a server that restarts."""
_libc = ctypes.CDLL(None, use_errno=True)

_Job = tuple[Callable[[], "subprocess.Popen[bytes]"], "Future[subprocess.Popen[bytes]]"]


class _Spawner:
    """The one thread that forks.

    Linux sends the parent-death signal when the *thread* that forked ends, so a server started from a short-lived
    thread would die with it. This thread lives as long as the process.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self.pid = os.getpid()
        threading.Thread(target=self._run, name="spawner", daemon=True).start()

    def _run(self) -> None:
        while True:
            job, result = self._jobs.get()
            try:
                result.set_result(job())
            except BaseException as error:  # noqa: BLE001 - raised in the caller
                result.set_exception(error)

    def call(self, job: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        """Run ``job`` in the thread and return its process."""
        result: Future[subprocess.Popen[bytes]] = Future()
        self._jobs.put((job, result))
        return result.result()


_lock = threading.Lock()
_spawner: list[_Spawner] = []


def spawn(
    command: Sequence[str | Path],
    *,
    output: int | IO[bytes],
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
    stdin: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start ``command`` in its own session. The kernel kills it when this process ends.

    A Ctrl-C in the terminal does not reach another session: servers keep running until their clients have stopped.
    ``output`` receives stdout and stderr.
    """
    parent = os.getpid()

    def die_with_parent() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent ended before prctl
            os._exit(1)

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=output,
            stderr=output if isinstance(output, int) and output == subprocess.DEVNULL else subprocess.STDOUT,
            env=env,
            cwd=cwd,
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - two system calls, no locks taken
        )

    with _lock:
        if not _spawner or _spawner[0].pid != parent:  # threads do not survive a fork
            _spawner[:] = [_Spawner()]
        return _spawner[0].call(start)


def end(process: subprocess.Popen[bytes], *, grace_s: float) -> None:
    """Terminate ``process``. Kill it and its session if it is still alive after ``grace_s`` seconds."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(grace_s)
        except subprocess.TimeoutExpired:
            kill(process)
    _kill_group(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill ``process`` and its session, and wait for its end."""
    _kill_group(process)
    process.wait(120)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def free_port() -> int:
    """Return a free TCP port of the loopback address, which no other process gets from here while this one runs."""
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket(socket.AF_UNIX) as reservation, socket.socket() as probe:
            try:
                reservation.bind(f"\0tailrace-test-port-{port}")  # an abstract name: it is gone with this process
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            reservation.detach()
            return port
    raise OSError(f"no port from {_PORTS[0]} to {_PORTS[-1]} is free")


def wait_until(ready: Callable[[], bool], *, what: str, deadline_s: float, pause_s: float = 0.05) -> None:
    """Wait until ``ready`` returns true. Raise TimeoutError with ``what`` after ``deadline_s`` seconds."""
    end_at = time.monotonic() + deadline_s
    while not ready():
        if time.monotonic() > end_at:
            raise TimeoutError(f"{what} did not happen within {deadline_s:g} s")
        time.sleep(pause_s)
