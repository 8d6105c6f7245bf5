"""A consumer in processes of its own: its driver can be killed and started on what its checkpoint has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from subprocess import Popen

from tests.embedded import supervised


class DriverProcess(ABC):
    """The driver of a consumer; ``log`` has the output of all starts."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self._process: Popen[bytes] | None = None

    @abstractmethod
    def start(self) -> None:
        """Start the driver."""

    @property
    def running(self) -> bool:
        """Whether the driver is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id of its first process."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL of all processes of the driver, Java and Python."""
        assert self._process is not None
        supervised.kill(self._process)

    def wait(self, deadline_s: float) -> int:
        """Wait until the driver ends; return its exit code."""
        assert self._process is not None
        return self._process.wait(deadline_s)
