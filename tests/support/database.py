"""A database for one test, on the shared server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pymysql.constants import ER
from pymysql.err import OperationalError

from tests.embedded.mysql import MySqlServer

if TYPE_CHECKING:
    from pymysql import Connection


class Database:
    """A new database. :meth:`execute` runs statements in it, :meth:`connect` opens other sessions."""

    def __init__(self, server: MySqlServer, name: str, *, create: bool = True) -> None:
        """``create=False``: the database exists."""
        self.server = server
        self.name = name
        self._session = server.connect()
        if create:
            self.execute(f"CREATE DATABASE `{name}`")
        self._session.select_db(name)

    def execute(self, sql: str, args: Sequence[object] | None = None) -> list[tuple[Any, ...]]:
        """Run one statement with autocommit and return its rows, if any."""
        with self._session.cursor() as cursor:
            cursor.execute(sql, args)
            return list(cursor.fetchall())

    def executemany(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        """Run one statement for many rows; ``INSERT ... VALUES`` becomes multi-row inserts."""
        with self._session.cursor() as cursor:
            cursor.executemany(sql, list(rows))

    def connect(self, **changes: Any) -> Connection[Any]:
        """Open another session in this database, as root with autocommit; ``changes`` override its arguments."""
        return self.server.connect(**{"database": self.name, **changes})

    def kill_sessions(self, where: str, args: Sequence[object] | None = None) -> None:
        """Kill every session of the server that ``where`` selects from the process list, except this one."""
        statement = f"SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND {where}"
        for (session,) in self.execute(statement, args):
            try:
                self.execute(f"KILL {session}")
            except OperationalError as error:  # it may have ended by itself
                if error.args[0] != ER.NO_SUCH_THREAD:
                    raise

    def drop(self) -> None:
        """Drop the database and close the session, which a test of the server's faults may have killed."""
        self.close()
        with self.server.connect() as session, session.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS `{self.name}`")

    def close(self) -> None:
        """Close the session."""
        self._session.close()
