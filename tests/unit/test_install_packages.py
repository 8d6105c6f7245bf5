"""The installation of Debian packages by several test processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.embedded import java

_APT = """#!/bin/sh
# Like apt-get: a second one fails while the first one runs.
mkdir "$STATE/running" 2>/dev/null || { echo "E: Could not get lock" >&2; exit 100; }
echo "$2" >> "$STATE/calls"
while [ "$(cat "$STATE/asked" | wc -l)" -lt 2 ]; do sleep 0.01; done
[ "$2" = install ] && touch "$STATE/installed"
rmdir "$STATE/running"
"""

_INSTALL = """
import os, sys
from pathlib import Path
from tests.embedded import java

state = Path(os.environ["STATE"])
os.geteuid = lambda: 0
calls = 0

def installed() -> bool:
    global calls
    calls += 1
    if calls == 1:
        with (state / "asked").open("a") as asked:
            asked.write("1\\n")
    return (state / "installed").exists()

java.install_unless(("some-package",), installed, why="a library was not found")
"""


def test_two_processes_install_a_package_once(tmp_path: Path) -> None:
    apt = tmp_path / "apt-get"
    apt.write_text(_APT)
    apt.chmod(0o755)
    (tmp_path / "asked").touch()
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "STATE": str(tmp_path),
        "TAILRACE_CACHE": str(tmp_path / "cache"),
    }

    processes = [
        subprocess.Popen([sys.executable, "-c", _INSTALL], env=environment, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    errors = [process.communicate(timeout=60)[1] for process in processes]

    assert [process.returncode for process in processes] == [0, 0], errors
    assert (tmp_path / "calls").read_text().split() == ["update", "install"]
    assert sum("installing some-package" in error for error in errors) == 1


def test_installation_that_fails_tells_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apt = tmp_path / "apt-get"
    apt.write_text("#!/bin/sh\necho 'E: no such package' >&2\nexit 100\n")
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("TAILRACE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    with pytest.raises(java.EmbeddedServerError, match="installing it failed") as raised:
        java.install_unless(("some-package",), lambda: False, why="a library was not found")

    assert "apt-get install -y some-package" in str(raised.value)
    assert "no such package" in str(raised.value)
