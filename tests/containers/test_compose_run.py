"""The images as a user runs them: MySQL to Delta in containers, while the producer is killed and restarted."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final

import pytest

from tests.containers.compose import ROOT, Project, missing
from tests.demo.steps import WORKLOAD_RUNS
from tests.embedded.mysql import CAPTURE_PASSWORD

_SIZE: Final = ("--rows", "20000")
_SERVICES: Final = ("producer", "consumer", "kafka", "mysql")
_USER: Final = "10001"

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]


def _override(folder: Path) -> dict[str, Any]:
    """Small tables, and a producer that reads its password from a mounted secret."""
    config = json.loads((ROOT / "docker" / "producer.json").read_text(encoding="utf-8"))
    config["database.password"] = "${dir:/run/secrets:mysql_password}"
    own = folder / "producer.json"
    own.write_text(json.dumps(config), encoding="utf-8")
    secret = folder / "secret"
    secret.write_text(CAPTURE_PASSWORD, encoding="utf-8")
    return {
        "services": {
            "load": {"command": ["load", *_SIZE]},
            "producer": {"volumes": [f"{own}:/etc/tailrace/producer.json:ro"], "secrets": ["mysql_password"]},
            "verify": {"command": ["verify", *_SIZE, "--seconds", "40"]},
        },
        "secrets": {"mysql_password": {"file": str(secret)}},
    }


def test_rows_reach_their_tables_though_the_producer_is_killed(tmp_path: Path) -> None:
    """Every table equals its source. Each service runs as an unprivileged user, is healthy, and stops with code 0."""
    why = missing()
    if why:
        pytest.skip(why)
    with Project(_override(tmp_path), tmp_path) as project:
        project.run("build")
        output = tmp_path / "verify.log"
        verify = project.start("run", "--rm", "-T", "verify", output=output)
        try:
            _wait_for(output, WORKLOAD_RUNS)
            project.run("kill", "producer")
            project.wait("producer", status="exited")
            assert project.state("producer")["ExitCode"] == 137
            project.run("start", "producer")
            project.wait("producer", status="healthy")
            project.run("restart", "producer")
            project.wait("producer", status="healthy")
            assert verify.poll() is None, "the workload ended before the restarts: the test shows nothing"
            code = verify.wait(1800)
        finally:
            verify.kill()
            verify.wait()
        printed = output.read_text(encoding="utf-8")
        assert code == 0, printed[-4000:]
        assert printed.count(" equal ") == 4, printed[-4000:]

        for service in _SERVICES:
            project.wait(service, status="healthy")
            assert project.user(service) == _USER
        for service in _SERVICES:
            project.run("stop", service)
            assert project.state(service)["ExitCode"] == 0, project.run("logs", service)[-3000:]


def _wait_for(output: Path, text: str) -> None:
    until = time.monotonic() + 900
    while text not in (printed := output.read_text(encoding="utf-8")):
        assert time.monotonic() < until, f"{text!r} was not printed: {printed[-3000:]}"
        time.sleep(0.2)
