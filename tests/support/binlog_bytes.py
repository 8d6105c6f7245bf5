"""Bytes of a dump connection, made by hand: what no server here writes, and what a damaged log would be."""

from __future__ import annotations

import random
import struct
import uuid
from typing import Any, Final
from zlib import crc32

import zstandard

from tailrace.producer.model.binlog_events import ChangeRefused, Event, PositionAdvanced, RowsEvent
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.binlog.parser import BinlogParser

SOURCE: Final = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
_WHOLE: Final = 0xFFFFFF

QUERY, ROTATE, FORMAT, XID, TABLE_MAP, ROWS_QUERY, GTID, XA_PREPARE, PAYLOAD = 2, 4, 15, 16, 19, 29, 33, 38, 40
WRITE, UPDATE, DELETE = 30, 31, 32
POST_HEADERS: Final = {QUERY: 13, TABLE_MAP: 8, WRITE: 10, UPDATE: 10, DELETE: 10, GTID: 42, ROTATE: 8}


def packets(event: bytes) -> bytes:
    """Return an event as the server sends it: an OK byte before it, in packets of less than 16 MB."""
    payload = b"\0" + event
    parts = []
    for number, at in enumerate(range(0, len(payload) + 1, _WHOLE)):
        piece = payload[at : at + _WHOLE]
        parts.append(len(piece).to_bytes(3, "little") + bytes((number & 0xFF,)) + piece)
    return b"".join(parts)


def error_packet(code: int, text: str) -> bytes:
    """Return an ERR packet."""
    body = b"\xff" + code.to_bytes(2, "little") + b"#HY000" + text.encode()
    return len(body).to_bytes(3, "little") + b"\x05" + body


EOF_PACKET: Final = b"\x05\0\0\x05\xfe\0\0\0\0"


def plain_event(kind: int, body: bytes, end: int = 0, ts: int = 1_700_000_000) -> bytes:
    """Return an event without a checksum."""
    return struct.pack("<IBIIIH", ts, kind, 1, 19 + len(body), end & 0xFFFFFFFF, 0) + body


Columns = tuple[bytes, bytes, bytes, bytes]
"""Of a TABLE_MAP: one type byte per column, metadata, nullability bits, optional metadata."""


def table_map_body(database: str, table: str, columns: Columns) -> bytes:
    """Return a TABLE_MAP body after the table id."""
    types, metadata, nulls, options = columns
    names = b"".join(bytes((len(n.encode()),)) + n.encode() + b"\0" for n in (database, table))
    return b"\1\0" + names + bytes((len(types),)) + types + bytes((len(metadata),)) + metadata + nulls + options


def names_option(*names: str) -> bytes:
    """Return the optional metadata field of column names."""
    body = b"".join(bytes((len(n.encode()),)) + n.encode() for n in names)
    return b"\4" + bytes((len(body),)) + body


INTS: Final[Columns] = (b"\3\3", b"", b"\2", b"\1\1\0" + names_option("id", "v"))
"""Types, metadata, nullability and options of: id INT NOT NULL, v INT."""

ALL_KINDS: Final[Columns] = (
    b"\x08\x0f\x12\xf6\xf5\xfc\x13\xfe\x10\x05\x11\x0d",
    b"\x90\x01\x03\x0a\x02\x04\x02\x06\xf7\x01\x04\x01\x08\x02",
    b"\xfe\x0f",
    b"\1\1\0\3\2\x2d\x3f" + names_option(*"abcdefghijkl") + b"\6\5\2\1x\1y\x0a\1\x2d\x08\1\0",
)
"""One column of each family: numbers, text, JSON, bytes, an enumeration, times."""
_JSON_ARRAY: Final = b"\x02\x02\0\x0c\0\x05\1\0\x0c\x0a\0\1x"
ALL_KINDS_IMAGE: Final = b"".join(
    (
        b"\0\0" + struct.pack("<q", 1) + b"\2\0hi",
        (0x8000000000 + ((((2024 * 13 + 1) << 5 | 2) << 17) | (3 << 12 | 4 << 6 | 5))).to_bytes(5, "big") + b"\0\0",
        b"\x80\0\0\1\x17" + struct.pack("<I", len(_JSON_ARRAY)) + _JSON_ARRAY + b"\3\0abc",
        (0x800000 | 1 << 12 | 2 << 6 | 3).to_bytes(3, "big") + b"\0\0\1" + b"\1" + b"\x0f\xff",
        struct.pack("<d", 1.5) + struct.pack(">I", 1_700_000_000) + b"\x0a" + b"\x7c",
    )
)
"""A row of them."""


def query_body(sql: str, *, database: str = "shop", status: bytes = b"", thread: int = 7) -> bytes:
    """Return a QUERY body."""
    head = struct.pack("<IIBHH", thread, 0, len(database.encode()), 0, len(status))
    return head + status + database.encode() + b"\0" + sql.encode()


class LogBytes:
    """A binlog file that is being built; every method appends packets and advances the position."""

    def __init__(self, file: str = "binlog.000001", *, pos: int = 4, checksum: bool = True) -> None:
        self.data = b""
        self.pos = pos
        self.checksum = checksum
        self.number = 0
        self.rotate(file, pos=pos)
        self.format()

    def add(self, kind: int, body: bytes, *, in_file: bool = True) -> LogBytes:
        """Append an event."""
        size = 19 + len(body) + (4 if self.checksum else 0)
        end = self.pos + size if in_file else 0
        header = struct.pack("<IBIIIH", 1_700_000_000, kind, 1, size, end & 0xFFFFFFFF, 0)
        event = header + body
        if self.checksum:
            event += crc32(event).to_bytes(4, "little")
        self.data += packets(event)
        self.pos = end or self.pos
        return self

    def rotate(self, file: str, *, pos: int = 4) -> LogBytes:
        """Append the artificial ROTATE that opens a file."""
        self.add(ROTATE, pos.to_bytes(8, "little") + file.encode(), in_file=False)
        self.pos = pos
        return self

    def format(self, lengths: dict[int, int] | None = None, version: str = "8.0.15") -> LogBytes:
        """Append the FORMAT_DESCRIPTION, which has a checksum in any case."""
        known = {**POST_HEADERS, **(lengths or {})}
        body = struct.pack("<H50sIB", 4, version.encode(), 0, 19)
        body += bytes(known.get(kind, 0) for kind in range(1, 41)) + bytes((int(self.checksum),))
        if not self.checksum:
            body += b"\0\0\0\0"
        return self.add(FORMAT, body)

    def gtid(
        self,
        *,
        commit_us: int = 1_700_000_000_123_456,
        original_us: int | None = None,
        source: str = SOURCE,
        number: int | None = None,
        stamp: bytes | None = None,
    ) -> LogBytes:
        """Append the GTID of the next transaction; ``stamp`` replaces all that follows the logical clocks."""
        self.number += 1
        if stamp is None:
            stamp = commit_us.to_bytes(7, "little")
            if original_us is not None:
                stamp = (commit_us | 1 << 55).to_bytes(7, "little") + original_us.to_bytes(7, "little")
            stamp += b"\xfc\x00\x01"
        number = self.number if number is None else number
        head = struct.pack("<B16sqBqq", 0, uuid.UUID(source).bytes, number, 2, 0, 1)
        return self.add(GTID, head + stamp)

    def query(self, sql: str, *, database: str = "shop", status: bytes = b"", thread: int = 7) -> LogBytes:
        """Append a statement."""
        return self.add(QUERY, query_body(sql, database=database, status=status, thread=thread))

    def begin(self) -> LogBytes:
        """Append GTID and BEGIN."""
        return self.gtid().query("BEGIN")

    def xid(self) -> LogBytes:
        """Append the end of a transaction."""
        return self.add(XID, b"\1\0\0\0\0\0\0\0")

    def table_map(
        self,
        table: str = "orders",
        columns: Columns = INTS,
        *,
        table_id: int = 90,
        database: str = "shop",
    ) -> LogBytes:
        """Append a TABLE_MAP."""
        return self.add(TABLE_MAP, table_id.to_bytes(6, "little") + table_map_body(database, table, columns))

    def rows(
        self,
        images: bytes,
        kind: int = WRITE,
        *,
        table_id: int = 90,
        extra: bytes = b"",
        bitmaps: bytes | None = None,
        columns: int = 2,
    ) -> LogBytes:
        """Append a rows event in its second form."""
        present = bitmaps if bitmaps is not None else b"\xff" * (2 if kind == UPDATE else 1)
        head = table_id.to_bytes(6, "little") + b"\1\0" + (2 + len(extra)).to_bytes(2, "little") + extra
        return self.add(kind, head + bytes((columns,)) + present + images)

    def transaction(self, images: bytes = b"\0\1\0\0\0\2\0\0\0", kind: int = WRITE, table: str = "orders") -> LogBytes:
        """Append a whole transaction with one rows event."""
        return self.begin().table_map(table).rows(images, kind).xid()


TAGGED_GTID = bytes.fromhex(
    "027c0000 0002 029903b1039902a503310222c5036d029d0304f10300000002 0404 060e7461675f6f6e65 0808 0a0c"
    "0c7f54b1a1312c6106 108504 1283120b"
)
"""As MySQL 9.7.4 has logged it: version, size, required field; flags, server, number, tag, clocks, time, and others."""

ROW = b"\0\1\0\0\0\2\0\0\0"


def orders(table: TableId) -> bool:
    """Capture one table."""
    return table == TableId("shop", "orders")


def parse(log: LogBytes | bytes, *, verify: bool = True) -> list[Event]:
    """Feed all bytes at once."""
    return feed_all(BinlogParser(orders, verify=verify), log if isinstance(log, bytes) else log.data)


def feed_all(parser: BinlogParser, data: bytes) -> list[Event]:
    """Feed bytes and return all of their events. Raises the error of a refused change."""
    events = parser.feed(data)
    while parser.pending:
        events += parser.feed(b"")
    return raise_refused(events)


def raise_refused(events: list[Event]) -> list[Event]:
    """Raise the error of a refused change among events, else return them."""
    for event in events:
        if isinstance(event, ChangeRefused):
            raise event.error
    return events


def contents(events: list[Event]) -> list[tuple[Any, ...]]:
    """Return the content of events, independent of the location of their bytes."""
    return [
        (e.op, e.table, e.data[e.start : e.stop], e.file, e.pos, e.end) if isinstance(e, RowsEvent) else tuple(e)
        for e in events
        if not isinstance(e, PositionAdvanced)
    ]


def inner(*events: tuple[int, bytes]) -> bytes:
    """Return events in the form of a compressed transaction."""
    return b"".join(plain_event(kind, body) for kind, body in events)


def payload(events: bytes, compression: int = 0, *, data: bytes | None = None) -> bytes:
    """Return a TRANSACTION_PAYLOAD body."""
    packed = data if data is not None else zstandard.compress(events) if compression == 0 else events
    kind = bytes((compression,)) if compression < 251 else b"\xfc" + compression.to_bytes(2, "little")
    size = b"\xfe" + len(packed).to_bytes(8, "little")
    length = b"\xfe" + len(events).to_bytes(8, "little")
    fields = b"\2" + bytes((len(kind),)) + kind + b"\3\x09" + length + b"\1\x09" + size
    return fields + b"\0" + packed


MAP = (90).to_bytes(6, "little") + table_map_body("shop", "orders", INTS)


WRITE_BODY = (90).to_bytes(6, "little") + b"\1\0\2\0\2\xff"


def mutated(data: bytes, choose: random.Random) -> bytes:
    """Return bytes with one to three faults."""
    made = bytearray(data)
    for _ in range(choose.randint(1, 3)):
        at = choose.randrange(len(made))
        match choose.randrange(5):
            case 0:
                made[at] ^= 1 << choose.randrange(8)
            case 1:
                made[at] = choose.choice((0, 1, 0x7F, 0x80, 0xFA, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF))
            case 2:
                del made[at : at + choose.randint(1, 8)]
            case 3:
                made[at:at] = choose.randbytes(choose.randint(1, 8))
            case _:
                made[at : at + 8] = choose.randbytes(8)
    return bytes(made)
