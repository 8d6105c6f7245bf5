"""The bench as a user runs it, on few rows: each phase ends, and its result holds what the phase read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.mysql, pytest.mark.kafka, pytest.mark.timeout(1800)]


@pytest.mark.long
def test_phases_up_to_the_consumer() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.bench", "--rows", "3000", "--changes", "400", "--phase", "consumer"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stderr
    phases = json.loads(run.stdout.splitlines()[-1])["phases"]
    assert [(phase["name"], phase["rows"]) for phase in phases] == [
        ("snapshot", 3000),
        ("stream, mixed, 20 per transaction", 400),
        ("consumer", 3400),
    ]
    assert all(phase["rate"] > 0 for phase in phases)
