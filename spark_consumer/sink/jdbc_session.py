"""The settings of the JDBC sink, named as the options of Spark's JDBC writer where it has them, and its sessions.

Statements of the driver go through ``java.sql`` in the session's JVM: the driver jar, the URL and the TLS settings are
then the same as those of the executors, and the Python of the driver needs no client library of the database.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import structlog
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pydantic import SecretStr

from tailrace.runtime.config.section import prefixed, supported
from tailrace.runtime.config.value_types import SECRET, TEXT, ValueType, integer
from tailrace.runtime.errors import ConfigError
from tailrace.spark_consumer.errors import SinkError, TargetUnavailableError, is_connection_state
from tailrace.spark_consumer.sink.jdbc_dialect import load_dialect
from tailrace.spark_consumer.sink.shape import SchemaChangeOptions, ShapeOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.runtime.config.draft import Draft
    from tailrace.spark_consumer.sink.jdbc_dialect import Dialect

log = structlog.get_logger(__name__)

Row = tuple[str | None, ...]
T = TypeVar("T")

_ATTEMPTS: Final = 4
_ROLLED_BACK: Final = "40"
"""The SQLSTATE class of deadlocks and serialization failures: the same transaction can be tried again."""
_ABOUT_NAMES: Final = ("", "08", "0A", "28", "3D", "40", "42", "53", "55", "57")
"""The SQLSTATE classes whose messages quote names and statements. The others can quote rows: only the log has them."""
_SHOWN: Final = 300
_SECRET_IN_URL: Final = re.compile(
    r"password|[?&;][^=?&;]*(?:passw|pwd|secret|token|credential|access_?key|api_?key)[^=?&;]*="
    r"|://[^/?]*:[^/@?]*@|:[^/:@?]+/[^@?]*@",
    re.IGNORECASE,
)
"""Also of databases without a dialect here: ``oracle:thin:user/password@``."""
_HOSTS: Final = re.compile(r"jdbc:[\w:+]*//([^/?;]*)")
_LOCAL: Final = re.compile(r"(?:[^@]*@)?(?:localhost|127\.[0-9.]+|\[::1\])?(?::\d+)?", re.IGNORECASE)
_TLS: Final = r"ssl|sslmode|usessl|requiressl"
_TLS_IN_URL: Final = re.compile(rf"[?&;(,](?:{_TLS})=([^&;,)]*)", re.IGNORECASE)
_VERIFIED: Final = re.compile(r"verify.*|true", re.IGNORECASE)
PLACEHOLDER: Final = re.compile(r"\{(database|table)\}")
"""What stands for a name in ``sink.table``. All are replaced at once: a name may have braces."""
_PART: Final = re.compile(r"(?:[^.{}]|\{database\}|\{table\})+")


def _read_template(text: str) -> str:
    template = text.strip()
    parts = template.split(".")
    if "{table}" not in parts[-1] or len(parts) > 2 or not all(_PART.fullmatch(part) for part in parts):
        raise ValueError
    return template


TEMPLATE: Final = ValueType("a name such as shop.{table}, with {table} after the dot", _read_template)
"""The template of ``sink.table``."""


class JdbcOptions(SchemaChangeOptions, ShapeOptions):
    """Settings of the JDBC sink."""

    url: str = supported(
        "sink.url", TEXT, required=True, doc="JDBC URL of the database, such as jdbc:postgresql://host/db."
    )
    user: str | None = supported("sink.user", TEXT, doc="User of the database.")
    password: SecretStr | None = supported("sink.password", SECRET, doc="Password of the user.")
    table: str = supported(
        "sink.table",
        TEMPLATE,
        default="{database}.{table}",
        doc="Names of the tables; without a dot, in the schema of the connection.",
    )
    batch_size: int = supported(
        "sink.batchsize", integer(1), default="1000", doc="Rows that an executor sends at a time."
    )
    partitions: int = supported(
        "sink.numPartitions",
        integer(1),
        default="8",
        doc="Most connections of the executors for one table.",
    )
    properties: Mapping[str, SecretStr] = prefixed(
        "sink.properties.*", SECRET, doc="Connection properties of the JDBC driver, such as sslmode."
    )


def check_url(draft: Draft) -> None:
    """Report a URL without a dialect, or with a password, which logs and Spark's pages would show."""
    if not draft.is_set("sink.url"):
        return
    url = draft.settings["sink.url"].value.strip()
    if _SECRET_IN_URL.search(url):
        draft.problems.append("sink.url has a password; use sink.password, and sink.properties.* for other secrets")
        return
    try:
        load_dialect(url)
    except ConfigError as error:
        draft.problems += error.problems


def connection_properties(options: JdbcOptions, dialect: Dialect) -> dict[str, str]:
    """Return the connection properties, and warn of a server that is not verified.

    A driver gives the password to any server that answers, in clear if asked. So one on another host has to prove that
    it is the one of the URL, unless the configuration says otherwise.
    """
    found = dict(dialect.properties)
    if options.user is not None:
        found["user"] = options.user
    if options.password is not None:
        found["password"] = options.password.get_secret_value()
    given = {name: value.get_secret_value() for name, value in options.properties.items()}
    modes = [value for name, value in given.items() if re.fullmatch(_TLS, name, re.IGNORECASE)]
    modes += _TLS_IN_URL.findall(options.url)
    hosts = _HOSTS.match(options.url)
    is_local = hosts is None or all(_LOCAL.fullmatch(host) for host in hosts[1].split(","))
    if not is_local and not modes:
        found |= dialect.verified
    elif not is_local and not any(map(_VERIFIED.fullmatch, modes)):
        log.warning(
            "the server of the target is not verified: another one could take the password and the rows",
            given=modes,
            hint=", ".join(f"set sink.properties.{name}={value}" for name, value in dialect.verified.items()),
        )
    return found | given


class SqlError(SinkError):
    """The database refused a statement."""

    def __init__(self, state: str, text: str, statement: str) -> None:
        if state[:2] not in _ABOUT_NAMES:
            log.error("the target database refused a statement", sqlstate=state, cause=text)
            text = f"SQLSTATE {state}"
        super().__init__(
            f"the target database refused a statement: {text}",
            hint="remove the cause in the target database; the table is then tried again",
            sqlstate=state,
            statement=statement[:_SHOWN],
        )
        self.state = state


class Session:
    """One connection; each statement is a transaction unless it is within ``transaction``."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, statement: str, *parameters: str | None) -> int:
        """Run a statement with text parameters; return the number of rows that it changed."""
        with self._prepared(statement, parameters) as prepared:
            prepared.execute()
            return int(prepared.getUpdateCount())

    def query(self, statement: str, *parameters: str) -> list[Row]:
        """Return the rows of a query as texts."""
        with self._prepared(statement, parameters) as prepared:
            found = prepared.executeQuery()
            columns = range(1, found.getMetaData().getColumnCount() + 1)
            rows = []
            while found.next():
                rows.append(tuple(found.getString(column) for column in columns))
            return rows

    @contextmanager
    def _prepared(self, statement: str, parameters: Sequence[str | None]) -> Iterator[Any]:
        prepared = None
        try:
            prepared = self._connection.prepareStatement(statement)
            for number, value in enumerate(parameters, 1):
                prepared.setString(number, value)
            yield prepared
        except Py4JError as error:
            raise _translated(error, statement) from None
        finally:
            _close(prepared)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the statements of the block in one transaction; an exception rolls it back."""
        self._call("setAutoCommit", False)
        try:
            yield
            self._call("commit")
        except BaseException:
            _quietly(self._connection.rollback)
            raise
        finally:
            _quietly(lambda: self._connection.setAutoCommit(True))

    def retried(self, transaction: Callable[[], T]) -> T:
        """Run a transaction, again if the database rolled it back because of a concurrent one."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with self.transaction():
                    return transaction()
            except SqlError as error:
                if not error.state.startswith(_ROLLED_BACK) or attempt == _ATTEMPTS:
                    raise
                log.warning("a concurrent transaction of the target database: tried again", sqlstate=error.state)
        raise AssertionError

    @property
    def is_usable(self) -> bool:
        """Whether the server answers."""
        try:
            return bool(self._connection.isValid(5))
        except Py4JError:
            return False

    def close(self) -> None:
        """End the session."""
        _close(self._connection)

    def _call(self, name: str, *arguments: Any) -> None:
        try:
            getattr(self._connection, name)(*arguments)
        except Py4JError as error:
            raise _translated(error, name) from None


class Connections:
    """Opens sessions, and keeps those that are not in use for the next caller."""

    def __init__(
        self, spark: SparkSession, url: str, driver: str, properties: Mapping[str, str], start: Sequence[str]
    ) -> None:
        self._jvm: Any = spark._jvm  # noqa: SLF001 - java.sql is in no other reach
        self._url = url
        self._driver = driver
        self._properties = dict(properties)
        self._start = tuple(start)
        self._idle: list[Session] = []
        self._lock = threading.Lock()

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Lend a session to the block; one whose block fails is closed."""
        session = self._take()
        try:
            yield session
        except BaseException:
            session.close()
            raise
        with self._lock:
            self._idle.append(session)

    def close(self) -> None:
        """Close the sessions that are not in use."""
        with self._lock:
            idle, self._idle = self._idle, []
        for session in idle:
            session.close()

    def _take(self) -> Session:
        while True:
            with self._lock:
                session = self._idle.pop() if self._idle else None
            if session is None:
                return self._open()
            if session.is_usable:
                return session
            session.close()

    def _open(self) -> Session:
        properties = self._jvm.java.util.Properties()
        for name, value in self._properties.items():
            properties.setProperty(name, value)
        driver: Any = self._jvm
        for part in self._driver.split("."):
            driver = getattr(driver, part)
        try:
            connection = driver().connect(self._url, properties)
        except TypeError:  # py4j takes a class that it does not find for a package
            raise SinkError(
                f"the session has no JDBC driver {self._driver}",
                hint="add the driver's jar, with spark.jars or spark.jars.packages",
            ) from None
        except Py4JError as error:
            state, text = _cause(error)
            raise TargetUnavailableError(
                f"no connection to the target database: {text}",
                hint="check sink.url, sink.user, sink.password, whether the server runs, and how its certificate is "
                "verified (sink.properties, docs/sinks/jdbc.md)",
                sqlstate=state,
            ) from None
        if connection is None:
            raise SinkError(
                f"{self._driver} does not take the URL", hint="write sink.url as the documentation of the driver does"
            )
        session = Session(connection)
        for statement in self._start:
            session.execute(statement)
        return session


def _translated(error: Py4JError, statement: str) -> SinkError:
    state, text = _cause(error)
    if is_connection_state(state):
        return TargetUnavailableError(
            f"the connection to the target database was lost: {text}",
            hint="check whether the server runs; the query can then be started again",
            sqlstate=state,
        )
    return SqlError(state, text, statement)


def _cause(error: Py4JError) -> tuple[str, str]:
    """Return SQLSTATE and message of a Java exception."""
    if not isinstance(error, Py4JJavaError):
        return "", str(error)
    found = error.java_exception
    try:
        state = found.getSQLState()
    except Py4JError:  # no SQLException
        state = None
    return state or "", " ".join(str(found.getMessage() or found.toString()).split())


def _close(resource: Any) -> None:
    if resource is not None:
        _quietly(resource.close)


def _quietly(call: Callable[[], object]) -> None:
    """Call what must not hide the error before it; a session that is lost then fails at its next statement."""
    try:
        call()
    except Py4JError:
        log.debug("a call to a lost session failed")
