"""Cutter: bytes of the dump connection in, events out. Pure: it owns no socket, and tests feed it recorded bytes.

A packet: length u24, number u8, status u8 (0), then the event: time u32, kind u8, server id u32, size u32, end u32,
flags u16, body, CRC-32 where the file has checksums. The event's own end field is 32 bits wide: places are counted here
in 64 bits and only checked against it.

One loop cuts everything; the two kinds that make up nearly all of a log, TABLE_MAP and ROWS, are handled in it without
a call. A TABLE_MAP is known again by its bytes, so a definition is read once, and table ids mean nothing beyond a file.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from typing import Final
from zlib import crc32

from tailrace.producer.errors import BinlogError
from tailrace.producer.model.binlog_events import Event, PositionAdvanced, RowsEvent, TableVersion, TransactionCommit
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.binlog import event_types
from tailrace.producer.mysql.binlog.server_error import from_err_packet
from tailrace.producer.mysql.binlog.table_map import packed, read_id, read_table_map
from tailrace.producer.mysql.binlog.transaction_parser import EventPosition, TransactionParser
from tailrace.producer.mysql.binlog.transaction_payload import open_payload, packet_header
from tailrace.runtime.errors import SchemaError

_HEAD: Final = struct.Struct("<IBIBIIIH")
_BODY: Final = _HEAD.size
_WHOLE: Final = 0xFFFFFF
"""Length of a packet that is continued by the next one."""
_RESIDUE: Final = 0x2144DF1C
"""CRC-32 of any bytes followed by their own CRC-32."""
_NO_TABLE: Final = b"\xff\xff\xff\0\0\0"
"""Table id of a rows event that only ends a statement."""
_KNOWN_DEFINITIONS: Final = 20_000
"""Definitions remembered before all are forgotten: bounds the memory of a server that makes tables all day."""


class _Mapped:
    """A wanted table, and what its rows events have before their images: learned from the first of each shape."""

    __slots__ = ("count", "double", "present", "single", "table")

    def __init__(self, table: TableVersion) -> None:
        self.table = table
        self.count = len(table.columns)
        self.present = (1 << self.count) - 1
        self.single = self.double = b"\xff\xff"  # no event begins so: none was seen yet

    def hide(self, present: int) -> bool:
        """Drop the hidden columns of functional indexes, which servers before 8.0.18 describe but leave out of rows."""
        kept = present.bit_length()
        if present != (1 << kept) - 1 or not all(_HIDDEN(c.name) for c in self.table.columns[kept:]):
            return False
        self.table = self.table._replace(columns=self.table.columns[:kept])
        self.present = present
        return True


_HIDDEN: Final = re.compile(r"[0-9a-f]{32}").fullmatch


class BinlogParser:
    """Cuts the stream of one dump connection. ``file`` and ``pos`` are the place behind the last event."""

    def __init__(self, wanted: Callable[[TableId], bool], *, verify: bool = True) -> None:
        """``verify`` checks the CRC-32 of each event that has one."""
        self.file = ""
        self.pos = 0
        self._wanted = wanted
        self._verify = verify
        self._parts: list[bytes] = []
        self._have = self._need = 0
        self._crc = 0  # bytes of checksum at the end of each event
        self._year_has_sign = False
        self._capped = False  # the bytes at hand are joined: packet lengths may be capped
        self._wrapper: int | None = None  # offset of the compressed transaction that the bytes at hand come from
        self._tables: dict[bytes, _Mapped | None] = {}
        self._definitions: dict[bytes, _Mapped | None] = {}
        self._transactions = TransactionParser(wanted)
        self._query: str | None = None

    def feed(self, chunk: bytes) -> list[Event]:
        """Take the next bytes of the connection; return the events that are complete with them.

        Raises LogError, SchemaError, SourceError or SourceUnavailableError; the stream is then of no further use.
        """
        if self._parts:
            self._parts.append(chunk)
            self._have += len(chunk)
            if self._have < self._need:
                return []
            chunk = b"".join(self._parts)
            self._parts = []
        events: list[Event] = []
        file, pos = self.file, self.pos
        used = self._cut(chunk, events)
        if used < len(chunk):
            rest = chunk[used:]
            self._parts, self._have, self._need = [rest], len(rest), _needed(rest)
        if (self.file, self.pos) != (file, pos) and not (events and events[-1].end == self.pos):
            events.append(PositionAdvanced(self.file, self.pos, 0))
        return events

    def _cut(self, data: bytes, events: list[Event]) -> int:  # noqa: PLR0912, PLR0915 - one loop, no calls, by design
        append = events.append
        unpack = _HEAD.unpack_from
        new = tuple.__new__
        verify = self._verify
        tables, definitions, transactions = self._tables, self._definitions, self._transactions
        place, file, crc, query = self.pos, self.file, self._crc, self._query
        at, limit = 0, len(data)
        last = limit - _BODY
        while at <= last:
            word, status, ts, kind, server, size, log_pos, _ = unpack(data, at)
            if status:
                break
            stop = at + 5 + size
            if word & _WHOLE != size + 1 or size + 1 == _WHOLE:
                used = self._odd(data, at, word & _WHOLE, size)
                if used is None:
                    break
                if used:
                    self.pos, self._query = place, query
                    self._joined(data, at, size, events)
                    place, file, crc, query = self.pos, self.file, self._crc, self._query
                    at = used
                    continue
            if stop > limit:
                break
            if verify and crc and crc32(data[at + 5 : stop]) != _RESIDUE and kind not in event_types.UNVERIFIED:
                raise BinlogError(
                    "an event in the log is damaged: its checksum differs", kind=kind, file=file, pos=place
                )
            begin = place
            if log_pos:
                place += size
                if place & 0xFFFFFFFF != log_pos:
                    # Transactions before this one were not sent; or it tells a place only, and is not in the file.
                    place = begin if kind in event_types.HEARTBEATS else place
                    place += (log_pos - place) & 0xFFFFFFFF
                    begin = max(begin, place - size)
            elif self._wrapper is not None:
                begin = self._wrapper

            if kind == event_types.TABLE_MAP:
                body = data[at + 30 : stop - crc]
                try:
                    tables[data[at + 24 : at + 30]] = definitions[body]
                except KeyError:
                    tables[data[at + 24 : at + 30]] = self._learn(body)
            elif event_types.WRITE_ROWS <= kind <= event_types.DELETE_ROWS:
                try:
                    mapped = tables[data[at + 24 : at + 30]]
                except KeyError:
                    self._unmapped(data[at + 24 : at + 30], file, begin)
                    mapped = None
                if mapped is not None:
                    head = mapped.double if kind == event_types.UPDATE_ROWS else mapped.single
                    if data.startswith(head, at + 32):
                        start = at + 32 + len(head)
                    else:
                        start = self._images(data, at + 32, mapped, kind)
                    append(
                        new(
                            RowsEvent,
                            (
                                _OPS[kind],
                                mapped.table,
                                data,
                                start,
                                stop - crc,
                                file,
                                begin,
                                place,
                                ts,
                                server,
                                query,
                            ),
                        )
                    )
                    transactions.touched = True
                if query is not None and data[at + 30] & 1:
                    query = None
            elif kind == event_types.XID:
                append(TransactionCommit(transactions.end(file, begin), file, place, ts))
            else:
                self.pos, self._query = place, query
                self._rare(kind, data, at, EventPosition(file, begin, place, ts, server), events)
                place, file, crc, query = self.pos, self.file, self._crc, self._query
            at = stop
        self.pos, self._query = place, query
        self._refused(data, at)
        return at

    def _odd(self, data: bytes, at: int, length: int, size: int) -> int | None:
        """Judge a packet of another length than its event: offset behind it, None if it is not whole yet, 0 if fine."""
        if length != _WHOLE or size + 1 < _WHOLE:
            raise BinlogError("a packet of the log does not hold one event", length=length, event=size, pos=self.pos)
        if self._capped:
            return 0
        behind = at + _continued(size)
        return behind if behind <= len(data) else None

    def _joined(self, data: bytes, at: int, size: int, events: list[Event]) -> None:
        """Cut an event that came in several packets."""
        parts, rest = [packet_header(size + 1)], size + 1
        at += 4
        first = 1  # the OK byte is part of the header written above
        while rest > 0:
            parts.append(data[at + first : at + min(rest, _WHOLE)])
            at += _WHOLE + 4
            rest -= _WHOLE
            first = 0
        capped, self._capped = self._capped, True
        self._cut(b"".join(parts), events)
        self._capped = capped

    def _refused(self, data: bytes, at: int) -> None:
        """Raise when a whole packet stands at ``at`` that is an error, or says that the server has ended the dump."""
        if self._capped or len(data) - at < 5 or data[at + 4] == 0:
            return
        stop = at + 4 + int.from_bytes(data[at : at + 3], "little")
        if stop <= len(data):
            raise from_err_packet(data[at + 4 : stop], self.file, self.pos)

    def _learn(self, body: bytes) -> _Mapped | None:
        if len(self._definitions) >= _KNOWN_DEFINITIONS:
            self._definitions.clear()
        mapped = (
            _Mapped(read_table_map(body, year_has_sign=self._year_has_sign)) if self._wanted(read_id(body)) else None
        )
        self._definitions[body] = mapped
        return mapped

    def _unmapped(self, table_id: bytes, file: str, pos: int) -> None:
        if table_id != _NO_TABLE:
            raise BinlogError(
                "rows in the log lack the description of their table",
                hint="the log is damaged here: take a new snapshot",
                file=file,
                pos=pos,
                table_id=int.from_bytes(table_id, "little"),
            )

    def _images(self, data: bytes, at: int, mapped: _Mapped, kind: int) -> int:
        """Return where the images begin in a rows event (second form) whose head was not seen before."""
        extra = int.from_bytes(data[at : at + 2], "little")
        double = kind == event_types.UPDATE_ROWS
        start = self._bitmaps(data, at + extra, mapped, double=double)
        if extra == 2:
            if double:
                mapped.double = data[at:start]
            else:
                mapped.single = data[at:start]
        return start

    def _bitmaps(self, data: bytes, at: int, mapped: _Mapped, *, double: bool) -> int:
        """Check that rows have all their columns; return where the images begin."""
        count, at = packed(data, at)
        if count != mapped.count:
            raise BinlogError(
                f"rows of {mapped.table.id} have {count} columns where their description has {mapped.count}",
                file=self.file,
            )
        size = (count + 7) // 8
        for _ in range(2 if double else 1):
            # The bits beyond the last column are of no meaning.
            present = int.from_bytes(data[at : at + size], "little") & ((1 << count) - 1)
            if present != mapped.present and not mapped.hide(present):
                raise SchemaError(
                    f"rows of {mapped.table.id} are logged without some of their columns",
                    hint="SET GLOBAL binlog_row_image=FULL, also for sessions that set it; then take a new snapshot",
                )
            at += size
        return at

    def _rare(self, kind: int, data: bytes, at: int, place: EventPosition, events: list[Event]) -> None:
        """Act on the event in the packet at ``at``, of any kind but TABLE_MAP, ROWS and XID."""
        stop = at + 5 + int.from_bytes(data[at + 14 : at + 18], "little")
        start, end = at + _BODY, stop - self._crc
        if kind == event_types.GTID:
            self._query = None
            self._transactions.gtid(data, start, end, place)
        elif kind == event_types.QUERY:
            events.extend(self._transactions.statement(data, start, end, place))
        elif kind == event_types.TRANSACTION_PAYLOAD:
            self._payload(data[start:end], place.begin, events)
        elif kind == event_types.ROTATE:
            self._rotate(data, start, stop, events)
        elif kind == event_types.FORMAT_DESCRIPTION:
            self._format(event_types.read_format(data, start, stop))
        elif kind == event_types.ROWS_QUERY:
            self._query = data[start + 1 : end].decode("utf-8", "replace")
        elif kind in event_types.ROWS_V1:
            events.extend(self._first_form(kind, data, start, end, place))
        elif kind == event_types.XA_PREPARE:
            events.append(self._transactions.xa_prepare(data, start, place))
        elif kind == event_types.EXECUTE_LOAD_QUERY:
            self._transactions.load(data, start, end, place)
        elif kind not in event_types.IGNORED:
            raise event_types.unsupported_event(kind, self.file, place.begin)

    def _first_form(self, kind: int, data: bytes, start: int, stop: int, place: EventPosition) -> Sequence[Event]:
        """Rows as servers up to 5.5 log them, or newer ones with log_bin_use_v1_row_events."""
        table_id = data[start : start + 6]
        mapped = self._tables.get(table_id)
        if mapped is None:
            if table_id not in self._tables:
                self._unmapped(table_id, place.file, place.begin)
            return ()
        op = event_types.ROWS_V1[kind]
        images = self._bitmaps(data, start + 8, mapped, double=op == "u")
        self._transactions.touched = True
        rows = RowsEvent(
            op=op,
            table=mapped.table,
            data=data,
            start=images,
            stop=stop,
            file=place.file,
            pos=place.begin,
            end=place.end,
            ts=place.ts,
            server_id=place.server_id,
            query=self._query,
        )
        return (rows,)

    def _format(self, described: event_types.FileFormat) -> None:
        self._crc = described.checksum
        self._tables.clear()
        if described.year_has_sign != self._year_has_sign:
            self._year_has_sign = described.year_has_sign
            self._definitions.clear()

    def _rotate(self, data: bytes, start: int, stop: int, events: list[Event]) -> None:
        # The dump thread makes some of these itself, the first before the format of the file is known: whether there is
        # a checksum shows by its being right.
        self._crc = 4 if crc32(data[start - 19 : stop]) == _RESIDUE else 0
        self.file = data[start + 8 : stop - self._crc].decode()
        self.pos = int.from_bytes(data[start : start + 8], "little")
        self._tables.clear()
        events.append(PositionAdvanced(self.file, self.pos, 0))

    def _payload(self, body: bytes, begin: int, events: list[Event]) -> None:
        inner = open_payload(body)
        crc, capped = self._crc, self._capped
        self._crc, self._wrapper, self._capped = 0, begin, True
        self._cut(inner, events)
        self._crc, self._wrapper, self._capped = crc, None, capped


_OPS: Final = {event_types.WRITE_ROWS: "c", event_types.UPDATE_ROWS: "u", event_types.DELETE_ROWS: "d"}


def _continued(size: int) -> int:
    """Bytes on the wire of an event of ``size`` in several packets: each has a header, the last is never full."""
    return size + 1 + 4 * ((size + 1) // _WHOLE + 1)


def _needed(rest: bytes) -> int:
    """Bytes that must be there before cutting on is worth while."""
    if len(rest) < _BODY:
        return len(rest) + 1
    length = int.from_bytes(rest[:3], "little")
    if length < _WHOLE:
        return 4 + length
    return _continued(int.from_bytes(rest[14:18], "little"))
