"""A session that is used now and then: opened at its first use, and again when the server has closed it meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pymysql.connections import Connection

from tailrace.producer.errors import SourceUnavailableError
from tailrace.producer.mysql.connection import query

T = TypeVar("T")


class ReconnectingSession:
    """Runs work over one session; not thread-safe."""

    def __init__(self, connect: Callable[[], Connection[Any]]) -> None:
        self._connect = connect
        self._connection: Connection[Any] | None = None

    def run(self, work: Callable[[Connection[Any]], T]) -> T:
        """Return what ``work`` does with the session; a session that proves broken is opened anew, once."""
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
        """Drop the session without a farewell; it is opened again when used again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection._force_close()  # type: ignore[attr-defined]  # noqa: SLF001 - the driver has no other abrupt end
