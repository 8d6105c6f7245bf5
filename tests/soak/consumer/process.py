"""The consumer of a soak: one process, or a driver under spark-submit; a supervisor starts it again when it ends."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from subprocess import Popen
from typing import Protocol

from tests.bench.usage import descendants
from tests.docs.samples import ROOT
from tests.embedded import supervised
from tests.embedded.spark import spark_environment, spark_settings

STOP_S = 180


class ConsumerUnderTest(Protocol):
    """What a fault can do to a consumer."""

    log: Path

    @property
    def running(self) -> bool:
        """Whether the driver is alive."""

    @property
    def pid(self) -> int:
        """The process id of its first process."""

    def start(self) -> None:
        """Start it on what its checkpoint has."""

    def kill(self) -> None:
        """SIGKILL of all processes of the driver."""

    def wait(self, deadline_s: float) -> int:
        """Wait until it ends; return the exit code."""


class LocalConsumer:
    """A consumer with a local session."""

    def __init__(self, given: Mapping[str, str], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "driver.log"
        self._config = folder / "consumer.json"
        own = {**spark_settings(folder), "spark.driver.memory": "1g"}
        self._config.write_text(json.dumps({**given, **own}), encoding="utf-8")
        self._process: Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether it is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it."""
        command: list[str | Path] = [sys.executable, ROOT / "spark_consumer" / "app.py", "--config", self._config]
        with self.log.open("ab") as output:
            self._process = supervised.spawn(command, output=output, env={**os.environ, **spark_environment()})

    def kill(self) -> None:
        """Kill it and its Java process."""
        assert self._process is not None
        supervised.kill(self._process)

    def wait(self, deadline_s: float) -> int:
        """Wait until it ends; return the exit code."""
        assert self._process is not None
        return self._process.wait(deadline_s)


def stop(consumer: ConsumerUnderTest) -> int:
    """Send SIGTERM to the Python process and wait for the orderly end; return the exit code."""
    for pid in (consumer.pid, *descendants(consumer.pid)):
        if b"app.py" in _arguments(pid)[1:3]:
            os.kill(pid, signal.SIGTERM)
            return consumer.wait(STOP_S)
    consumer.kill()  # it has not reached Python yet
    return 0


def _arguments(pid: int) -> list[bytes]:
    try:
        return [word.rpartition(b"/")[2] for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]
    except OSError:
        return []
