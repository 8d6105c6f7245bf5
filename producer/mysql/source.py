"""MySQL as a source database. MariaDB is a subclass, see docs/contributing/add-a-database.md."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import structlog
from pymysql.connections import Connection

from tailrace.producer.errors import BinlogError, SourceBehindError
from tailrace.producer.model.binlog_events import TableVersion, TransactionCommit, TransactionPrepared
from tailrace.producer.model.protocols import ChangeStream, Offset, TableFilter
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql import catalog, prerequisites, resume
from tailrace.producer.mysql import connection as database
from tailrace.producer.mysql.authentication import transport_warning
from tailrace.producer.mysql.binlog.log_ahead import LogAhead
from tailrace.producer.mysql.binlog.proven_definitions import Found, Missing, ProvenDefinitions
from tailrace.producer.mysql.binlog.stream import BinlogFileStream, BinlogStream
from tailrace.producer.mysql.binlog.xa_history import BinlogHistory, SecondFileStream
from tailrace.producer.mysql.binlog.xa_stream import XaStream
from tailrace.producer.mysql.catalog_session import MySqlCatalogSession
from tailrace.producer.mysql.condition import condition_problem
from tailrace.producer.mysql.connection import SourceSettings
from tailrace.producer.mysql.file_offset import FileOffset
from tailrace.producer.mysql.file_resume import begin_in_file, require_gtids, resume_in_file
from tailrace.producer.mysql.log_monitor import MySqlLogMonitor
from tailrace.producer.mysql.offset import MySqlOffset, mysql_offset
from tailrace.producer.mysql.snapshot_session import VISIBLE_S, MySqlSnapshotSession
from tailrace.producer.mysql.watermark import current_offset, named_offset
from tailrace.runtime.errors import ConfigError
from tailrace.schemas.watermark import read_position

log = structlog.get_logger(__name__)


class MySqlSource:
    """Opens sessions and binlog streams of one server."""

    _checks = prerequisites.MYSQL

    def __init__(
        self,
        settings: SourceSettings,
        *,
        server_id: int,
        initial_statements: Sequence[str] = (),
        max_xa_search_bytes: int = 0,
    ) -> None:
        """``server_id`` identifies the binlog reader; ``initial_statements`` run in every session but the stream's.

        ``max_xa_search_bytes``: see ``BinlogHistory``.
        """
        self._settings = settings
        self._max_xa_search_bytes = max_xa_search_bytes
        self._server_id = server_id
        self._initial_statements = tuple(initial_statements)

    # -- sessions ----------------------------------------------------------------------------------------------------

    def connect(self, settings: SourceSettings | None = None) -> Connection[Any]:
        """Open a session and prepare it; ``settings`` may name the server."""
        connection = database.connect(settings or self._settings)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: Connection[Any]) -> None:
        """Run the initial statements."""
        for statement in self._initial_statements:
            database.execute(connection, statement)
        if self._initial_statements:
            database.set_session(connection)

    def open_snapshot_session(self) -> MySqlSnapshotSession:
        """Connect."""
        return MySqlSnapshotSession(self.connect())

    def open_catalog(self) -> MySqlCatalogSession:
        """Return a session that connects at its first use."""
        return MySqlCatalogSession(self.connect)

    def open_log_monitor(self) -> MySqlLogMonitor:
        """Return a session that connects at its first use."""
        return MySqlLogMonitor(self._settings, self.connect)

    def open_stream(
        self,
        start: Offset,
        captures: TableFilter,
        prepared: Iterable[TransactionPrepared] = (),
        definitions: Iterable[TableVersion] = (),
    ) -> ChangeStream:
        """Request the binlog by GTID set, or by file and position."""
        offset = mysql_offset(start)
        settings = replace(self._settings, server_uuid=offset.server_uuid)
        proven = self.proven_definitions(settings, captures, definitions)
        stream: BinlogStream
        if isinstance(offset, FileOffset):
            stream = BinlogFileStream(
                settings, (offset.file, offset.pos), server_id=self._server_id, captures=captures, proven=proven
            )
        else:
            stream = BinlogStream(
                settings, start=offset.gtids, server_id=self._server_id, captures=captures, proven=proven
            )
        stream.open()
        history = BinlogHistory(
            settings,
            server_id=self._server_id,
            captures=captures,
            max_search_bytes=self._max_xa_search_bytes,
            by_position=isinstance(offset, FileOffset),
            proven=lambda: self.proven_definitions(settings, captures, None),
        )
        return XaStream(stream, history, prepared)

    def proven_definitions(
        self, settings: SourceSettings, captures: TableFilter, stored: Iterable[TableVersion] | None
    ) -> ProvenDefinitions:
        """Return what proves definitions on the server of ``settings``; ``stored``: see ``ProvenDefinitions``."""

        def open_log(begin: tuple[str, int]) -> SecondFileStream:
            return SecondFileStream(settings, begin, server_id=self._server_id, captures=lambda _: False)

        def read(tables: Collection[TableId] | None) -> tuple[Found, tuple[str, int]]:
            with closing(self.connect(settings)) as session:
                return catalog.read_with_end(session, tables, captures)

        return ProvenDefinitions(read, LogAhead(open_log), stored, Missing("the columns' names", catalog.FULL_METADATA))

    # -- tables ------------------------------------------------------------------------------------------------------

    def check(self, tables: Sequence[TableId]) -> Sequence[str]:
        """Check server variables, grants, character sets, and the protection of the connection."""
        with closing(self.connect()) as session:
            notes = prerequisites.check(session, tables, server_id=self._server_id, checks=self._checks)
            warning = transport_warning(session, self._settings.tls.mode)
        return notes if warning is None else (warning, *notes)

    def list_tables(self, captures: TableFilter) -> list[TableId]:
        """Read information_schema.TABLES."""
        with closing(self.connect()) as session:
            return catalog.list_tables(session, captures)

    def stored_name(self, table: TableId) -> TableId:
        """Return the name in lower case if the server stores it so."""
        stored = TableId(table.database.lower(), table.table.lower())
        if stored == table:
            return table
        with closing(self.connect()) as session:
            return stored if database.stores_lower_case_names(session) else table

    def condition_problem(self, condition: str) -> str:
        """See ``condition.condition_problem``."""
        return condition_problem(condition)

    # -- offsets -----------------------------------------------------------------------------------------------------

    def read_offset(self, body: Mapping[str, Any]) -> MySqlOffset:
        """Read binlog coordinates, and the GTID set if there is one."""
        kind = FileOffset if read_position(body).gtids is None else MySqlOffset
        return kind.from_json(body)

    def named_offset(self, text: str) -> MySqlOffset:
        """Read ``latest``, ``file:position`` or a GTID set."""
        with closing(self.connect()) as session:
            return named_offset(session, text)

    def start_offset(self, *, epoch: int = 1) -> MySqlOffset:
        """Return the executed GTID set, at the start of the current binlog file.

        Not at its end: transactions that are in the binlog but not executed yet are still to be read, and until they
        are, no split may count as passed. The first events of the stream set the actual coordinates.
        Without GTIDs, return the end: what precedes it is waited for before each split is read, and here, since the
        tables are listed next and one whose CREATE precedes the end must be among them.
        """
        with closing(self.connect()) as session:
            end = current_offset(session, epoch=epoch)
            if isinstance(end, FileOffset):
                end.wait_until_executed(session, VISIBLE_S)
        log.info("the stream starts at the end of the binlog", **_facts(end))
        return end if isinstance(end, FileOffset) else end._replace(pos=resume.FILE_START)

    def earlier_offset(self, text: str, *, epoch: int) -> MySqlOffset:
        """Resolve ``earliest``, a GTID set, or without GTIDs a file and position at which a transaction begins."""
        with closing(self.connect()) as session:
            try:
                found = self._earlier_offset(session, text)
            except (BinlogError, SourceBehindError) as error:
                facts = ", ".join(f"{name} {value}" for name, value in error.context.items())
                raise ConfigError([f"{text[:100]!r}: {error.message} ({facts})"]) from error
        found = found._replace(epoch=epoch)
        log.info("the stream starts at an older place of the binlog", start_at=text, **_facts(found))
        return found

    def _earlier_offset(self, session: Connection[Any], text: str) -> MySqlOffset:
        end = current_offset(session)
        if not isinstance(end, FileOffset):
            history = resume.read_history(session)
            found = resume.earlier_offset(session, history, named_offset, text)
            require_gtids(session, found.gtids, history.purged)
            return found
        if text == resume.EARLIEST:
            oldest = str(database.query(session, "SHOW BINARY LOGS")[0][0])
            return end.at(end.epoch, oldest, resume.FILE_START, end.server_uuid)
        named = named_offset(session, text)
        return begin_in_file(session, end.at(end.epoch, named.file, named.pos, end.server_uuid))

    def resume_offset(
        self,
        stored: Offset,
        *,
        started: Sequence[str],
        required: Sequence[Offset],
        last: TransactionCommit | None = None,
    ) -> MySqlOffset:
        """Compare the GTIDs with the purged and the executed set, and the coordinates with the binlog files."""
        marks = [mysql_offset(offset) for offset in required]
        with closing(self.connect()) as session:
            at = mysql_offset(stored)
            if isinstance(at, FileOffset):
                offset: MySqlOffset = resume_in_file(session, at, started=started, required=marks)
            else:
                history = resume.read_history(session)
                offset = resume.resume_offset(session, history, at, started=started, required=marks)
                if offset.epoch == at.epoch:
                    resume.require_gtids_since(session, at)
        if last is not None and offset.epoch == stored.epoch:
            settings = replace(self._settings, server_uuid=offset.server_uuid)
            binlog = BinlogHistory(settings, server_id=self._server_id, captures=lambda _: False)
            resume.require_same_transaction(last, binlog.end_of(last.gtid))
        return offset

    def end_offset(self, *, epoch: int) -> MySqlOffset:
        """Return file, position and executed GTID set."""
        with closing(self.connect()) as session:
            return current_offset(session, epoch=epoch)


def _facts(offset: MySqlOffset) -> dict[str, object]:
    """Return what the log says of an offset: also how a snapshot will tell what is visible."""
    if isinstance(offset, FileOffset):
        return {"file": offset.file, "pos": offset.pos, "barrier": "innodb_trx"}
    return {"file": offset.file, "pos": offset.pos, "gtids": str(offset.gtids), "barrier": "gtid_executed"}
