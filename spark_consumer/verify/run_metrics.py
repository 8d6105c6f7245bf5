"""Metrics of one run for Prometheus, as a file that the textfile collector of its node exporter reads."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry, write_to_textfile
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tailrace.runtime.errors import ConfigError
from tailrace.runtime.exit_code import ExitCode

EQUAL: Final = ExitCode.OK
FAILED: Final = ExitCode.ERROR
DIFFERENT: Final = ExitCode.FOUND
_RESULTS: Final = {EQUAL: "equal", DIFFERENT: "different", FAILED: "failed"}
_MOST_TABLES: Final = 1000
"""Tables that have samples of their own; those that are not equal come first."""


@dataclass(frozen=True, slots=True)
class VerifiedTable:
    """What a run has found of one table."""

    code: ExitCode
    """EQUAL, FAILED or DIFFERENT."""
    rows: int = 0
    """Rows that were compared."""
    ranges: int = 0
    """Buckets of keys, or splits, that were compared."""
    differences: Mapping[str, int] = field(default_factory=dict)
    """Keys, or splits, by what is wrong."""
    undecided: int = 0
    """Keys, or splits, of which that is not known."""


class RunMetrics(Collector):
    """The results of a run by topic, with the seconds that each table took."""

    def __init__(self) -> None:
        self._started = time.time()
        self._tables: dict[str, tuple[VerifiedTable, float]] = {}

    def add(self, topic: str, result: VerifiedTable, seconds: float) -> None:
        """Add a table."""
        self._tables[topic] = result, seconds

    def write(self, file: Path) -> None:
        """Replace the file, so that a reader sees the whole of a run. Raises OSError."""
        registry = CollectorRegistry()
        registry.register(self)
        write_to_textfile(str(file), registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; of a table without a result only that it failed."""
        now = time.time()
        results = Counter(_RESULTS[result.code] for result, _ in self._tables.values())
        yield _gauge("tailrace_verify_last_run_timestamp_seconds", "When the last run ended", (), {(): now})
        yield _gauge("tailrace_verify_run_seconds", "How long it took", (), {(): now - self._started})
        counts = {(name,): results[name] for name in _RESULTS.values()}
        yield _gauge("tailrace_verify_tables", "Tables by result", ("result",), counts)
        first = sorted(self._tables.items(), key=lambda each: (each[1][0].code == EQUAL, each[0]))[:_MOST_TABLES]
        for name, text, found in (
            ("seconds", "How long the table took", {(topic,): seconds for topic, (_, seconds) in first}),
            ("failed", "1: not compared", {(topic,): int(each.code == FAILED) for topic, (each, _) in first}),
            ("rows", "Rows that were compared", {(topic,): each.rows for topic, (each, _) in first}),
            ("ranges", "Buckets of keys, or splits", {(topic,): each.ranges for topic, (each, _) in first}),
            ("not_decided", "Keys, or splits, not decided", {(topic,): each.undecided for topic, (each, _) in first}),
        ):
            yield _gauge(f"tailrace_verify_table_{name}", text, ("topic",), found)
        different = {
            (topic, kind): count for topic, (each, _) in first for kind, count in each.differences.items() if count
        }
        yield _gauge(
            "tailrace_verify_table_differences", "Keys, or splits, that differ", ("topic", "difference"), different
        )


def require_folder(file: Path | None) -> None:
    """Raise ConfigError if a file cannot be written because of its folder: before the tables are compared."""
    if file is not None and not file.absolute().parent.is_dir():
        raise ConfigError([f"--metrics-file {file}: its folder does not exist"])


def _gauge(name: str, text: str, labels: tuple[str, ...], samples: Mapping[Any, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, value in samples.items():
        family.add_metric(values, value)
    return family
