"""A capture under test: in a thread of this process, with hooks, or in its own process, which can be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tailrace.producer.app.capture import run
from tailrace.producer.config import ProducerConfig, load
from tailrace.producer.ops.status import Status
from tailrace.producer.snapshot.hooks import SnapshotHooks
from tailrace.schemas.names import watermarks_topic
from tests.embedded.kafka import KafkaBroker
from tests.embedded.mysql import MySqlServer
from tests.support.reference_model import Row, check_history, ends_of
from tests.support.topics import Read, read_topic

DEADLINE_S = 300.0

_RUNNING: list[CaptureThread | CaptureProcess] = []
"""The captures that nobody has stopped: one that ends by itself ends the wait of ``eventually``."""


def eventually(condition: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """Wait until a condition holds; return its value. Raises what ended a capture that was to run meanwhile.

    A condition that reads a topic takes long on a busy machine: at most half of the time is spent on it.
    """
    until = time.monotonic() + deadline_s
    while (started := time.monotonic()) < until:
        failures = [failure for capture in _RUNNING if (failure := capture.failure()) is not None]
        value = condition()
        if value:
            return value
        if failures:
            raise failures[0]
        time.sleep(max(0.05, time.monotonic() - started))
    raise AssertionError(f"not within {deadline_s:.0f} s: {what}")


def properties(
    server: MySqlServer, broker: KafkaBroker, prefix: str, database: str, changes: Mapping[str, object] | None = None
) -> dict[str, str]:
    """Return a Debezium-style configuration for one database."""
    return {
        "database.hostname": server.host,
        "database.port": str(server.port),
        "database.user": server.user,
        "database.password": server.password,
        "database.server.id": str(10_000 + int.from_bytes(prefix.encode()[-3:], "big") % 1_000_000),
        "topic.prefix": prefix,
        "database.include.list": database,
        "bootstrap.servers": broker.bootstrap,
        "snapshot.max.threads": "2",
        "incremental.snapshot.chunk.size": "50",
        "tailrace.commit.interval.ms": "50",
        **{name: str(value) for name, value in (changes or {}).items()},
    }


def configured(settings: Mapping[str, str]) -> ProducerConfig:
    """Return the configuration of these properties, independent of this process's environment."""
    return load(None, {}, dict(settings))


class CaptureThread:
    """A capture in this process; leaving the block stops it and raises what it raised."""

    def __init__(self, settings: Mapping[str, str], hooks: SnapshotHooks | None = None) -> None:
        self.config = configured(settings)
        self.prefix = settings["topic.prefix"]
        self.bootstrap = settings["bootstrap.servers"]
        self.status = Status(self.prefix)
        self._stop = threading.Event()
        self._hooks = hooks
        self._failure: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, name="capture-under-test")

    def _run(self) -> None:
        try:
            run(self.config, self._stop, status=self.status, hooks=self._hooks)
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            self._failure.append(error)

    def __enter__(self) -> CaptureThread:
        self._thread.start()
        _RUNNING.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        _RUNNING.remove(self)
        self._stop.set()
        self._thread.join(timeout=300)
        assert not self._thread.is_alive(), "the capture does not stop"
        if kind is None and self._failure:
            raise self._failure[0]

    @property
    def running(self) -> bool:
        """Whether the capture has not ended."""
        return self._thread.is_alive()

    def failure(self) -> BaseException | None:
        """Return what ended the capture."""
        return self._failure[0] if self._failure else None

    def wait_snapshot(self) -> None:
        """Wait until every table is streaming."""
        eventually(self._streaming, "snapshot complete")

    def _streaming(self) -> bool:
        tables = self.status.snapshot()["tables"]
        return bool(tables) and all(t["mode"] == "streaming" for t in tables.values())

    def wait_position(self, server: MySqlServer) -> None:
        """Wait until everything that the server has committed so far is committed in Kafka."""
        with server.connect() as session, session.cursor() as cursor:
            cursor.execute("SELECT @@global.gtid_executed")
            wanted = str(cursor.fetchone()[0])
            eventually(lambda: self._stored(cursor, wanted), f"binlog read up to {wanted}")

    def _stored(self, cursor: Any, wanted: str) -> bool:
        cursor.execute("SELECT GTID_SUBSET(%s, %s)", (wanted, self.status.snapshot()["stream"]["gtids"] or ""))
        return bool(cursor.fetchone()[0])


class CaptureProcess:
    """``tailrace produce`` as a process; ``kill`` is SIGKILL."""

    def __init__(self, settings: Mapping[str, str], folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.config = folder / "producer.json"
        self.config.write_text(json.dumps(dict(settings)))
        self.log = folder / "producer.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> CaptureProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.running():
            self.kill()
        self._expect_end()

    def _expect_end(self) -> None:
        if self in _RUNNING:
            _RUNNING.remove(self)

    def failure(self) -> BaseException | None:
        """Return what to raise if the process has ended by itself."""
        if self.running():
            return None
        assert self._process is not None
        output = self.log.read_text(errors="replace")[-4000:]
        return AssertionError(f"the producer ended with code {self._process.returncode}:\n{output}")

    def start(self) -> None:
        """Start the process; its output goes to ``log``."""
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "producer", "produce", "--config", str(self.config)],
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={name: value for name, value in os.environ.items() if not name.startswith("DATABASE_")},
            )
        self._expect_end()
        _RUNNING.append(self)

    def running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to the process and its snapshot readers."""
        os.killpg(self.pid, number)

    def kill(self) -> None:
        """Kill the process, as in a crash."""
        assert self._process is not None
        self._expect_end()
        self._process.kill()
        self._process.wait(timeout=120)

    def pause(self, seconds: float) -> None:
        """Stop the process for a time, as a machine does that is suspended."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self._process.send_signal(signal.SIGCONT)

    def handles_stop(self) -> bool:
        """Whether the process has installed its handler of SIGTERM."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        caught = int(status.split("SigCgt:")[1].split()[0], 16)
        return bool(caught >> (signal.SIGTERM - 1) & 1)

    def wait(self) -> int:
        """Wait until the process ends; return its exit code."""
        assert self._process is not None
        self._expect_end()
        return self._process.wait(timeout=DEADLINE_S)

    def stop(self) -> int:
        """Stop the process as an operator does; return its exit code.

        A process that still imports has no handler: SIGTERM would end it like any program that is not yet running.
        """
        assert self._process is not None
        self._expect_end()
        eventually(lambda: not self.running() or self.handles_stop(), "the handler of SIGTERM")
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout=300)


def records_of(bootstrap: str, prefix: str, database: str, table: str) -> list[Read]:
    """Return the committed records of a table's topic."""
    return read_topic(bootstrap, f"{prefix}.{database}.{table}")


def verified_rows(bootstrap: str, prefix: str, database: str, table: str) -> dict[bytes, Row]:
    """Check all records of a table's topic; return the final rows."""
    topic = f"{prefix}.{database}.{table}"
    ends = ends_of(read_topic(bootstrap, watermarks_topic(prefix)), topic)
    return check_history(read_topic(bootstrap, topic), ends)
