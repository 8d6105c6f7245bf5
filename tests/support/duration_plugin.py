"""A pytest plugin: prints at the end how long the run took and which files took longest."""

from __future__ import annotations

import time
from collections import defaultdict

import pytest

_SHOWN = 10


class Durations:
    """Adds up the set-up, call and tear-down times of every test file."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._seconds: dict[str, float] = defaultdict(float)
        self._tests: dict[str, int] = defaultdict(int)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one phase of a test."""
        file = report.location[0]
        self._seconds[file] += report.duration
        self._tests[file] += report.when == "call"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the block."""
        if not self._seconds:
            return
        total = time.monotonic() - self._started
        terminalreporter.section(f"duration {_text(total)}")
        slowest = sorted(self._seconds.items(), key=lambda entry: entry[1], reverse=True)
        for file, seconds in slowest[:_SHOWN]:
            terminalreporter.write_line(f"{_text(seconds):>9}  {file} ({self._tests[file]} tests)")
        if len(slowest) > _SHOWN:
            terminalreporter.write_line(f"{'':9}  and {len(slowest) - _SHOWN} faster files")


def pytest_configure(config: pytest.Config) -> None:
    """Start the clock."""
    config.pluginmanager.register(Durations(), "tailrace-durations")


def _text(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{minutes:.0f} min {rest:02.0f} s" if minutes else f"{rest:.1f} s"
