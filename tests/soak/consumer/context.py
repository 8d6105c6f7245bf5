"""What the faults of a consumer's soak can break, and how they wait for what the consumer then says."""

from __future__ import annotations

import json
import random
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.bench.usage import descendants
from tests.embedded.kafka import KafkaBroker
from tests.embedded.spark_cluster import SparkCluster
from tests.soak.tables import TABLES, SoakTable
from tests.support.capture import CaptureProcess
from tests.support.database import Database
from tests.support.driver_process import DriverProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECOVERY_S: Final = 900.0
"""A fault that is not survived within this time ends the soak; generous for a machine that is busy with other work."""
CHOSEN: Final = tuple(table for table in TABLES if table.name in {"by_integer", "by_text", "by_two", "by_decimal"})


class NotRecoveredError(Exception):
    """The consumer did not recover, or did not say what it has to say."""


@dataclass
class ConsumerContext:
    """What a fault can break."""

    rng: random.Random
    broker: KafkaBroker
    producer: CaptureProcess
    consumer: DriverProcess
    new_consumer: Callable[[Path, Path], DriverProcess]
    """Returns another driver for the same tables; takes the folder of its files, and its checkpoint."""
    folder: Path
    """Has the checkpoint, the tables, and copies of both."""
    database: Database
    prefix: str
    session: Callable[[], SparkSession]
    """Returns a session of its own, for statements on the tables."""
    cluster: SparkCluster | None = None
    copies: list[Path] = field(default_factory=list)
    """Copies of checkpoint and tables, made while no driver ran."""
    starts: int = 0
    others: int = 0
    """Drivers besides the first one."""

    @property
    def checkpoint(self) -> Path:
        """The checkpoint of the consumer."""
        return self.folder / "checkpoint"

    @property
    def tables(self) -> Path:
        """The directory of the tables."""
        return self.folder / "tables" / self.database.name

    def topic(self, table: SoakTable) -> str:
        """Return the topic of a table."""
        return f"{self.prefix}.{self.database.name}.{table.name}"

    def any_table(self) -> SoakTable:
        """Choose a table."""
        return self.rng.choice(CHOSEN)

    def touch(self, tables: Iterable[SoakTable] = CHOSEN) -> None:
        """Write a row of each table."""
        for table in tables:
            key = {"by_integer": (2_000_000_000,), "by_text": ("mark",), "by_two": (99, "mark")}.get(
                table.name, ("9000000000.00",)
            )
            columns, marks = ", ".join((*table.key_columns, "v")), ", ".join(["%s"] * (len(key) + 1))
            values = (*key, str(self.rng.randrange(1 << 40)))
            self.database.execute(f"REPLACE INTO {table.name} ({columns}) VALUES ({marks})", values)

    def start(self) -> None:
        """Start the consumer."""
        self.starts += 1
        self.consumer.start()

    def end(self) -> None:
        """Kill the consumer, if it runs."""
        if self.consumer.running:
            self.consumer.kill()

    def keep_running(self) -> None:
        """Start the consumer again if it has ended."""
        if not self.consumer.running:
            self.note("the driver had ended; started again")
            self.start()

    def copy(self) -> None:
        """Copy checkpoint and tables; no driver may run."""
        copy = self.folder / f"copy{len(self.copies)}"
        for source in (self.checkpoint, self.tables):
            if source.is_dir():
                shutil.copytree(source, copy / source.name)
        if copy.is_dir():
            self.copies.append(copy)

    def pids(self) -> list[int]:
        """Return the processes of the driver."""
        return [self.consumer.pid, *descendants(self.consumer.pid)] if self.consumer.running else []

    def note(self, what: str) -> None:
        """Add a line to the list of what was done."""
        with (self.folder / "faults.txt").open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%H:%M:%S', time.gmtime())} {what}\n")

    def wait(self, condition: Callable[[], object], what: str, *, running: bool = True) -> None:
        """Wait until a condition holds; ``running``: the driver is started again meanwhile if it ends."""
        until = time.monotonic() + RECOVERY_S
        while not condition():
            if time.monotonic() > until:
                raise NotRecoveredError(f"not within {RECOVERY_S:.0f} s: {what}; log: {self.consumer.log}")
            if running:
                self.keep_running()
            time.sleep(0.2)


class Said:
    """What a driver has written to its log since this was made."""

    def __init__(self, consumer: DriverProcess) -> None:
        self._log = consumer.log
        self._start = self._log.stat().st_size if self._log.exists() else 0

    @property
    def text(self) -> str:
        """The log since then."""
        if not self._log.exists():
            return ""
        return self._log.read_bytes()[self._start :].decode(errors="replace")

    def parked(self, topic: str, word: str) -> bool:
        """Return whether a table was parked for a reason that has a word, with a hint."""
        return any(each["topic"] == topic and word in each["reason"] and each["hint"] for each in _parked(self.text))

    def error(self) -> str:
        """Return the error that the driver ended with; '' if there is none that has a hint."""
        return next((str(error) for error in _ends(self.text) if error["hint"]), "")


def complaints(logs: Iterable[Path]) -> Counter[str]:
    """Return why tables were parked and drivers have ended, without names and numbers."""
    found = Counter[str]()
    for log in logs:
        text = log.read_text(errors="replace")
        found.update(f"parked: {_plain(each['reason'])}" for each in _parked(text))
        found.update(f"ended: {_plain(error['message'])}" for error in _ends(text))
        found.update(
            "read again: target behind" for line in text.splitlines() if "the target has not applied all" in line
        )
    return found


def _parked(text: str) -> list[dict[str, str]]:
    return _events(text, '"table parked; ')


def _ends(text: str) -> list[dict[str, str]]:
    return [each["error"] for each in _events(text, '"level":"critical"')]


def _events(text: str, mark: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{") and mark in line]


def _plain(reason: str) -> str:
    return re.sub(r"\d+", "N", re.sub(r"\S*(?:/|consumer\d)\S*", "…", reason))[:160]
