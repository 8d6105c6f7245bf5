"""Sessions to a MySQL server: in UTC, with errors whose class says whether to retry."""
# ruff: noqa: SLF001 - the driver has no public way to its socket and timeouts

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pymysql
from pymysql.constants import CR, ER

from tailrace.producer.errors import (
    SourceError,
    SourceUnavailableError,
    StatementTooSlowError,
    TableAccessError,
    TableLockedError,
    TableMissingError,
)
from tailrace.producer.mysql.authentication import AUTH_REFUSED, ENCRYPTED_MODES, Tls, is_encrypted
from tailrace.producer.mysql.password import Password
from tailrace.producer.mysql.session_variables import set_all, set_each

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymysql.connections import Connection

_OPTIONAL: Final = frozenset({ER.UNKNOWN_SYSTEM_VARIABLE})
"""Ignored errors of session settings: older servers do not have the variable and do not need it."""

_REFUSED: Final = frozenset({ER.ACCESS_DENIED_ERROR, 1698, 1820, 1862, ER.HOST_NOT_PRIVILEGED, 3118, 3159})
"""The account is wrong, expired or locked: a retry does not help."""

_GONE: Final = frozenset(
    {
        CR.CR_CONNECTION_ERROR,
        CR.CR_CONN_HOST_ERROR,
        CR.CR_SERVER_GONE_ERROR,
        CR.CR_SERVER_LOST,
        CR.CR_SERVER_LOST_EXTENDED,
        CR.CR_IPSOCK_ERROR,
        0,  # pymysql's own "not connected"
        ER.CON_COUNT_ERROR,
        ER.TOO_MANY_USER_CONNECTIONS,
        ER.SERVER_SHUTDOWN,
        ER.NORMAL_SHUTDOWN,
        ER.HOST_IS_BLOCKED,
        ER.NET_READ_INTERRUPTED,
        ER.NET_WRITE_INTERRUPTED,
        3032,  # the server is in offline mode
        3169,  # the session was killed
        4031,  # the client was disconnected for inactivity
        1927,  # MariaDB: the session was killed, or the server shuts down
    }
)

_WAITED: Final = frozenset({ER.QUERY_INTERRUPTED, ER.LOCK_DEADLOCK})
"""A retry may help: the statement was killed."""
_TOO_SLOW: Final = frozenset({3024, 1969})
"""A statement took longer than it may: ER_QUERY_TIMEOUT, and ER_STATEMENT_TIMEOUT of MariaDB."""

_OF_TABLES: Final[Mapping[int, type[SourceError]]] = {
    ER.NO_SUCH_TABLE: TableMissingError,
    ER.BAD_DB_ERROR: TableMissingError,
    ER.TABLEACCESS_DENIED_ERROR: TableAccessError,
    ER.COLUMNACCESS_DENIED_ERROR: TableAccessError,
}


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """Connection settings; times are in seconds."""

    host: str
    port: int
    user: str
    password: Password
    tls: Tls
    connect_timeout_s: float
    read_timeout_s: float | None
    """The connection counts as lost after this time without data within one query; None: never."""
    server_uuid: str = ""
    """The server to which positions belong; empty: any."""


def connect(settings: SourceSettings, **options: Any) -> Connection[Any]:
    """Open a session: autocommit, UTC, utf8mb4, READ COMMITTED. ``options`` are passed to pymysql.

    Raises SourceUnavailableError if the server cannot be reached or is another one, or there is no password now,
    SourceError if it rejects the account.
    """
    password = settings.password.read(settings.connect_timeout_s)
    with translating_errors(f"{settings.host}:{settings.port}", settings.user):
        arguments: dict[str, Any] = {
            "host": settings.host,
            "port": settings.port,
            "user": settings.user,
            "password": password,
            "charset": "utf8mb4",
            "autocommit": True,
            "connect_timeout": settings.connect_timeout_s,
            # Also of the handshake: a server that accepts the connection may be unable to say anything.
            "read_timeout": settings.connect_timeout_s,
            "write_timeout": settings.connect_timeout_s,
            "program_name": "tailrace",
            **settings.tls.driver_options(),
            **options,
        }
        connection: Connection[Any] = pymysql.connect(**arguments)
        try:
            if settings.tls.mode in ENCRYPTED_MODES and not is_encrypted(connection):
                raise pymysql.OperationalError(CR.CR_SSL_CONNECTION_ERROR, "the session is not encrypted")
            _keep_alive(connection)
            _set_variables(connection)
            _require_server(connection, settings.server_uuid)
            _set_timeouts(connection, settings.read_timeout_s)
        except BaseException:
            disconnect(connection)
            raise
    return connection


def disconnect(connection: Any) -> None:
    """End a session at once; a thread that waits for a response in it gets an error. Safe to call twice."""
    sock = connection._sock
    if sock is not None:
        with suppress(OSError):
            # Not the method of SSLSocket, which takes the TLS state away from a thread that reads.
            socket.socket.shutdown(sock, socket.SHUT_RDWR)
    # Without the shutdown, closing the buffer waits until the other thread has read something.
    connection._force_close()


def query(connection: Connection[Any], sql: str, args: Sequence[object] | None = None) -> list[tuple[Any, ...]]:
    """Run one statement and return its rows. Raises the errors of ``connect``, with the statement in the context."""
    with translating_errors(str(connection.host), "", sql=sql), connection.cursor() as cursor:
        cursor.execute(sql, args)
        return list(cursor.fetchall())


def execute(connection: Connection[Any], statement: str) -> None:
    """Run a statement of the configuration. Raises the errors of ``query``, without the statement: it may be secret."""
    with translating_errors(str(connection.host), ""), connection.cursor() as cursor:
        cursor.execute(statement)


def account(connection: Connection[Any]) -> str:
    """Return the account of the session as SQL."""
    user, _, host = str(query(connection, "SELECT CURRENT_USER()")[0][0]).rpartition("@")
    return f"'{user}'@'{host}'"


def server_version(connection: Connection[Any]) -> str:
    """Return the version of the server, such as ``8.0.33`` or ``10.11.6-MariaDB-log``."""
    return str(query(connection, "SELECT @@version")[0][0])


def server_uuid(connection: Connection[Any]) -> str:
    """Return the UUID of the server."""
    return str(query(connection, "SELECT @@global.server_uuid")[0][0])


def _require_server(connection: Connection[Any], expected: str) -> None:
    if expected and (found := server_uuid(connection)) != expected:
        raise SourceUnavailableError(
            "the connection reached another server than the session that located the position",
            hint="check that database.hostname names one server at a time",
            expected=expected,
            found=found,
        )


def stores_lower_case_names(connection: Connection[Any]) -> bool:
    """Return whether the server stores names of databases and tables in lower case, however statements write them."""
    return int(query(connection, "SELECT @@global.lower_case_table_names")[0][0]) == 1


def has_gtids(connection: Connection[Any]) -> bool:
    """Return whether every transaction from now on has a GTID."""
    return str(query(connection, "SELECT @@global.gtid_mode")[0][0]) == "ON"


def executed_gtids(connection: Connection[Any]) -> str:
    """Return the GTIDs of committed, visible transactions, as text in one line."""
    return _one_line(query(connection, "SELECT @@global.gtid_executed")[0][0])


def purged_gtids(connection: Connection[Any]) -> str:
    """Return the GTIDs that the binlog of the server no longer has, as text in one line."""
    return _one_line(query(connection, "SELECT @@global.gtid_purged")[0][0])


def binlog_position(connection: Connection[Any]) -> tuple[str, int, str]:
    """Return the end of the binlog: file, position, executed GTID set.

    Raises SourceError if the binlog is off, or the account lacks REPLICATION CLIENT.
    """
    rows = binlog_status(connection)
    if not rows:
        raise SourceError("the source writes no binlog", hint="start the server with log_bin")
    file, pos = rows[0][:2]
    return str(file), int(pos), _one_line(rows[0][4]) if len(rows[0]) > 4 else ""


def excluded_databases(rows: Sequence[Sequence[Any]]) -> str:
    """Return the options that keep databases out of the binlog, by the answer of ``binlog_status``; '': none."""
    named = zip(("binlog_do_db", "binlog_ignore_db"), rows[0][2:4] if rows else (), strict=False)
    return ", ".join(f"{option}: {names}" for option, names in named if names)


def binlog_status(connection: Connection[Any]) -> list[tuple[Any, ...]]:
    """Return file, position, two lists of databases, and the executed GTID set; [] without a binlog."""
    try:
        return query(connection, "SHOW MASTER STATUS")
    except SourceError as error:
        if error.context.get("code") != ER.PARSE_ERROR:
            raise
        return query(connection, "SHOW BINARY LOG STATUS")  # the name since MySQL 8.2; 8.4 removed the old one


def wait_for_gtids(connection: Connection[Any], gtids: str, timeout_s: float) -> bool:
    """Wait until every GTID of the set is executed; return False after ``timeout_s``."""
    if not gtids:
        return True
    answer = query(connection, "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)", (gtids, timeout_s))[0][0]
    return bool(answer == 0)


@contextmanager
def translating_errors(server: str, user: str, sql: str = "") -> Iterator[None]:
    """Turn the driver's errors into ours."""
    try:
        yield
    except pymysql.MySQLError as error:
        raise translate_error(error, server, user, sql) from error
    except (OSError, EOFError) as error:
        raise SourceUnavailableError(
            "the connection to the source was lost", hint=_REACH, server=server, cause=str(error)
        ) from error


_REACH: Final = "check database.hostname and database.port, and that the server runs and accepts connections from here"


def translate_error(error: pymysql.MySQLError, server: str, user: str, sql: str = "") -> SourceError:
    """Return the error for an error of the driver."""
    code, text = _code_and_text(error)
    facts: dict[str, object] = {"server": server, "code": code, "answer": text}
    if sql:
        facts["statement"] = sql if len(sql) <= 300 else sql[:300] + " …"
    # pymysql reports a rejected TLS handshake as a connection error with this cause.
    if isinstance(error.__cause__ or error.__context__, ssl.SSLError):
        return SourceError(
            "the TLS handshake with the source failed",
            hint="check database.ssl.mode, database.ssl.ca, and for verify_identity that database.hostname is in the "
            "certificate of the server",
            **facts,
        )
    if code == AUTH_REFUSED:
        return SourceError("the source demands the password in an unsafe way", hint=_UNSAFE, user=user, **facts)
    if code == ER.LOCK_WAIT_TIMEOUT:
        return TableLockedError("a statement waited too long for a lock", hint=_ENDED, **facts)
    if code in _TOO_SLOW:
        return StatementTooSlowError("a statement took too long", hint=_ENDED, **facts)
    if code in _WAITED:
        return SourceUnavailableError("the source ended a statement", hint=_ENDED, **facts)
    if code in _REFUSED:
        return SourceError(
            "the source rejected the account",
            hint="check database.user and database.password, and that the account may connect from this host",
            user=user,
            **facts,
        )
    # Errors of the driver without a code: the bytes of the connection end early or are invalid.
    if code in _GONE or isinstance(error, pymysql.InterfaceError) or code == -1:
        return SourceUnavailableError("the source cannot be reached, or the connection was lost", hint=_REACH, **facts)
    failure = _OF_TABLES.get(code, SourceError)
    return failure(f"the source returned error {code}", hint=_HINTS.get(code, ""), **facts)


_UNSAFE: Final = (
    "check database.password, set database.ssl.mode=verify_identity, "
    "or allow it with tailrace.database.insecure.authentication=true"
)

_ENDED: Final = "look on the server for what killed it, or which transaction holds the lock"

_HINTS: Final[Mapping[int, str]] = {
    CR.CR_SSL_CONNECTION_ERROR: "enable TLS on the server, or set database.ssl.mode=preferred",
    1044: "grant the account access to the database",
    1142: "GRANT SELECT on the table to the account",
    1143: "GRANT SELECT on the column to the account",
    1227: "grant the account the privilege named in the answer",
}


def _code_and_text(error: pymysql.MySQLError) -> tuple[int, str]:
    code = error.args[0] if error.args and isinstance(error.args[0], int) else -1
    return code, " ".join(str(part) for part in error.args[1:]) or str(error)


def _one_line(gtids: object) -> str:
    return "".join(str(gtids or "").split())


def set_session(connection: Any) -> None:
    """Set what the values that are read depend on, again: a statement of the configuration may have changed it."""
    with translating_errors(str(connection.host), ""):
        connection.set_character_set("utf8mb4")
        connection.autocommit(True)
        _set_variables(connection)


def _set_variables(connection: Any) -> None:
    with connection.cursor() as cursor:
        try:
            cursor.execute(set_all())
        except pymysql.MySQLError as error:
            if _code_and_text(error)[0] not in _OPTIONAL:
                raise
            for statement in set_each():
                _set(cursor, statement)


def _set(cursor: Any, statement: str) -> None:
    try:
        cursor.execute(statement)
    except pymysql.MySQLError as error:
        if _code_and_text(error)[0] not in _OPTIONAL:
            raise


def _set_timeouts(connection: Any, timeout_s: float | None) -> None:
    connection._read_timeout = connection._write_timeout = timeout_s


def _keep_alive(connection: Any) -> None:
    """Have the kernel notice within about a minute that the other host is gone."""
    sock: socket.socket = connection._sock
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEP_ALIVE.items():
        if hasattr(socket, option):  # not every platform has each of them
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


_KEEP_ALIVE: Final[Mapping[str, int]] = {
    "TCP_KEEPIDLE": 20,
    "TCP_KEEPINTVL": 10,
    "TCP_KEEPCNT": 4,
    # Also when data was sent and nobody acknowledges it. In milliseconds.
    "TCP_USER_TIMEOUT": 60_000,
}
