"""The script ``./run``: two starts at the same time do not install into the same environment."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).resolve().parents[2] / "run"
PYTHON = """#!/bin/sh
# Notes what it is asked for, and whether somebody holds the lock of $LOCK then.
if flock -n "$LOCK" true; then held=unlocked; else held=locked; fi
echo "$held $1 $2" >> calls
if [ "$1 $2" = "-m venv" ]; then mkdir -p .venv-hudi/bin; cp "$0" .venv-hudi/bin/python; fi
case "$2" in *purelib*) echo "$PWD" ;; esac
[ "$1" != --version ] || echo Python 3.11
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkout whose environment is installed, with a Python that does nothing."""
    for name in (
        "requirements.lock",
        "pyproject.toml",
        "setup.py",
        "producer/native/codec.py",
        "producer/native/codec.pxi",
        "producer/native/codec.so",
    ):
        (file := tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name, encoding="utf-8")
    for name in ("docker/hudi.lock", "docs/site.lock"):
        (file := tmp_path / name).parent.mkdir()
        file.write_text(name, encoding="utf-8")
    (tmp_path / "run").write_bytes(RUN.read_bytes())
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON, encoding="utf-8")
    python.chmod(0o755)
    # The function of the script that says what is installed, and that the extension was built.
    [stamp] = [line for line in RUN.read_text(encoding="utf-8").splitlines() if line.startswith("fingerprint() {")]
    subprocess.run(
        ["/bin/sh", "-c", f"{stamp}; fingerprint > .venv/.installed 2>/dev/null; echo yes > .venv/.native"],
        cwd=tmp_path,
        check=True,
    )
    return tmp_path


@pytest.mark.parametrize(
    ("command", "lock", "work"),
    [(("setup", "--profile", "hudi"), "docker/hudi.lock", "-m venv"), (("docs",), "docs/site.lock", "-m pip")],
)
def test_installation_holds_the_lock_of_its_list_and_is_done_once(
    folder: Path, command: tuple[str, ...], lock: str, work: str
) -> None:
    for _ in range(2):
        subprocess.run(
            ["/bin/sh", "run", *command], cwd=folder, env={"LOCK": lock, "PATH": "/usr/bin:/bin"}, check=True
        )

    calls = (folder / "calls").read_text(encoding="utf-8").splitlines()
    assert [call for call in calls if work in call] == [f"locked {work}"]
