"""The images as a user runs them: MySQL to Delta in containers, the producer killed and restarted on the way."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final

import pytest

from tests.containers.compose import ROOT, Project, missing
from tests.embedded.mysql import CAPTURE_PASSWORD

_SIZE: Final = ("--rows", "20000")
_SERVICES: Final = ("producer", "consumer", "kafka", "mysql")
_USER: Final = "10001"

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]


def _override(folder: Path) -> dict[str, Any]:
    """Small tables, and a producer that is told its password by a file, as secrets are mounted."""
    config = json.loads((ROOT / "docker" / "producer.json").read_text(encoding="utf-8"))
    config["database.password"] = "${dir:/run/secrets:mysql_password}"
    own = folder / "producer.json"
    own.write_text(json.dumps(config), encoding="utf-8")
    secret = folder / "secret"
    secret.write_text(CAPTURE_PASSWORD, encoding="utf-8")
    return {
        "services": {
            "shop": {"command": ["load", *_SIZE]},
            "producer": {"volumes": [f"{own}:/etc/tailrace/producer.json:ro"], "secrets": ["mysql_password"]},
            "verdict": {"command": ["verdict", *_SIZE, "--seconds", "40"]},
        },
        "secrets": {"mysql_password": {"file": str(secret)}},
    }


def test_rows_reach_their_tables_though_the_producer_is_killed(tmp_path: Path) -> None:
    """Every table equals its source; each service runs as a user without rights, is healthy, and ends in order."""
    why = missing()
    if why:
        pytest.skip(why)
    with Project(_override(tmp_path), tmp_path) as project:
        project.run("build")
        output = tmp_path / "verdict.log"
        verdict = project.begin("run", "--rm", "-T", "verdict", output=output)
        try:
            _wait_for(output, "the shop is at work")
            project.run("kill", "producer")
            project.wait("producer", status="exited")
            assert project.state("producer")["ExitCode"] == 137
            project.run("start", "producer")
            project.wait("producer", status="healthy")
            project.run("restart", "producer")
            project.wait("producer", status="healthy")
            assert verdict.poll() is None, "the restarts came after the shop had closed: they showed nothing"
            code = verdict.wait(1800)
        finally:
            verdict.kill()
            verdict.wait()
        told = output.read_text(encoding="utf-8")
        assert code == 0, told[-4000:]
        assert told.count(" equal ") == 4, told[-4000:]

        for service in _SERVICES:
            project.wait(service, status="healthy")
            assert project.user(service) == _USER
        for service in _SERVICES:
            project.run("stop", service)
            assert project.state(service)["ExitCode"] == 0, project.run("logs", service)[-3000:]


def _wait_for(output: Path, text: str) -> None:
    until = time.monotonic() + 900
    while text not in (told := output.read_text(encoding="utf-8")):
        assert time.monotonic() < until, f"{text!r} was not said: {told[-3000:]}"
        time.sleep(0.2)
