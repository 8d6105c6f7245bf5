"""CPU seconds and memory of all descendants of this process, sampled from /proc."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
_PERIOD_S: Final = 0.1
_MB: Final = 1024
_LEAST_SAMPLES: Final = 3
"""A process with fewer samples is a fork before its exec: it has no load of its own."""
_FORKED: Final = {"tailrace-forker": "forker of readers", "tailrace-read": "snapshot reader"}
"""What a process of the producer is, by the name that it gives itself; its command line is that of the producer."""
_SHARING: Final = {*_FORKED.values(), "producer"}
"""Processes that share memory: of a page that n of them have, each has one n-th."""


@dataclass(slots=True)
class Timeline:
    """One process: monotonic time, CPU seconds (user and system) so far, resident MB."""

    name: str
    samples: list[tuple[float, float, float]] = field(default_factory=list)
    peak_mb: float = 0.0

    def cpu_s(self, begin: float, end: float) -> float:
        """Return the CPU seconds between two times, from the nearest samples outside."""
        before = [cpu for at, cpu, _ in self.samples if at <= begin]
        until = [cpu for at, cpu, _ in self.samples if at <= end + _PERIOD_S]
        return (until[-1] if until else 0.0) - (before[-1] if before else 0.0)

    def resident_mb(self, begin: float, end: float) -> tuple[float, float]:
        """Return the median memory of the first and the last third of a period: equal if memory does not grow."""
        seen = [mb for at, _, mb in self.samples if begin <= at <= end]
        third = max(1, len(seen) // 3)
        return (_median(seen[:third]), _median(seen[-third:])) if seen else (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Used:
    """The usage of one process in a phase."""

    name: str
    cpu_s: float
    peak_mb: float
    early_mb: float
    late_mb: float


class Usage:
    """A context manager that samples in a background thread."""

    def __init__(self) -> None:
        self._timelines: dict[int, Timeline] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="usage", daemon=True)
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def used(self, begin: float, end: float) -> list[Used]:
        """Return the usage of every process that ran between two monotonic times."""
        with self._lock:
            lines = list(self._timelines.values())
            found = []
            for line in lines:
                if not line.name or sum(begin <= at <= end for at, _, _ in line.samples) < _LEAST_SAMPLES:
                    continue
                early, late = line.resident_mb(begin, end)
                found.append(Used(line.name, line.cpu_s(begin, end), line.peak_mb, early, late))
        return sorted(found, key=lambda used: used.name)

    def _run(self) -> None:
        while not self._stop.wait(_PERIOD_S):
            for pid in descendants(os.getpid()):
                self._sample(pid)

    def _sample(self, pid: int) -> None:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            status = Path(f"/proc/{pid}/status").read_text()
            now = time.monotonic()
            with self._lock:
                line = self._timelines.get(pid)
                if line is None or not line.name:
                    line = self._timelines[pid] = Timeline(_name(pid))
                resident, peak = _mb(status, "VmRSS:"), _mb(status, "VmHWM:")
                if line.name in _SHARING:
                    resident = peak = _mb(Path(f"/proc/{pid}/smaps_rollup").read_text(), "Pss:")
                line.samples.append((now, (int(fields[11]) + int(fields[12])) * TICK_S, resident))
                line.peak_mb = max(line.peak_mb, peak)
        except (FileNotFoundError, ProcessLookupError):
            return  # the process has ended


def spark_cpu_s(spark: SparkSession) -> float:
    """Return the CPU seconds of this process and of the JVM so far: a busy machine does not change them much."""
    context: Any = spark.sparkContext
    fields = Path(f"/proc/{context._gateway.proc.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S + time.process_time()


def descendants(pid: int) -> list[int]:
    """Return the descendants of a process that exist now."""
    found: list[int] = []
    try:
        threads = [entry.name for entry in os.scandir(f"/proc/{pid}/task")]
    except (FileNotFoundError, ProcessLookupError):
        return found
    for thread in threads:
        try:
            children = [int(child) for child in Path(f"/proc/{pid}/task/{thread}/children").read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
        for child in children:
            found += [child, *descendants(child)]
    return found


def _name(pid: int) -> str:
    """Return what a process is; '' if it is unknown, such as after a fork and before exec."""
    own = Path(f"/proc/{pid}/comm").read_text().rstrip("0123456789\n")
    if own in _FORKED:
        return _FORKED[own]
    text = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    known = {
        "mysqld": "MySQL",
        "kafka.Kafka": "Kafka",
        "SparkSubmit": "Spark",
        "producer produce": "producer",
        "ConnectStandalone": "Debezium",
        "FlinkCdcJob": "Flink CDC",
        "consume": "consumer",
    }
    return next((name for mark, name in known.items() if mark in text), "")


def _mb(status: str, field_name: str) -> float:
    at = status.find(field_name)
    return int(status[at + len(field_name) :].split(None, 1)[0]) / _MB if at >= 0 else 0.0


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
