"""Targets of the JDBC sink for tests: a database of a real server, read back through the sink's own sessions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

import pytest
from pyspark.sql import functions as fn
from pyspark.sql.types import TimestampNTZType

from tailrace.schemas.connect import ConnectField
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.sink.jdbc_columns import read_sequence
from tailrace.spark_consumer.sink.jdbc_dialect import load_dialect
from tailrace.spark_consumer.sink.jdbc_session import Connections, Session
from tests.embedded.kafka import KafkaBroker
from tests.sinks.backend import SinkBackend
from tests.sinks.conformance_schema import Difference, Outcome
from tests.spark.records import Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.embedded.mysql import MySqlServer
    from tests.embedded.postgresql import PostgresServer
    from tests.sinks.harness import BatchRunner


AS_TEXT: Final = {
    "other type": Difference(
        dict.fromkeys(("evolve", "try_evolve", "lenient"), Outcome.SAME),
        "numbers that are stored become text with their column",
    )
}
"""Where tables of databases differ from the others after ALTER TABLE."""


@dataclass(frozen=True)
class JdbcServer:
    """A database for the sink."""

    url: str
    user: str
    password: str
    properties: Mapping[str, str] = field(default_factory=dict)
    """Connection properties."""


def postgres_database(server: PostgresServer) -> JdbcServer:
    """Return the database of a PostgreSQL server."""
    return JdbcServer(server.url, server.user, server.password)


def mysql_database(server: MySqlServer) -> JdbcServer:
    """Return a MySQL server; the names of the tables have the database."""
    # Without TLS the server sends the key for the password.
    properties = {"allowPublicKeyRetrieval": "true"}
    return JdbcServer(f"jdbc:mysql://{server.host}:{server.port}/", server.user, server.password, properties)


def serve(backend: type[SinkBackend], request: pytest.FixtureRequest) -> None:
    """Start the database of a backend that names one."""
    if issubclass(backend, JdbcBackend) and backend.database == "postgresql":
        backend.server = postgres_database(request.getfixturevalue("postgres_server"))
    elif issubclass(backend, JdbcBackend):
        backend.server = mysql_database(request.getfixturevalue("mysql_server"))


class JdbcBackend(SinkBackend):
    """Tables in a schema of their own; the first batch creates it."""

    sink = "jdbc"
    cuts = (("after", "_fill"), ("after", "_change_rows"), ("after", "_note"), ("after", "_apply"))
    kills = ("after-fill:1", "after-change_rows:2", "after-note:1", "after-unstage:1", "after-write_batch:2")
    database: ClassVar[str] = ""
    """``postgresql`` or ``mysql``, for a backend that ``serve`` gives its server."""
    server: ClassVar[JdbcServer]
    reading: Mapping[str, str] = {}
    """Connection properties with which the tests read tables, besides those of the server."""

    def __init__(self, spark: SparkSession, broker: KafkaBroker, work: Path) -> None:
        super().__init__(spark, broker, work)
        self.schema = f"s_{abs(hash(str(work)))}"
        self.dialect = load_dialect(self.server.url)
        self.is_mysql = "mysql" in self.server.url
        self.more: Mapping[str, str] = {}
        """Further settings."""

    def settings(self) -> dict[str, str]:
        """Return where the tables are."""
        return {
            "sink.url": self.server.url,
            "sink.user": self.server.user,
            "sink.password": self.server.password,
            "sink.table": f"{self.schema}.{{table}}",
            **{f"sink.properties.{name}": value for name, value in self.server.properties.items()},
            **self.more,
        }

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Open a session as the sink does, in UTC."""
        own = {"user": self.server.user, "password": self.server.password}
        properties = {**self.dialect.properties, **self.server.properties, **own}
        start = (*self.dialect.session, "SET time_zone = '+00:00'" if self.is_mysql else "SET TIME ZONE 'UTC'")
        sessions = Connections(self.spark, self.server.url, self.dialect.driver, properties, start)
        try:
            with sessions.session() as session:
                yield session
        finally:
            sessions.close()

    def create_schema(self) -> None:
        """Create the schema."""
        self.sql("CREATE SCHEMA IF NOT EXISTS {s}")

    def drop(self) -> None:
        """Drop the schema with its tables."""
        self.sql("DROP SCHEMA IF EXISTS {s}" if self.is_mysql else "DROP SCHEMA IF EXISTS {s} CASCADE")

    def table(self, name: str) -> str:
        """Return the quoted name of a table."""
        return self.dialect.table_name(self.schema, name)

    def described(self, table: str) -> object:
        """Return what the database knows of a table."""
        with self.session() as session:
            return self.dialect.read_table(session, self.schema, table)

    def shown(self, column: str) -> str:
        """Return the expression that shows a column as text: binary in hex."""
        quoted = self.dialect.quote(column)
        if column != "bytes":
            return quoted
        return f"HEX({quoted})" if self.is_mysql else f"upper(encode({quoted}, 'hex'))"

    def sql(self, *statements: str) -> None:
        """Run statements; ``{s}`` is the quoted schema."""
        with self.session() as session:
            for statement in statements:
                session.execute(statement.replace("{s}", self.dialect.quote(self.schema)))

    def execute(self, statement: str) -> None:
        """Run a statement in the database."""
        self.sql(statement)

    def texts(self, query: str) -> list[tuple[str | None, ...]]:
        """Return the rows of a query."""
        with self.session() as session:
            return session.query(query.replace("{s}", self.dialect.quote(self.schema)))

    def rows(self, schema: TableSchema) -> dict[int, Row]:
        """Read the table; a duplicate key is an error."""
        rows = self.frame(schema.table).drop("_seq").collect()
        found = {each["id"]: each.asDict() for each in rows}
        assert len(found) == len(rows), "duplicate key in the table"
        return found

    def exists(self, schema: TableSchema) -> bool:
        """Return whether there is a table."""
        return self.described(schema.table) is not None

    def frame(self, table: str) -> DataFrame:
        """Read the table; sequences are structs, as in other targets."""
        name = self.table(table)
        frame = self._frame(name)
        # MySQL's driver reads old times in another calendar; the sink writes them as texts.
        times = [each.name for each in frame.schema if isinstance(each.dataType, TimestampNTZType) and self.is_mysql]
        if times:
            columns = (f"CAST(`{each}` AS CHAR) `{each}`" if each in times else f"`{each}`" for each in frame.columns)
            frame = self._frame(f"(SELECT {', '.join(columns)} FROM {name}) AS texts")
            frame = frame.withColumns({each: fn.col(each).cast("timestamp_ntz") for each in times})
        sequences = [each for each in ("_seq", "_until", "_seen") if each in frame.columns]
        return frame.withColumns({each: read_sequence(fn.hex(each)) for each in sequences})

    def _frame(self, table: str) -> DataFrame:
        reader = self.spark.read.format("jdbc").options(
            url=self.server.url,
            user=self.server.user,
            password=self.server.password,
            driver=self.dialect.driver,
            dbtable=table,
            preferTimestampNTZ="true",
            **{**self.server.properties, **self.reading},
        )
        return reader.load()

    def stages(self) -> list[str]:
        """Return the staging tables that are there."""
        with self.session() as session:
            return self.dialect.tables_like(session, self.schema, "tailrace_stage_")


class Open(Protocol):
    """Opens a query over a table of MySQL with the columns id, name and ``extra``."""

    def __call__(self, table: str, *extra: ConnectField, **settings: str) -> BatchRunner:
        """Return the query."""


def backend_of(run: BatchRunner) -> JdbcBackend:
    """Return the backend of a query."""
    assert isinstance(run.backend, JdbcBackend)
    return run.backend
