"""The command line with one half installed: the other half is left out, an error within a half is not."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib.metadata import EntryPoint, version
from platform import python_version

import pytest
from typer.testing import CliRunner

from tailrace.runtime import cli
from tailrace.spark_consumer import app
from tests.unit.test_cli_producer import command


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


def _tailrace(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.build(), arguments)
    return result.exit_code, result.output


def _producer(*arguments: str) -> tuple[int, str]:
    done = command(*arguments)
    return done.returncode, done.stdout


def _app(*arguments: str) -> tuple[int, str]:
    printed = io.StringIO()
    with pytest.raises(SystemExit) as ended, redirect_stdout(printed):
        app.main(arguments)
    return int(ended.value.code or 0), printed.getvalue()


@pytest.mark.parametrize("run", [_tailrace, _producer, _app])
def test_each_program_prints_its_versions(run: Callable[..., tuple[int, str]]) -> None:
    """What is installed of the libraries that the package requires, one line each."""
    code, text = run("--version")

    assert (code, text.splitlines()[:2]) == (0, [f"tailrace {version('tailrace')}", f"python {python_version()}"])
    assert f"pyspark {version('pyspark')}\n" in text
    assert all(len(line.split()) == 2 for line in text.splitlines())
