"""The command line with one half installed: the other is left out, a fault within a half is not."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from tailrace.runtime import cli


def _installed(monkeypatch: pytest.MonkeyPatch, *values: str) -> None:
    found = [EntryPoint(f"e{n}", value, cli.COMMANDS_GROUP) for n, value in enumerate(values)]
    monkeypatch.setattr(cli, "entry_points", lambda group: {cli.COMMANDS_GROUP: found}[group])


def test_a_half_that_is_not_there_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an image that carries the other one alone: its entry point is named all the same."""
    _installed(monkeypatch, "tailrace.absent_half.cli:register", "tailrace.producer.cli:register")

    assert {command.name for command in cli.build().registered_commands} >= {"produce", "adopt"}


def test_a_module_that_is_missing_within_a_half_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    _installed(monkeypatch, "tailrace.producer.absent_module:register")

    with pytest.raises(ModuleNotFoundError, match=r"tailrace\.producer\.absent_module"):
        cli.build()
