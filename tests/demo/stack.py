"""The demo's servers and processes: MySQL, Kafka, the producer and the consumer. All of them end with the demo."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tailrace.runtime.errors import TailraceError
from tests.demo import sample_database
from tests.embedded import supervised
from tests.embedded.kafka import KafkaBroker
from tests.embedded.mysql import MySqlServer
from tests.embedded.server import SupervisedServer
from tests.embedded.spark import spark_environment, spark_jars

ROOT: Final = Path(__file__).parents[2]


class Stack:
    """Servers and processes of one demo, with all their files in one temporary folder."""

    def __init__(self) -> None:
        self.work = Path(tempfile.mkdtemp(prefix="tailrace-demo-"))
        self.mysql = MySqlServer(directory=self.folder("mysql"), settings={"innodb_buffer_pool_size": "256M"})
        self.kafka = KafkaBroker(directory=self.folder("kafka"))
        self.sink = self.work / "tables"
        self.checkpoint = self.work / "checkpoint"
        self.producer_port = supervised.free_port()
        self.consumer_port = supervised.free_port()
        self._servers: list[SupervisedServer] = []
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        # Called in reverse order: processes end first, the folder is removed last.
        self._open.callback(shutil.rmtree, self.work, ignore_errors=True)
        self._open.callback(self.kafka.close)
        self._open.callback(self.mysql.close)
        for server in self._servers:
            self._open.callback(server.close)
        self._open.callback(self.stop_processes)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    @property
    def source(self) -> MySqlServer:
        """The MySQL server."""
        return self.mysql

    @property
    def bootstrap(self) -> str:
        """Kafka's ``host:port``."""
        return self.kafka.bootstrap

    @property
    def producer_status(self) -> str:
        """The URL of the producer's /status."""
        return f"http://127.0.0.1:{self.producer_port}/status"

    def folder(self, name: str) -> Path:
        """Create a folder for the files of a server."""
        folder = self.work / name
        folder.mkdir()
        return folder

    def add(self, server: SupervisedServer) -> None:
        """Close a further server with the demo."""
        self._servers.append(server)

    def start_producer(self) -> None:
        """Start ``tailrace produce``."""
        self._tailrace("produce", self.producer_settings())

    def start_consumer(self) -> None:
        """Start ``tailrace consume`` in local mode."""
        self._tailrace("consume", self.consumer_settings())

    def producer_settings(self) -> dict[str, Any]:
        """Return the producer's configuration, in Debezium's names."""
        return {
            "database.hostname": self.mysql.host,
            "database.port": self.mysql.port,
            "database.user": self.mysql.capture_user,
            "database.password": self.mysql.capture_password,
            "database.server.id": 5401,
            "topic.prefix": sample_database.PREFIX,
            "table.include.list": rf"{sample_database.DATABASE}\..*",
            "bootstrap.servers": self.kafka.bootstrap,
            "snapshot.max.threads": 2,
            "tailrace.http.port": self.producer_port,
        }

    def consumer_settings(self) -> dict[str, Any]:
        """Return the consumer's configuration."""
        return {
            "bootstrap.servers": self.kafka.bootstrap,
            "topic.prefix": sample_database.PREFIX,
            "checkpointLocation": self.checkpoint,
            "sink": "delta",
            "sink.path": self.sink,
            "monitor.port": self.consumer_port,
            "trigger.processingTime": "1 second",
            **self.spark_settings(),
        }

    def spark_settings(self) -> dict[str, Any]:
        """Return Spark's own settings: the jars, and sizes for a small machine."""
        return {
            "spark.jars": ",".join(map(str, spark_jars())),
            "spark.driver.memory": "2g",
            "spark.sql.shuffle.partitions": 2,
            "spark.databricks.delta.snapshotPartitions": 2,
            "spark.local.dir": self.work / "spark",
            "spark.driver.extraJavaOptions": f"-Dderby.system.home={self.work}",
        }

    def write_settings(self, name: str, settings: dict[str, Any]) -> Path:
        """Write a configuration file that only its owner can read, because it holds a password."""
        path = self.work / f"{name}.json"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            json.dump({key: str(value) for key, value in settings.items()}, file, indent=2)
        return path

    def check(self) -> None:
        """Raise TailraceError if a process has ended."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                raise TailraceError(
                    f"tailrace {name} ended with code {process.returncode}",
                    hint="read its log",
                    log=self.log(name),
                )

    def log(self, name: str, *, lines: int = 25) -> str:
        """Return the last lines that a process logged."""
        text = (self.work / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        return "\n".join(["", *text.splitlines()[-lines:]])

    def _tailrace(self, name: str, settings: dict[str, Any]) -> None:
        path = self.write_settings(name, settings)
        command: list[str | Path] = [Path(sys.executable).with_name("tailrace"), name, "--config", path]
        with (self.work / f"{name}.log").open("wb") as log:
            environment = {**os.environ, **spark_environment()}
            self._processes[name] = supervised.spawn(command, output=log, env=environment, cwd=self.work)

    def stop_processes(self) -> None:
        """Stop the consumer, then the producer; kill each that is still alive after its grace time."""
        while self._processes:
            _, process = self._processes.popitem()
            supervised.end(process, grace_s=15)
