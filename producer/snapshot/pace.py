"""The limits of what all snapshot readers read together, in rows and bytes a second.

Invariant: in any time of t seconds the readers are given splits with at most ``limit * (t + 1)`` rows or bytes, and one
more split each. They wait between splits: a wait within one would hold back changes of its keys, and all changes behind
those. So each split is read at full speed; a table whose key cannot be cut is one split.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_CREDIT_S: Final = 1.0
"""For how long a time without reading counts."""


class _Limit:
    """One limit a second; 0: none."""

    def __init__(self, per_second: int) -> None:
        self._seconds = 1 / per_second if per_second else 0.0
        self.free_at = 0.0

    def take(self, amount: float, now: float) -> None:
        self.free_at = max(self.free_at, now - _CREDIT_S) + amount * self._seconds


class Pace:
    """Says when the next split may be given to a reader. Used by the enumerator's thread."""

    def __init__(
        self,
        max_rows_per_s: int,
        max_bytes_per_s: int,
        *,
        split_rows: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """0: no limit. ``split_rows``: how many rows a split is expected to have."""
        self._rows, self._bytes = _Limit(max_rows_per_s), _Limit(max_bytes_per_s)
        self._split_rows, self._split_bytes = split_rows, 0
        self._clock = clock
        self._expected: dict[str, tuple[int, int]] = {}
        """What was counted for each split that is being read."""

    @property
    def exceeded(self) -> bool:
        return max(self._rows.free_at, self._bytes.free_at) > self._clock()

    def started(self, split: str) -> None:
        """A split is given to a reader: it counts as one of the usual size until it is read."""
        self._expected[split] = self._split_rows, self._split_bytes
        self._take(self._split_rows, self._split_bytes)

    def read(self, split: str, rows: int, size: int) -> None:
        expected_rows, expected_bytes = self._expected.pop(split, (0, 0))
        self._split_bytes = size
        self._take(rows - expected_rows, size - expected_bytes)

    def _take(self, rows: int, size: int) -> None:
        now = self._clock()
        self._rows.take(rows, now)
        self._bytes.take(size, now)
