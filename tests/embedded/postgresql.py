"""A real PostgreSQL server from a public package, with its own data directory. It starts in about a second.

PostgreSQL does not run as root. As root it is started as ``nobody``, from a copy of the programs, because nobody cannot
read the cache in root's home.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import stat
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.embedded.artifacts import fetch, unpack_once
from tests.embedded.java import EmbeddedServerError
from tests.embedded.server import Launch, SupervisedServer

VERSION: Final = "17.6.0"
USER: Final = "tailrace"
PASSWORD: Final = "tailrace-postgres"

SETTINGS: Final[Mapping[str, object]] = {
    "max_connections": 100,
    "shared_buffers": "64MB",
    "log_min_messages": "fatal",
    # A time zone with gaps: a value that is converted by it is noticed.
    "timezone": "'Europe/Berlin'",
    # Test data need not survive a power cut; a SIGKILL loses nothing.
    "fsync": "off",
    "synchronous_commit": "off",
}
"""The settings of every server; a test may replace any of them."""

_NOBODY: Final = 65534


class PostgresServer(SupervisedServer):
    """One PostgreSQL on 127.0.0.1 with a superuser and the database ``postgres``."""

    kind = "postgresql"
    user: Final = USER
    password: Final = PASSWORD

    def __init__(
        self, *, settings: Mapping[str, object] | None = None, port: int | None = None, directory: Path | None = None
    ) -> None:
        super().__init__(port=port, directory=directory)
        self._settings: dict[str, object] = {**SETTINGS, **(settings or {})}

    @property
    def title(self) -> str:
        """Its name in messages."""
        return f"PostgreSQL {VERSION}"

    @property
    def url(self) -> str:
        """The JDBC URL of the database."""
        return f"jdbc:postgresql://{self.host}:{self.port}/postgres"

    def stop(self) -> None:
        """Shut the server down; sessions end. Its folder stays."""
        if self.running:
            os.kill(self.pid, signal.SIGINT)
        super().stop()

    def _launch(self) -> Launch:
        """Copy the programs and the template data at the first start."""
        _require_reachable(self.directory)
        base = _readable(_base(), self.directory / "programs")
        data = self.directory / "data"
        if not data.is_dir():
            shutil.copytree(_base() / "template", data)
        data.chmod(0o700)
        own = {
            "port": self.port,
            "listen_addresses": f"'{self.host}'",
            "unix_socket_directories": "''",
            **self._settings,
        }
        lines = "".join(f"{name} = {value}\n" for name, value in own.items())
        (data / "postgresql.auto.conf").write_text(lines, encoding="utf-8")
        _give(self.directory)
        return Launch([*_AS_NOBODY, base / "bin" / "postgres", "-D", data])

    def _answers(self) -> bool:
        """Return whether the server has written that it is ready."""
        state = self.directory / "data" / "postmaster.pid"
        try:
            lines = state.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return False
        return len(lines) > 7 and lines[0] == str(self.pid) and lines[7].strip() == "ready"


_AS_NOBODY: Final[tuple[str, ...]] = (
    # Another user's process forgets the signal that supervised.py has set.
    ("setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups", "--pdeathsig=KILL")
    if os.geteuid() == 0
    else ()
)


def prepare() -> None:
    """Put everything that a start needs into the cache."""
    _base()


def _readable(base: Path, copy: Path) -> Path:
    """Return a folder with the programs that the server's user can read."""
    if os.geteuid() != 0:
        return base
    if not copy.is_dir():
        shutil.copytree(base, copy, symlinks=True, ignore=shutil.ignore_patterns("template"))
    return copy


def _require_reachable(folder: Path) -> None:
    """Raise EmbeddedServerError if the user of the server cannot enter a folder."""
    if os.geteuid() != 0:
        return
    closed = [str(parent) for parent in folder.resolve().parents if not parent.stat().st_mode & stat.S_IXOTH]
    if closed:
        raise EmbeddedServerError(
            "PostgreSQL does not run as root, and the user nobody cannot enter its folder",
            hint="set TMPDIR to a folder that all users can enter, such as /tmp",
            folder=str(folder),
            closed=closed[-1],
        )


def _give(folder: Path) -> None:
    """Give a folder to the user of the server."""
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, _NOBODY, _NOBODY, follow_symlinks=False)


def _base() -> Path:
    """Return the folder with ``bin/postgres`` and initialized data; the first call unpacks it into the cache."""

    def unpack(folder: Path) -> None:
        [package] = fetch("postgresql")
        with zipfile.ZipFile(package) as outer:
            [name] = [each for each in outer.namelist() if each.endswith(".txz")]
            content = io.BytesIO(outer.read(name))
        with tarfile.open(fileobj=content, mode="r:xz") as archive:
            if hasattr(tarfile, "data_filter"):
                archive.extractall(folder, filter="data")
            else:  # Python before 3.11.4; the archive's checksum is pinned
                archive.extractall(folder)  # noqa: S202
        with tempfile.TemporaryDirectory(prefix="tailrace-postgresql-") as work:
            _initialize(folder, Path(work))
            shutil.copytree(Path(work) / "data", folder / "template")

    return unpack_once(f"postgresql-{VERSION}", unpack)


def _initialize(base: Path, work: Path) -> None:
    """Initialize a data directory in ``work``."""
    programs = _readable(base, work / "programs")
    password = work / "password"
    password.write_text(PASSWORD, encoding="utf-8")
    _give(work)
    command: list[str | Path] = [*_AS_NOBODY, programs / "bin" / "initdb", "-D", work / "data", "-U", USER]
    command += [f"--pwfile={password}", "--auth=scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise EmbeddedServerError("PostgreSQL could not initialize its data", hint="read its output", log=done.stderr)
