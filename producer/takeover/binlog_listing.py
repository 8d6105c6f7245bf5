"""The source's log as SHOW BINLOG EVENTS tells it: every event by kind and place, those of compressed transactions too.

That is what a connector's count of events is a count of. Inner events of a compressed transaction all have one place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from pymysql.connections import Connection
from pymysql.constants import ER

from tailrace.producer.errors import SourceError, TakeoverError
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.binlog.query_event import leading_words
from tailrace.producer.mysql.connection import query
from tailrace.producer.mysql.gtid import GtidSet

FILE_START: Final = 4
"""Offset of the first event of a binlog file."""
_PAGE: Final = 5000
_STARTS: Final = frozenset({"Gtid", "Anonymous_Gtid"})
_ROWS: Final = re.compile(r"(?:Write|Update|Delete)_rows(?:_v1)?")
_GTID: Final = re.compile(r"'([0-9a-fA-F-]{36}:\d+)'")
_TABLE: Final = re.compile(r"table_id: (\d+)(?: \((.*)\))?", re.DOTALL)
_USE: Final = re.compile(r"use `(?:[^`]|``)*`; ")


class ListedEvent(NamedTuple):
    """One event: offset of its first byte, kind and description in the server's words."""

    pos: int
    kind: str
    info: str


class ConsumedEvents(NamedTuple):
    """What a connector had done of a transaction, in the log reader's terms."""

    events: int
    """Events of the transaction that the log reader counts, of captured tables."""
    rows: int
    """Rows of the one after them."""


def files(session: Connection[Any]) -> list[str]:
    """Return the log files that the server has, oldest first."""
    return [str(row[0]) for row in query(session, "SHOW BINARY LOGS")]


def read_events(session: Connection[Any], file: str, start: int = FILE_START) -> Iterator[ListedEvent]:
    """Yield the events of a file from an offset on, which must be that of a transaction's GTID, or of the file's start.

    Raises SourceError where no event begins there.
    """
    limit = _PAGE
    while True:
        page = _page(session, file, start, limit)
        if len(page) < limit:
            yield from page
            return
        # A page ends with a whole transaction: within a compressed one no page could begin.
        cut = max((i for i, event in enumerate(page) if event.kind in _STARTS), default=0)
        if cut == 0:
            limit *= 2
            continue
        yield from page[:cut]
        start, limit = page[cut].pos, _PAGE


def read_transaction(session: Connection[Any], file: str, start: int, count: int) -> tuple[int, list[ListedEvent]]:
    """Return the first ``count`` events, from BEGIN on, of the transaction whose GTID event is at ``start``.

    Before them comes the offset that a connector would tell: of BEGIN, or of what a compressed transaction is in.
    """
    events = _page(session, file, start, count + 2)
    if len(events) < 2:
        raise TakeoverError("the transaction at the connector's place is not in the log", file=file, pos=start)
    begin = events[1]
    return begin.pos, events[2:] if begin.kind == "Transaction_payload" else events[1 : count + 1]


def _page(session: Connection[Any], file: str, start: int, limit: int) -> list[ListedEvent]:
    # Statements are shown in the bytes their clients sent, whatever the session's character set: the driver must not
    # decode them, and what is read from them, keywords and GTIDs, is ASCII.
    decodes, session.use_unicode = session.use_unicode, False
    try:
        rows = query(session, "SHOW BINLOG EVENTS IN %s FROM %s LIMIT %s", (file, start, limit))
    except SourceError as error:
        if error.context.get("code") != ER.ERROR_WHEN_EXECUTING_COMMAND:
            raise
        raise TakeoverError(
            "the server cannot read its log at the connector's place",
            hint="check that database.hostname is the server that the connector read",
            file=file,
            pos=start,
            answer=error.context.get("answer"),
        ) from error
    finally:
        session.use_unicode = decodes
    return [ListedEvent(int(row[1]), _text(row[2]), _text(row[5])) for row in rows]


def _text(shown: bytes | str) -> str:
    return shown.decode("utf-8", "replace") if isinstance(shown, bytes) else shown


def gtid_of(event: ListedEvent) -> str:
    """Return the GTID that a GTID event names."""
    found = _GTID.search(event.info)
    if found is None:
        raise TakeoverError("the server describes a GTID in words that are not understood", seen=event.info)
    return found[1].lower()


def translate_event_count(
    events: Sequence[ListedEvent], done: int, rows: int, wanted: Callable[[TableId], bool]
) -> ConsumedEvents:
    """Count what the log reader counts among the first ``done`` events of a transaction, its BEGIN included.

    ``events`` must hold one more; ``rows`` of that one are done. Raises AdoptError where the counts cannot be true of
    these events.
    """
    tables: dict[str, bool] = {}
    counted = 0
    if len(events) <= done or events[0].info != "BEGIN":
        raise _contradiction(events, done)
    for event in events[:done]:
        if event.kind == "Xid" or (event.kind == "Query" and event.info in {"COMMIT", "ROLLBACK"}):
            raise _contradiction(events, done)
        counted += _counts(event, tables, wanted)
    if not rows:
        return ConsumedEvents(counted, 0)
    next_one = events[done]
    if _ROWS.fullmatch(next_one.kind) is None:
        raise _contradiction(events, done)
    return ConsumedEvents(counted, rows if _counts(next_one, tables, wanted) else 0)


def _counts(event: ListedEvent, tables: dict[str, bool], wanted: Callable[[TableId], bool]) -> bool:
    """Tell whether the log reader counts an event; learns from those that describe a table."""
    if event.kind == "Query":
        # The one statement within a transaction that is an event to it: CREATE TABLE … SELECT.
        return leading_words(_USE.sub("", event.info, count=1))[0] == "CREATE"
    if event.kind != "Table_map" and _ROWS.fullmatch(event.kind) is None:
        return False
    found = _TABLE.match(event.info)
    if found is None:
        raise TakeoverError("the server describes an event in words that are not understood", seen=event.info)
    if event.kind == "Table_map":
        tables[found[1]] = _wanted(found[2] or "", wanted)
        return False
    return tables.get(found[1], False)


def _wanted(name: str, wanted: Callable[[TableId], bool]) -> bool:
    """Tell whether a table is captured, from its name and its database's with a dot between."""
    parts = name.split(".")
    answers = {wanted(TableId(".".join(parts[:i]), ".".join(parts[i:]))) for i in range(1, len(parts))}
    if len(answers) > 1:
        raise TakeoverError(
            f"which table {name} is cannot be told: its name or its database's has a dot",
            hint="let the connector go on, and stop it while nothing is written to this table",
        )
    return answers == {True}


def _contradiction(events: Sequence[ListedEvent], done: int) -> TakeoverError:
    return TakeoverError(
        "the connector's count of events does not fit the transaction at its place",
        hint="check that database.hostname is the server that the connector read; "
        "or let the connector go on, and stop it while nothing is written",
        event=done,
        transaction=", ".join(event.kind for event in events[:20]),
    )


class DerivedGtids(NamedTuple):
    """What precedes a place in the log, for a connector that kept no GTIDs."""

    gtids: GtidSet
    gtid: str
    """The transaction whose BEGIN is at the place, '' for a place between transactions."""
    gtid_pos: int
    """Offset of its GTID event."""


def gtids_before_position(session: Connection[Any], file: str, pos: int) -> DerivedGtids:
    """Return the GTIDs of all that stands in the log before a place.

    Raises AdoptError where that cannot be known: the file is gone, no event begins at the place, it is within a
    transaction, or transactions without a GTID follow it.
    """
    known = files(session)
    if file not in known:
        raise TakeoverError(
            "the source no longer has the binlog file in which the connector stopped",
            hint="start `tailrace produce` under another topic.prefix: only a snapshot can bridge the gap",
            file=file,
            oldest=known[0] if known else "",
        )
    found = gtids_before(read_events(session, file), pos, end=_end(session, file))
    if found is None:
        raise TakeoverError(
            "the connector's place is not one between transactions, or the log is another server's",
            hint="check that database.hostname is the server that the connector read; "
            "or start the connector again, and stop it while nothing is written",
            file=file,
            pos=pos,
        )
    _require_gtids(session, known[known.index(file) :], found.gtid_pos or pos)
    return found


def gtids_before(events: Iterable[ListedEvent], pos: int, *, end: int) -> DerivedGtids | None:
    """Return what precedes ``pos`` in a file of ``end`` bytes; None where it is no place to begin at."""
    seen = GtidSet({})
    open_gtid, open_pos = "", 0
    for event in events:
        if event.pos >= pos:
            if event.pos > pos:
                return None
            if event.kind in {"Query", "Transaction_payload"} and open_gtid:
                if event.kind == "Query" and event.info != "BEGIN":
                    return None
                return DerivedGtids(seen, open_gtid, open_pos)
            if event.kind not in _STARTS | {"Rotate", "Stop"}:
                return None
            break
        if event.kind == "Previous_gtids":
            seen = seen.union(GtidSet.parse(event.info))
        elif event.kind in _STARTS:
            seen = seen.with_gtid(open_gtid) if open_gtid else seen
            open_gtid, open_pos = (gtid_of(event), event.pos) if event.kind == "Gtid" else ("", 0)
    else:
        if pos != end:
            return None
    return DerivedGtids(seen.with_gtid(open_gtid) if open_gtid else seen, "", 0)


def _end(session: Connection[Any], file: str) -> int:
    return next(int(row[1]) for row in query(session, "SHOW BINARY LOGS") if str(row[0]) == file)


def _require_gtids(session: Connection[Any], later: Sequence[str], pos: int) -> None:
    """Raise for a transaction without GTID between the place and the first with one.

    The server starts a reader of GTIDs at the file where those unseen begin, and would leave it out unsaid; one that
    comes later is refused by the server itself.
    """
    for file in later:
        first = file == later[0]
        if first and pos == _end(session, file):
            continue
        for event in read_events(session, file, pos if first else FILE_START):
            if event.kind == "Gtid":
                return
            if event.kind == "Anonymous_Gtid":
                raise TakeoverError(
                    "transactions without a GTID follow the connector's place",
                    hint="start the connector again, let it read until gtid_mode was ON, and stop it then",
                    file=file,
                    pos=event.pos,
                )
