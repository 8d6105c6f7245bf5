"""Where a stream without GTIDs resumes: at the stored position, or nowhere.

A position is valid on the server that it was read from, and only in the file that it was read from. Both are checked:
the UUID of the server, the file and its length, that an event begins at the position, and, by the caller, the last
transaction before it, as it was read. A server that was restored from a copy may have the same UUID and file names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import structlog
from pymysql.connections import Connection

from tailrace.producer.errors import BinlogError
from tailrace.producer.mysql import connection as database
from tailrace.producer.mysql.connection import query
from tailrace.producer.mysql.file_offset import FileOffset
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.offset import MySqlOffset
from tailrace.producer.mysql.resume import (
    FILE_START,
    GTID_EVENTS,
    PURGED_HINT,
    RESUME_REMEDY,
    event_at,
    nameless_file,
)

log = structlog.get_logger(__name__)


def resume_in_file(
    session: Connection[Any], stored: FileOffset, *, started: Sequence[str], required: Sequence[MySqlOffset]
) -> FileOffset:
    """Return the stored offset, or the start of the next file if it is the end of its file.

    The server must have a transaction there if one is partly written, and the positions of ``required``. Raises
    BinlogError if it is another server, or the binlog that follows ``stored`` is purged or lost.
    """
    _require_server(session, stored)
    files = [(str(row[0]), int(row[1])) for row in query(session, "SHOW BINARY LOGS")]
    names = [name for name, _ in files]
    if stored.file not in names:
        raise BinlogError(
            "the source no longer has the binlog file in which the producer stopped",
            hint=PURGED_HINT,
            file=stored.file,
            oldest=names[0],
        )
    size = dict(files)[stored.file]
    end = FileOffset.at(stored.epoch, *files[-1], stored.server_uuid)
    ahead = [mark for mark in required if end.coordinates < mark.coordinates]
    if stored.pos > size or ahead or (started and stored.pos == size):
        raise BinlogError(
            "the binlog of the source ends before what was read from it: it lost its end, or was numbered from the "
            "start",
            hint=f"{RESUME_REMEDY}; set sync_binlog=1 and innodb_flush_log_at_trx_commit=1",
            file=stored.file,
            pos=max([stored.pos, *(mark.pos for mark in ahead if mark.file == stored.file)]),
            size=size,
        )
    event = ("", "") if stored.pos == size else event_at(session, stored)
    if event is None:
        raise BinlogError(
            "no event begins at the stored position: the binlog file of the source is another one of that name",
            hint=RESUME_REMEDY,
            file=stored.file,
            pos=stored.pos,
        )
    log.info("resuming", file=stored.file, pos=stored.pos, barrier="innodb_trx")
    following = names[names.index(stored.file) + 1 :]
    if following and (event[0] == "Rotate" or stored.pos == size):
        # A request has 32 bits for a position, and the end of a file may be above 4 GB.
        return FileOffset.at(stored.epoch, following[0], FILE_START, stored.server_uuid)
    return stored


def begin_in_file(session: Connection[Any], position: FileOffset) -> FileOffset:
    """Return where a stream starts at a position of a person. Raises BinlogError if no transaction begins there."""
    if position.pos < FILE_START:
        raise BinlogError(f"a binlog file begins at position {FILE_START}", file=position.file, pos=position.pos)
    found = resume_in_file(session, position, started=(), required=())
    event = event_at(session, found)
    if event is not None and event[0] not in _BEGINS:
        raise BinlogError("no transaction begins at the position", file=found.file, pos=found.pos, event=event[0])
    return found


def require_gtids(session: Connection[Any], gtids: GtidSet, purged: GtidSet) -> None:
    """Raise BinlogError if transactions without GTIDs follow what a stream by GTIDs leaves out."""
    if not purged.contains(gtids):
        return  # it names one that the binlog has, which those without GTIDs precede
    if nameless := nameless_file(session, gtids):
        raise BinlogError(
            "transactions without GTIDs follow, which a stream by GTIDs does not have: name a GTID set that has the "
            "first GTIDs of the source",
            file=nameless,
        )


_BEGINS: Final = frozenset({*GTID_EVENTS, "Anonymous_Gtid", "Format_desc", "Previous_gtids", "Rotate", "Stop"})


def _require_server(session: Connection[Any], stored: FileOffset) -> None:
    server = database.server_uuid(session)
    if server != stored.server_uuid:
        raise BinlogError(
            "the source is another server than the one that was read, and without GTIDs a position in the binlog means "
            "nothing there",
            hint=f"point database.hostname at the former server, or {RESUME_REMEDY}; gtid_mode=ON on all servers of a "
            "cluster makes a failover possible",
            expected=stored.server_uuid,
            found=server,
        )
    if database.has_gtids(session):
        raise BinlogError(
            "gtid_mode of the source is ON, and the stored offset is a position without GTIDs",
            hint=f"set gtid_mode = ON_PERMISSIVE, or {RESUME_REMEDY}: from then on the offset has GTIDs",
        )
