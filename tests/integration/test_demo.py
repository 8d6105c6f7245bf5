"""The demo as a user runs it: equal tables at the end, and no process or file is left."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.embedded.supervised import wait_until

_ROOT = Path(__file__).parents[2]
_MARK = "TAILRACE_DEMO_TEST"
_START_S = 600

pytestmark = [pytest.mark.mysql, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(1800)]


class Demo:
    """A demo as a process. Every process that it starts inherits a mark in its environment.

    SIGINT is ignored when it starts, as in a background job of a shell.
    """

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._mark = f"{_MARK}={uuid.uuid4().hex}"
        name, value = self._mark.split("=")
        self._log = folder / "demo.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-m", "tests.demo", *arguments],
                cwd=_ROOT,
                env={**os.environ, name: value, "TMPDIR": str(folder)},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def output(self) -> str:
        """Return everything it printed."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def programs(self) -> list[str]:
        """Return the command lines of its running processes."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if self._mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue  # it has ended, or belongs to another user
        return [line for line in found if line]

    def wait_for(self, *parts: str) -> None:
        """Wait until a process runs for each of ``parts`` of a command line."""

        def running() -> bool:
            assert self.process.poll() is None, self.output()
            alive = self.programs()
            return all(any(part in line for line in alive) for part in parts)

        wait_until(running, what=f"the start of {', '.join(parts)}", deadline_s=_START_S, pause_s=0.2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for all temporary files of the demo; as root, PostgreSQL runs as a user who must be able to enter it."""
    for closed in (tmp_path, *tmp_path.parents):
        if closed == Path(tempfile.gettempdir()):
            break
        closed.chmod(closed.stat().st_mode | stat.S_IXOTH)
    return tmp_path


@pytest.fixture
def demo(folder: Path) -> Iterator[Demo]:
    """A running demo: servers, producer, consumer and the consumer's Java."""
    demo = Demo(folder, "--rows", "2000", "--seconds", "3600")
    try:
        demo.wait_for("mysqld", "kafka.Kafka", "tailrace produce", "tailrace consume", "SparkSubmit")
        yield demo
    finally:
        demo.process.kill()
        demo.process.wait()


def test_ctrl_c_leaves_no_process_and_no_file(demo: Demo, folder: Path) -> None:
    """Ctrl-C ends with code 130, also in a background job of a shell."""
    demo.process.send_signal(signal.SIGINT)

    assert demo.process.wait(300) == 130, demo.output()
    wait_until(lambda: not demo.programs(), what="the end of every process", deadline_s=120)
    assert [path.name for path in folder.iterdir() if path.name.startswith("tailrace-")] == []


def test_kill_leaves_no_process(demo: Demo) -> None:
    """SIGKILL of the demo ends all its processes."""
    demo.process.kill()
    demo.process.wait()

    try:
        wait_until(lambda: not demo.programs(), what="the end of every process", deadline_s=120)
    except TimeoutError:
        pytest.fail(f"still running: {demo.programs()}")


@pytest.mark.long
@pytest.mark.postgresql
@pytest.mark.timeout(3600)
def test_forty_tables_in_seven_sinks_of_one_consumer_are_equal(folder: Path) -> None:
    """Each table goes to one sink, in one of its shapes, while a workload changes rows of all of them."""
    sinks = "delta,iceberg,postgres,mysql,parquet,kafka,upsert-kafka"
    given = ("--sinks", sinks, "--rows", "8000", "--seconds", "10", "--deadline", "2400")
    shown = _ends_with_equal_tables(Demo(folder, *given), 40, limit_s=3500)

    for sink in ("delta", "iceberg"):
        assert all(f"({sink}, {shape})" in shown for shape in ("scd1", "soft-delete", "history", "scd2"))


@pytest.mark.long
def test_the_demo_ends_with_equal_tables(folder: Path) -> None:
    """From MySQL to Delta while a workload changes rows: every row is equal at the end."""
    _ends_with_equal_tables(Demo(folder, "--rows", "4000", "--seconds", "10"), 4, limit_s=1500)


def _ends_with_equal_tables(demo: Demo, count: int, *, limit_s: int) -> str:
    try:
        code = demo.process.wait(limit_s)
    finally:
        demo.process.kill()
        demo.process.wait()

    assert code == 0, demo.output()
    assert demo.output().count(" equal ") == count
    return demo.output()
