"""What comes from other systems can neither look like a log line nor control the terminal; any value can be logged."""

from __future__ import annotations

import json

import pytest
import structlog

from tailrace.runtime.error_report import reporting_errors
from tailrace.runtime.errors import ConfigError, TailraceError
from tailrace.runtime.logging import configure_logging


def test_control_characters_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    before = structlog.get_config()
    try:
        configure_logging("text")
        structlog.get_logger().info("hi\n2026-01-01 forged\x1b[2J", value="a\rb\u2028c\x85d", ok="ü 😀", number=7)
    finally:
        structlog.configure(**before)
    (line,) = capsys.readouterr().err.splitlines()
    assert "\x1b" not in line
    assert r"hi\n2026-01-01 forged\x1b[2J" in line
    assert r"a\rb\u2028c\x85d" in line
    assert "ü 😀" in line


def test_a_traceback_shows_no_variable_and_adds_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Rows and passwords are variables of its frames; a message may have lines of its own."""
    before = structlog.get_config()
    password = "".join(["s3", "cret"])
    try:
        configure_logging("text")
        try:
            raise ValueError(f"the first {len(password)}\x1b[31m\n  hint: run rm\n\tat the.end")
        except ValueError:
            structlog.get_logger().exception("failed")
    finally:
        structlog.configure(**before)
    text = capsys.readouterr().err
    assert "s3cret" not in text
    assert "\x1b" not in text
    first, *lines = text.splitlines()
    assert "failed" in first
    assert r"ValueError: the first 6\x1b[31m" in text
    assert all(line.startswith(("    ", "Traceback ")) for line in lines), text


def test_any_value_can_be_logged(capsys: pytest.CaptureFixture[str]) -> None:
    before = structlog.get_config()
    try:
        configure_logging("json")
        structlog.get_logger().warning("behind", applied={0: 7, None: {1}}, cause=ValueError("x"))
        structlog.get_logger().warning("ends", error=TailraceError("gone", hint="start it", size=5))
        structlog.get_logger().warning("ends", error=ConfigError(["a: wrong"]))
        with pytest.raises(SystemExit, match="1"), reporting_errors(in_log=True):
            raise KeyError("k\nv")
        configure_logging("text")
        structlog.get_logger().warning("ends", error=TailraceError("gone", hint="start\nit"))
    finally:
        structlog.configure(**before)
    *lines, text = capsys.readouterr().err.splitlines()
    line, error, problems, unknown = map(json.loads, lines)
    assert (unknown["level"], unknown["exit_code"]) == ("critical", 1)
    assert (unknown["error"]["class"], unknown["error"]["message"]) == ("KeyError", r"'k\nv'")
    assert error["error"] == {"class": "TailraceError", "message": "gone", "hint": "start it", "context": {"size": "5"}}
    fields = {"message": "1 configuration problem", "problems": ["a: wrong"], "hint": "", "context": {}}
    assert problems["error"] == {"class": "ConfigError", **fields}
    assert r"gone\\n  hint: start\\nit" in text
    assert (line["event"], line["applied"], line["cause"]) == ("behind", {"0": 7, "null": "{1}"}, "x")
