"""Takes the results of workers while the enumerator plans: held changes do not wait for a query of the planner.

A split that is read is committed at once, one that is put off is closed, and the reader of one that has held the stream
for too long is ended.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Self

from tailrace.producer.model.split import Split
from tailrace.producer.snapshot.reader import SplitDone
from tailrace.producer.snapshot.workers import Message, SplitFailed, SplitFinished, Workers
from tailrace.producer.streaming.stream_hold import StreamHold

_POLL_S = 0.2


class SplitResults:
    """Reports each finished split at once, on a thread of its own, and then passes it on to the enumerator."""

    def __init__(
        self,
        workers: Workers,
        hold: StreamHold,
        on_finished: Callable[[SplitDone], None],
        on_put_off: Callable[[Split], None],
    ) -> None:
        """The functions are called on the thread of this object; ``hold`` says which splits to give up."""
        self._workers = workers
        self._hold = hold
        self._on_finished = on_finished
        self._on_put_off = on_put_off
        self._messages: queue.SimpleQueue[SplitFinished | SplitFailed | BaseException] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="split-results", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join()

    def next(self, timeout_s: float) -> SplitFinished | SplitFailed | None:
        """Return the next result, which is reported already, or None. Raises what reporting it raised."""
        try:
            message = self._messages.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(message, BaseException):
            raise message
        return message

    def _run(self) -> None:
        try:
            while not self._closed.is_set():
                if self._take(self._workers.next(_POLL_S)):
                    return
                overdue = self._hold.overdue
                if overdue and self._take(self._workers.give_up(overdue)):
                    return
        except BaseException as error:  # noqa: BLE001 - raised again by the enumerator
            self._messages.put(error)

    def _take(self, message: Message | None) -> bool:
        """Report and pass on a message; return whether its worker has ended, which ends the snapshot."""
        if message is None:
            return False
        if isinstance(message, SplitFinished):
            self._on_finished(message.result)
        elif message.put_off is not None:
            self._on_put_off(message.put_off)
        self._messages.put(message)
        return isinstance(message, SplitFailed) and message.missing is None and message.put_off is None
