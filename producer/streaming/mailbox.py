"""Mailbox: other threads submit functions, the stream's thread runs them, so that its objects need no lock."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class CaptureStoppedError(Exception):
    """The capture session is stopping: the waiting thread ends without an error."""


class Mailbox:
    """Functions for the stream's thread. ``wake`` interrupts its wait for the binlog; ``stop`` ends every wait."""

    def __init__(self, wake: Callable[[], None], stop: threading.Event) -> None:
        self._wake = wake
        self._stop = stop
        self._requests: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    # -- any thread --

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Have the stream's thread run ``work``; the future gets its result or its exception."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                result = work()
            except BaseException as error:
                future.set_exception(error)
                raise
            future.set_result(result)

        self._requests.put(run)
        self._wake()
        return future

    def call(self, work: Callable[[], T]) -> T:
        """Have the stream's thread run ``work`` and return the result. Raises CaptureStoppedError on a stop."""
        future = self.submit(work)
        while True:
            self.check_stopped()
            try:
                return future.result(timeout=0.5)
            except TimeoutError:
                continue

    def check_stopped(self) -> None:
        if self._stop.is_set():
            raise CaptureStoppedError

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    def pause(self, seconds: float) -> None:
        """Wait, but not beyond a stop."""
        self._stop.wait(seconds)

    # -- the stream's thread --

    def run_pending(self) -> None:
        while self.wait(0.0):
            pass

    def wait(self, timeout_s: float) -> bool:
        """Wait for one function and run it; False if none was submitted in time."""
        try:
            work = self._requests.get(timeout=timeout_s) if timeout_s else self._requests.get_nowait()
        except queue.Empty:
            return False
        work()
        return True
