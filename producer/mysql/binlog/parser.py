"""Binlog parser: bytes of the dump connection in, events out. It has no socket; tests feed it recorded bytes.

A packet: length u24, number u8, status u8 (0), then the event: time u32, type u8, server id u32, size u32, end u32,
flags u16, body, CRC-32 if the file has checksums. The end field has 32 bits; positions, checked against it, have 64.

One loop parses everything, TABLE_MAP and ROWS without a call. The compiled extension parses usual transactions whole.
A TABLE_MAP is recognized by its bytes, so each definition is read once. Table ids are valid within one file only.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final
from zlib import crc32

from tailrace.producer.errors import BinlogError
from tailrace.producer.model.binlog_events import (
    Event,
    PositionAdvanced,
    RowsEvent,
    TransactionBegin,
    TransactionCommit,
)
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.binlog import event_types
from tailrace.producer.mysql.binlog.definition_cache import CachedTable, DefinitionCache
from tailrace.producer.mysql.binlog.packets import MAX_PACKET, bytes_needed, joined_packets, multi_packet_length
from tailrace.producer.mysql.binlog.proven_definitions import ProvenDefinitions, UnsettledError
from tailrace.producer.mysql.binlog.server_error import from_err_packet
from tailrace.producer.mysql.binlog.transaction_parser import EventPosition, Names, TransactionParser
from tailrace.producer.mysql.binlog.transaction_payload import payload_packets
from tailrace.producer.native import loader
from tailrace.producer.native.loader import codec
from tailrace.runtime.errors import SchemaError, TailraceError
from tailrace.schemas.rowkind import Op

if TYPE_CHECKING:
    from tailrace.producer.native.codec import PacketParser

_HEAD: Final = struct.Struct("<IBIBIIIH")
_BODY: Final = _HEAD.size
_CRC_RESIDUE: Final = 0x2144DF1C
"""CRC-32 of any bytes followed by their own CRC-32."""
_USUAL: Final = frozenset({event_types.GTID, event_types.TABLE_MAP, event_types.XID})
"""Types of events that the extension is called for; it continues with the events that follow."""
_MAX_POS: Final = 1 << 62
"""Positions above it, which only a damaged binlog has, are not given to the extension."""
_MAX_TABLE_IDS: Final = 10_000
"""Table ids before all are dropped with the next transaction, which describes its tables again."""


class BinlogParser:
    """Parses the stream of one dump connection. ``file`` and ``pos`` are the position after the last event."""

    def __init__(
        self,
        captures: Callable[[TableId], bool],
        *,
        verify: bool = True,
        names: Names = Names.GTIDS,
        proven: ProvenDefinitions | None = None,
    ) -> None:
        """``verify`` checks the CRC-32 of each event that has one; ``names``: of the transactions."""
        self.file = ""
        self.pos = 0
        self._captures = captures
        self._verify = verify
        self._chunks: list[bytes] = []
        self._buffered = self._required = 0
        self._checksum_bytes = 0  # at the end of each event
        self._joined = False  # the input was joined from packets: their lengths may be joined
        self._payload_pos: int | None = None  # position of the compressed transaction that the input comes from
        self._payload: Iterator[bytes] | None = None  # the rest of a compressed transaction
        self._piece = b""  # the rest of its last piece
        self._suspended = False  # the loop must stop for the payload, or a definition
        self._unsettled = False  # for a definition
        self._tables: dict[bytes, CachedTable | None] = {}
        self._definitions = DefinitionCache(captures, proven)
        self._transactions = TransactionParser(captures, names=names)
        self._transactions.redefined = self._definitions.on_statement
        self._begins = self._transactions.begins
        self._query: str | None = None
        self._native: PacketParser | None = None
        if loader.is_used():
            self._native = codec.PacketParser(
                TransactionBegin,
                RowsEvent,
                TransactionCommit,
                ops=(Op.CREATE, Op.UPDATE, Op.DELETE),
                most_tables=_MAX_TABLE_IDS,
                verify=verify,
            )

    @property
    def has_xa(self) -> bool:
        """Whether the last ``feed`` returned events of XA statements."""
        return self._transactions.has_xa

    @property
    def pending(self) -> bool:
        """Whether events remain of the bytes that were fed: call ``feed`` without new bytes first."""
        return self._payload is not None or self._unsettled

    def feed(self, chunk: bytes) -> list[Event]:
        """Parse the next bytes of the connection; return the events that they complete, or a part (``pending``).

        Raises BinlogError, SchemaError, SourceError or SourceUnavailableError; the parser cannot be used after that.
        """
        if self._chunks:
            self._chunks.append(chunk)
            self._buffered += len(chunk)
            if self._buffered < self._required:
                return []
            chunk = b"".join(self._chunks)
            self._chunks = []
        events: list[Event] = []
        self._transactions.has_xa = self._suspended = self._unsettled = False
        file, pos = self.file, self.pos
        while self._payload is None or not self._parse_piece(self._payload, events):
            used = self._parse_packets(chunk, events)
            chunk = chunk[used:] if used else chunk
            if self._payload is None:
                break
        if chunk:
            self._chunks, self._buffered = [chunk], len(chunk)
            self._required = 0 if self.pending else bytes_needed(chunk)
        # Within a compressed transaction the position is its end already, which is not reached.
        moved = (self.file, self.pos) != (file, pos) and not self.pending
        # Without GTIDs the stream resumes by position: the one between ANONYMOUS_GTID and BEGIN would lose a time.
        moved = moved and not (self._transactions.anonymous and self._transactions.current)
        if moved and not (events and events[-1].end == self.pos):
            events.append(PositionAdvanced(self.file, self.pos, 0))
        return events

    def _parse_packets(self, data: bytes, events: list[Event]) -> int:  # noqa: PLR0912, PLR0915 - one loop without calls
        append = events.append
        unpack = _HEAD.unpack_from
        new = tuple.__new__
        verify, native = self._verify, self._native
        payload_pos = -1 if self._payload_pos is None else self._payload_pos
        tables, definitions, transactions = self._tables, self._definitions.recent, self._transactions
        changed = transactions.changed.add
        pos, file, crc, query = self.pos, self.file, self._checksum_bytes, self._query
        at, limit = 0, len(data)
        last = limit - _BODY
        begin = pos
        try:
            while at <= last:
                if native is not None and data[at + 9] in _USUAL and pos < _MAX_POS:
                    at, pos, query = native.parse(
                        data, at, pos, payload_pos, crc, file, tables, definitions, transactions, events, query
                    )
                    begin = pos
                    if at > last:
                        break
                word, status, ts, event_type, server, size, log_pos, flags = unpack(data, at)
                if status:
                    break
                stop = at + 5 + size
                if word & MAX_PACKET != size + 1 or size + 1 == MAX_PACKET:
                    self.pos, self._query = pos, query
                    used = self._check_packet_length(data, at, word & MAX_PACKET, size)
                    if used is None:
                        break
                    if used:
                        self._parse_multi_packet(data, at, size, events)
                        pos, file, crc, query = self.pos, self.file, self._checksum_bytes, self._query
                        at = used
                        if self._suspended:
                            break
                        continue
                if stop > limit:
                    break
                if (
                    verify
                    and crc
                    and crc32(data[at + 5 : stop]) != _CRC_RESIDUE
                    and event_type not in event_types.UNVERIFIED
                ):
                    raise BinlogError(
                        "an event in the binlog is damaged: its checksum differs",
                        event_type=event_type,
                        file=file,
                        pos=pos,
                    )
                begin = pos
                if log_pos:
                    pos += size
                    if pos & 0xFFFFFFFF != log_pos:
                        # Earlier transactions were not sent; or an event that is not in the file states a position.
                        pos = begin if flags & event_types.ARTIFICIAL or event_type in event_types.HEARTBEATS else pos
                        pos += (log_pos - pos) & 0xFFFFFFFF
                        begin = max(begin, pos - size)
                elif payload_pos >= 0:
                    begin = payload_pos
                elif transactions.current is not None:
                    pos += size  # an event of a transaction is in the file, also if it does not say where

                if event_type == event_types.TABLE_MAP:
                    body = data[at + 30 : stop - crc]
                    try:
                        tables[data[at + 24 : at + 30]] = definitions[body]
                    except KeyError:
                        where = file, begin, transactions.begin_pos
                        try:
                            tables[data[at + 24 : at + 30]] = self._definitions.add(body, where)
                        except UnsettledError:  # it is parsed again
                            self._suspended = self._unsettled = True
                            pos = pos if payload_pos >= 0 else begin
                            break
                elif event_types.WRITE_ROWS <= event_type <= event_types.DELETE_ROWS:
                    try:
                        cached = tables[data[at + 24 : at + 30]]
                    except KeyError:
                        event_types.require_table_map(data[at + 24 : at + 30])
                        cached = None
                    transactions.number += 1
                    if cached is not None:
                        head = cached.double if event_type == event_types.UPDATE_ROWS else cached.single
                        changed(cached)
                        if data.startswith(head, at + 32):
                            start: int | SchemaError = at + 32 + len(head)
                        else:
                            start = cached.row_start(data, at + 32, update=event_type == event_types.UPDATE_ROWS)
                        if isinstance(start, SchemaError):
                            append(self._refuse(cached, start, EventPosition(file, begin, pos, ts, server)))
                        else:
                            append(
                                new(
                                    RowsEvent,
                                    (
                                        event_types.ROWS[event_type],
                                        cached.table,
                                        data,
                                        start,
                                        stop - crc,
                                        file,
                                        begin,
                                        pos,
                                        ts,
                                        server,
                                        query,
                                        transactions.number,
                                    ),
                                )
                            )
                    if query is not None and data[at + 30] & 1:
                        query = None
                elif event_type == event_types.XID:
                    append(TransactionCommit(transactions.end(file, begin), file, pos, ts))
                else:
                    self.pos, self._query = pos, query
                    self._parse_other_event(event_type, data, at, EventPosition(file, begin, pos, ts, server), events)
                    pos, file, crc, query = self.pos, self.file, self._checksum_bytes, self._query
                    if self._suspended:
                        at = stop
                        break
                at = stop
            self.pos, self._query = pos, query
            begin = pos
            if not self._suspended:
                self._raise_server_error(data, at)
        except TailraceError as error:
            event_types.locate(error, file, begin)
            raise
        except event_types.MALFORMED as error:
            raise event_types.malformed(error, file, begin) from error
        return at

    def _check_packet_length(self, data: bytes, at: int, length: int, size: int) -> int | None:
        """Check a packet with another length than its event: the offset after it, None if incomplete, 0 if valid."""
        if length != MAX_PACKET or size + 1 < MAX_PACKET:
            raise BinlogError(
                "a packet of the binlog does not contain exactly one event", length=length, event=size, pos=self.pos
            )
        if self._joined:
            return 0
        behind = at + multi_packet_length(size)
        return behind if behind <= len(data) else None

    def _parse_multi_packet(self, data: bytes, at: int, size: int, events: list[Event]) -> None:
        """Parse an event that arrived in several packets."""
        joined, self._joined = self._joined, True
        self._parse_packets(joined_packets(data, at, size), events)
        self._joined = joined

    def _raise_server_error(self, data: bytes, at: int) -> None:
        """Raise if a complete packet at ``at`` is an error, or reports that the server has ended the dump."""
        if self._joined or len(data) - at < 5 or data[at + 4] == 0:
            return
        stop = at + 4 + int.from_bytes(data[at : at + 3], "little")
        if stop <= len(data):
            raise from_err_packet(data[at + 4 : stop], self.file, self.pos)

    def _parse_other_event(
        self, event_type: int, data: bytes, at: int, position: EventPosition, events: list[Event]
    ) -> None:
        """Parse the event in the packet at ``at``, of any type except TABLE_MAP, ROWS and XID."""
        stop = at + 5 + int.from_bytes(data[at + 14 : at + 18], "little")
        start, end = at + _BODY, stop - self._checksum_bytes
        if event_type in self._begins:
            self._query = None
            if len(self._tables) > _MAX_TABLE_IDS:
                self._tables.clear()
            has_tag = event_type == event_types.GTID_TAGGED
            (self._transactions.tagged_gtid if has_tag else self._transactions.gtid)(data, start, end, position)
        elif event_type == event_types.QUERY:
            events.extend(self._transactions.statement(data, start, end, position))
        elif event_type == event_types.TRANSACTION_PAYLOAD:
            self._open_payload(memoryview(data)[start:end], position)
        elif event_type == event_types.ROTATE:
            self._on_rotate(data, start, stop, events)
        elif event_type == event_types.FORMAT_DESCRIPTION:
            self._on_format(event_types.read_format(data, start, stop))
        elif event_type == event_types.ROWS_QUERY:
            self._query = data[start + 1 : end].decode("utf-8", "replace")
        elif event_type == event_types.PARTIAL_UPDATE_ROWS:
            events.extend(self._refuse_partial(data[start : start + 6], position))
        elif event_type in event_types.ROWS_V1:
            events.extend(self._parse_rows_v1(event_type, data, start, end, position))
        elif event_type == event_types.XA_PREPARE:
            events.extend(self._transactions.xa_prepare(data, start, position))
        elif event_type == event_types.EXECUTE_LOAD_QUERY:
            events.extend(self._transactions.load(data, start, end, position))
        elif event_type not in event_types.IGNORED:
            raise event_types.unsupported_event(event_type, self.file, position.begin)

    def _parse_rows_v1(
        self, event_type: int, data: bytes, start: int, stop: int, position: EventPosition
    ) -> Sequence[Event]:
        """Parse rows in the form of MySQL 5.5 and of log_bin_use_v1_row_events."""
        cached = self._changed_table(data[start : start + 6])
        if cached is None:
            return ()
        op = event_types.ROWS_V1[event_type]
        images = cached.check_columns(data, start + 8, update=op is Op.UPDATE)
        if isinstance(images, SchemaError):
            return (self._refuse(cached, images, position),)
        return (RowsEvent(op, cached.table, data, images, stop, *position, self._query, self._transactions.number),)

    def _refuse_partial(self, table_id: bytes, position: EventPosition) -> Sequence[Event]:
        cached = self._changed_table(table_id)
        if cached is None:
            return ()
        return (self._refuse(cached, event_types.partial_rows(), position),)

    def _refuse(self, cached: CachedTable, error: TailraceError, position: EventPosition) -> Event:
        cached.refused = cached.refused or not self._transactions.xid
        refused = event_types.refused([cached.table.id], error, position.file, position.begin, position.end)
        return refused._replace(number=self._transactions.number)

    def _changed_table(self, table_id: bytes) -> CachedTable | None:
        """Return the captured table that a rows event changes, and count the event."""
        self._transactions.number += 1
        cached = self._tables.get(table_id)
        if cached is not None:
            self._transactions.changed.add(cached)
        elif table_id not in self._tables:
            event_types.require_table_map(table_id)
        return cached

    def _on_format(self, file_format: event_types.FileFormat) -> None:
        self._checksum_bytes = file_format.checksum
        self._transactions.server_version = file_format.server_version
        self._tables.clear()
        self._definitions.on_format(file_format)

    def _on_rotate(self, data: bytes, start: int, stop: int, events: list[Event]) -> None:
        # The dump thread creates some of these itself, the first one before the format of the file is known. The event
        # has a checksum exactly if the last four bytes are a valid one.
        self._checksum_bytes = 4 if crc32(data[start - 19 : stop]) == _CRC_RESIDUE else 0
        self.file = data[start + 8 : stop - self._checksum_bytes].decode()
        self.pos = int.from_bytes(data[start : start + 8], "little")
        self._tables.clear()
        events.append(PositionAdvanced(self.file, self.pos, 0))

    def _open_payload(self, body: memoryview, position: EventPosition) -> None:
        if self._payload is not None:
            raise BinlogError("a compressed transaction in the binlog contains another one")
        self._payload, self._payload_pos = payload_packets(body), position.begin
        self._suspended = True

    def _parse_piece(self, payload: Iterator[bytes], events: list[Event]) -> bool:
        """Parse the next piece of a compressed transaction; False after the last one."""
        self._suspended = False
        try:
            piece = self._piece or next(payload, None)
        except BinlogError as error:
            event_types.locate(error, self.file, self._payload_pos or self.pos)
            raise
        if piece is None:
            self._payload = self._payload_pos = None
            return False
        crc, joined = self._checksum_bytes, self._joined
        self._checksum_bytes, self._joined = 0, True
        used = self._parse_packets(piece, events)
        self._piece = piece[used:] if self._unsettled else b""
        self._checksum_bytes, self._joined = crc, joined
        return True
