"""The consumer of a soak: one process, or a driver under spark-submit; a supervisor starts it again when it ends."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.bench.usage import descendants
from tests.docs.samples import ROOT
from tests.embedded import supervised
from tests.embedded.spark import spark_environment, spark_settings
from tests.support.driver_process import DriverProcess

STOP_S = 180


class LocalConsumer(DriverProcess):
    """A consumer with a local session."""

    def __init__(self, given: Mapping[str, str], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder / "driver.log")
        self._config = folder / "consumer.json"
        own = {**spark_settings(folder), "spark.driver.memory": "1g"}
        self._config.write_text(json.dumps({**given, **own}), encoding="utf-8")

    def start(self) -> None:
        """Start it."""
        command: list[str | Path] = [sys.executable, ROOT / "spark_consumer" / "app.py", "--config", self._config]
        with self.log.open("ab") as output:
            self._process = supervised.spawn(command, output=output, env={**os.environ, **spark_environment()})


def stop(consumer: DriverProcess) -> int:
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
