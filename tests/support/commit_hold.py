"""A MySQL server whose commits can be held at the moment at which their GTIDs are executed."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pymysql
import pytest

from tests.embedded.mysql import MySqlServer
from tests.embedded.server import Launch
from tests.support.capture import eventually

_SOURCE: Final = Path(__file__).with_suffix(".c")
KINDS: Final = ("plain", "one session", "other session", "one phase")
"""Ways to commit an UPDATE; the three last are XA."""


class HeldServer(MySqlServer):
    """Holds commits from ``hold`` to ``release``: their GTIDs are executed, and nothing after that has happened."""

    @property
    def _flag(self) -> Path:
        return self.directory / "hold"

    @property
    def _held(self) -> Path:
        return self.directory / "hold.held"

    def _launch(self) -> Launch:
        launch = super()._launch()
        library = self.directory / "commit_hold.so"
        compile_library(library)
        assert launch.env is not None
        return launch._replace(env={**launch.env, "LD_PRELOAD": str(library), "HOLD_COMMITS": str(self._flag)})

    def hold(self) -> None:
        """Hold the next commit."""
        self._held.unlink(missing_ok=True)
        self._flag.touch()

    @property
    def holding(self) -> bool:
        """Whether a commit is being held."""
        return self._flag.exists() and self._held.exists()

    def wait_held(self) -> None:
        """Wait until a commit is held."""
        eventually(self._held.exists, "a commit that is held", 60)

    def release(self) -> None:
        """Let commits end."""
        self._flag.unlink(missing_ok=True)

    @contextmanager
    def committing(self, commit: Callable[[], object]) -> Iterator[None]:
        """Run a commit in a thread, and hold it until the block ends."""
        thread = threading.Thread(target=commit)
        self.hold()
        thread.start()
        try:
            self.wait_held()
            yield
        finally:
            self.release()
            thread.join(60)
        assert not thread.is_alive(), "the commit does not end"


def prepare_commit(server: MySqlServer, kind: str, statement: str, xid: str) -> Callable[[], None]:
    """Run a statement; return what commits it in a way of KINDS."""
    session = server.connect(autocommit=False)
    cursor = session.cursor()
    if kind == "plain":
        cursor.execute(statement)
        return session.commit
    for each in (f"XA START '{xid}'", statement, f"XA END '{xid}'"):
        cursor.execute(each)
    if kind == "one phase":
        return lambda: _run(session, f"XA COMMIT '{xid}' ONE PHASE")
    cursor.execute(f"XA PREPARE '{xid}'")
    if kind == "one session":
        return lambda: _run(session, f"XA COMMIT '{xid}'")
    [(thread,)] = _run(session, "SELECT CONNECTION_ID()")
    session.close()
    other = server.connect()
    gone = "SELECT COUNT(*) = 0 FROM information_schema.PROCESSLIST WHERE ID = %s"
    eventually(lambda: _run(other, gone, thread)[0][0], "the end of the session that prepared", 60)
    return lambda: _run(other, f"XA COMMIT '{xid}'")


def _run(session: pymysql.Connection[Any], statement: str, *values: object) -> Any:
    with session.cursor() as cursor:
        cursor.execute(statement, values or None)
        return cursor.fetchall()


def compile_library(target: Path) -> None:
    """Compile what is preloaded, with CC, a compiler of the machine, or that of ``docker/compiler.lock``.

    Skips the test where the code of the server's other builds would have to be known.
    """
    if platform.machine() != "x86_64":
        pytest.skip("the places in the server are known for x86-64 only")
    if target.exists():
        return
    found = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
    compiler = shlex.split(os.environ.get("CC", "")) or ([found] if found else _fetched_compiler(target.parent))
    subprocess.run([*compiler, "-shared", "-fPIC", "-O1", "-o", str(target), str(_SOURCE), "-ldl"], check=True)


def _fetched_compiler(folder: Path) -> list[str]:
    """Install the compiler of an image's build, as ``./run setup`` does where there is none."""
    packages = folder / "compiler"
    lock = _SOURCE.parents[2] / "docker" / "compiler.lock"
    install = [sys.executable, "-m", "pip", "install", "-q", "--require-hashes", "--only-binary", ":all:", "--no-deps"]
    subprocess.run([*install, "--target", str(packages), "-r", str(lock)], check=True)
    return ["env", f"PYTHONPATH={packages}", f"ZIG_GLOBAL_CACHE_DIR={folder}", sys.executable, "-m", "ziglang", "cc"]
