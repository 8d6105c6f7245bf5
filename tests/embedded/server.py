"""The base of the test servers: one child process with a port, a folder and a log."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, NamedTuple, Self

from tests.embedded import supervised
from tests.embedded.java import EmbeddedServerError

_LOG_CHARACTERS: Final = 4000
"""How much of the log is quoted if a server does not start."""


class Launch(NamedTuple):
    """The command of a server. Without ``env`` it inherits the environment."""

    command: Sequence[str | Path]
    env: dict[str, str] | None = None


class SupervisedServer(ABC):
    """A server on 127.0.0.1 that ends with this process.

    As a context manager it starts, ends, and removes its folder. Without ``directory`` it creates a temporary one.
    """

    host: Final = "127.0.0.1"
    kind: ClassVar[str]
    """Part of the names of its folder and its log."""
    start_s: ClassVar[float] = 300
    """Deadline of a start; generous for a machine that is busy with other work."""
    grace_s: ClassVar[float] = 60
    """Deadline of a shutdown; the server is killed then."""
    pause_s: ClassVar[float] = 0.05
    """Interval of the checks whether it answers."""

    def __init__(self, *, port: int | None = None, directory: Path | None = None) -> None:
        self.port = port or supervised.free_port()
        self.directory = (directory or Path(tempfile.mkdtemp(prefix=f"tailrace-{self.kind}-"))).absolute()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def title(self) -> str:
        """Its name in messages."""
        return self.kind

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id. Raises RuntimeError before the first start."""
        if self._process is None:
            raise RuntimeError("the server was not started")
        return self._process.pid

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The machine accepts connections meanwhile, and the server does not answer."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)  # its threads do not stop at once
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    @property
    def log_file(self) -> Path:
        """The log of the server."""
        return self.directory / f"{self.kind}.log"

    def start(self) -> Self:
        """Start the server on its existing data, unless it runs, and wait until it answers."""
        if self.running:
            return self
        launch = self._launch()
        with self.log_file.open("ab") as log:
            self._process = supervised.spawn(launch.command, output=log, env=launch.env, cwd=self.directory)
        supervised.wait_until(
            self._is_up, what=f"the start of {self.title}", deadline_s=self.start_s, pause_s=self.pause_s
        )
        return self

    def stop(self) -> None:
        """Shut the server down. Its folder stays."""
        if self._process is not None:
            supervised.end(self._process, grace_s=self.grace_s)

    def kill(self) -> None:
        """Kill the server like a crash. Its folder stays."""
        if self._process is not None:
            supervised.kill(self._process)

    def close(self) -> None:
        """Kill the server and remove its folder."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    @abstractmethod
    def _launch(self) -> Launch:
        """Prepare the folder and return the command."""

    @abstractmethod
    def _answers(self) -> bool:
        """Return whether a client can connect. The process is alive."""

    def _is_up(self) -> bool:
        if not self.running:
            log = self.log_file.read_text(encoding="utf-8", errors="replace")[-_LOG_CHARACTERS:]
            raise EmbeddedServerError(f"{self.title} did not start", hint="read its log", log=f"\n{log}")
        return self._answers()
