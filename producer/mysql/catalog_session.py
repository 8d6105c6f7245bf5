"""A MySQL session for occasional queries: definitions for the schema change topic, and the heartbeat statement."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from pymysql.connections import Connection

from tailrace.producer.errors import SourceUnavailableError
from tailrace.producer.model.table import CatalogTable, TableId
from tailrace.producer.mysql.catalog import read_table, read_tables
from tailrace.producer.mysql.connection import disconnect, execute, query
from tailrace.runtime.errors import SchemaError

T = TypeVar("T")


class ReconnectingSession:
    """Connects at its first use, and reconnects if the server has closed the session; not thread-safe."""

    def __init__(self, connect: Callable[[], Connection[Any]]) -> None:
        self._connect = connect
        self._connection: Connection[Any] | None = None

    def run(self, work: Callable[[Connection[Any]], T]) -> T:
        """Run ``work`` with the session and return its result; reconnects once if the session is lost."""
        if self._connection is not None:
            try:
                return work(self._connection)
            except SourceUnavailableError:
                self.close()
        self._connection = self._connect()
        return work(self._connection)

    def query(self, sql: str) -> Sequence[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        return self.run(lambda connection: query(connection, sql))

    def close(self) -> None:
        """Disconnect at once; the next use connects again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            disconnect(connection)


class MySqlCatalogSession:
    """Reads the catalog over a session that reconnects."""

    def __init__(self, connect: Callable[[], Connection[Any]]) -> None:
        self._session = ReconnectingSession(connect)

    def describe(self, table: TableId) -> CatalogTable:
        """Read the definition from information_schema."""
        return self._session.run(lambda connection: read_table(connection, table))

    def describe_all(self, tables: Sequence[TableId]) -> Iterator[tuple[TableId, CatalogTable | SchemaError]]:
        """Read the definitions from information_schema, many with one query."""
        return iter(self._session.run(lambda connection: list(read_tables(connection, tables))))

    def create_statement(self, table: TableId) -> str:
        """Return the answer of SHOW CREATE TABLE."""
        return str(self._session.run(lambda c: query(c, f"SHOW CREATE TABLE {table.quoted}"))[0][1])

    def server_charset(self) -> tuple[str, str]:
        """Read the variables of the server."""
        charset, collation = self._session.query("SELECT @@character_set_server, @@collation_server")[0]
        return str(charset), str(collation)

    def database_charset(self, database: str) -> tuple[str, str]:
        """Read information_schema.SCHEMATA."""
        sql = (
            "SELECT DEFAULT_CHARACTER_SET_NAME, DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA "
            "WHERE SCHEMA_NAME = %s"
        )
        charset, collation = self._session.run(lambda connection: query(connection, sql, (database,)))[0]
        return str(charset), str(collation)

    def execute(self, statement: str) -> None:
        """Run the statement."""
        self._session.run(lambda connection: execute(connection, statement))

    def close(self) -> None:
        """Cut the connection."""
        self._session.close()
