"""The supervisor of ``tailrace run``: its output, its exit code, and that no program is left, on real processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final, Self

import pytest

from tests.embedded.supervised import wait_until

_SUPERVISOR: Final = """
import json, sys
from tailrace.runtime.logging import configure_logging
from tailrace.runtime.supervisor import Supervisor
configure_logging("text")
sys.exit(Supervisor(json.loads(sys.argv[1]), first_wait_s=float(sys.argv[2])).run())
"""
_WAITS: Final = """
import signal, sys
from pathlib import Path
def stop(number, frame):
    Path(sys.argv[1] + ".stopped").write_text(str(number))
    print("stopping", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
print("ready", flush=True)
Path(sys.argv[1] + ".ready").touch()
while True:
    signal.pause()
"""
_ENDS: Final = """
import os, sys, time
while not os.path.exists(sys.argv[1] + ".ready"):
    time.sleep(0.01)
print("to stderr, no line break at the end", end="", file=sys.stderr)
"""
"""Ends when the other is ready."""


class Running:
    """A supervisor in a process of its own, whose programs have the names of their files."""

    def __init__(self, folder: Path, *, first_wait_s: float = 0.05, **programs: str) -> None:
        self.folder = folder
        commands = {name: (sys.executable, "-c", code, str(folder / "waits")) for name, code in programs.items()}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SUPERVISOR, json.dumps(commands), str(first_wait_s)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        with self.process:  # closes its pipes
            pass

    def wait_for(self, event: str) -> None:
        path = self.folder / f"waits.{event}"
        wait_until(path.exists, what=event, deadline_s=60)

    def end(self) -> tuple[int, str, str]:
        """Return exit code, stdout and stderr."""
        out, errors = self.process.communicate(timeout=60)
        return self.process.returncode, out, errors


@pytest.mark.parametrize(
    ("last", "code"), [("sys.exit(4)", 4), ("os.kill(os.getpid(), 9)", 128 + 9), ("sys.exit(0)", 0)]
)
def test_other_is_stopped_when_one_ends(tmp_path: Path, last: str, code: int) -> None:
    with Running(tmp_path, waits=_WAITS, ends=f"{_ENDS}sys.stderr.flush()\n{last}") as running:
        ended, out, errors = running.end()

        assert (ended, out) == (code, "waits | ready\nwaits | stopping\n")
        assert errors.startswith("ends | to stderr, no line break at the end\n")
        assert (tmp_path / "waits.stopped").read_text() == str(signal.SIGTERM.value)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_all(tmp_path: Path, number: signal.Signals) -> None:
    with Running(tmp_path, waits=_WAITS) as running:
        running.wait_for("ready")
        running.process.send_signal(number)

        assert running.end()[0] == 0
        assert (tmp_path / "waits.stopped").read_text() == str(signal.SIGTERM.value)


def test_program_that_asks_for_a_restart_is_restarted(tmp_path: Path) -> None:
    """Twice, with waits of 0.05 and 0.1 s; the other runs on."""
    counts = f"{_ENDS}\nn = os.path.getsize(sys.argv[1] + '.ready')\nopen(sys.argv[1] + '.ready', 'a').write('.')\n"
    with Running(tmp_path, waits=_WAITS, ends=f"{counts}sys.exit(75 if n < 2 else 78)") as running:
        ended, out, errors = running.end()

        assert (ended, out) == (78, "waits | ready\nwaits | stopping\n")
        assert [text in errors for text in ("wait_s=0.05", "wait_s=0.1", "wait_s=0.2")] == [True, True, False], errors


def test_program_that_waits_for_its_next_start_is_not_started_after_a_signal(tmp_path: Path) -> None:
    code = f"{_ENDS}\nprint('start', flush=True)\nsys.exit(75)"
    with Running(tmp_path, first_wait_s=600, waits=_WAITS, ends=code) as running:
        assert running.process.stderr is not None
        assert next(line for line in running.process.stderr if "started again" in line)
        running.process.send_signal(signal.SIGTERM)

        ended, out, _ = running.end()
        assert (ended, sorted(out.splitlines())) == (0, ["ends | start", "waits | ready", "waits | stopping"])


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_programs_are_stopped_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    with Running(tmp_path, waits=_WAITS) as running:
        running.wait_for("ready")
        running.process.kill()
        running.wait_for("stopped")
        running.end()


def test_programs_are_stopped_when_nobody_reads_their_output(tmp_path: Path) -> None:
    with Running(tmp_path, waits=_WAITS, ends=f"{_ENDS}\nwhile True:\n    print('.' * 9999, flush=True)") as running:
        running.wait_for("ready")
        assert running.process.stdout is not None
        running.process.stdout.close()
        running.wait_for("stopped")
        running.process.wait(60)
