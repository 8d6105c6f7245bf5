"""Where a stream resumes: the stored offset against what the server has executed, purged and written.

Coordinates of the stored offset are valid only on the server that they belong to, and only while that server continues
the numbering of its binlog files. Otherwise the stream resumes by GTIDs, under a new epoch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import structlog
from pymysql.connections import Connection

from tailrace.producer.errors import BinlogError, SourceBehindError, SourceError
from tailrace.producer.model.binlog_events import TransactionCommit
from tailrace.producer.mysql import connection as database
from tailrace.producer.mysql.binlog.event_types import NEW_SNAPSHOT
from tailrace.producer.mysql.connection import query
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.offset import AnyOffset, MySqlOffset
from tailrace.schemas.sequence import file_number

log = structlog.get_logger(__name__)

GTID_EVENTS: Final = frozenset({"Gtid", "Gtid_tagged_log_event"})
"""Types of the event that begins a transaction, as SHOW BINLOG EVENTS calls them; since MySQL 8.3 with a tag."""
FILE_START: Final = 4
"""Position of the first event in a binlog file."""
RESUME_REMEDY: Final = f"{NEW_SNAPSHOT}, or with snapshot.mode=when_needed"
"""The way on where a start cannot resume."""
PURGED_HINT: Final = (
    f"{RESUME_REMEDY}; keep binlog files longer (binlog_expire_logs_seconds, expire_logs_days of MySQL 5.7)"
)


class ServerHistory(NamedTuple):
    """What a server says of its transactions and its binlog."""

    server_uuid: str
    purged: Any
    """The GTIDs that its binlog no longer has, as ``gtids`` of an offset."""
    executed: Any
    """Whether it ``has`` a GTID, and ``contains`` those of an offset."""
    gtid: re.Pattern[str]
    """The GTID in SHOW BINLOG EVENTS, as its group."""


_GTID: Final = re.compile(r"'([^']+)'")


def read_history(session: Connection[Any]) -> ServerHistory:
    """Ask a MySQL server. Raises BinlogError if it gives no GTIDs now."""
    if not database.has_gtids(session):
        raise BinlogError(
            "gtid_mode of the source is not ON, and the stored offset is a set of GTIDs",
            hint=f"set gtid_mode = ON if nothing was written without GTIDs; else {RESUME_REMEDY}",
        )
    purged = GtidSet.parse(database.purged_gtids(session))
    executed = GtidSet.parse(database.executed_gtids(session))
    return ServerHistory(database.server_uuid(session), purged, executed, _GTID)


def resume_offset(
    session: Connection[Any],
    history: ServerHistory,
    stored: AnyOffset,
    *,
    started: Sequence[str] = (),
    required: Sequence[MySqlOffset] = (),
) -> AnyOffset:
    """Return the stored offset, or one of a new epoch if its coordinates are not valid here.

    The server must have the transactions of ``stored``, those of ``required``, and those in ``started``, which are
    partly written. Raises SourceBehindError if it has not executed them yet, BinlogError if the binlog that follows
    ``stored`` is purged or lost.
    """
    _require_binlog(history, stored)
    _require_transactions(history.executed, stored, started, required)
    server = history.server_uuid
    files = [(str(row[0]), int(row[1])) for row in query(session, "SHOW BINARY LOGS")]
    if server != stored.server_uuid:
        log.warning("the source server changed; it has the same transactions", was=stored.server_uuid, now=server)
    elif _numbering_continues(session, history, stored, files):
        log.info("resuming", file=stored.file, pos=stored.pos, gtids=str(stored.gtids))
        return stored
    else:
        log.warning(
            "the source numbers its binlog files from the start; it has the same transactions",
            was=f"{stored.file}:{stored.pos}",
            now=files[-1][0],
        )
    # Nothing that is still to be read precedes the oldest file; the first events set the actual coordinates.
    return stored._replace(epoch=stored.epoch + 1, file=files[0][0], pos=FILE_START, server_uuid=server)


def require_same_transaction(read: TransactionCommit, found: TransactionCommit | None) -> None:
    """Raise BinlogError if the server has given the GTID of the last transaction to another one.

    A server that was restored from an older copy gives the GTIDs after it again. When it has caught up in numbers, only
    the time of a transaction, and where it ends, tell the histories apart. None: its binlog file is purged.
    """
    if found is not None and found != read:
        raise BinlogError(
            "the source has given the GTID of a transaction that was read before to another transaction: it was "
            "restored from an older copy",
            hint=f"{RESUME_REMEDY}: changes that were read before are not on the server any more",
            gtid=read.gtid,
            read=f"{read.file}:{read.end}, {read.ts}",
            found=f"{found.file}:{found.end}, {found.ts}",
        )


def _require_binlog(history: ServerHistory, stored: MySqlOffset) -> None:
    if not stored.gtids.contains(history.purged):
        raise BinlogError(
            "the source has purged binlog files that were not read yet",
            hint=PURGED_HINT,
            read=str(stored.gtids),
            purged=str(history.purged),
        )


def _require_transactions(
    executed: Any, stored: MySqlOffset, started: Sequence[str], required: Sequence[MySqlOffset]
) -> None:
    wanted = stored.gtids
    for offset in required:
        if not wanted.contains(offset.gtids):
            wanted = wanted.union(offset.gtids)
    half_written = [gtid for gtid in started if not executed.has(gtid)]
    if not half_written and executed.contains(wanted):
        return
    facts: dict[str, object] = {"missing": str(wanted.minus(executed)), "executed": str(executed)}
    if half_written:
        facts = {"partly_written": ", ".join(half_written), **facts}
    message = (
        "a transaction that is partly written to Kafka does not exist on the source"
        if half_written
        else "the source has not executed transactions that were read before: it is another server, or lost data"
    )
    hint = f"point database.hostname at a server of the same cluster that has all transactions, or {RESUME_REMEDY}"
    if executed.shares_server(wanted) or not wanted:
        raise SourceBehindError(message, hint=hint, **facts)
    raise BinlogError(message, hint=hint, **facts)


def _numbering_continues(
    session: Connection[Any], history: ServerHistory, stored: MySqlOffset, files: Sequence[tuple[str, int]]
) -> bool:
    """Return whether the coordinates of ``stored`` are still valid. Raises BinlogError if the binlog lost its end."""
    newest = files[-1][0]
    if stored.file.rpartition(".")[0] != newest.rpartition(".")[0]:
        return False
    number, last = file_number(stored.file), file_number(newest)
    if number > last:
        return False
    size = dict(files).get(stored.file)
    if size is None:
        return True  # purged, after all of it was read
    if stored.pos > size:
        if number == last:
            return False  # a server that restarts always begins a new file: the numbering was reset
        raise BinlogError(
            "the binlog file of the source is shorter than what was read from it: it lost its end, and its GTIDs may "
            "have been given to other transactions",
            hint=f"{RESUME_REMEDY}; set sync_binlog=1 and innodb_flush_log_at_trx_commit=1",
            file=stored.file,
            pos=stored.pos,
            size=size,
        )
    return stored.pos == size or _is_next(session, history, stored)


def require_gtids_since(session: Connection[Any], stored: MySqlOffset) -> None:
    """Raise BinlogError if files after that of ``stored`` have transactions without GTIDs: a change of gtid_mode."""
    if nameless := nameless_file(session, stored.gtids, after=stored.file):
        raise BinlogError(
            "gtid_mode of the source was not ON for a while: transactions without GTIDs follow what was read, which a "
            "stream by GTIDs does not have",
            hint=RESUME_REMEDY,
            file=nameless,
        )


def nameless_file(session: Connection[Any], gtids: GtidSet, *, after: str = "") -> str:
    """Return the first file with transactions without GTIDs that a stream by GTIDs would leave out; '': none.

    The server begins with the newest file before which there are no other GTIDs. ``after``: only later files.
    """
    names = [str(row[0]) for row in query(session, "SHOW BINARY LOGS")]
    for file in names[names.index(after) + 1 :] if after in names else names:
        events = query(session, f"SHOW BINLOG EVENTS IN {session.escape(file)} LIMIT 4")
        previous = next((str(event[5]) for event in events if event[2] == "Previous_gtids"), "")
        if not gtids.contains(GtidSet.parse(previous)):
            break
        if any(event[2] == "Anonymous_Gtid" for event in events):
            return file
    return ""


EARLIEST: Final = "earliest"
"""The oldest place of the binlog, as a start."""


def earlier_offset(
    session: Connection[Any],
    history: ServerHistory,
    named_offset: Callable[[Connection[Any], str], AnyOffset],
    text: str,
) -> AnyOffset:
    """Return where a stream starts that leaves out what ``text`` names; see ``resume_offset`` for the errors."""
    named = named_offset(session, "latest" if text == EARLIEST else text)
    if text == EARLIEST:
        named = named._replace(gtids=history.purged)
    elif named.file and not named.gtids:
        raise BinlogError(
            "transactions have GTIDs here, and what precedes a file and position is not known: name a GTID set",
            file=named.file,
            pos=named.pos,
        )
    _require_binlog(history, named)
    _require_transactions(history.executed, named, (), ())
    # The first events set the actual coordinates.
    return named._replace(file=str(query(session, "SHOW BINARY LOGS")[0][0]), pos=FILE_START)


def _is_next(session: Connection[Any], history: ServerHistory, stored: MySqlOffset) -> bool:
    """Return whether an event begins at the stored position, and not a transaction that was read before."""
    event = event_at(session, stored)
    if event is None:
        return False
    if event[0] not in GTID_EVENTS:
        return True
    found = history.gtid.search(event[1])
    assert found is not None, f"a GTID event without a GTID: {event[1]}"
    return not stored.gtids.has(found[1].lower())


def event_at(session: Connection[Any], offset: MySqlOffset) -> tuple[str, str] | None:
    """Return type and description of the event that begins at an offset within its file; None: none begins there."""
    position = f"IN {session.escape(offset.file)} FROM {offset.pos}"
    try:
        events = query(session, f"SHOW BINLOG EVENTS {position} LIMIT 1")
    except SourceError as error:
        if "code" not in error.context or error.context["code"] != _NO_EVENT_THERE:
            raise
        return None
    return (str(events[0][2]), str(events[0][5])) if events else None  # the end of the file


_NO_EVENT_THERE: Final = 1220
