"""A real MariaDB server from a public package, with its own data directory: a target, or a source with a binlog."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.embedded import debian
from tests.embedded.artifacts import fetch, unpack_once
from tests.embedded.java import EmbeddedServerError
from tests.embedded.server import Launch, SupervisedServer

if TYPE_CHECKING:
    from pymysql import Connection

VERSIONS: Final[Mapping[str, str]] = {"10.11": "mariadb-10_11", "11.4": "mariadb", "11.8": ""}
"""The sections of the list of artifacts; '' for a package of Debian (``debian.py``)."""
DEFAULT_VERSION: Final = "11.4"
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
    """One mariadbd on 127.0.0.1 with a user that may do everything; ``settings`` are added to the option file.

    ``TAILRACE_MARIADB`` sets the default version.
    """

    kind = "mariadb"
    user: Final = USER
    password: Final = PASSWORD

    def __init__(
        self,
        *,
        version: str | None = None,
        settings: Mapping[str, object] | None = None,
        port: int | None = None,
        directory: Path | None = None,
    ) -> None:
        self.version = version or default_version()
        if self.version not in VERSIONS:
            raise EmbeddedServerError(
                f"no MariaDB {self.version} is known", hint=f"set TAILRACE_MARIADB to one of {', '.join(VERSIONS)}"
            )
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
        return f"MariaDB {self.version}"

    @property
    def url(self) -> str:
        """The JDBC URL; the names of tables have the database."""
        return f"jdbc:mariadb://{self.host}:{self.port}/"

    def _launch(self) -> Launch:
        """Copy the template data at the first start, and write the option file."""
        base = _base(self.version)
        data = self.directory / "data"
        if not data.is_dir():
            shutil.copytree(_template(self.version), data)
        users = self.directory / "users.sql"
        users.write_text(
            f"CREATE USER IF NOT EXISTS {USER}@'%' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL ON *.* TO {USER}@'%' WITH GRANT OPTION;\n",
            encoding="utf-8",
        )
        own: dict[str, object] = {
            "basedir": base if VERSIONS[self.version] else base / "usr",
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


def default_version() -> str:
    """Return the version of a server that names none."""
    return os.environ.get("TAILRACE_MARIADB") or DEFAULT_VERSION


def missing(version: str) -> str:
    """Return what this system lacks for a server of ``version``; empty if it can have one."""
    return "" if VERSIONS[version] else debian.missing()


def prepare(version: str) -> None:
    """Put everything that a start of ``version`` needs into the cache."""
    _template(version)


def _base(version: str) -> Path:
    """Return the folder with ``bin/mariadbd``; the first call unpacks it into the cache."""

    def unpack(folder: Path) -> None:
        if not VERSIONS[version]:
            _unpack_from_debian(folder)
            return
        [package] = fetch(VERSIONS[version])
        with zipfile.ZipFile(package) as archive:
            archive.extractall(folder / "package")
        [program] = (folder / "package").rglob("bin/mariadbd")
        for part in program.parents[1].iterdir():
            part.rename(folder / part.name)
        shutil.rmtree(folder / "package")
        for path in (*folder.glob("bin/*"), *folder.glob("scripts/*")):
            path.chmod(0o755)  # zip archives carry no permissions

    return unpack_once(f"mariadb-{version}", unpack)


def _unpack_from_debian(folder: Path) -> None:
    debian.unpack_package("mariadb-server-core", "trixie", folder)
    share = "$root/usr/share/mariadb"
    paths = {
        "plugin-dir": "$root/usr/lib/mysql/plugin",
        "lc-messages-dir": share,
        "character-sets-dir": f"{share}/charsets",
    }
    debian.write_launcher(folder, "usr/sbin/mariadbd", *(f"--{name}={path}" for name, path in paths.items()))


def _template(version: str) -> Path:
    """Return an initialized data directory; the first call puts it into the cache."""
    base = _base(version)

    def initialize(folder: Path) -> None:
        done = _bootstrap(base, folder) if not VERSIONS[version] else _install(base, folder)
        if done.returncode != 0:
            raise EmbeddedServerError(
                f"MariaDB {version} could not initialize its data", hint="read its output", log=done.stderr[-3000:]
            )

    return unpack_once(f"mariadb-{version}-data", initialize)


def _install(base: Path, data: Path) -> subprocess.CompletedProcess[str]:
    command: list[str | Path] = [base / "scripts" / "mariadb-install-db", "--no-defaults", f"--basedir={base}"]
    command += [f"--datadir={data}", "--auth-root-authentication-method=normal", "--skip-test-db", "--force"]
    if os.geteuid() == 0:
        command.append("--user=root")
    return subprocess.run(command, cwd=base, capture_output=True, text=True, check=False)


def _bootstrap(base: Path, data: Path) -> subprocess.CompletedProcess[str]:
    """Run what the script of the package runs, which would not find the libraries of its release."""
    command: list[str | Path] = [base / "bin" / "mariadbd", "--no-defaults", "--bootstrap", f"--basedir={base / 'usr'}"]
    command.append(f"--datadir={data}")
    if os.geteuid() == 0:
        command.append("--user=root")
    share = base / "usr" / "share" / "mariadb"
    names = ("system_tables", "performance_tables", "system_tables_data", "sys_schema")
    texts = [(share / f"mariadb_{name}.sql").read_text(encoding="utf-8") for name in names]
    statements = "\n".join(["CREATE DATABASE mysql;", "USE mysql;", "SET @auth_root_socket = NULL;", *texts])
    return subprocess.run(command, input=statements, capture_output=True, text=True, check=False)
