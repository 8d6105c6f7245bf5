"""Programs end on SIGINT although their parent had ignored it, as a shell does for a background job."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence

import pytest

_IGNORING_SHELL = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")

_WAIT_IN_PREPARE = """
import sys, time
from {module} import __main__ as program

def prepare(*_, **__):
    print("ready", flush=True)
    time.sleep(300)

program.prepare = prepare
sys.argv[1:] = []
sys.exit(program.main())
"""
"""Runs a program up to its first step."""


def _start(command: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*_IGNORING_SHELL, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


@pytest.mark.parametrize("module", ["tests.demo", "tests.bench", "tests.debezium_parity"])
def test_program_ends_with_130(module: str) -> None:
    with _start([sys.executable, "-c", _WAIT_IN_PREPARE.format(module=module)]) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            os.kill(process.pid, signal.SIGINT)
            _, errors = process.communicate(timeout=120)
        finally:
            process.kill()

    assert process.returncode == 130, errors
    assert "Traceback" not in errors


def test_check_command_ends_while_it_waits_for_the_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = {
            "database.hostname": "127.0.0.1",
            "database.port": str(silent.getsockname()[1]),
            "database.user": "u",
            "database.password": "p",
            "database.server.id": "1",
            "topic.prefix": "p",
            "bootstrap.servers": "127.0.0.1:1",
        }
        options = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        with _start([sys.executable, "-m", "tailrace.producer", "check", *options]) as process:
            try:
                silent.settimeout(120)
                connection, _ = silent.accept()
                with connection:
                    os.kill(process.pid, signal.SIGINT)
                    _, errors = process.communicate(timeout=120)
            finally:
                process.kill()

    assert process.returncode not in {0, None}, errors
    assert "Traceback" not in errors
