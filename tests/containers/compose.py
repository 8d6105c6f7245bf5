"""Runs docker/compose.yaml as a separate project and removes it at the end."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

ROOT: Final = Path(__file__).resolve().parents[2]
COMPOSE_FILE: Final = ROOT / "docker" / "compose.yaml"

_STEP_S: Final = 1800
_POLL_S: Final = 0.5


def missing() -> str:
    """Return why no container can run here, '' if one can."""
    if shutil.which("docker") is None:
        return "the command docker is not installed"
    for command, what in ((("compose", "version"), "docker compose"), (("info",), "a container engine")):
        done = subprocess.run(["docker", *command], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            output = (done.stderr or done.stdout).strip().splitlines()
            return f"{what} is not available: {output[-1] if output else 'no output'}"
    return ""


class Project:
    """One run of the compose file under a random name. A context manager that removes everything at the end."""

    def __init__(self, override: dict[str, Any], folder: Path) -> None:
        self._name = f"tailrace-test-{uuid.uuid4().hex[:8]}"
        own = folder / "override.json"  # JSON is YAML
        own.write_text(json.dumps(override), encoding="utf-8")
        self._base = ["docker", "compose", "-p", self._name, "-f", str(COMPOSE_FILE), "-f", str(own)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        subprocess.run(
            [*self._base, "down", "--volumes", "--timeout", "5"], capture_output=True, check=False, timeout=_STEP_S
        )

    def run(self, *arguments: str) -> str:
        """Run one compose command and return its output. Raises AssertionError with its errors if it fails."""
        done = subprocess.run(
            [*self._base, *arguments], capture_output=True, text=True, check=False, timeout=_STEP_S, cwd=ROOT
        )
        assert done.returncode == 0, f"{' '.join(arguments)}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout

    def start(self, *arguments: str, output: Path) -> subprocess.Popen[bytes]:
        """Start one compose command that writes to ``output``."""
        with output.open("wb") as stream:
            return subprocess.Popen([*self._base, *arguments], stdout=stream, stderr=stream, cwd=ROOT)

    def state(self, service: str) -> dict[str, Any]:
        """Return the state of a service's container: Status, ExitCode, Health."""
        return dict(self._inspect(service)["State"])

    def user(self, service: str) -> str:
        """Return the user of the container's process."""
        return str(self._inspect(service)["Config"]["User"])

    def wait(self, service: str, *, status: str, deadline_s: float = 600) -> None:
        """Wait until a service's container is ``healthy``, ``running`` or ``exited``."""
        until = time.monotonic() + deadline_s
        while status not in {(now := self.state(service))["Status"], now.get("Health", {}).get("Status")}:
            assert time.monotonic() < until, f"{service} is not {status}: {now}\n{self.run('logs', service)[-3000:]}"
            time.sleep(_POLL_S)

    def _inspect(self, service: str) -> dict[str, Any]:
        container = self.run("ps", "--all", "--quiet", service).split()
        assert len(container) == 1, f"{service} has {len(container)} containers"
        done = subprocess.run(["docker", "inspect", *container], capture_output=True, text=True, check=True)
        found: Sequence[dict[str, Any]] = json.loads(done.stdout)
        return found[0]
