"""Inbox: work that other threads ask the log reader's thread to do, so that its state needs no lock."""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class Mailbox:
    """Functions to run on the owner's thread; ``wake`` interrupts the owner's wait for the log."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._asked: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def ask(self, work: Callable[[], T]) -> Future[T]:
        """Have ``work`` run on the owner's thread; the future has its result or its exception."""
        answer: Future[T] = Future()

        def run() -> None:
            try:
                result = work()
            except BaseException as error:
                answer.set_exception(error)
                raise
            answer.set_result(result)

        self._asked.put(run)
        self._wake()
        return answer

    def drain(self) -> int:
        """Run everything asked so far, on the owner's thread; return how much it was."""
        done = 0
        while True:
            try:
                work = self._asked.get_nowait()
            except queue.Empty:
                return done
            work()
            done += 1

    def wait(self, timeout_s: float) -> bool:
        """Wait for one request and run it; False when none came in time."""
        try:
            work = self._asked.get(timeout=timeout_s)
        except queue.Empty:
            return False
        work()
        return True
