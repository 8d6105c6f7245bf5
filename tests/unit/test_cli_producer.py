"""The producer's commands: output, exit codes, signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tailrace.producer import cli

CONFIG = {
    "database.hostname": "127.0.0.1",
    "database.port": "1",
    "database.user": "cdc",
    "database.password": "hush-hush",
    "database.server.id": "5",
    "topic.prefix": "shop",
    "bootstrap.servers": "127.0.0.1:1",
    "snapshot.locking.mode": "minimal",
}


@pytest.fixture
def config(tmp_path: Path) -> str:
    """A configuration whose servers do not exist."""
    path = tmp_path / "shop.json"
    path.write_text(json.dumps(CONFIG), encoding="utf-8")
    return str(path)


PRODUCER = ("-m", "tailrace.producer")
TAILRACE = ("-c", "from tailrace.runtime.cli import main; main()")
"""What the installed command ``tailrace`` runs."""


def command(*arguments: str, program: tuple[str, str] = PRODUCER) -> subprocess.CompletedProcess[str]:
    """Run the producer's command line in a process of its own."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("DATABASE_", "TOPIC_"))}
    return subprocess.run(
        [sys.executable, *program, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env=environ,
        check=False,
    )


def test_config_prints_effective_settings_with_secrets_masked(config: str) -> None:
    """Sorted lines of name=value; warnings on stderr."""
    app = typer.Typer()
    cli.register(app)

    result = CliRunner().invoke(app, ["config", "--config", config, "--set", "snapshot.max.threads=3"])

    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines == sorted(lines)
    assert {"database.password=********", "snapshot.max.threads=3", "topic.prefix=shop"} <= set(lines)
    assert "hush" not in result.output
    assert "warning: snapshot.locking.mode has no effect: snapshots take no locks" in result.stderr


def test_problems_end_with_code_78_and_without_traceback(config: str) -> None:
    """All of them on stderr."""
    ended = command("config", "--config", config, "--set", "database.port=x", "--set", "tabel.include.list=a")

    assert ended.returncode == 78
    assert ended.stdout == ""
    assert ended.stderr.splitlines() == [
        "error: 2 configuration problems:",
        "- database.port: 'x' (flag) is not a whole number from 1 to 65535",
        "- tabel.include.list is not a known property; did you mean table.include.list?",
    ]


def test_flag_without_equals_sign_is_reported(config: str) -> None:
    ended = command("config", "--config", config, "--set", "database.port")

    assert ended.returncode == 78
    assert ended.stderr.endswith("\n- --set 'database.port' is not of the form key=value\n")


@pytest.mark.parametrize("program", [PRODUCER, TAILRACE], ids=["producer", "tailrace"])
def test_debug_shows_the_traceback(config: str, program: tuple[str, str]) -> None:
    """Other runs do not."""
    ended = command("config", "--config", config, "--set", "database.port=x", "--debug", program=program)

    assert ended.returncode != 0
    assert "Traceback" in ended.stderr


def test_unreachable_server_is_reported_without_traceback(config: str) -> None:
    """The address is in the message, the password is not."""
    ended = command("produce", "--config", config)

    assert ended.returncode == 75
    last = json.loads(ended.stderr.splitlines()[-1])  # off a terminal the log is JSON, and the error a part of it
    assert (last["level"], last["exit_code"], last["error"]["class"]) == ("critical", 75, "SourceUnavailableError")
    assert "127.0.0.1:1" in str(last["error"])
    assert last["error"]["hint"]
    assert "Traceback" not in ended.stderr
    assert "hush" not in ended.stderr


STOPPING = """
import os, sys, time
from tailrace.producer import cli

stop = cli.stop_on_signals({limit})
print("ready", flush=True)
assert stop.wait(60)
print("stopping", flush=True)
{then}
"""


def stopping(then: str, *, limit: float = 60.0) -> subprocess.Popen[str]:
    """Start a program that runs ``then`` when a stop is requested; return when it waits for it."""
    program = STOPPING.format(limit=limit, then=then)
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_request_a_graceful_stop(number: signal.Signals) -> None:
    """The program ends by itself, with its own code."""
    with stopping("sys.exit(3)") as process:
        process.send_signal(number)
        assert process.wait(60) == 3


def test_second_signal_ends_the_process() -> None:
    """Although the main thread is within a call that no signal interrupts."""
    with stopping("time.sleep(300)") as process:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert process.stdout.readline() == "stopping\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 128 + signal.SIGINT


def test_stop_has_a_limit() -> None:
    """A main thread within a call into a client library: the process ends with code 0 all the same."""
    then = "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()"
    with stopping(then, limit=0.2) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
