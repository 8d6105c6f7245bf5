"""Starts child processes that cannot outlive this one, however it ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
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
_libc = ctypes.CDLL(None, use_errno=True)

_Job = tuple[Callable[[], "subprocess.Popen[bytes]"], "Future[subprocess.Popen[bytes]]"]


class _Spawner:
    """One thread that does all the forking.

    Linux sends the parent-death signal when the *thread* that forked ends, so a server started from a short-lived
    thread would die with it. This thread lives as long as the process.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self.pid = os.getpid()
        threading.Thread(target=self._run, name="leash", daemon=True).start()

    def _run(self) -> None:
        while True:
            job, result = self._jobs.get()
            try:
                result.set_result(job())
            except BaseException as error:  # noqa: BLE001 - handed to the caller
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
    """Start ``command`` in a session of its own, killed by the kernel when this process ends.

    Its own session keeps a Ctrl-C in the terminal from it, so that servers outlive their clients' orderly end.
    ``output`` takes both stdout and stderr.
    """
    parent = os.getpid()

    def tie() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before the line above
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
            preexec_fn=tie,  # noqa: PLW1509 - two system calls, no locks taken
        )

    with _lock:
        if not _spawner or _spawner[0].pid != parent:  # a fork has no threads but its own
            _spawner[:] = [_Spawner()]
        return _spawner[0].call(start)


def end(process: subprocess.Popen[bytes], *, grace_s: float) -> None:
    """Ask ``process`` to end, and kill it and its whole session when it has not done so in ``grace_s`` seconds."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(grace_s)
        except subprocess.TimeoutExpired:
            kill(process)
    _kill_group(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill ``process`` and its whole session at once, and wait for its end."""
    _kill_group(process)
    process.wait(30)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def free_port() -> int:
    """Return a TCP port of the loopback address that nothing uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(ready: Callable[[], bool], *, what: str, deadline_s: float, pause_s: float = 0.05) -> None:
    """Wait until ``ready`` returns true; raise TimeoutError naming ``what`` after ``deadline_s`` seconds."""
    end_at = time.monotonic() + deadline_s
    while not ready():
        if time.monotonic() > end_at:
            raise TimeoutError(f"{what} did not happen within {deadline_s:g} s")
        time.sleep(pause_s)
