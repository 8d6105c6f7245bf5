"""MySQL as a source database. MariaDB is a subclass, see docs/contributing/add-a-database.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

import structlog
from pymysql.connections import Connection

from tailrace.producer.errors import BinlogError
from tailrace.producer.model.binlog_events import TransactionPrepared
from tailrace.producer.model.protocols import ChangeStream, Offset, TableFilter
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql import catalog, prerequisites
from tailrace.producer.mysql import connection as database
from tailrace.producer.mysql.binlog.stream import BinlogStream
from tailrace.producer.mysql.binlog.xa_history import BinlogHistory
from tailrace.producer.mysql.binlog.xa_stream import XaStream
from tailrace.producer.mysql.catalog_session import MySqlCatalogSession
from tailrace.producer.mysql.condition import condition_problem
from tailrace.producer.mysql.connection import SourceSettings, query
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.offset import MySqlOffset, mysql_offset
from tailrace.producer.mysql.snapshot_session import MySqlSnapshotSession
from tailrace.producer.mysql.watermark import current_offset

log = structlog.get_logger(__name__)

_FILE_START: Final = 4
"""Position of the first event in a binlog file."""


class MySqlSource:
    """Opens sessions and binlog streams of one server."""

    def __init__(self, settings: SourceSettings, *, server_id: int, initial_statements: Sequence[str] = ()) -> None:
        """``server_id`` identifies the binlog reader; ``initial_statements`` run in every session but the stream's."""
        self._settings = settings
        self._server_id = server_id
        self._initial_statements = tuple(initial_statements)

    # -- sessions ----------------------------------------------------------------------------------------------------

    def connect(self) -> Connection[Any]:
        """Open a session and run the initial statements."""
        connection = database.connect(self._settings)
        try:
            for statement in self._initial_statements:
                query(connection, statement)
        except BaseException:
            connection.close()
            raise
        return connection

    def open_snapshot_session(self) -> MySqlSnapshotSession:
        """Connect."""
        return MySqlSnapshotSession(self.connect())

    def open_catalog(self) -> MySqlCatalogSession:
        """Return a session that connects at its first use."""
        return MySqlCatalogSession(self.connect)

    def open_stream(
        self, start: Offset, captures: TableFilter, prepared: Iterable[TransactionPrepared] = ()
    ) -> ChangeStream:
        """Request the binlog by GTID set."""
        stream = BinlogStream(
            self._settings, start=mysql_offset(start).gtids, server_id=self._server_id, captures=captures
        )
        stream.open()
        history = BinlogHistory(self._settings, server_id=self._server_id, captures=captures)
        return XaStream(stream, history, prepared)

    # -- tables ------------------------------------------------------------------------------------------------------

    def check(self, tables: Sequence[TableId]) -> Sequence[str]:
        """Check server variables, grants and character sets."""
        with closing(self.connect()) as session:
            return prerequisites.check(session, tables, server_id=self._server_id)

    def list_tables(self, captures: TableFilter) -> list[TableId]:
        """Read information_schema.TABLES."""
        with closing(self.connect()) as session:
            return catalog.list_tables(session, captures)

    def condition_problem(self, condition: str) -> str:
        """See ``condition.condition_problem``."""
        return condition_problem(condition)

    # -- offsets -----------------------------------------------------------------------------------------------------

    def read_offset(self, body: Mapping[str, Any]) -> MySqlOffset:
        """Read binlog coordinates and GTID set."""
        return MySqlOffset.from_json(body)

    def start_offset(self, *, epoch: int = 1) -> MySqlOffset:
        """Return the executed GTID set, at the start of the current binlog file.

        Not at its end: transactions that are in the binlog but not executed yet are still to be read, and until they
        are, no split may count as passed. The first events of the stream set the actual coordinates.
        """
        with closing(self.connect()) as session:
            end = current_offset(session, epoch=epoch)
        log.info("the stream starts at the end of the binlog", file=end.file, pos=end.pos, gtids=str(end.gtids))
        return end._replace(pos=_FILE_START)

    def resume_offset(self, stored: Offset, *, snapshot_running: bool) -> MySqlOffset:
        """Compare the stored GTID set with the purged and the executed set of the server."""
        offset = mysql_offset(stored)
        with closing(self.connect()) as session:
            executed = GtidSet.parse(database.executed_gtids(session))
            purged = GtidSet.parse(database.purged_gtids(session))
            current = current_offset(session, epoch=offset.epoch + 1)
        if not offset.gtids.contains(purged):
            raise BinlogError(
                "the source has purged binlog files that were not read yet",
                hint="take a new snapshot under another topic.prefix, and keep binlog files longer "
                "(binlog_expire_logs_seconds)",
                read=str(offset.gtids),
                purged=str(purged),
            )
        if not executed.contains(offset.gtids):
            raise BinlogError(
                "the source has not executed transactions that were read before: it is another server, or lost data",
                hint="point database.hostname at a server of the same cluster that has all transactions, "
                "or take a new snapshot under another topic.prefix",
                read=str(offset.gtids),
                executed=str(executed),
            )
        log.info("resuming", file=offset.file, pos=offset.pos, gtids=str(offset.gtids))
        if offset.same_server(current):
            return offset
        if snapshot_running:
            raise BinlogError(
                "the source server changed during a snapshot: positions of two servers cannot be compared",
                hint="point database.hostname at the former server until the snapshot is complete, "
                "or take a new snapshot under another topic.prefix",
                was=offset.server_uuid,
                now=current.server_uuid,
            )
        log.warning(
            "the source server changed; it has the same transactions", was=offset.server_uuid, now=current.server_uuid
        )
        return current._replace(pos=_FILE_START, gtids=offset.gtids)
