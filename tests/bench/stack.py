"""The servers and the measured processes, with all their files in one temporary folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

from tailrace.runtime.errors import TailraceError
from tests.bench import customer
from tests.embedded import supervised
from tests.embedded.kafka import KafkaBroker
from tests.embedded.mysql import MySqlServer
from tests.embedded.spark import spark_environment, spark_jars

PREFIX: Final = "bench"
TOPIC: Final = f"{PREFIX}.{customer.DATABASE}.{customer.TABLE}"
_ROOT: Final = Path(__file__).parents[2]


class Program:
    """``tailrace produce`` or ``tailrace consume`` as a process."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self.log = log

    def check(self) -> None:
        """Raise TailraceError if it has failed."""
        if self._process.poll():
            raise TailraceError("a measured program failed", hint="read its log", log=self.tail())

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def stop(self) -> None:
        """Terminate it and wait for its end."""
        supervised.end(self._process, grace_s=60)

    def tail(self) -> str:
        """Return the last lines of its log."""
        return "\n" + "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-25:])


class Stack:
    """MySQL and Kafka as a context manager. Programs started by it end with it."""

    def __init__(self, changes: dict[str, str]) -> None:
        """``changes`` are added to (or replace) the producer's properties."""
        self.work = Path(tempfile.mkdtemp(prefix="tailrace-bench-"))
        self.mysql = MySqlServer(
            directory=self._folder("mysql"), settings={"innodb_buffer_pool_size": "512M", "max_binlog_size": "1G"}
        )
        self.kafka = KafkaBroker(directory=self._folder("kafka"))
        self.sink = self.work / "tables"
        self._changes = changes
        self._programs: list[Program] = []
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._open.callback(shutil.rmtree, self.work, ignore_errors=True)
        try:
            self._open.callback(self.kafka.close)
            self._open.callback(self.mysql.close)
            self._open.callback(self._end_programs)
            self.mysql.start()
            self.kafka.start()
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _folder(self, name: str) -> Path:
        folder = self.work / name
        folder.mkdir()
        return folder

    def produce(self) -> Program:
        """Start the producer."""
        settings = {
            "database.hostname": self.mysql.host,
            "database.port": self.mysql.port,
            "database.user": self.mysql.capture_user,
            "database.password": self.mysql.capture_password,
            "database.ssl.mode": "disabled",
            "tailrace.database.insecure.authentication": "true",
            "database.server.id": 5402,
            "database.include.list": customer.DATABASE,
            "topic.prefix": PREFIX,
            "bootstrap.servers": self.kafka.bootstrap,
            "snapshot.max.threads": 2,
            **self._changes,
        }
        return self._start("produce", [sys.executable, "-m", "tailrace.producer", "produce"], settings)

    def consume(self, changes: Mapping[str, str] | None = None) -> Program:
        """Start the consumer. It ends when it has applied everything that is in Kafka. ``changes`` are as above."""
        settings = {
            "bootstrap.servers": self.kafka.bootstrap,
            "topic.prefix": PREFIX,
            "checkpointLocation": self.work / "checkpoint",
            "sink": "delta",
            "sink.path": self.sink,
            "trigger.availableNow": "true",
            "log.format": "json",
            "spark.jars": ",".join(map(str, spark_jars())),
            "spark.master": "local[2]",
            "spark.driver.memory": "4g",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": 2,
            "spark.databricks.delta.snapshotPartitions": 2,
            "spark.local.dir": self.work / "spark",
            "spark.driver.extraJavaOptions": f"-Dderby.system.home={self.work}",
            **(changes or {}),
        }
        return self._start("consume", [Path(sys.executable).with_name("tailrace"), "consume"], settings)

    def _start(self, name: str, command: list[str | Path], settings: dict[str, Any]) -> Program:
        path = self.work / f"{name}-{len(self._programs)}.json"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as file:
            json.dump({key: str(value) for key, value in settings.items()}, file)
        return self.start(name, [*command, "--config", path])

    def start(self, name: str, command: Sequence[str | Path]) -> Program:
        """Start a program with a log of its own."""
        log = self.work / f"{name}-{len(self._programs)}.log"
        with log.open("wb") as output:
            environment = {**os.environ, **spark_environment()}
            process = supervised.spawn(command, output=output, env=environment, cwd=_ROOT)
        program = Program(process, log)
        self._programs.append(program)
        return program

    def _end_programs(self) -> None:
        for program in self._programs:
            if not program.ended:
                program.stop()
