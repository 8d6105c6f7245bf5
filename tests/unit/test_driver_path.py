"""The pauses of what the driver does by itself."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from tailrace.spark_consumer.in_driver import FIRST_PAUSE_S, LONGEST_PAUSE_S, DriverPath

EVENT = "rows are read by queries for a while"


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_pause_ends() -> None:
    clock = Clock()
    path = DriverPath(EVENT, clock)
    assert path.works
    with capture_logs() as logs:
        path.fail(ValueError("no such method\nat line 1\nat line 2"), topic="t0")
    assert not path.works
    clock.now += FIRST_PAUSE_S
    assert path.works
    [line] = logs
    assert line["event"] == EVENT
    assert (line["topic"], line["seconds"], line["log_level"]) == ("t0", FIRST_PAUSE_S, "warning")
    assert line["cause"] == "ValueError: no such method at line 1"


def test_failures_within_a_pause_do_not_make_it_longer() -> None:
    """Threads that had begun before the pause fail too."""
    clock = Clock()
    path = DriverPath(EVENT, clock)
    with capture_logs() as logs:
        for _ in range(5):
            path.fail(None)
            clock.now += 1
    assert len(logs) == 1
    clock.now += FIRST_PAUSE_S - 5
    assert path.works


@pytest.mark.parametrize("pause_s", [1, 300])
def test_lasting_failure_is_tried_less_and_less(pause_s: int) -> None:
    """Also if batches are minutes apart."""
    clock = Clock()
    path = DriverPath(EVENT, clock)
    with capture_logs() as logs:
        for _ in range(9):
            path.fail(None)
            clock.now += logs[-1]["seconds"] + pause_s
    pauses = [line["seconds"] for line in logs]
    assert pauses[:6] == [FIRST_PAUSE_S * 2**n for n in range(6)]
    assert pauses[6:] == [LONGEST_PAUSE_S] * 3


def test_failure_after_a_good_time_begins_with_the_shortest_pause() -> None:
    clock = Clock()
    path = DriverPath(EVENT, clock)
    with capture_logs() as logs:
        path.fail(None)
        clock.now += FIRST_PAUSE_S + 1
        path.fail(None)
        clock.now += 2 * FIRST_PAUSE_S + 10 * 2 * FIRST_PAUSE_S
        path.fail(None)
    assert [line["seconds"] for line in logs] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, FIRST_PAUSE_S]
