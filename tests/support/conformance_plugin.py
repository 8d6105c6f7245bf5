"""A pytest plugin: ``--conformance-results`` notes which cases of the conformance suite of sinks passed.

The file keeps the results of cases that are not run. ``tests/sinks/conformance_results.py`` makes the tables of
docs/sinks/tested.md from it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

CONFORMANCE: Final = "conformance"
"""The property of a test that is a case: label of the sink, name and digest of the case, digest of the sink."""
RESULTS: Final = Path(__file__).resolve().parents[1] / "sinks" / "conformance.json"

Results = dict[str, dict[str, dict[str, str]]]
"""Sink to case to the digests of its code and of that of the sink, and the outcome."""


def read_results() -> Results:
    """Return the results that are known."""
    found: Results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    return found


class ConformanceResults:
    """Collects the outcomes; with several processes in the one that starts them."""

    def __init__(self) -> None:
        self._found: Results = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a case: a failure in any phase counts."""
        for name, value in report.user_properties:
            if name == CONFORMANCE:
                assert isinstance(value, (list, tuple))
                sink, case, digest, code = map(str, value)
                known = self._found.setdefault(sink, {})
                if report.outcome != "passed" or (report.when == "call" and case not in known):
                    known[case] = {"code": digest, "sink": code, "outcome": report.outcome}

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        stored = read_results()
        for sink, cases in self._found.items():
            stored.setdefault(sink, {}).update(cases)
        RESULTS.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption(
        "--conformance-results",
        action="store_true",
        help=f"write the results of the conformance suite of sinks to {RESULTS.relative_to(RESULTS.parents[2])}",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Collect results if they are wanted; processes of xdist report to the one that starts them."""
    if config.getoption("--conformance-results") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(ConformanceResults(), "tailrace-conformance")
