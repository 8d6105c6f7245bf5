"""Transactions of the log: from GTID over BEGIN to the end, in all the forms in which a server writes them.

::

    GTID  BEGIN     rows…  XID | COMMIT           a transaction
    GTID  statement                               DDL and its like
    GTID  XA START  rows…  XA END  XA PREPARE     rows that stand only if, in another GTID, an XA COMMIT follows

What cannot be followed without losing or inventing a change of a wanted table raises LogError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from tailrace.producer.errors import BinlogError
from tailrace.producer.model.binlog_events import Event, QueryEvent, TransactionBegin, TransactionCommit
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.binlog import event_types
from tailrace.producer.mysql.binlog.query_event import (
    CHANGES_ROWS,
    POST_HEADER,
    Query,
    leading_words,
    may_modify_captured_table,
    read_query,
)

_GTID: Final = struct.Struct("<B16sqBqq")
_STAMP_BYTES: Final = 7
_UNKNOWN_STAMP: Final = (1 << 55) - 1


class EventPosition(NamedTuple):
    """Where an event stands, and what its header says."""

    file: str
    begin: int
    end: int
    ts: int
    server_id: int


class TransactionParser:
    """The transaction that is being read. ``touched`` is set by the reader of rows: a wanted table has some in it."""

    def __init__(self, wanted: Callable[[TableId], bool]) -> None:
        self.touched = False
        self._wanted = wanted
        self._sources: dict[bytes, str] = {}
        self._gtid: str | None = None
        self._begin_pos = self._commit_ts_us = 0
        self._open = False  # between BEGIN and its end
        self._xa: str | None = None
        self._prepared: set[str] = set()

    def gtid(self, data: bytes, start: int, stop: int, place: EventPosition) -> None:
        """Read a GTID event's body ``data[start:stop]``.

        Flags u8, source uuid, number i64, type u8, two logical clocks i64, then the immediate commit time and, where it
        differs (highest bit set), the original one: microseconds in 7 bytes, from 8.0.1 on.
        """
        if self._gtid is not None:
            raise BinlogError(
                "a transaction in the log has no end", gtid=self._gtid, file=place.file, pos=self._begin_pos
            )
        _, source, number, _, _, _ = _GTID.unpack_from(data, start)
        name = self._sources.get(source)
        if name is None:
            text = source.hex()
            name = f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
            self._sources[source] = name
        self._gtid = f"{name}:{number}"
        self._begin_pos = place.begin
        at = start + _GTID.size
        stamp = int.from_bytes(data[at : at + _STAMP_BYTES], "little") if at + _STAMP_BYTES <= stop else 0
        if stamp >> 55:
            at += _STAMP_BYTES
            stamp = int.from_bytes(data[at : at + _STAMP_BYTES], "little")
        self._commit_ts_us = 0 if stamp == _UNKNOWN_STAMP else stamp

    def end(self, file: str, pos: int) -> str:
        """Close the open transaction and return its GTID."""
        gtid = self._gtid
        if gtid is None or not self._open:
            raise BinlogError("a transaction in the log ends that did not begin", file=file, pos=pos)
        self._gtid = self._xa = None
        self._open = self.touched = False
        return gtid

    def statement(self, data: bytes, start: int, stop: int, place: EventPosition) -> Sequence[Event]:
        """Read a QUERY event's body; return what it comes to: nothing where it only belongs to its transaction."""
        thread, _, name_length, _, status_length = POST_HEADER.unpack_from(data, start)
        text_at = start + POST_HEADER.size + status_length + name_length + 1
        if data[text_at:stop] == b"BEGIN":
            return (self._begin(thread, place),)
        query = read_query(data, start, stop)
        first, second = leading_words(query.sql)
        if first in CHANGES_ROWS:
            self.refuse_text(query, place)
            return ()
        if first == "COMMIT":
            return (self._commit(place),)
        if first == "ROLLBACK":
            if self.touched:
                raise event_types.rolled_back(query.sql, place.file, place.begin)
            return () if second == "TO" else (self._commit(place),)
        if first == "XA":
            return self._xa_statement(query, second, place)
        if first in {"SAVEPOINT", "RELEASE"}:
            return ()
        return (self._definition(query, place),)

    def load(self, data: bytes, start: int, stop: int, place: EventPosition) -> None:
        """Judge a LOAD DATA logged as text: a QUERY whose post-header has 13 more bytes, that only its replay needs."""
        at = start + POST_HEADER.size
        self.refuse_text(read_query(data[start:at] + data[at + 13 : stop], 0, stop - start - 13), place)

    def refuse_text(self, query: Query, place: EventPosition) -> None:
        """Raise for a statement that changes rows of a wanted table without logging them."""
        if may_modify_captured_table(query, self._wanted):
            raise event_types.statement_based_change(query.sql, place.file, place.begin)

    def xa_prepare(self, data: bytes, start: int, place: EventPosition) -> TransactionCommit:
        """Read an XA PREPARE event: the end of a transaction in one phase, or the end of its first phase."""
        one_phase = data[start] != 0
        if not one_phase:
            if self.touched:
                raise event_types.unsupported_xa(f"XA PREPARE {self._xa}", place.file, place.begin)
            if self._xa is not None:
                self._prepared.add(self._xa)
        return self._commit(place)

    def _begin(self, thread: int, place: EventPosition) -> TransactionBegin:
        if self._gtid is None or self._open:
            raise BinlogError(
                "a transaction in the log begins without a GTID or within another",
                hint=event_types.GTID_HINT,
                file=place.file,
                pos=place.begin,
                gtid=self._gtid,
            )
        self._open = True
        self.touched = False
        return TransactionBegin(
            self._gtid, place.file, self._begin_pos, place.end, place.ts, self._commit_ts_us, thread, place.server_id
        )

    def _commit(self, place: EventPosition) -> TransactionCommit:
        return TransactionCommit(self.end(place.file, place.begin), place.file, place.end, place.ts)

    def _definition(self, query: Query, place: EventPosition) -> QueryEvent:
        gtid = self._gtid
        if gtid is None:
            raise BinlogError(
                "a statement in the log has no GTID", hint=event_types.GTID_HINT, file=place.file, pos=place.begin
            )
        if not self._open:
            self._gtid = None
        return QueryEvent(
            gtid=gtid,
            database=query.database,
            sql=query.sql,
            file=place.file,
            pos=place.begin if self._open else self._begin_pos,
            end=place.end,
            ts=place.ts,
            server_id=place.server_id,
            thread=query.thread,
            within=self._open,
            commit_ts_us=self._commit_ts_us,
            query_pos=place.begin,
        )

    def _xa_statement(self, query: Query, word: str, place: EventPosition) -> Sequence[Event]:
        """XA: the rows stand in the log at PREPARE, and count only from a COMMIT that may never come."""
        name = "".join(query.sql.split()[2:])
        if word == "START":
            begin = self._begin(query.thread, place)
            self._xa = name
            return (begin,)
        if word not in {"COMMIT", "ROLLBACK"}:
            return ()
        if word == "COMMIT" and name not in self._prepared:
            # Prepared before this stream began: its rows have gone by unseen.
            raise event_types.unsupported_xa(query.sql, place.file, place.begin)
        self._prepared.discard(name)
        # A transaction of its own in the log, whose BEGIN goes without saying.
        return (self._begin(query.thread, place), self._commit(place))
