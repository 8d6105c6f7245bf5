"""The password command: what it writes is the password, and is never shown."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tailrace.producer.app.connection_settings import source_settings
from tailrace.producer.config import describe
from tailrace.producer.errors import SourceUnavailableError
from tailrace.producer.mysql.password import Password
from tailrace.runtime.errors import ConfigError
from tests.support.capture import configured

SECRET = "open-sesame-4711"
BASE = {
    "topic.prefix": "p",
    "bootstrap.servers": "localhost:1",
    "database.hostname": "localhost",
    "database.user": "u",
    "database.server.id": "1",
}


def _script(folder: Path, text: str) -> str:
    path = folder / "a command.sh"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return f"'{path}' {SECRET}"


def test_password_is_what_the_command_writes_now(tmp_path: Path) -> None:
    path = tmp_path / "token"
    password = Password(command=f"cat {path}")
    for text in ("first\n", " with blanks and 'quotes' \r\n", "€"):
        path.write_text(text, encoding="utf-8")
        assert password.read(60) == text.rstrip("\r\n")
    assert Password("plain").read(60) == "plain"


@pytest.mark.parametrize(
    ("script", "context"),
    [
        ('echo "$1"; echo "denied for $1" >&2; exit 3', {"exit_code": 3, "stderr": "denied for ***"}),
        ("echo nothing >&2", {"cause": "it wrote nothing", "stderr": "nothing"}),
        ('echo "$1"; echo slow >&2; exec sleep 60', {"timeout_s": 5, "stderr": "slow"}),
    ],
)
def test_failed_command(tmp_path: Path, script: str, context: dict[str, object]) -> None:
    """Exit code and stderr are told, the password and the arguments are not."""
    password = Password(command=_script(tmp_path, script))
    with pytest.raises(SourceUnavailableError, match=r"database\.password\.command did not return") as caught:
        password.read(5 if "sleep" in script else 60)
    assert context.items() <= caught.value.context.items()
    assert caught.value.hint.startswith("run the command as the user of the producer; it must write the password alone")
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(password)


def test_missing_program() -> None:
    with pytest.raises(SourceUnavailableError, match=r"database\.password\.command") as caught:
        Password(command=f"/nowhere/program {SECRET}").read(60)
    assert caught.value.context == {"program": "/nowhere/program", "cause": "No such file or directory"}


def test_setting_is_a_secret_and_has_no_rival() -> None:
    config = configured({**BASE, "database.password.command": f"program {SECRET}"})
    assert SECRET not in str(describe(config))
    assert SECRET not in repr(source_settings(config))
    assert source_settings(config).password == Password(command=f"program {SECRET}")
    with pytest.raises(ConfigError, match="exclude each other"):
        configured({**BASE, "database.password.command": "program", "database.password": "x"})
    with pytest.raises(ConfigError, match="quoted as for a shell"):
        configured({**BASE, "database.password.command": "program 'open"})


def test_python_is_a_command() -> None:
    """Quotes are those of a shell; no shell replaces variables."""
    assert Password(command=f"{sys.executable} -c 'print(\"$HOME\")'").read(60) == "$HOME"
