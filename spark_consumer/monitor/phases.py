"""Durations of the phases of a batch."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class Phases:
    """Sums by phase, since the start and for the last batch; safe to use from several threads.

    Tables are processed at the same time, so the sum of a phase of tables can exceed the duration of its batch.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._total: defaultdict[str, float] = defaultdict(float)
        self._batch: defaultdict[str, float] = defaultdict(float)

    def begin(self) -> None:
        """Start a batch."""
        with self._lock:
            self._batch.clear()

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
        """Return the seconds by phase of the last batch."""
        with self._lock:
            return {name: round(seconds, 3) for name, seconds in self._batch.items()}
