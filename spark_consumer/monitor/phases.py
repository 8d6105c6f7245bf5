"""Durations of the phases of a batch."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

_SPARK: Final = "spark."


class Phases:
    """Sums by phase, since the start and for the last batch; safe to use from several threads.

    Tables are processed at the same time, so the sum of a phase of tables can exceed the duration of its batch.

    Spark reports its own phases of a batch when it has committed the batch: after the last work of this program on it,
    and before or after the next batch begins. So a report is kept under the number of its batch.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._total: defaultdict[str, float] = defaultdict(float)
        self._batch: defaultdict[str, float] = defaultdict(float)
        self._number: int | None = None
        self._reported: tuple[int, dict[str, float]] | None = None
        """The last batch that Spark has reported, and its seconds by phase."""

    def begin(self, batch: int) -> None:
        """Start a batch."""
        with self._lock:
            self._number = batch
            self._batch.clear()

    def report(self, batch: int, seconds: Mapping[str, float]) -> None:
        """Keep Spark's phases of a batch that has ended."""
        with self._lock:
            self._reported = batch, dict(seconds)
            for name, each in seconds.items():
                self._total[f"{_SPARK}{name}"] += each

    def add(self, seconds: Mapping[str, float]) -> None:
        """Add durations."""
        with self._lock:
            for name, each in seconds.items():
                self._total[name] += each
                self._batch[name] += each

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Add the duration of the block."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.add({name: time.monotonic() - started})

    def totals(self) -> dict[str, float]:
        """Return the seconds by phase since the start."""
        with self._lock:
            return dict(self._total)

    def last(self) -> dict[str, float]:
        """Return the seconds by phase of the last batch; with those of Spark, if it has reported that batch."""
        with self._lock:
            found = {name: round(seconds, 3) for name, seconds in self._batch.items()}
            if self._reported is not None and self._reported[0] == self._number:
                found |= {f"{_SPARK}{name}": seconds for name, seconds in self._reported[1].items()}
            return found

    def reported(self) -> dict[str, float]:
        """Return the last batch that Spark has reported, with its seconds by phase; empty if there is none."""
        with self._lock:
            return {} if self._reported is None else {"batch": self._reported[0], **self._reported[1]}
