"""A session for occasional use: it connects at its first use, and reconnects if the server has closed it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pymysql.connections import Connection

from tailrace.producer.errors import SourceUnavailableError
from tailrace.producer.mysql.connection import disconnect, query

T = TypeVar("T")


class ReconnectingSession:
    """Runs work over one session; not thread-safe."""

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
