"""Workers: snapshot readers in local processes, or in threads for tests with hooks, behind one small interface.

A worker gets one task at a time and sends one result per task. A worker that fails reports the failure and ends; the
capture then restarts from the stored state, as after a crash.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import multiprocessing.resource_tracker
import os
import queue
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from typing import Any, Final, Protocol

from tailrace.producer.errors import (
    SourceError,
    SourceUnavailableError,
    TableLockedError,
    TableMissingError,
)
from tailrace.producer.model.split import Split
from tailrace.producer.snapshot.fork_server import ignore_interrupts, interrupts_blocked
from tailrace.producer.snapshot.reader import SnapshotReader, SplitDone, SplitTask
from tailrace.runtime.errors import TailraceError

_END_S: Final = 10.0
"""How long the end of a process may take that is killed, until its pipe is closed."""


@dataclass(frozen=True, slots=True)
class SplitFinished:
    """A worker finished a split."""

    worker: int
    result: SplitDone


@dataclass(frozen=True, slots=True)
class SplitFailed:
    """A worker failed.

    The error comes as it was raised, not as text: its context can quote rows, and only logs may have them.
    With ``missing``, ``locked`` or ``held`` the worker waits for its next split: the source has no such table right
    now, it is locked, or the stream was held for too long. Nothing of the split is in Kafka.
    """

    worker: int
    error: TailraceError
    missing: Split | None = None
    locked: Split | None = None
    held: Split | None = None

    @property
    def put_off(self) -> Split | None:
        """The split that is to be read later."""
        return self.locked or self.held


@dataclass(frozen=True, slots=True)
class SplitCommitting:
    """A worker begins to commit its split: until it reports the result, nobody knows whether the rows are in Kafka."""

    worker: int


Message = SplitFinished | SplitFailed
OpenReader = Callable[[], SnapshotReader]
"""Opens a worker's reader."""


class Workers(Protocol):
    """A fixed set of workers, numbered from 0."""

    count: int

    def submit(self, worker: int, task: SplitTask) -> None:
        """Give an idle worker its next split."""

    def next(self, timeout_s: float) -> Message | None:
        """Return the next message of any worker, or None."""

    def give_up(self, splits: Collection[str]) -> Message | None:
        """End a worker that reads one of these splits, and start another one; return its last message, or ``held``.

        None: no worker reads one of them. Called by the thread that calls ``next``.
        """

    def close(self) -> None:
        """End all workers; open transactions are aborted when the next instance fences them."""


def serve(
    worker: int,
    open_reader: OpenReader,
    receive: Callable[[], SplitTask | None],
    send: Callable[[Message | SplitCommitting], None],
) -> None:
    """Run one worker until ``receive`` yields None or it fails."""
    try:
        reader = open_reader()
        while (task := receive()) is not None:
            try:
                result = reader.read(task, lambda: send(SplitCommitting(worker)))
            except TableMissingError as error:
                send(SplitFailed(worker, _sendable(error), missing=task.split))
            except TableLockedError as error:
                send(SplitFailed(worker, _sendable(error), locked=task.split))
            else:
                send(SplitFinished(worker, result))
    except TailraceError as error:
        send(SplitFailed(worker, _sendable(error)))
    except Exception as error:  # noqa: BLE001 - the enumerator must learn about every failure
        unexpected = SourceError(f"a snapshot reader failed: {type(error).__name__}", cause=str(error))
        send(SplitFailed(worker, unexpected))


def _sendable(error: TailraceError) -> TailraceError:
    """Return an error that passes a pipe, whatever its context has."""
    error.context = {name: str(value) for name, value in error.context.items()}
    return error


class ThreadWorkers:
    """Workers as threads of this process: for tests, whose hooks cannot be passed to another process."""

    def __init__(self, open_readers: list[OpenReader]) -> None:
        self.count = len(open_readers)
        self._messages: queue.SimpleQueue[Message | SplitCommitting] = queue.SimpleQueue()
        self._tasks: list[queue.SimpleQueue[SplitTask | None]] = [queue.SimpleQueue() for _ in open_readers]
        self._threads = [
            threading.Thread(
                target=serve, args=(i, opener, self._tasks[i].get, self._messages.put), name=f"reader-{i}", daemon=True
            )
            for i, opener in enumerate(open_readers)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, worker: int, task: SplitTask) -> None:
        self._tasks[worker].put(task)

    def next(self, timeout_s: float) -> Message | None:
        try:
            message = self._messages.get(timeout=timeout_s)
        except queue.Empty:
            return None
        return None if isinstance(message, SplitCommitting) else message

    def give_up(self, splits: Collection[str]) -> Message | None:  # noqa: ARG002 - see below
        """A thread cannot be ended."""
        return None

    def close(self) -> None:
        """End all workers after their current split."""
        for tasks in self._tasks:
            tasks.put(None)
        for thread in self._threads:
            thread.join(timeout=30)


class Process(Protocol):
    """The process of a worker."""

    def exit_code(self) -> int | None:
        """Return the exit code of a process that has closed its pipe; None: unknown."""

    def end(self) -> None:
        """End the process, and wait for that."""


class ProcessWorkers:
    """Workers as processes: decoding holds the interpreter lock, so threads would share one CPU core."""

    def __init__(self, count: int, start: Callable[[int, Pipe], Process]) -> None:
        """``start(worker, pipe)`` starts a process that calls ``serve_pipe``."""
        self.count = count
        self._start = start
        self._arguments: tuple[object, ...] = ()
        self._pipes: list[Pipe] = []
        self._processes: list[Process] = []
        self._reading: dict[int, Split] = {}
        self._committing: set[int] = set()
        self._lock = threading.Lock()
        """A worker that is ended gets no task meanwhile."""
        for worker in range(count):
            pipe, process = self._new(worker)
            self._pipes.append(pipe)
            self._processes.append(process)

    def _new(self, worker: int) -> tuple[Pipe, Process]:
        ours, theirs = multiprocessing.Pipe()
        with theirs:
            return ours, self._start(worker, theirs)

    def begin(self, *arguments: object) -> None:
        """Let the workers open their readers, with ``arguments``; until then they import what they need, and wait."""
        self._arguments = arguments
        for worker in range(self.count):
            self._send(worker, arguments)

    def submit(self, worker: int, task: SplitTask) -> None:
        with self._lock:
            self._reading[worker] = task.split
            self._send(worker, task)

    def _send(self, worker: int, message: object) -> None:
        # A worker that has ended is reported by ``next``.
        with suppress(ConnectionError):
            self._pipes[worker].send(message)

    def next(self, timeout_s: float) -> Message | None:
        """Return the next message of any worker, or None; a process that ended is a retryable failure."""
        ready = multiprocessing.connection.wait(self._pipes, timeout_s)
        for pipe in ready:
            worker = self._pipes.index(pipe)  # type: ignore[arg-type]
            try:
                message: Message | SplitCommitting = self._pipes[worker].recv()
            except (EOFError, ConnectionError):
                code = self._processes[worker].exit_code()
                return SplitFailed(worker, SourceUnavailableError(f"snapshot reader {worker} ended with code {code}"))
            if isinstance(message, SplitCommitting):
                self._committing.add(worker)
                return None
            self._forget(worker)
            return message
        return None

    def _forget(self, worker: int) -> None:
        with self._lock:
            self._reading.pop(worker, None)
            self._committing.discard(worker)

    def give_up(self, splits: Collection[str]) -> Message | None:
        """See ``Workers``.

        The process may be stopped or wait for a server. What it has sent before its end is received first, so that a
        commit is known. The one that follows it has its transactional id, and aborts its transaction.
        """
        with self._lock:
            worker, split = next(((w, s) for w, s in self._reading.items() if s.id in splits), (-1, None))
            if split is None:
                return None
            self._processes[worker].end()
            last = self._last_message(worker)
            self._pipes[worker].close()
            self._pipes[worker], self._processes[worker] = self._new(worker)
            self._send(worker, self._arguments)
        self._forget(worker)
        return last or SplitFailed(worker, SourceUnavailableError("the stream was held for too long"), held=split)

    def _last_message(self, worker: int) -> Message | None:
        """Return what a worker that is ended has sent last; None: it has not begun to commit."""
        unknown = SplitFailed(worker, SourceUnavailableError("a snapshot reader was ended while it committed a split"))
        found: Message | None = unknown if worker in self._committing else None
        while True:
            if not self._pipes[worker].poll(_END_S):  # it is closed when the process has ended
                return unknown
            try:
                message: Message | SplitCommitting = self._pipes[worker].recv()
            except (EOFError, OSError):
                return found
            found = unknown if isinstance(message, SplitCommitting) else message

    def close(self) -> None:
        for process in self._processes:
            process.end()
        for pipe in self._pipes:
            pipe.close()


class SpawnedProcess:
    """A process that imports what it needs: for a producer that has threads already, and no fork server."""

    def __init__(self, main: Callable[[int, Pipe], None], worker: int, pipe: Pipe) -> None:
        """``main(worker, pipe)`` runs in the child; it must be importable."""
        # Otherwise the first child starts it, which unblocks the signal.
        multiprocessing.resource_tracker.ensure_running()
        self._process = multiprocessing.get_context("spawn").Process(
            target=main, args=(worker, pipe), name=f"tailrace-reader-{worker}", daemon=True
        )
        with interrupts_blocked():
            self._process.start()

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def exit_code(self) -> int | None:
        self._process.join(timeout=5)
        return self._process.exitcode

    def end(self) -> None:
        self._process.kill()
        self._process.join()


def serve_pipe(worker: int, new_opener: Callable[..., OpenReader], pipe: Pipe) -> None:
    """Run one worker over a pipe; it ends when the parent ends, even by SIGKILL.

    ``new_opener`` is called with the arguments of ``begin``.
    """
    ignore_interrupts()
    _end_with_parent()

    def receive() -> Any:
        try:
            return pipe.recv()
        except (EOFError, ConnectionError):
            return None

    arguments = receive()
    if arguments is None:
        return
    # Without its parent nobody listens to a report; the next instance fences what the reader left open.
    with suppress(BrokenPipeError):
        serve(worker, new_opener(*arguments), receive, pipe.send)


def _end_with_parent() -> None:
    """End this process when its parent has ended, even during a split."""
    parent = os.getppid()

    def watch() -> None:
        stopped = threading.Event()
        while os.getppid() == parent:
            stopped.wait(0.5)
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
