"""MariaDB as a source database: what differs from MySQL, whose sessions, types and text it shares."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

import structlog
from pymysql.connections import Connection

from tailrace.producer.mariadb import catalog
from tailrace.producer.mariadb.binlog import MariaDbStream
from tailrace.producer.mariadb.catalog import LoggedTables, MariaDbCatalogSession
from tailrace.producer.mariadb.declared_types import MISSING_TYPES, logged_as_binary
from tailrace.producer.mariadb.gtid import GtidPosition, GtidState
from tailrace.producer.mariadb.history import MariaDbHistory
from tailrace.producer.mariadb.offset import (
    MariaDbOffset,
    current_offset,
    first_gtids,
    mariadb_offset,
    named_offset,
    require_server,
    server_identity,
)
from tailrace.producer.mariadb.prerequisites import MARIADB
from tailrace.producer.mariadb.snapshot_session import MariaDbSnapshotSession
from tailrace.producer.model.binlog_events import TableVersion, TransactionCommit, TransactionPrepared
from tailrace.producer.model.protocols import ChangeStream, Offset, TableFilter
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql import connection as database
from tailrace.producer.mysql import resume
from tailrace.producer.mysql.binlog.log_ahead import LogAhead
from tailrace.producer.mysql.binlog.packets import FIRST_EVENT
from tailrace.producer.mysql.binlog.proven_definitions import Found, ProvenDefinitions
from tailrace.producer.mysql.binlog.xa_stream import XaStream
from tailrace.producer.mysql.connection import SourceSettings, query
from tailrace.producer.mysql.log_monitor import MySqlLogMonitor
from tailrace.producer.mysql.offset import MySqlOffset
from tailrace.producer.mysql.source import MySqlSource

log = structlog.get_logger(__name__)

_SESSION: Final = (
    # The variable of that name exists since 11.1. In another level a SELECT may see less than the watermark before it.
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET max_statement_time = 0, idle_transaction_timeout = 0",
)
_ANSWER_S: Final = 10.0
"""How long the server may take to refuse a GTID position."""
_MOST_POSITION: Final = (1 << 32) - 1
"""BINLOG_GTID_POS returns NULL for a greater position in a file."""
_GTID: Final = re.compile(r"GTID (\d+-\d+-\d+)")


class MariaDbSource(MySqlSource):
    """Opens sessions and binlog streams of one server."""

    _checks = MARIADB

    # -- sessions ----------------------------------------------------------------------------------------------------

    def _prepare(self, connection: Connection[Any]) -> None:
        """Run the initial statements, and set the variables of MariaDB."""
        super()._prepare(connection)
        # Of another server the check says what it is.
        if "mariadb" in database.server_version(connection).lower():
            for statement in _SESSION:
                database.execute(connection, statement)

    def open_snapshot_session(self) -> MariaDbSnapshotSession:
        """Connect."""
        return MariaDbSnapshotSession(self.connect())

    def open_catalog(self) -> MariaDbCatalogSession:
        """Return a session that connects at its first use."""
        return MariaDbCatalogSession(self.connect)

    def open_log_monitor(self) -> MySqlLogMonitor:
        """Return a session that connects at its first use."""
        return _LogMonitor(self._settings, self.connect)

    def open_stream(
        self,
        start: Offset,
        captures: TableFilter,
        prepared: Iterable[TransactionPrepared] = (),
        definitions: Iterable[TableVersion] = (),
    ) -> ChangeStream:
        """Request the binlog by GTID position."""
        offset = mariadb_offset(start)

        def open_log(begin: tuple[str, int]) -> MariaDbStream:
            file, pos = begin
            # A request has 32 bits for a position.
            return self._second_stream(offset, first_file=file, first_pos=FIRST_EVENT if pos >> 32 else pos)

        def read(tables: Collection[TableId] | None) -> tuple[Found, tuple[str, int]]:
            with closing(self.connect()) as session:
                require_server(session, offset.server_uuid)
                return catalog.read_types_with_end(session, tables, captures)

        def proven(stored: Iterable[TableVersion] | None) -> ProvenDefinitions:
            return ProvenDefinitions(read, LogAhead(open_log), stored, MISSING_TYPES)

        stream = MariaDbStream(
            self._settings,
            start=offset,
            server_id=self._server_id,
            captures=captures,
            tables=LoggedTables(self.connect, offset.server_uuid),
            proven=proven(map(logged_as_binary, definitions)),
        )
        stream.open()
        history = MariaDbHistory(
            self._settings,
            start=offset,
            server_id=self._server_id,
            captures=captures,
            tables=lambda: LoggedTables(self.connect, offset.server_uuid),
            proven=lambda: proven(None),
            max_search_bytes=self._max_xa_search_bytes,
        )
        return XaStream(stream, history, prepared)

    def _second_stream(
        self, start: MariaDbOffset, *, first_file: str = "", first_pos: int = FIRST_EVENT
    ) -> MariaDbStream:
        """Return a stream without rows, which may be open while that of ``open_stream`` is."""
        return MariaDbStream(
            self._settings,
            start=start,
            server_id=self._server_id ^ (1 << 30),
            captures=lambda _: False,
            tables=LoggedTables(self.connect, start.server_uuid),
            first_file=first_file,
            first_pos=first_pos,
        )

    # -- tables ------------------------------------------------------------------------------------------------------

    def list_tables(self, captures: TableFilter) -> list[TableId]:
        """Read information_schema.TABLES."""
        with closing(self.connect()) as session:
            return catalog.list_tables(session, captures)

    # -- offsets -----------------------------------------------------------------------------------------------------

    def read_offset(self, body: Mapping[str, Any]) -> MariaDbOffset:
        """Read binlog coordinates and GTID position."""
        return MariaDbOffset.from_json(body)

    def named_offset(self, text: str) -> MariaDbOffset:
        """Read ``latest``, ``file:position`` or a GTID position."""
        with closing(self.connect()) as session:
            return named_offset(session, text)

    def start_offset(self, *, epoch: int = 1) -> MariaDbOffset:
        """Return the GTID position of the binlog, at the start of the current file; see ``MySqlSource``."""
        end = self.end_offset(epoch=epoch)
        log.info("the stream starts at the end of the binlog", file=end.file, pos=end.pos, gtids=str(end.gtids))
        return end._replace(pos=resume.FILE_START)

    def _earlier_offset(self, session: Connection[Any], text: str) -> MariaDbOffset:
        found = resume.earlier_offset(session, _history(session), named_offset, text)
        with self._second_stream(found) as stream:
            stream.poll(_ANSWER_S)  # only the stream is refused for a number that another server has used
        return found

    def resume_offset(
        self,
        stored: Offset,
        *,
        started: Sequence[str],
        required: Sequence[Offset],
        last: TransactionCommit | None = None,
    ) -> MariaDbOffset:
        """Compare the GTIDs with the first and the last of the binlog, and the coordinates with the binlog files."""
        with closing(self.connect()) as session:
            offset = resume.resume_offset(
                session,
                _history(session),
                mariadb_offset(stored),
                started=started,
                required=[mariadb_offset(offset) for offset in required],
            )
            if last is not None and offset == stored:
                _require_end(session, last)
        return offset

    def end_offset(self, *, epoch: int) -> MariaDbOffset:
        """Return file, position and GTID position."""
        with closing(self.connect()) as session:
            return current_offset(session, epoch=epoch)


class _LogMonitor(MySqlLogMonitor):
    """Measures by GTID positions; the connection is that of the server which has just been asked."""

    def _server(self, session: Connection[Any]) -> str:
        return server_identity(session)

    def _settings_of(self, server: str) -> SourceSettings:  # noqa: ARG002 - MariaDB has no UUID to compare
        return self._settings

    def _transactions_behind(self, session: Connection[Any], stored: MySqlOffset) -> int:
        missing = current_offset(session).gtids.minus(stored.gtids)
        return sum(
            last.sequence - GtidPosition.of(stored.gtids).sequence(last.domain) for last in GtidPosition.of(missing)
        )

    def _is_purged(self, session: Connection[Any], stored: MySqlOffset, files: Sequence[str]) -> bool:  # noqa: ARG002
        return not stored.gtids.contains(first_gtids(session))


def _history(session: Connection[Any]) -> resume.ServerHistory:
    state = str(query(session, "SELECT @@global.gtid_binlog_state")[0][0] or "")
    return resume.ServerHistory(server_identity(session), first_gtids(session), GtidState(state), _GTID)


def _require_end(session: Connection[Any], last: TransactionCommit) -> None:
    """Raise BinlogError if the binlog up to the end of the last transaction that was read does not end with its GTID.

    A server that was restored from an older copy gives the GTIDs after it again, to other transactions. One of the same
    place is not told from it, and neither is one that ends where the server cannot be asked.
    """
    if last.end > _MOST_POSITION or last.file not in {str(row[0]) for row in query(session, "SHOW BINARY LOGS")}:
        return
    there = query(session, "SELECT BINLOG_GTID_POS(%s, %s)", (last.file, last.end))[0][0]
    if there is None or last.gtid not in {str(gtid) for gtid in GtidPosition.parse(str(there))}:
        resume.require_same_transaction(last, TransactionCommit(str(there), last.file, last.end, last.ts))
