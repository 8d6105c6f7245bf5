"""The pauses of what the driver does by itself."""

from __future__ import annotations

from structlog.testing import capture_logs

from tailrace.spark_consumer.in_driver import PAUSE_S, DriverPath

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
    clock.now += PAUSE_S
    assert path.works
    [line] = logs
    assert line["event"] == EVENT
    assert (line["topic"], line["seconds"], line["log_level"]) == ("t0", PAUSE_S, "warning")
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
    clock.now += PAUSE_S - 5
    assert path.works
