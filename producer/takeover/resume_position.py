"""Translates the offset of a connector into the offset of the binlog reader: the same position in the binlog."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final, NamedTuple

from pymysql.connections import Connection

from tailrace.producer.errors import TakeoverError
from tailrace.producer.kafka.state_store import StoredOffset
from tailrace.producer.model.binlog_events import QueryEvent, TransactionBegin, TransactionMark
from tailrace.producer.mysql import connection as database
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.offset import MySqlOffset
from tailrace.producer.mysql.source import MySqlSource
from tailrace.producer.takeover.binlog_listing import (
    FILE_START,
    gtids_before_position,
    read_transaction,
    translate_event_count,
)
from tailrace.producer.takeover.debezium_offset import ConnectorOffset

_FIRST_EVENT_S: Final = 300.0
"""How long the server may take to find the first event in its binlog."""


class ResumePosition(NamedTuple):
    """The offset that is stored for the binlog reader; ``notes`` are for the operator."""

    offset: StoredOffset
    notes: Sequence[str]


class _StartPosition(NamedTuple):
    """Where the binlog reader starts: between transactions, or at the GTID event of a transaction."""

    file: str
    pos: int
    gtid: str


def resolve_resume_position(offset: ConnectorOffset, source: MySqlSource, session: Connection[Any]) -> ResumePosition:
    """Return the offset with which the binlog reader resumes where the connector stopped.

    Raises TakeoverError or BinlogError if the binlog no longer has that position, or its events contradict the offset.
    """
    notes: list[str] = []
    if not database.has_gtids(session):
        raise TakeoverError(
            "gtid_mode of the source is not ON: the position of a connector is taken over by GTIDs",
            hint="set gtid_mode=ON while the connector runs, and stop it when it has read a transaction with a GTID; "
            "or start `tailrace produce` under another topic.prefix",
        )
    if offset.gtids:
        gtids = GtidSet.parse(offset.gtids)
        _require_history(session, gtids)
        start = _first_not_executed(offset, source, session, gtids)
    else:
        derived = gtids_before_position(session, offset.file, offset.pos)
        gtids = derived.gtids
        notes.append(f"the connector stored no GTIDs; those before its position are {gtids or 'none'}")
        _require_history(session, gtids)
        start = _StartPosition(offset.file, derived.gtid_pos or offset.pos, derived.gtid)
        if offset.in_transaction and not derived.gtid:
            raise TakeoverError(
                "the connector's offset is within a transaction, but no transaction begins at its position",
                hint="check that database.hostname is the server that the connector read",
                file=offset.file,
                pos=offset.pos,
            )
    position = MySqlOffset(1, start.file, start.pos, gtids, database.server_uuid(session))
    if not offset.in_transaction:
        return ResumePosition(StoredOffset(position), notes)
    begin, events = read_transaction(session, start.file, start.pos, offset.events + 1)
    if (start.file, begin) != (offset.file, offset.pos):
        notes.append(
            f"the connector stopped within the transaction {start.gtid}, which this source has at {start.file}:{begin} "
            f"and not at {offset.file}:{offset.pos}: it is another server now, so the whole transaction is written "
            "once more"
        )
        return ResumePosition(StoredOffset(position), notes)
    done = translate_event_count(events, offset.events, offset.rows)
    mark = TransactionMark(start.gtid, done.number, rows=done.rows, records=offset.counts)
    return ResumePosition(StoredOffset(position, (mark,)), notes)


def _require_history(session: Connection[Any], gtids: GtidSet) -> None:
    purged, executed = database.purged_gtids(session), database.executed_gtids(session)
    if not gtids.contains(GtidSet.parse(purged)):
        raise TakeoverError(
            "the source has purged binlog that the connector had not read",
            hint="start `tailrace produce` under another topic.prefix: only a snapshot can close the gap",
            read=gtids,
            purged=purged,
        )
    if not GtidSet.parse(executed).contains(gtids):
        raise TakeoverError(
            "the source has not executed transactions that the connector has read: it is another server, or lost data",
            hint="point database.hostname at a server of the same cluster that has all transactions",
            read=gtids,
            executed=executed,
        )


def _first_not_executed(
    offset: ConnectorOffset, source: MySqlSource, session: Connection[Any], gtids: GtidSet
) -> _StartPosition:
    """Return where the server starts to send what is not in ``gtids``; it would send the connector the same."""
    after = MySqlOffset(1, "", 0, gtids, "")
    with closing(source.open_stream(after, lambda _: False)) as stream:
        until = time.monotonic() + _FIRST_EVENT_S
        while time.monotonic() < until:
            for event in stream.poll(1.0):
                if not offset.in_transaction:
                    return _StartPosition(event.file, FILE_START, "")
                if isinstance(event, TransactionBegin):
                    return _StartPosition(event.file, event.pos, event.gtid)
                if isinstance(event, QueryEvent):
                    raise _not_next(offset, event.gtid)
            if offset.in_transaction and _caught_up(session, gtids):
                raise _not_next(offset, "nothing")
    raise TakeoverError("the server sent no event of its binlog", hint="try again", waited_s=_FIRST_EVENT_S)


def _caught_up(session: Connection[Any], gtids: GtidSet) -> bool:
    return gtids.contains(GtidSet.parse(database.executed_gtids(session)))


def _not_next(offset: ConnectorOffset, found: str) -> TakeoverError:
    return TakeoverError(
        "the transaction in which the connector stopped is not the next one in the binlog of the source",
        hint="check that database.hostname is the server that the connector read, or one of its cluster",
        gtids=offset.gtids,
        file=offset.file,
        pos=offset.pos,
        next=found,
    )
