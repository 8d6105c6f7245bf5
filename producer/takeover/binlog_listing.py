"""The binlog as SHOW BINLOG EVENTS lists it, including the events inside compressed transactions.

A connector's event count counts these events. All inner events of a compressed transaction have the same position.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from pymysql.connections import Connection
from pymysql.constants import ER

from tailrace.producer.errors import SourceError, TakeoverError
from tailrace.producer.mysql.binlog.query_event import leading_words
from tailrace.producer.mysql.connection import query
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.resume import GTID_EVENTS

FILE_START: Final = 4
"""Offset of the first event of a binlog file."""
_PAGE: Final = 5000
_STARTS: Final = GTID_EVENTS | {"Anonymous_Gtid"}
_ROWS: Final = re.compile(r"(?:Write|Update|Delete)_rows(?:_v1)?")
_GTID: Final = re.compile(r"'([0-9a-fA-F-]{36}(?::\w+)?:\d+)'")
_USE: Final = re.compile(r"use `(?:[^`]|``)*`; ")


class ListedEvent(NamedTuple):
    """One event: the position of its first byte, its type and description as the server prints them."""

    pos: int
    event_type: str
    info: str


class ConsumedEvents(NamedTuple):
    """How much of a transaction a connector had done, as the binlog reader counts it."""

    number: int
    """Rows events, of all tables."""
    rows: int
    """Rows of the next one."""


def binlog_files(session: Connection[Any]) -> list[str]:
    """Return the binlog files of the server, oldest first."""
    return [str(row[0]) for row in query(session, "SHOW BINARY LOGS")]


def read_events(session: Connection[Any], file: str, start: int = FILE_START) -> Iterator[ListedEvent]:
    """Yield the events of a file from ``start`` on: the position of a GTID event, or the start of the file.

    Raises SourceError if no event begins there.
    """
    limit = _PAGE
    while True:
        page = _page(session, file, start, limit)
        if len(page) < limit:
            yield from page
            return
        # A page ends with a whole transaction: no page can begin within a compressed one.
        cut = max((i for i, event in enumerate(page) if event.event_type in _STARTS), default=0)
        if cut == 0:
            limit *= 2
            continue
        yield from page[:cut]
        start, limit = page[cut].pos, _PAGE


def read_transaction(session: Connection[Any], file: str, start: int, count: int) -> tuple[int, list[ListedEvent]]:
    """Return the first ``count`` events, from BEGIN on, of the transaction whose GTID event is at ``start``.

    The first item is the position that a connector would store: of BEGIN, or of the payload event of a compressed
    transaction.
    """
    events = _page(session, file, start, count + 2)
    if len(events) < 2:
        raise TakeoverError(
            "the transaction at the connector's position is not in the binlog",
            hint="check that database.hostname is the server that the connector read",
            file=file,
            pos=start,
        )
    begin = events[1]
    return begin.pos, events[2:] if begin.event_type == "Transaction_payload" else events[1 : count + 1]


def _page(session: Connection[Any], file: str, start: int, limit: int) -> list[ListedEvent]:
    # The server prints statements in the bytes that their clients sent, whatever the character set of this session: the
    # driver must not decode them. What is read from them, keywords and GTIDs, is ASCII.
    decodes, session.use_unicode = session.use_unicode, False
    try:
        rows = query(session, "SHOW BINLOG EVENTS IN %s FROM %s LIMIT %s", (file, start, limit))
    except SourceError as error:
        if error.context.get("code") != ER.ERROR_WHEN_EXECUTING_COMMAND:
            raise
        raise TakeoverError(
            "the server cannot read its binlog at the connector's position",
            hint="check that database.hostname is the server that the connector read",
            file=file,
            pos=start,
            answer=error.context.get("answer"),
        ) from error
    finally:
        session.use_unicode = decodes
    return [ListedEvent(int(row[1]), _text(row[2]), _text(row[5])) for row in rows]


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def gtid_of(event: ListedEvent) -> str:
    found = _GTID.search(event.info)
    if found is None:
        raise TakeoverError("the server describes a GTID event in an unknown form", seen=event.info)
    return found[1].lower()


def translate_event_count(events: Sequence[ListedEvent], done: int, rows: int) -> ConsumedEvents:
    """Count what the binlog reader counts among the first ``done`` events of a transaction, its BEGIN included.

    ``events`` must hold one more event, of which ``rows`` rows are done. Raises TakeoverError if the counts contradict
    the events.
    """
    counted = 0
    if len(events) <= done or events[0].info != "BEGIN":
        raise _contradiction(events, done)
    for event in events[:done]:
        if event.event_type == "Xid" or (event.event_type == "Query" and event.info in {"COMMIT", "ROLLBACK"}):
            raise _contradiction(events, done)
        counted += _is_counted(event)
    if rows and _ROWS.fullmatch(events[done].event_type) is None:
        raise _contradiction(events, done)
    return ConsumedEvents(counted, rows)


def _is_counted(event: ListedEvent) -> bool:
    """Return whether the binlog reader counts an event."""
    if event.event_type == "Query":
        # The only counted statement within a transaction: CREATE TABLE … SELECT.
        return leading_words(_USE.sub("", event.info, count=1))[0] == "CREATE"
    return _ROWS.fullmatch(event.event_type) is not None


def _contradiction(events: Sequence[ListedEvent], done: int) -> TakeoverError:
    return TakeoverError(
        "the connector's event count does not match the transaction at its position",
        hint="check that database.hostname is the server that the connector read; "
        "or start the connector again, and stop it while nothing is written",
        event=done,
        transaction=", ".join(event.event_type for event in events[:20]),
    )


class DerivedGtids(NamedTuple):
    """What precedes a position in the binlog, for a connector that stored no GTIDs."""

    gtids: GtidSet
    gtid: str
    """The transaction whose BEGIN is at the position, '' for a position between transactions."""
    gtid_pos: int
    """Position of its GTID event."""


def gtids_before_position(session: Connection[Any], file: str, pos: int) -> DerivedGtids:
    """Return the GTIDs of all transactions before a position.

    Raises TakeoverError if that is unknown: the file is gone, no event begins at the position, it is within a
    transaction, or transactions without a GTID follow it.
    """
    known = binlog_files(session)
    if file not in known:
        raise TakeoverError(
            "the source no longer has the binlog file in which the connector stopped",
            hint="start `tailrace produce` under another topic.prefix: only a snapshot can close the gap",
            file=file,
            oldest=known[0] if known else "",
        )
    found = gtids_before(read_events(session, file), pos, end=_end(session, file))
    if found is None:
        raise TakeoverError(
            "the connector's position is not between transactions, or the binlog belongs to another server",
            hint="check that database.hostname is the server that the connector read; "
            "or start the connector again, and stop it while nothing is written",
            file=file,
            pos=pos,
        )
    _require_gtids(session, known[known.index(file) :], found.gtid_pos or pos)
    return found


def gtids_before(events: Iterable[ListedEvent], pos: int, *, end: int) -> DerivedGtids | None:
    """Return what precedes ``pos`` in a file of ``end`` bytes; None if nothing can start there."""
    executed = GtidSet({})
    open_gtid, open_pos = "", 0
    for event in events:
        if event.pos >= pos:
            if event.pos > pos:
                return None
            if event.event_type in {"Query", "Transaction_payload"} and open_gtid:
                if event.event_type == "Query" and event.info != "BEGIN":
                    return None
                return DerivedGtids(executed, open_gtid, open_pos)
            if event.event_type not in _STARTS | {"Rotate", "Stop"}:
                return None
            break
        if event.event_type == "Previous_gtids":
            executed = executed.union(GtidSet.parse(event.info))
        elif event.event_type in _STARTS:
            executed = executed.with_gtid(open_gtid) if open_gtid else executed
            open_gtid, open_pos = (gtid_of(event), event.pos) if event.event_type in GTID_EVENTS else ("", 0)
    else:
        if pos != end:
            return None
    return DerivedGtids(executed.with_gtid(open_gtid) if open_gtid else executed, "", 0)


def _end(session: Connection[Any], file: str) -> int:
    return next(int(row[1]) for row in query(session, "SHOW BINARY LOGS") if str(row[0]) == file)


def _require_gtids(session: Connection[Any], later: Sequence[str], pos: int) -> None:
    """Raise for a transaction without a GTID between the position and the first transaction with one.

    The server starts a GTID reader at the file where the GTIDs that are not executed begin, and would skip such a
    transaction silently. A later one is rejected by the server itself.
    """
    for file in later:
        first = file == later[0]
        if first and pos == _end(session, file):
            continue
        for event in read_events(session, file, pos if first else FILE_START):
            if event.event_type in GTID_EVENTS:
                return
            if event.event_type == "Anonymous_Gtid":
                raise TakeoverError(
                    "transactions without a GTID follow the connector's position",
                    hint="start the connector again, let it read until gtid_mode was ON, and stop it then",
                    file=file,
                    pos=event.pos,
                )
