"""The limits of what snapshot readers read together, on a clock of the test."""

from __future__ import annotations

import random

import pytest

from tailrace.producer.snapshot.pace import Pace


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def _read(pace: Pace, clock: Clock, splits: int, readers: int, *, rows: int, size: int) -> list[tuple[float, int, int]]:
    """Read splits of random sizes with several readers; return when each was given to a reader, with its size."""
    chance = random.Random(7)
    begun: list[tuple[float, int, int]] = []
    active: list[tuple[float, str, int, int]] = []
    while len(begun) < splits or active:
        for each in [each for each in active if each[0] <= clock.now]:
            active.remove(each)
            pace.read(*each[1:])
        while len(begun) < splits and len(active) < readers and not pace.exceeded:
            share = chance.choice((0.1, 1.0))
            split = str(len(begun)), int(rows * share), int(size * share)
            pace.started(split[0])
            begun.append((clock.now, *split[1:]))
            active.append((clock.now + chance.random() * 0.5, *split))
        clock.now += 0.05
    return begun


@pytest.mark.parametrize("readers", [1, 4])
@pytest.mark.parametrize(("rows_per_s", "bytes_per_s"), [(1000, 0), (0, 50_000), (1000, 50_000), (20_000, 0)])
def test_all_readers_together_keep_the_limits_and_use_them(readers: int, rows_per_s: int, bytes_per_s: int) -> None:
    clock = Clock()
    pace = Pace(rows_per_s, bytes_per_s, split_rows=500, clock=clock)
    start = clock.now
    begun = _read(pace, clock, 200, readers, rows=500, size=50_000)
    for at, limit, most in ((1, rows_per_s, 500), (2, bytes_per_s, 50_000)):
        for first in range(len(begun)) if limit else ():
            read = 0.0
            for each in begun[first:]:
                read += each[at]
                # Sizes are not known before: each reader may begin a split too many.
                assert read <= limit * (each[0] - begun[first][0] + 1) + most * readers, (at, limit, first)
    if rows_per_s == 1000:
        wanted = max(sum(rows for _, rows, _ in begun) / 1000, bytes_per_s and sum(each[2] for each in begun) / 50_000)
        assert begun[-1][0] - start < wanted * 1.2


def test_no_limit() -> None:
    clock = Clock()
    assert {at for at, _, _ in _read(Pace(0, 0, split_rows=500, clock=clock), clock, 3, 3, rows=500, size=1)} == {
        1000.0
    }
