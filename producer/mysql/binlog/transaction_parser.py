"""Transactions of the binlog: from GTID and BEGIN to the end, in all forms that a server writes.

::

    GTID  BEGIN     rows…  XID | COMMIT           a transaction
    GTID  statement                               DDL and similar
    GTID  XA START  rows…  XA END  XA PREPARE     rows that are valid only if an XA COMMIT follows in another GTID

Without GTIDs, the event in its place has none (ANONYMOUS_GTID), and the transaction is named by the position behind it,
as ``anonymous_name`` does: that of its BEGIN or its only statement. Such a transaction can be read from its BEGIN on.
A server that permits both kinds does not read by GTIDs, so where positions are the offset all transactions have such
names.

The rows of an XA transaction are parsed where they are logged; ``xa_stream.py`` moves them to their XA COMMIT. What
would lose or invent a change of a captured table becomes an event that says so. Raises BinlogError for transactions
that are not complete.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

from tailrace.producer.errors import BinlogError
from tailrace.producer.model.binlog_events import (
    ChangeRefused,
    Event,
    PreparedTransactionEnded,
    QueryEvent,
    TransactionBegin,
    TransactionCommit,
    TransactionPrepared,
    anonymous_name,
)
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.binlog import event_types
from tailrace.producer.mysql.binlog.definition_cache import CachedTable
from tailrace.producer.mysql.binlog.query_event import (
    CHANGES_ROWS,
    POST_HEADER,
    Query,
    captured_targets,
    leading_words,
    only_target,
    read_query,
)
from tailrace.producer.mysql.binlog.tagged_gtid import read_tagged_gtid
from tailrace.producer.mysql.text.sql_tokens import SqlDialect, without_literals

_GTID: Final = struct.Struct("<B16sqBqq")
_STAMP_BYTES: Final = 7
_UNKNOWN_STAMP: Final = (1 << 55) - 1
_MOST_NAMED: Final = 100
"""Tables of a prepared transaction that its state record names."""


class Names(Enum):
    """How the transactions of a stream are named."""

    GTIDS = auto()
    """Each must have one."""
    POSITIONS = auto()
    """By the position of the BEGIN, also if there is a GTID."""
    EITHER = auto()
    """By the GTID, or by the position if there is none."""


class EventPosition(NamedTuple):
    """The position of an event, and fields of its header."""

    file: str
    begin: int
    end: int
    ts: int
    server_id: int


class TransactionParser:
    """The current transaction. The binlog parser adds the captured tables that it changes, and counts its events.

    The compiled extension parses the GTID, BEGIN and XID of usual transactions; it reads and sets what is public here.
    """

    def __init__(self, captures: Callable[[TableId], bool], *, names: Names = Names.GTIDS) -> None:
        self.anonymous = names is not Names.GTIDS
        """Transactions need no GTID."""
        self.begins = {event_types.GTID, event_types.GTID_TAGGED}
        """Types of the events that begin a transaction."""
        if self.anonymous:
            self.begins.add(event_types.ANONYMOUS_GTID)
        self._by_position = names is Names.POSITIONS
        self.number = 0
        """Number of rows events in the transaction so far, those of all tables, and of what is counted with them."""
        self.changed: set[CachedTable] = set()
        """Captured tables that the current transaction changes."""
        self.server_version = 0
        """Of the server that wrote the file; the binlog parser sets it."""
        self.has_xa = False
        """Set at XA statements; the binlog parser resets it."""
        self.current: str | None = None
        """The GTID of the current transaction, or its name."""
        self.begin_pos = 0
        """Position of its GTID event."""
        self.commit_ts_us = 0
        """Its original commit time in microseconds, 0 if it is not known."""
        self.is_open = False
        """Whether the stream is between BEGIN and its end."""
        self.xid = ""
        """Of the current XA transaction."""
        self.sources: dict[bytes, str] = {}
        """The text of the UUIDs in GTIDs; the extension declines a GTID whose UUID is not here."""
        self.redefined: Callable[[QueryEvent], tuple[TableId, ...]] = lambda _: ()
        """Tells that a statement may change definitions; returns those that end."""
        self._captures = captures

    def gtid(self, data: bytes, start: int, stop: int, position: EventPosition) -> None:
        """Read a GTID event's body ``data[start:stop]``.

        Flags u8, source uuid, number i64, type u8, two logical clocks i64, then the immediate commit time and, if it
        differs (highest bit set), the original one: microseconds in 7 bytes, since 8.0.1.
        """
        _, server, number, _, _, _ = _GTID.unpack_from(data, start)
        at = start + _GTID.size
        stamp = int.from_bytes(data[at : at + _STAMP_BYTES], "little") if at + _STAMP_BYTES <= stop else 0
        if stamp >> 55:
            at += _STAMP_BYTES
            stamp = int.from_bytes(data[at : at + _STAMP_BYTES], "little")
        # The number of ANONYMOUS_GTID is 0.
        by_position = self._by_position or not number
        name = anonymous_name(position.file, position.end) if by_position else f"{self._name(server)}:{number}"
        self._on_gtid(name, stamp, position)

    def tagged_gtid(self, data: bytes, start: int, stop: int, position: EventPosition) -> None:
        """Read the body of a GTID event with a tag."""
        server, tag, number, stamp = read_tagged_gtid(data[start:stop])
        by_position = self._by_position
        name = anonymous_name(position.file, position.end) if by_position else f"{self._name(server)}:{tag}:{number}"
        self._on_gtid(name, stamp, position)

    def _name(self, server: bytes) -> str:
        name = self.sources.get(server)
        if name is None:
            text = server.hex()
            name = f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
            self.sources[server] = name
        return name

    def _on_gtid(self, gtid: str, stamp: int, position: EventPosition) -> None:
        if self.current is not None:
            raise BinlogError(
                "a transaction in the binlog has no end", gtid=self.current, file=position.file, pos=self.begin_pos
            )
        self.current = gtid
        self.number = 0
        self.begin_pos = position.begin
        self.commit_ts_us = 0 if stamp == _UNKNOWN_STAMP else stamp

    def end(self, file: str, pos: int) -> str:
        """Close the open transaction and return its GTID."""
        gtid = self.current
        if gtid is None or not self.is_open:
            raise BinlogError("a transaction in the binlog ends without a begin", file=file, pos=pos)
        self.current, self.xid = None, ""
        self.is_open = False
        self.changed.clear()
        return gtid

    def statement(self, data: bytes, start: int, stop: int, position: EventPosition) -> Sequence[Event]:
        """Read the body of a QUERY event; return its events: none if it only belongs to its transaction."""
        thread, _, name_length, _, status_length = POST_HEADER.unpack_from(data, start)
        text_at = start + POST_HEADER.size + status_length + name_length + 1
        if data[text_at:stop] == b"BEGIN":
            return (self._begin(thread, position),)
        query = self._read_query(data, start, stop)
        first, second = leading_words(query.sql, self._dialect(query))
        if first in CHANGES_ROWS:
            return self._statement_based(query, position)
        if first == "COMMIT":
            return (self._commit(position),)
        if first == "ROLLBACK":
            self.number += 1
            tables = [cached.table.id for cached in self.changed]
            refused = (self._refused(tables, event_types.rolled_back(), position),) if tables else ()
            return refused if second == "TO" else (*refused, self._commit(position))
        if first == "XA":
            return self._xa_statement(query, second, position)
        if first in {"SAVEPOINT", "RELEASE"}:
            return ()
        return (self._definition(query, position),)

    def load(self, data: bytes, start: int, stop: int, position: EventPosition) -> Sequence[Event]:
        """Read a LOAD DATA logged as text: a QUERY whose post-header has 13 more bytes, for a replay only."""
        at = start + POST_HEADER.size
        query = self._read_query(data[start:at] + data[at + 13 : stop], 0, stop - start - 13)
        return self._statement_based(query, position)

    def _read_query(self, data: bytes, start: int, stop: int) -> Query:
        return read_query(data, start, stop)

    def _refused(self, tables: Iterable[TableId], error: BinlogError, position: EventPosition) -> ChangeRefused:
        return event_types.refused(tables, error, position.file, position.begin, position.end)._replace(
            number=self.number
        )

    def _dialect(self, query: Query) -> SqlDialect:
        return SqlDialect(query.sql_mode, self.server_version, has_replaced=query.has_replaced)

    def _statement_based(self, query: Query, position: EventPosition) -> Sequence[Event]:
        """Refuse a statement that may change rows of a captured table without logging them."""
        # Counted whatever the tables are: a restart with other filters must count the same.
        self.number += 1
        dialect = self._dialect(query)
        only = only_target(query, dialect)
        if only is None:
            tables = captured_targets(query, self._captures, dialect)
        else:
            tables = (only,) if self._captures(only) else ()
        if tables is not None and not tables:
            return ()
        error = event_types.statement_based_change(without_literals(query.sql, dialect))
        refused = self._refused(tables or (), error, position)
        # By triggers, views and functions, of which the statement says nothing.
        return (refused._replace(others=only is None, triggers=only is not None),)

    def xa_prepare(self, data: bytes, start: int, position: EventPosition) -> Sequence[Event]:
        """Read an XA PREPARE event: the end of a one-phase transaction, or of the first phase of a two-phase one."""
        one_phase = data[start] != 0
        captured, xid, begin_pos = bool(self.changed), self.xid, self.begin_pos
        tables = sorted({(cached.table.id.database, cached.table.id.table) for cached in self.changed})
        commit = self._commit(position)
        if one_phase:
            return (commit,)
        named = tuple(tables) if len(tables) <= _MOST_NAMED else ()
        return (TransactionPrepared(xid, commit.gtid, position.file, begin_pos, captured, position.end, named), commit)

    def _name_by_position(self, position: EventPosition) -> None:
        """Name a transaction that is read from its BEGIN on."""
        if self.anonymous and self.current is None:
            self.current = anonymous_name(position.file, position.begin)
            self.begin_pos, self.number, self.commit_ts_us = position.begin, 0, 0

    def _begin(self, thread: int | None, position: EventPosition, xid: str = "") -> TransactionBegin:
        self._name_by_position(position)
        if self.current is None or self.is_open:
            raise BinlogError(
                "a transaction in the binlog begins without a GTID, or within another one",
                hint=event_types.GTID_HINT,
                file=position.file,
                pos=position.begin,
                gtid=self.current,
            )
        self.is_open = True
        self.xid = xid
        self.changed.clear()
        return TransactionBegin(
            self.current,
            position.file,
            self.begin_pos,
            position.end,
            position.ts,
            self.commit_ts_us,
            thread,
            position.server_id,
            xid,
        )

    def _commit(self, position: EventPosition) -> TransactionCommit:
        return TransactionCommit(self.end(position.file, position.begin), position.file, position.end, position.ts)

    def _definition(self, query: Query, position: EventPosition) -> QueryEvent:
        self._name_by_position(position)
        gtid = self.current
        if gtid is None:
            raise BinlogError(
                "a statement in the binlog has no GTID",
                hint=event_types.GTID_HINT,
                file=position.file,
                pos=position.begin,
            )
        if self.is_open:
            self.number += 1
        else:
            self.current = None
        event = QueryEvent(
            gtid=gtid,
            database=query.database,
            sql=query.sql,
            file=position.file,
            pos=position.begin if self.is_open else self.begin_pos,
            end=position.end,
            ts=position.ts,
            server_id=position.server_id,
            thread=query.thread,
            in_transaction=self.is_open,
            commit_ts_us=self.commit_ts_us,
            query_pos=position.begin,
            number=self.number if self.is_open else 0,
            sql_mode=query.sql_mode,
            server_version=self.server_version,
            has_replaced=query.has_replaced,
        )
        return event._replace(redefined=self.redefined(event))

    def _xa_statement(self, query: Query, word: str, position: EventPosition) -> Sequence[Event]:
        """Handle XA: the rows are logged at PREPARE, but are valid only after a COMMIT, which may never follow."""
        self.has_xa = True
        xid = "".join(query.sql.split()[2:])
        if word == "START":
            return (self._begin(query.thread, position, xid),)
        if word not in {"COMMIT", "ROLLBACK"}:
            return ()
        # A separate transaction in the binlog, without a BEGIN.
        begin = self._begin(query.thread, position)
        file, pos, end, ts, server_id = position
        ended = PreparedTransactionEnded(xid, word == "COMMIT", file, pos, end, ts, server_id)
        return (begin, ended, self._commit(position))
