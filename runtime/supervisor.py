"""Runs several programs as one: their output marked by name, all stopped by a signal, and when one ends."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import IO, Final

import structlog

from tailrace.runtime.exit_code import ExitCode

log = structlog.get_logger(__name__)

_FIRST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 60.0
_STEADY_S: Final = 60.0
"""A program that ran for so long begins with the first wait again."""
_OUTPUT_S: Final = 5.0
"""How long the output of a program that has ended is waited for: what it has started may keep it open."""
_PR_SET_PDEATHSIG: Final = 1


class Supervisor:
    """Starts a program again that ends with ExitCode.TEMPFAIL; when one ends otherwise, stops the others."""

    def __init__(self, commands: Mapping[str, Sequence[str]], *, first_wait_s: float = _FIRST_WAIT_S) -> None:
        self._commands = commands
        self._first_wait_s = first_wait_s
        self._events: SimpleQueue[tuple[str, int]] = SimpleQueue()
        """Name and exit code of a program that has ended; '' and the number of a signal, or 0 to stop all."""
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._started: dict[str, float] = {}
        self._waits = dict.fromkeys(commands, first_wait_s)
        self._due: dict[str, float] = dict.fromkeys(commands, 0.0)
        """When a program is started."""
        self._stopping = False
        self._code = 0
        self._output = threading.Lock()

    def run(self) -> int:
        """Return the exit code of the first that failed, else 0, when all have ended. Needs the main thread."""
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, lambda received, _: self._events.put(("", received)))
        while self._running or self._due:
            now = time.monotonic()
            for name in [name for name, due in self._due.items() if due <= now]:
                self._start(name)
            try:
                name, number = self._events.get(timeout=max(0.0, min(self._due.values()) - now) if self._due else None)
            except Empty:
                continue
            if name:
                self._ended(name, number)
            else:
                self._stop(number)
        return self._code

    def _start(self, name: str) -> None:
        del self._due[name]
        parent = os.getpid()

        def end_with_parent() -> None:
            if sys.platform == "linux":
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
                if os.getppid() != parent:  # it ended before
                    os._exit(ExitCode.ERROR)

        # In a session of its own: Ctrl-C reaches it once, by this process. Linux sends the parent-death signal when the
        # thread that forks ends: this is the main thread.
        process = self._running[name] = subprocess.Popen(
            self._commands[name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=end_with_parent,  # noqa: PLW1509 - system calls, no locks taken
        )
        self._started[name] = time.monotonic()
        threading.Thread(target=self._watch, args=(name, process), name=name, daemon=True).start()

    def _watch(self, name: str, process: subprocess.Popen[bytes]) -> None:
        pairs = ((process.stdout, sys.stdout.buffer), (process.stderr, sys.stderr.buffer))
        copies = [threading.Thread(target=self._copy, args=(name, *pair), daemon=True) for pair in pairs]
        for copy in copies:
            copy.start()
        code = process.wait()
        for copy in copies:
            copy.join(_OUTPUT_S)
        self._events.put((name, code))

    def _copy(self, name: str, source: IO[bytes], target: IO[bytes]) -> None:
        mark, is_read = f"{name} | ".encode(), True
        for line in source:
            try:
                if is_read:
                    with self._output:
                        target.write(mark + line.removesuffix(b"\n") + b"\n")
                        target.flush()
            except OSError:  # nobody reads the output any more: a program must not wait for that
                is_read = False
                self._events.put(("", 0))

    def _ended(self, name: str, code: int) -> None:
        del self._running[name]
        if code == ExitCode.TEMPFAIL and not self._stopping:
            if time.monotonic() - self._started[name] >= _STEADY_S:
                self._waits[name] = self._first_wait_s
            wait_s = self._waits[name]
            self._waits[name] = min(2 * wait_s, _LONGEST_WAIT_S)
            self._due[name] = time.monotonic() + wait_s
            log.warning("is started again", program=name, exit_code=code, wait_s=wait_s)
            return
        if code < 0:
            code = 0 if self._stopping and code == -signal.SIGTERM else 128 - code  # it had no handler yet
        log.info("ended", program=name, exit_code=code)
        self._code = self._code or code
        self._stop(0)

    def _stop(self, number: int) -> None:
        """Stop all by SIGTERM, which each knows from its start; for a signal (not 0) also those being stopped."""
        if self._stopping and not number:
            return
        self._stopping = True
        self._due.clear()
        for process in self._running.values():
            process.terminate()
