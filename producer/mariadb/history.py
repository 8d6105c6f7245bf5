"""Reads prepared XA transactions again from the binlog files of MariaDB.

A GTID position is the end of what was read, so a single transaction cannot be requested: the files are searched for it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Any

from pymysql.connections import Connection

from tailrace.producer.mariadb.binlog import MariaDbStream
from tailrace.producer.mariadb.catalog import LoggedTables
from tailrace.producer.mariadb.offset import MariaDbOffset, first_gtids
from tailrace.producer.model.binlog_events import (
    ChangeRefused,
    Event,
    PreparedTransactionEnded,
    RowsEvent,
    TransactionBegin,
    TransactionCommit,
)
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.binlog.proven_definitions import ProvenDefinitions
from tailrace.producer.mysql.binlog.xa_history import WAIT_S, BinlogHistory
from tailrace.producer.mysql.binlog.xa_stream import TransactionNotFoundError, TransactionPurgedError, at_commit
from tailrace.producer.mysql.connection import SourceSettings, connect, query
from tailrace.schemas.sequence import file_number


class MariaDbHistory(BinlogHistory):
    """Reads binlog files again; used by the stream's thread."""

    def __init__(
        self,
        settings: SourceSettings,
        *,
        start: MariaDbOffset,
        server_id: int,
        captures: Callable[[TableId], bool],
        tables: Callable[[], LoggedTables],
        proven: Callable[[], ProvenDefinitions],
        max_search_bytes: int,
    ) -> None:
        """``start`` is where the stream starts; ``tables`` opens what says more of tables than the binlog."""
        super().__init__(
            settings, server_id=server_id, captures=captures, max_search_bytes=max_search_bytes, proven=proven
        )
        self._start = start
        self._tables = tables

    def read(self, gtid: str, ended: PreparedTransactionEnded | None, file: str = "") -> Iterator[list[Event]]:
        """Yield the changes of a prepared transaction, at the position of its XA COMMIT ``ended``.

        One phase is logged as a usual transaction, so there always is one. Where another server has it is searched for.
        """
        assert ended is not None, "a transaction of one phase is read again"
        with closing(connect(self._settings)) as session:
            sizes = {str(row[0]): int(row[1]) for row in query(session, "SHOW BINARY LOGS")}
        files = [each for each in reversed(sizes) if file_number(each) <= file_number(ended.file)]
        if file in files and (yield from self._read_from(file, gtid, ended)):
            return
        searched = 0
        for each in files:
            if searched and searched >= self._max_search_bytes:
                raise TransactionNotFoundError(f"the last {searched} bytes of the binlog do not have {gtid}")
            if (yield from self._read_from(each, gtid, ended)):
                return
            searched += sizes[each]
        raise TransactionPurgedError(f"the server no longer has the transaction {gtid}")

    def _read_from(self, file: str, gtid: str, ended: PreparedTransactionEnded) -> Generator[list[Event], None, bool]:
        """Yield the changes of a transaction if the file has it; return whether it has."""
        current = ""
        with self._stream(file, self._captures, gtid) as stream:
            while True:
                rows: list[Event] = []
                for event in stream.poll(WAIT_S):
                    if event.file != file or (file == ended.file and event.end >= ended.end):
                        return False
                    if isinstance(event, TransactionBegin):
                        current = event.gtid
                    elif isinstance(event, RowsEvent) and current == gtid:
                        rows.append(at_commit(event._replace(table=event.table.of_earlier_rows()), ended))
                    elif isinstance(event, ChangeRefused) and current == gtid:
                        rows.append(event)
                    elif isinstance(event, TransactionCommit) and event.gtid == gtid:
                        yield rows
                        return True
                yield rows

    def _has_all(self, session: Connection[Any]) -> bool:
        return not first_gtids(session)

    def _open_file(self, file: str) -> MariaDbStream:
        return self._stream(file, lambda _: False)

    def _stream(self, file: str, captures: Callable[[TableId], bool], gtid: str = "") -> MariaDbStream:
        return MariaDbStream(
            self._settings,
            start=self._start,
            server_id=self._server_id ^ (1 << 31),
            captures=captures,
            tables=self._tables(),
            proven=self._proven() if gtid and self._proven is not None else None,
            only=gtid,
            first_file=file,
        )
