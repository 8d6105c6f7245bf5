"""A process that forks snapshot readers: they share the memory of what is imported, and start without importing.

A process that has threads must not fork: its child may find a lock that no thread of its own will ever release, such as
one of the allocator or of a client library. So the producer forks once, before it has a thread, a connection or a
client. The child stays as it is, without threads, and forks each snapshot reader on request, hours later too.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Final, NoReturn, Self

from tailrace.runtime.errors import TailraceError

_ANSWER_S: Final = 10.0
_REQUEST_BYTES: Final = 64


class ForkServerLostError(TailraceError):
    """The process that forks snapshot readers has ended."""


class ForkServer:
    """The handle of the process; ``close`` ends it, and so does the end of this process."""

    def __init__(self, main: Callable[[int, Pipe], None]) -> None:
        """Fork. ``main(worker, pipe)`` runs in each reader. The caller has no threads: ``may_fork``."""
        assert may_fork(), "a process with threads must not fork"
        self._lock = threading.Lock()
        self._closed = False
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with interrupts_blocked():
            self._pid = os.fork()
            if self._pid == 0:
                self._socket.close()  # it has to see that the parent closes the other end
                _run(lambda: _serve(theirs, main), "tailrace-forker")
        theirs.close()
        self._socket.settimeout(_ANSWER_S)

    def start(self, worker: int, pipe: Pipe) -> ForkedReader:
        """Return a new reader, which has the other end of a pipe. Raises ForkServerLostError."""
        return ForkedReader(self, self._request(f"start {worker}", pipe.fileno()))

    def reap(self, pid: int) -> int:
        """Wait for the end of a reader; return its exit code, negative for a signal. Raises ForkServerLostError.

        The id belongs to the reader until then.
        """
        return self._request(f"reap {pid}")

    def _request(self, request: str, *files: int) -> int:
        with self._lock:
            try:
                socket.send_fds(self._socket, [request.encode()], files)
                answer = self._socket.recv(_REQUEST_BYTES)
            except OSError:
                answer = b""
            if not answer:
                # An answer that came late would be taken for that of another request.
                self._socket.close()
                raise ForkServerLostError("the process that starts snapshot readers has ended")
        return int(answer)

    def close(self) -> None:
        """End the process; readers that still run end too."""
        self._socket.close()
        if not self._closed:
            self._closed = True
            os.kill(self._pid, signal.SIGKILL)  # its id is its own until it is waited for
            os.waitpid(self._pid, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ForkedReader:
    """A process that the fork server has started."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server = server
        self.pid = pid
        self._code: int | None = None
        self._lost = False

    def exit_code(self) -> int | None:
        if self._code is None and not self._lost:
            try:
                self._code = self._server.reap(self.pid)
            except ForkServerLostError:
                # Its children end by themselves, and their ids may belong to others soon.
                self._lost = True
        return self._code

    def end(self) -> None:
        if self._code is None and not self._lost:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.exit_code()


def may_fork() -> bool:
    """Return whether this process has one thread, also counting those that Python does not know."""
    try:
        return len(list(Path("/proc/self/task").iterdir())) == 1
    except OSError:
        return False


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Block SIGINT in this thread: a child that starts meanwhile inherits that, until it ignores the signal."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_interrupts() -> None:
    """Ignore SIGINT: a terminal sends Ctrl-C to the whole group, and the parent decides. SIGTERM ends this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _run(work: Callable[[], object], name: str) -> NoReturn:
    """Run a forked process to its end: it never returns to the frames of its parent."""
    code = 1
    try:
        with suppress(OSError):
            Path("/proc/self/comm").write_text(name, encoding="ascii")  # the command line is that of the producer
        work()
        code = 0
    except BaseException:  # noqa: BLE001 - nobody else reports it
        traceback.print_exc()
    finally:
        os._exit(code)


def _serve(requests: socket.socket, main: Callable[[int, Pipe], None]) -> None:
    """Fork a reader for each request, until the parent has closed its end or has ended."""
    ignore_interrupts()
    while True:
        try:
            message, files, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, 1)
        except ConnectionError:
            return
        if not message:
            return
        word, number = message.decode().split()
        if word == "start":
            [file] = files
            answer = _fork_reader(requests, file, main, int(number))
        else:
            answer = os.waitstatus_to_exitcode(os.waitpid(int(number), 0)[1])
        try:
            requests.send(str(answer).encode())
        except ConnectionError:
            return


def _fork_reader(requests: socket.socket, file: int, main: Callable[[int, Pipe], None], worker: int) -> int:
    with interrupts_blocked():
        pid = os.fork()
        if pid == 0:
            requests.close()
            _run(lambda: main(worker, Pipe(file)), f"tailrace-read{worker}")
    os.close(file)
    return pid
