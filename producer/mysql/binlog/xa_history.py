"""Reads transactions again from the binlog, over dump connections of their own.

A transaction is requested by its GTID: the start set is everything that the server has executed, except that GTID. So
the server finds the file itself. One without a GTID is requested by the position in its name. ``settings`` have the
UUID of the server that the stream follows: another one has the transactions in other files, and a search there would
miss one that exists.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Any, Final, TypedDict

import structlog
from pymysql.connections import Connection

from tailrace.producer.errors import BinlogError, ServerIdInUseError, SourceUnavailableError
from tailrace.producer.model.binlog_events import (
    ChangeRefused,
    Event,
    PreparedTransactionEnded,
    QueryEvent,
    RowsEvent,
    TransactionBegin,
    TransactionCommit,
    TransactionPrepared,
    begin_of,
)
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.binlog.packets import FIRST_EVENT
from tailrace.producer.mysql.binlog.proven_definitions import ProvenDefinitions
from tailrace.producer.mysql.binlog.stream import BinlogFileStream, BinlogStream
from tailrace.producer.mysql.binlog.transaction_parser import Names
from tailrace.producer.mysql.binlog.xa_stream import (
    TransactionNotFoundError,
    TransactionPurgedError,
    at_commit,
)
from tailrace.producer.mysql.connection import (
    SourceSettings,
    connect,
    executed_gtids,
    has_gtids,
    purged_gtids,
    query,
    wait_for_gtids,
)
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.runtime.errors import SchemaError
from tailrace.schemas.sequence import file_number

log = structlog.get_logger(__name__)

WAIT_S: Final = 0.5
"""How long the stream's thread may wait here before it does its other work."""
_COMMIT_WAIT_S: Final = 60.0
_PROGRESS_S: Final = 10.0
"""How often a search in the binlog files tells how far it is."""


class BinlogHistory:
    """Reads parts of the binlog again; used by the stream's thread."""

    def __init__(
        self,
        settings: SourceSettings,
        *,
        server_id: int,
        captures: Callable[[TableId], bool],
        commit_wait_s: float = _COMMIT_WAIT_S,
        max_search_bytes: int = 0,
        by_position: bool = False,
        proven: Callable[[], ProvenDefinitions] | None = None,
    ) -> None:
        """``commit_wait_s``: how long a transaction that the binlog has may take to be committed.

        ``max_search_bytes``: how much of the binlog ``find`` searches, besides the file in which it begins.
        ``by_position``: the stream names all transactions by their positions, so ``find`` does too.
        ``proven`` makes what completes TABLE_MAP events without names.
        """
        self._proven = proven
        self._by_position = by_position
        self._settings = settings
        self._max_search_bytes = max_search_bytes
        self._commit_wait_s = commit_wait_s
        self._server_id = server_id
        self._captures = captures
        self._found: dict[str, TransactionPrepared] = {}

    def read(
        self,
        gtid: str,
        ended: PreparedTransactionEnded | None,
        file: str = "",  # noqa: ARG002 - the server finds it
    ) -> Iterator[list[Event]]:
        """Yield the changes of one transaction, at the position of its XA COMMIT if that is ``ended``."""
        begin = begin_of(gtid)
        with self._from(begin) if begin else self._behind((yield from self._when_executed(gtid)), gtid) as stream:
            current = ""
            while True:
                rows: list[Event] = []
                for event in stream.poll(WAIT_S):
                    if isinstance(event, TransactionBegin):
                        current = event.gtid
                    elif isinstance(event, RowsEvent) and current == gtid:
                        # The stream may have no definition of the table, so it does not end the one of these rows.
                        row = event._replace(table=event.table.of_earlier_rows())
                        rows.append(row if ended is None else at_commit(row, ended))
                    elif isinstance(event, ChangeRefused) and current == gtid:
                        rows.append(event)
                    elif isinstance(event, TransactionCommit) and event.gtid == gtid:
                        yield rows
                        return
                yield rows

    def _when_executed(self, gtid: str) -> Generator[list[Event], None, GtidSet]:
        """Return what the server has executed, once that includes a transaction which the stream has read.

        The stream reads a transaction before the engine commits it, or a semi-synchronous replica has responded.
        Raises TransactionPurgedError, or SourceUnavailableError if the commit does not end in time.
        """
        deadline = time.monotonic() + self._commit_wait_s
        with closing(connect(self._settings)) as session:
            while not wait_for_gtids(session, gtid, WAIT_S):
                if time.monotonic() >= deadline:
                    raise SourceUnavailableError(
                        "a large XA transaction is in the binlog, and its commit does not end on the server",
                        hint="look at XA COMMIT in SHOW PROCESSLIST: a semi-synchronous replica may not respond",
                        gtid=gtid,
                        waited_s=self._commit_wait_s,
                    )
                yield []
            executed = GtidSet.parse(executed_gtids(session))
            if GtidSet.parse(purged_gtids(session)).has(gtid):
                raise TransactionPurgedError(f"the server no longer has the transaction {gtid}")
        return executed

    def end_of(self, gtid: str) -> TransactionCommit | None:
        """Return the end of a transaction; None if no binlog file of the server has it any more."""
        begin = begin_of(gtid)
        if begin is not None:
            try:
                return self._end(self._from(begin), gtid)
            except TransactionPurgedError:
                return None
        with closing(connect(self._settings)) as session:
            executed = GtidSet.parse(executed_gtids(session))
            if not executed.has(gtid) or GtidSet.parse(purged_gtids(session)).has(gtid):
                return None
        return self._end(self._behind(executed, gtid), gtid)

    def _end(self, stream: BinlogStream, gtid: str) -> TransactionCommit | None:
        at, until = (stream.file, stream.pos), time.monotonic() + self._commit_wait_s
        by_position = stream.names is Names.POSITIONS
        with stream:
            while True:
                if (stream.file, stream.pos) != at:  # a large transaction takes long to be sent
                    at, until = (stream.file, stream.pos), time.monotonic() + self._commit_wait_s
                if by_position and time.monotonic() >= until:
                    return TransactionCommit("", stream.file, stream.pos, 0)  # the file is another one, and ends here
                for event in stream.poll(WAIT_S):
                    if isinstance(event, TransactionCommit) or (
                        isinstance(event, QueryEvent) and not event.in_transaction
                    ):
                        found = TransactionCommit(event.gtid, event.file, event.end, event.ts)
                        return found if event.gtid == gtid or by_position else None

    def _behind(self, executed: GtidSet, gtid: str) -> BinlogStream:
        start = executed.without(gtid)
        return _Second(self._settings, start=start, **self._shared())

    def _from(self, begin: tuple[str, int]) -> BinlogStream:
        with closing(connect(self._settings)) as session:
            if all(file != begin[0] for file, *_ in query(session, "SHOW BINARY LOGS")):
                raise TransactionPurgedError(f"the server no longer has the binlog file {begin[0]}")
        return SecondFileStream(self._settings, begin, **self._shared())

    def _shared(self) -> _Shared:
        proven = None if self._proven is None else self._proven()
        return {"server_id": self._server_id, "captures": self._captures, "proven": proven}

    def find(self, ended: PreparedTransactionEnded) -> Generator[list[Event], None, TransactionPrepared | None]:
        """Return the last XA PREPARE before ``ended``, which is before the first position of the capture.

        The files are searched backwards, and no change is written meanwhile, so no file is begun when as many bytes are
        searched as a search may take. None: the binlog has all transactions of the server, but not this one.
        An xid can be used again, so the first XA PREPARE that is found is the last one only if all behind it was read.
        Raises TransactionPurgedError, or its subclass TransactionNotFoundError at the limit, or at a file that cannot
        be read.
        """
        known = self._found.pop(ended.xid, None)
        if known is not None:
            return known
        with closing(connect(self._settings)) as session:
            sizes = {str(row[0]): int(row[1]) for row in query(session, "SHOW BINARY LOGS")}
            has_all = self._has_all(session)
        files = [file for file in sizes if file_number(file) <= file_number(ended.file)]
        searched, total = 0, sum(sizes[file] for file in files)
        log.info(
            "searching the binlog for the XA PREPARE of a transaction",
            xid=ended.xid,
            file=ended.file,
            files=len(files),
            bytes=total,
            limit=self._max_search_bytes,
        )
        reported = time.monotonic()
        for left, file in reversed(list(enumerate(files))):
            if searched and searched >= self._max_search_bytes:
                raise TransactionNotFoundError(
                    f"the last {len(files) - left - 1} binlog files do not have it; {left + 1} before "
                    f"{files[left + 1]} were not searched"
                )
            opened: dict[str, TransactionPrepared] = {}
            try:
                for events in self._search(file, ended, opened):
                    if time.monotonic() - reported >= _PROGRESS_S:
                        reported = time.monotonic()
                        log.warning(
                            "no change is written while the binlog is searched for the XA PREPARE of a transaction",
                            xid=ended.xid,
                            file=file,
                            files_left=left + 1,
                            bytes_searched=searched,
                            bytes=min(total, self._max_search_bytes),
                        )
                    yield events
            except ServerIdInUseError:
                raise  # it says nothing of the file
            except (BinlogError, SchemaError) as error:
                # Its rest may have the end of each XA PREPARE before it, and another one of the same xid.
                log.warning("a binlog file before the capture cannot be read to its end", file=file, error=error)
                raise TransactionNotFoundError(f"{file} cannot be read to its end, and may have it") from error
            searched += sizes[file]
            found = opened.pop(ended.xid, None)
            self._found = {**opened, **self._found}
            if found is not None:
                log.info("found the XA PREPARE of a transaction", xid=ended.xid, file=found.file, pos=found.pos)
                # Whether it has rows of captured tables turns out when it is read.
                return found._replace(captured=True)
        if has_all:
            return None
        raise TransactionPurgedError("no binlog file of the server has its XA PREPARE")

    def _has_all(self, session: Connection[Any]) -> bool:
        """Return whether the binlog has all transactions of the server; without GTIDs it does not say."""
        return has_gtids(session) and not purged_gtids(session)

    def _open_file(self, file: str) -> BinlogStream:
        """Return the events of a file from its beginning on, without rows."""
        kind = SecondFileStream if self._by_position else _SecondMixedStream
        return kind(self._settings, (file, FIRST_EVENT), server_id=self._server_id, captures=lambda _: False)

    def _search(
        self, file: str, ended: PreparedTransactionEnded, opened: dict[str, TransactionPrepared]
    ) -> Iterator[list[Event]]:
        """Add the transactions that are prepared but not ended in a file, up to the event ``ended``."""
        with self._open_file(file) as stream:
            while True:
                for event in stream.poll(WAIT_S):
                    if event.file != file or (file == ended.file and event.end >= ended.end):
                        return
                    if isinstance(event, TransactionPrepared):
                        opened[event.xid] = event._replace(captured=True)
                    elif isinstance(event, PreparedTransactionEnded):
                        opened.pop(event.xid, None)
                yield []


class _Shared(TypedDict):
    server_id: int
    captures: Callable[[TableId], bool]
    proven: ProvenDefinitions | None


class _Second(BinlogStream):
    """A second dump connection: with a UUID of its own, or the server would end the first."""

    def _connect(self) -> None:
        super()._connect()
        own = str(uuid.uuid4())
        with self._connection.cursor() as cursor:
            cursor.execute("SET @slave_uuid = %s, @replica_uuid = %s", (own, own))


class SecondFileStream(_Second, BinlogFileStream):
    """From a position on."""


class _SecondMixedStream(SecondFileStream):
    """The same, with the GTIDs that there are: they are valid on other servers too, positions are not."""

    names = Names.EITHER
