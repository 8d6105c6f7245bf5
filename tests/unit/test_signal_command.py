"""The commands that send signals refuse what the configuration does not allow, before anything is sent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tailrace.runtime.cli import build
from tests.unit.test_cli_producer import CONFIG

SIGNALS = {"signal.enabled.channels": "source,kafka", "tailrace.http.port": "1", "table.include.list": r"shop\..*"}


def refused(folder: Path, changes: dict[str, str], *arguments: str) -> str:
    """Return the message of a command that is refused."""
    config = folder / "shop.json"
    config.write_text(json.dumps(CONFIG | SIGNALS | changes), encoding="utf-8")
    result = CliRunner().invoke(build(), [*arguments, "--config", str(config)])
    assert result.exit_code != 0
    assert "sent " not in result.output
    return result.output


@pytest.mark.parametrize("command", [("snapshot", "shop.orders"), ("pause",), ("resume",)], ids=lambda words: words[0])
def test_what_is_not_enabled_is_named(tmp_path: Path, command: tuple[str, ...]) -> None:
    text = refused(tmp_path, {"signal.enabled.channels": "source"}, *command)
    assert "set signal.enabled.channels=kafka, and restart the producer" in text
    assert "tailrace.http.port is 0" in refused(tmp_path, {"tailrace.http.port": "0"}, *command)
    silent = refused(tmp_path, {}, *command)
    assert "the producer at 127.0.0.1:1 does not answer" in silent
    assert "hint: start it, or set tailrace.http.port and the address to those at which it can be reached" in silent


def test_tables_that_are_not_captured_are_refused_together(tmp_path: Path) -> None:
    text = refused(tmp_path, {}, "snapshot", "shop.orders", "orders", "other.t")

    assert "2 configuration problems" in text
    assert "- 'orders' is not a table as db.table" in text
    assert "- other.t is not captured: database.include.list, table.include.list or an exclude list" in text
