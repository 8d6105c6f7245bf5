"""From a connector's offset to the log reader's own state: the same place in the source's log, in other terms."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from pymysql.connections import Connection

from tailrace.producer.errors import TakeoverError
from tailrace.producer.kafka.state_store import StoredOffset
from tailrace.producer.model.binlog_events import QueryEvent, TransactionBegin
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql import connection as database
from tailrace.producer.mysql.binlog.stream import BinlogStream
from tailrace.producer.mysql.connection import SourceSettings
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.offset import MySqlOffset
from tailrace.producer.takeover.binlog_listing import (
    FILE_START,
    gtids_before_position,
    read_transaction,
    translate_event_count,
)
from tailrace.producer.takeover.debezium_offset import ConnectorOffset

_FIRST_EVENT_S: Final = 300.0
"""How long the server may take to find the first event in its log."""


class BinlogSource(NamedTuple):
    """How to ask the source: a session, and what a log stream of one's own needs."""

    session: Connection[Any]
    settings: SourceSettings
    server_id: int
    wanted: Callable[[TableId], bool]


class ResumePosition(NamedTuple):
    """The log reader's state at a connector's place; ``notes`` say what the operator should know of it."""

    state: StoredOffset
    notes: Sequence[str]


class _StartPosition(NamedTuple):
    """Where the log begins for the log reader: between transactions, or at the GTID event of one."""

    file: str
    pos: int
    gtid: str


def resolve_resume_position(offset: ConnectorOffset, source: BinlogSource) -> ResumePosition:
    """Return the state with which the log reader goes on where the connector stopped.

    Raises AdoptError or LogError where the source's log does not have that place any more, or not the events told.
    """
    notes: list[str] = []
    if offset.gtids:
        gtids = GtidSet.parse(offset.gtids)
        _require_history(source.session, gtids)
        start = _first_unseen(offset, source, gtids)
    else:
        derived = gtids_before_position(source.session, offset.file, offset.pos)
        gtids = derived.gtids
        notes.append(f"the connector kept no GTIDs; those before its place are {gtids or 'none'}")
        _require_history(source.session, gtids)
        start = _StartPosition(offset.file, derived.gtid_pos or offset.pos, derived.gtid)
        if offset.within and not derived.gtid:
            raise TakeoverError(
                "the connector's offset is within a transaction, but none begins at its place",
                hint="check that database.hostname is the server that the connector read",
                file=offset.file,
                pos=offset.pos,
            )
    position = MySqlOffset(1, start.file, start.pos, gtids, database.server_uuid(source.session))
    if not offset.within:
        return ResumePosition(StoredOffset(position), notes)
    begin, events = read_transaction(source.session, start.file, start.pos, offset.events + 1)
    if (start.file, begin) != (offset.file, offset.pos):
        notes.append(
            f"the source has the transaction {start.gtid}, in which the connector stopped, at {start.file}:{begin} and "
            f"not at {offset.file}:{offset.pos}: it is another server now, so the transaction is written once more"
        )
        return ResumePosition(StoredOffset(position), notes)
    done = translate_event_count(events, offset.events, offset.rows, source.wanted)
    return ResumePosition(StoredOffset(position, start.gtid, done.events, counts=offset.counts, rows=done.rows), notes)


def _require_history(session: Connection[Any], gtids: GtidSet) -> None:
    purged, executed = database.purged_gtids(session), database.executed_gtids(session)
    if not gtids.contains(GtidSet.parse(purged)):
        raise TakeoverError(
            "the source has purged binlog that the connector had not read",
            hint="start `tailrace produce` under another topic.prefix: only a snapshot can bridge the gap",
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


def _first_unseen(offset: ConnectorOffset, source: BinlogSource, gtids: GtidSet) -> _StartPosition:
    """Return where the server begins to send what is not in ``gtids``: the connector would be sent the same."""
    with BinlogStream(source.settings, start=gtids, server_id=source.server_id, wanted=lambda _: False) as stream:
        until = time.monotonic() + _FIRST_EVENT_S
        while time.monotonic() < until:
            for event in stream.poll(1.0):
                if not offset.within:
                    return _StartPosition(event.file, FILE_START, "")
                if isinstance(event, TransactionBegin):
                    return _StartPosition(event.file, event.pos, event.gtid)
                if isinstance(event, QueryEvent):
                    raise _elsewhere(offset, event.gtid)
            if offset.within and _caught_up(source.session, gtids):
                raise _elsewhere(offset, "nothing")
    raise TakeoverError("the server sent no event of its log", hint="try again", waited_s=_FIRST_EVENT_S)


def _caught_up(session: Connection[Any], gtids: GtidSet) -> bool:
    return gtids.contains(GtidSet.parse(database.executed_gtids(session)))


def _elsewhere(offset: ConnectorOffset, found: str) -> TakeoverError:
    return TakeoverError(
        "the transaction in which the connector stopped is not the next one in the source's log",
        hint="check that database.hostname is the server that the connector read, or one of its cluster",
        gtids=offset.gtids,
        file=offset.file,
        pos=offset.pos,
        next=found,
    )
