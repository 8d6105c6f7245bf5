"""One child process that serves on a port, with a folder and a log of its own; what runs, each kind of server says."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, NamedTuple, Self

from tests.embedded import supervised
from tests.embedded.java import EmbeddedServerError

_TOLD_CHARACTERS: Final = 4000
"""How much of its log's end a server that does not start is quoted with."""


class Launch(NamedTuple):
    """What to run for a server; ``env`` None: this process's environment."""

    command: Sequence[str | Path]
    env: dict[str, str] | None = None


class LeashedServer(ABC):
    """A server on 127.0.0.1 that cannot outlive this process.

    Used as a context manager it starts, ends, and removes its folder. Without a ``directory`` it makes a temporary one.
    """

    host: Final = "127.0.0.1"
    kind: ClassVar[str]
    """Names its folder and its log."""
    start_s: ClassVar[float] = 90
    """How long it may take until it answers."""
    grace_s: ClassVar[float] = 30
    """How long it may take to end in order."""
    pause_s: ClassVar[float] = 0.05
    """Between two questions whether it answers."""

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
        """What people call it."""
        return self.kind

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id; an error where none was started."""
        if self._process is None:
            raise RuntimeError("the server was not started")
        return self._process.pid

    @property
    def log_file(self) -> Path:
        """What the server says."""
        return self.directory / f"{self.kind}.log"

    def start(self) -> Self:
        """Start the server on what its folder holds and wait until it answers; nothing where it runs."""
        if self.running:
            return self
        launch = self._launch()
        with self.log_file.open("ab") as log:
            self._process = supervised.spawn(launch.command, output=log, env=launch.env, cwd=self.directory)
        supervised.wait_until(
            self._is_up, what=f"an answer of {self.title}", deadline_s=self.start_s, pause_s=self.pause_s
        )
        return self

    def stop(self) -> None:
        """Shut the server down in order; its folder stays."""
        if self._process is not None:
            supervised.end(self._process, grace_s=self.grace_s)

    def kill(self) -> None:
        """End the server with SIGKILL, as a crash would; its folder stays."""
        if self._process is not None:
            supervised.kill(self._process)

    def close(self) -> None:
        """Kill the server and remove its folder."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    @abstractmethod
    def _launch(self) -> Launch:
        """Make the folder ready and return what to run."""

    @abstractmethod
    def _answers(self) -> bool:
        """Tell whether a client is served; the process is alive."""

    def _is_up(self) -> bool:
        if not self.running:
            log = self.log_file.read_text(encoding="utf-8", errors="replace")[-_TOLD_CHARACTERS:]
            raise EmbeddedServerError(f"{self.title} did not start", hint="read its log", log=f"\n{log}")
        return self._answers()
