"""The command line with one half installed: the other half is left out, an error within a half is not."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from tailrace.runtime import cli


def _installed(monkeypatch: pytest.MonkeyPatch, *values: str) -> None:
    found = [EntryPoint(f"e{n}", value, cli.COMMANDS_GROUP) for n, value in enumerate(values)]
    monkeypatch.setattr(cli, "entry_points", lambda group: {cli.COMMANDS_GROUP: found}[group])


def test_half_that_is_not_installed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an image that contains the other half alone: the entry point is declared all the same."""
    _installed(monkeypatch, "tailrace.absent_half.cli:register", "tailrace.producer.cli:register")

    assert {command.name for command in cli.build().registered_commands} >= {"produce", "takeover"}


def test_missing_module_within_a_half_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    _installed(monkeypatch, "tailrace.producer.absent_module:register")

    with pytest.raises(ModuleNotFoundError, match=r"tailrace\.producer\.absent_module"):
        cli.build()
