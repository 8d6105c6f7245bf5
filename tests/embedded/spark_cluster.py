"""A standalone Spark cluster: a master and workers, each a process of the installed PySpark."""

from __future__ import annotations

import json
import os
import signal
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.request import ProxyHandler, build_opener

import pyspark

from tests.bench.usage import descendants
from tests.embedded.server import Launch, SupervisedServer
from tests.embedded.spark import spark_environment
from tests.embedded.supervised import free_port

SPARK_HOME: Final = Path(pyspark.__file__).parent
_OPENER: Final = build_opener(ProxyHandler({}))
_EXECUTOR: Final = b"CoarseGrainedExecutorBackend"


class _Daemon(SupervisedServer):
    """A process of Spark's ``deploy`` package."""

    grace_s = 10
    pause_s = 0.2

    def __init__(self) -> None:
        super().__init__()
        self.web_port = free_port()

    def _start_class(self, name: str, *arguments: str | Path) -> Launch:
        own = {"SPARK_HOME": str(SPARK_HOME), "SPARK_DAEMON_MEMORY": "256m"}
        web = ("--host", self.host, "--webui-port", str(self.web_port))
        command = [SPARK_HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *web, *arguments]
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK", "SPARK"))}
        return Launch(command, {**inherited, **spark_environment(), **own})


class SparkMaster(_Daemon):
    """The master."""

    kind = "spark-master"

    @property
    def url(self) -> str:
        """The value of ``--master``."""
        return f"spark://{self.host}:{self.port}"

    def state(self) -> dict[str, Any]:
        """Return what the web page of the master knows; {} if it does not answer."""
        try:
            with _OPENER.open(f"http://{self.host}:{self.web_port}/json/", timeout=10) as answer:
                return dict(json.load(answer))
        except (OSError, ValueError):
            return {}

    def _launch(self) -> Launch:
        return self._start_class("master.Master", "--port", str(self.port))

    def _answers(self) -> bool:
        return self.state().get("status") == "ALIVE"


class SparkWorker(_Daemon):
    """A worker with one core."""

    kind = "spark-worker"

    def __init__(self, master: SparkMaster, *, memory: str = "1g") -> None:
        super().__init__()
        self._master = master
        self._memory = memory

    def executors(self) -> list[int]:
        """Return the process ids of its executors."""
        return [pid for pid in (descendants(self.pid) if self.running else []) if _is_executor(pid)]

    def _launch(self) -> Launch:
        size = ("--port", str(self.port), "--cores", "1", "--memory", self._memory)
        return self._start_class("worker.Worker", *size, "--work-dir", self.directory / "work", self._master.url)

    def _answers(self) -> bool:
        workers = self._master.state().get("workers", [])
        return any(worker["port"] == self.port and worker["state"] == "ALIVE" for worker in workers)


class SparkCluster:
    """A master and two workers."""

    def __init__(self, *, worker_memory: str = "1g") -> None:
        self._stack = ExitStack()
        self._memory = worker_memory
        self.master: SparkMaster
        self.workers: list[SparkWorker] = []

    def __enter__(self) -> Self:
        try:
            self.master = self._stack.enter_context(SparkMaster())
            for _ in range(2):
                self.workers.append(self._stack.enter_context(SparkWorker(self.master, memory=self._memory)))
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def executors(self) -> list[int]:
        """Return the process ids of all executors."""
        return [pid for worker in self.workers for pid in worker.executors()]

    def kill_executor(self, number: int = 0) -> int | None:
        """Kill an executor with SIGKILL; return its process id, None if there is none."""
        found = self.executors()
        if not found:
            return None
        pid = found[number % len(found)]
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return None
        return pid


def _is_executor(pid: int) -> bool:
    try:
        return _EXECUTOR in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
