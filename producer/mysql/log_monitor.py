"""How far a position is behind the end of the binlog, and when the server may purge it.

The server purges whole files, the oldest first, when it begins a new file and at its start: a file whose last write is
longer ago than the retention. It never purges the newest. So a position in the newest file stays for the whole
retention from now on. That of an older file is counted from its last write, which is the moment at which the next file
was begun: its first event has it. If the server itself was started then, the last write is unknown, and not before the
begin of the file. The time left is thus never more than what the settings of the server guarantee; PURGE BINARY LOGS,
and clouds with a retention of their own, do not ask them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

from pymysql.connections import Connection

from tailrace.producer.model.protocols import LogDistance, Offset
from tailrace.producer.mysql import connection as database
from tailrace.producer.mysql.binlog import event_types
from tailrace.producer.mysql.binlog.packets import EVENT_BODY, dump_from_file
from tailrace.producer.mysql.catalog_session import ReconnectingSession
from tailrace.producer.mysql.connection import SourceSettings, connect, query, translating_errors
from tailrace.producer.mysql.file_offset import FileOffset
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.offset import MySqlOffset, mysql_offset
from tailrace.schemas.sequence import file_number

_VARIABLES: Final = (
    "binlog_expire_logs_seconds",
    "expire_logs_days",
    "binlog_expire_logs_auto_purge",
    "binlog_row_metadata",
)
_READ_ONCE: Final = 0
"""A server id: the server ends no other reader for this one."""


class MySqlLogMonitor:
    """Measures with a few queries, and reads the first event of a file when the position has reached another file."""

    def __init__(self, settings: SourceSettings, open_session: Callable[[], Connection[Any]]) -> None:
        self._settings = settings
        self._session = ReconnectingSession(open_session)
        self._written: tuple[str, str, int] = "", "", 0
        """A server, one of its files that is complete, and when that was written last, at least."""

    def distance(self, stored: Offset) -> LogDistance | None:
        """Compare the position with the files of the server; None: it is a position of another server."""
        return self._session.run(lambda session: self._distance(session, mysql_offset(stored)))

    def close(self) -> None:
        """Cut the connection."""
        self._session.close()

    def _distance(self, session: Connection[Any], stored: MySqlOffset) -> LogDistance | None:
        server = self._server(session)
        if server != stored.server_uuid:
            return None
        files = [(str(row[0]), int(row[1])) for row in query(session, "SHOW BINARY LOGS")]
        number = file_number(stored.file)
        newer = [(file, size) for file, size in files if file_number(file) > number]
        size = dict(files).get(stored.file)
        behind = sum(size for _, size in newer) + (max(0, size - stored.pos) if size is not None else 0)
        variables = _variables(session)
        retention = _retention_s(variables)
        left: float | None = None
        if retention is not None:
            left = retention
            # What follows a position whose file is purged is at the beginning of the oldest file, or purged as well.
            unread = [file for file, _ in files if file_number(file) >= number]
            if self._is_purged(session, stored, [file for file, _ in files]):
                left = 0.0
            elif len(unread) > 1:
                left -= _now(session) - self._last_write(server, unread)
        transactions = self._transactions_behind(session, stored)
        return LogDistance(
            len(newer),
            behind,
            transactions,
            None if left is None else max(0.0, left),
            retention,
            variables.get("binlog_row_metadata"),
        )

    def _server(self, session: Connection[Any]) -> str:
        return database.server_uuid(session)

    def _settings_of(self, server: str) -> SourceSettings:
        return replace(self._settings, server_uuid=server)

    def _transactions_behind(self, session: Connection[Any], stored: MySqlOffset) -> int | None:
        if isinstance(stored, FileOffset):
            return None
        missing = GtidSet.parse(database.executed_gtids(session)).minus(stored.gtids)
        return sum(last - first + 1 for _, ranges in missing.intervals() for first, last in ranges)

    def _is_purged(self, session: Connection[Any], stored: MySqlOffset, files: Sequence[str]) -> bool:
        """Return whether something that follows the position is purged already."""
        if isinstance(stored, FileOffset):
            return stored.file not in files
        return not stored.gtids.contains(GtidSet.parse(database.purged_gtids(session)))

    def _last_write(self, server: str, files: Sequence[str]) -> int:
        """Return when the first of these files was written last, at least; it is complete, as others follow it."""
        if self._written[:2] != (server, files[0]):
            begun, at_start = self._begin(server, files[1])
            if at_start:
                begun, _ = self._begin(server, files[0])
            self._written = server, files[0], begun
        return self._written[2]

    def _begin(self, server: str, file: str) -> tuple[int, bool]:
        """Return when a file was begun, and whether the server was started then."""
        settings = self._settings_of(server)
        with translating_errors(settings.host, settings.user), closing(connect(settings)) as session:
            with session.cursor() as cursor:
                cursor.execute("SET @master_binlog_checksum = 'CRC32', @source_binlog_checksum = 'CRC32'")
            driver: Any = session  # which has no public way to a command, nor to its answer
            driver._execute_command(*dump_from_file(file, _READ_ONCE))  # noqa: SLF001
            while True:
                data: bytes = driver._read_packet()._data  # noqa: SLF001
                if data[5] == event_types.FORMAT_DESCRIPTION:
                    (time,) = struct.unpack_from("<I", data, 1)
                    (started,) = struct.unpack_from("<I", data, EVENT_BODY - 4 + _STARTED)
                    database.disconnect(session)  # the server goes on sending
                    return time, started != 0


_STARTED: Final = 52
"""Where the first event of a file has the time of the server's start, if the file was begun then; else 0."""


def _now(session: Connection[Any]) -> int:
    return int(query(session, "SELECT UNIX_TIMESTAMP()")[0][0])


def _variables(session: Connection[Any]) -> dict[str, str]:
    names = ", ".join(f"'{name}'" for name in _VARIABLES)
    rows = query(session, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
    return {str(name): str(value) for name, value in rows}


def _retention_s(found: Mapping[str, str]) -> float | None:
    """Return for how long the server keeps a file; None: for ever."""
    if found.get("binlog_expire_logs_auto_purge", "ON") != "ON":
        return None
    seconds = int(found.get("binlog_expire_logs_seconds", "0"))
    return seconds or float(found.get("expire_logs_days", "0")) * 86_400 or None
