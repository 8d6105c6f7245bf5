"""A real MySQL server from a public package, with its own data directory. It starts in a second or two."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from tests.embedded import debian
from tests.embedded.artifacts import fetch, unpack_once, unpack_tar
from tests.embedded.java import EmbeddedServerError, require_library
from tests.embedded.server import Launch, SupervisedServer

if TYPE_CHECKING:
    from pymysql import Connection

ROOT_PASSWORD: Final = "tailrace-root"
CAPTURE_USER: Final = "tailrace"
CAPTURE_PASSWORD: Final = "tailrace"
CAPTURE_GRANTS: Final = "SELECT, PROCESS, RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT"
"""All grants that capture needs; the server refuses everything else."""

SETTINGS: Final[Mapping[str, object]] = {
    "server_id": 1,
    "log_bin": "binlog",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "gtid_mode": "ON",
    "enforce_gtid_consistency": "ON",
    "log_slave_updates": "ON",
    "character_set_server": "utf8mb4",
    "default_time_zone": "+00:00",
    "skip_name_resolve": "ON",
    "max_connections": 200,
    "max_allowed_packet": "64M",
    "innodb_buffer_pool_size": "64M",
    # Test data need not survive a power cut; a SIGKILL loses nothing.
    "innodb_flush_log_at_trx_commit": 2,
    "sync_binlog": 0,
}
"""The settings of every server; a test may replace any of them."""


class Distribution(NamedTuple):
    """The package of one version and what only this version needs."""

    section: str
    """Of the list of artifacts; '' for a package of Debian (``debian.py``)."""
    archive: str
    libraries: tuple[str, ...]
    settings: Mapping[str, object]


_EIGHT: Final = {"binlog_row_metadata": os.environ.get("TAILRACE_METADATA", "FULL"), "mysqlx": "OFF"}
"""``TAILRACE_METADATA=MINIMAL`` runs the tests with the default of MySQL."""

VERSIONS: Final[Mapping[str, Distribution]] = {
    "8.0.15": Distribution("mysql-8_0_15", "mysql-Linux-amd64.tar.gz", ("libaio.so.1", "libnuma.so.1"), _EIGHT),
    "8.0.33": Distribution("mysql-8_0_33", "", ("libaio.so.1", "libnuma.so.1"), _EIGHT),
    "5.7.22": Distribution("mysql-5_7_22", "mysql-Linux-amd64.tar.gz", ("libaio.so.1", "libnuma.so.1"), {}),
    # Its program has the path of files for LOAD DATA from Debian, which need not exist.
    "9.7": Distribution("", "", (), {**_EIGHT, "secure_file_priv": ""}),
}

DEFAULT_VERSION: Final = "8.0.15"

_RENAMED: Final[Mapping[str, str]] = {
    "SHOW MASTER STATUS": "SHOW BINARY LOG STATUS",
    "RESET MASTER": "RESET BINARY LOGS AND GTIDS",
    "CHANGE MASTER TO": "CHANGE REPLICATION SOURCE TO",
    "START SLAVE": "START REPLICA",
    "STOP SLAVE": "STOP REPLICA",
    "RESET SLAVE": "RESET REPLICA",
    "MASTER_": "SOURCE_",
    "_master": "_source",
    "slave": "replica",
    "ssl=OFF": "tls_version=",
}
"""Words that MySQL 8.4 removed, most of replication, and those that older servers do not know."""

LOWER_CASE: Final = "-lower-case"
"""Marks a version, for ``prepare``, whose data directory is initialized with lower_case_table_names=1."""


class MySqlServer(SupervisedServer):
    """One mysqld on 127.0.0.1, with ``root`` and a least-privilege capture user.

    ``settings`` are added to (or replace) SETTINGS in the option file; None removes one. ``TAILRACE_MYSQL`` sets the
    default version. Settings and statements of tests have the words of MySQL 8.0; a later server gets its own.
    """

    kind = "mysql"
    user: Final = "root"
    password: Final = ROOT_PASSWORD
    capture_user: Final = CAPTURE_USER
    capture_password: Final = CAPTURE_PASSWORD

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
                f"no package is listed for MySQL {self.version}", hint=f"choose one of {', '.join(VERSIONS)}"
            )
        super().__init__(port=port, directory=directory)
        self._settings: dict[str, object] = {**SETTINGS, **VERSIONS[self.version].settings, **(settings or {})}

    @property
    def title(self) -> str:
        """Its name in messages."""
        return f"MySQL {self.version}"

    def restart(self, **settings: object) -> Self:
        """Stop and start on the same data and port. ``settings`` keep their new values."""
        self.stop()
        self._settings.update(settings)
        return self.start()

    def connect(self, **changes: Any) -> Connection[Any]:
        """Open a session as root with autocommit; ``changes`` are arguments of ``pymysql.connect``."""
        import pymysql.cursors  # noqa: PLC0415 - unit tests load this module without a driver

        worded = self._worded

        class Cursor(pymysql.cursors.Cursor):
            def execute(self, query: Any, args: object = None) -> int:
                return super().execute(worded(query) if isinstance(query, str) else query, args)

        arguments: dict[str, Any] = {
            "host": self.host,
            "port": self.port,
            "user": self.user,
            "password": self.password,
            "charset": "utf8mb4",
            "autocommit": True,
            "connect_timeout": 10,
            "cursorclass": Cursor,
        }
        return pymysql.connect(**{**arguments, **changes})

    def _launch(self) -> Launch:
        """Copy the template data at the first start, and write the option file."""
        base = _base(self.version)
        data = self.directory / "data"
        if not data.is_dir():
            # Without auto.cnf every server generates its own UUID; two servers never share GTIDs.
            lower_case = self._settings.get("lower_case_table_names") == 1
            shutil.copytree(
                _template(self.version, lower_case=lower_case), data, ignore=shutil.ignore_patterns("auto.cnf")
            )
        options = self._write_options(base, data)
        return Launch([base / "bin" / "mysqld", f"--defaults-file={options}"], _environment(base))

    def _worded(self, text: str) -> str:
        if not self.version.startswith(("5.", "8.0.")):
            for old, new in _RENAMED.items():
                text = text.replace(old, new)
        return text

    def _answers(self) -> bool:
        import pymysql  # noqa: PLC0415

        try:
            self.connect(connect_timeout=10).close()
        except pymysql.err.OperationalError:
            return False
        return True

    def _write_options(self, base: Path, data: Path) -> Path:
        own: dict[str, object] = {
            "basedir": base,
            "datadir": data,
            "port": self.port,
            "bind_address": self.host,
            "socket": "mysql.sock",  # relative to the data: a full path could exceed the limit of 107 bytes
            "pid_file": "mysqld.pid",
            **self._settings,
        }
        if os.geteuid() == 0:
            own["user"] = "root"
        path = self.directory / "my.cnf"
        lines = [f"{name}={value}" for name, value in own.items() if value is not None]
        path.write_text(self._worded("[mysqld]\n" + "\n".join(lines) + "\n"), encoding="utf-8")
        return path


def _base(version: str) -> Path:
    """Return the folder with ``bin/mysqld`` of ``version``; the first call unpacks it into the cache."""
    distribution = VERSIONS[version]
    renamed = {name: found for name in distribution.libraries if (found := require_library(name))}

    def unpack(folder: Path) -> None:
        if not distribution.section:
            _unpack_from_debian(folder)
            return
        [package] = fetch(distribution.section)
        with zipfile.ZipFile(package) as outer:
            if distribution.archive:
                with outer.open(distribution.archive) as stream:
                    unpack_tar(stream, folder)
            else:
                outer.extractall(folder)
        (folder / "lib").mkdir(exist_ok=True)
        for name, file in renamed.items():
            (folder / "lib" / name).symlink_to(file)  # mysqld searches here first
        for program in folder.glob("bin/*"):
            program.chmod(0o755)  # zip archives carry no permissions

    return unpack_once(f"mysql-{version}", unpack)


def _unpack_from_debian(folder: Path) -> None:
    debian.unpack_package("mysql-server-core", "sid", folder)
    share = "$root/usr/share/mysql"
    paths = {"basedir": "$root/usr", "plugin-dir": "$root/usr/lib/mysql/plugin", "lc-messages-dir": share}
    paths["character-sets-dir"] = f"{share}/charsets"
    debian.write_launcher(folder, "usr/sbin/mysqld", *(f"--{name}={path}" for name, path in paths.items()))


def missing(version: str) -> str:
    """Return what this system lacks for a server of ``version``; empty if it can have one."""
    return "" if VERSIONS[version.removesuffix(LOWER_CASE)].section else debian.missing()


def default_version() -> str:
    """Return the version of a server that names none."""
    return os.environ.get("TAILRACE_MYSQL") or DEFAULT_VERSION


def prepare(version: str) -> None:
    """Put everything that a start of ``version`` needs into the cache; ``version`` may end with LOWER_CASE."""
    _template(version.removesuffix(LOWER_CASE), lower_case=version.endswith(LOWER_CASE))


def _template(version: str, *, lower_case: bool = False) -> Path:
    """Return an initialized data directory of ``version`` with the users; the first call puts it into the cache.

    A server can store names in lower case only if its data directory was initialized so.
    """
    base = _base(version)

    def initialize(folder: Path) -> None:
        users = folder.parent / f"{folder.name}.sql"
        users.write_text(
            f"CREATE USER root@'%' IDENTIFIED BY '{ROOT_PASSWORD}';\n"
            "GRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;\n"
            f"CREATE USER {CAPTURE_USER}@'%' IDENTIFIED BY '{CAPTURE_PASSWORD}';\n"
            f"GRANT {CAPTURE_GRANTS} ON *.* TO {CAPTURE_USER}@'%';\n",
            encoding="utf-8",
        )
        command: list[str | Path] = [base / "bin" / "mysqld", "--no-defaults", "--initialize-insecure"]
        command += [f"--basedir={base}", f"--datadir={folder}", f"--init-file={users}"]
        if lower_case:
            command.append("--lower-case-table-names=1")
        if os.geteuid() == 0:
            command.append("--user=root")
        try:
            done = subprocess.run(command, env=_environment(base), capture_output=True, text=True, check=False)
        finally:
            users.unlink()
        if done.returncode != 0:
            raise EmbeddedServerError(
                f"MySQL {version} could not initialize its data", hint="read its output", log=done.stderr[-3000:]
            )

    return unpack_once(f"mysql-{version}-data-process{'-lower-case' if lower_case else ''}", initialize)


def _environment(base: Path) -> dict[str, str]:
    """Return an environment in which mysqld finds the libraries of its package."""
    return {**os.environ, "LD_LIBRARY_PATH": f"{base}/lib:{base}/lib/private"}
