"""Packets of the dump connection: the request of the binlog, and the server's answers.

A request is a command and what follows it: it asks for what is not in a set of GTIDs, or for a file from a position
on. The server waits for further events at the end of its log. An answer has length u24, number u8, status u8, then an
event; a full packet is continued.
"""

from __future__ import annotations

import struct
from typing import Final
from uuid import UUID

from pymysql.constants import COMMAND

from tailrace.producer.errors import BinlogError
from tailrace.producer.mysql.gtid import GtidSet

EVENT_BODY: Final = 24
"""Offset of an event's body in its packet: 5 bytes of the packet, 19 of the event's header."""
MAX_PACKET: Final = 0xFFFFFF
"""Length of a packet that the next packet continues."""


def packet_header(length: int) -> bytes:
    """Return the header of a packet of that length and its OK byte; lengths above 16 MB are capped."""
    return min(length, MAX_PACKET).to_bytes(3, "little") + b"\0\0"


def multi_packet_length(size: int) -> int:
    """Return the bytes of an event in several packets: each has a header, the last one is never full."""
    return size + 1 + 4 * ((size + 1) // MAX_PACKET + 1)


def joined_packets(data: bytes, at: int, size: int) -> bytes:
    """Return an event that arrived in several packets as one packet; ``at`` is the first of them."""
    parts, rest = [packet_header(size + 1)], size + 1
    at += 4
    first = 1  # the OK byte is part of the header written above
    while rest > 0:
        parts.append(data[at + first : at + min(rest, MAX_PACKET)])
        at += MAX_PACKET + 4
        rest -= MAX_PACKET
        first = 0
    return b"".join(parts)


def bytes_needed(rest: bytes) -> int:
    """Return how many bytes are required before parsing can continue."""
    if len(rest) < EVENT_BODY:
        return len(rest) + 1
    length = int.from_bytes(rest[:3], "little")
    if length < MAX_PACKET:
        return 4 + length
    return multi_packet_length(int.from_bytes(rest[14:18], "little"))


_THROUGH_GTID: Final = 4
"""Flag: the request has a set of GTIDs."""
_WITH_TAGS: Final = 1 << 56 | 1
FIRST_EVENT: Final = 4
"""Position of the first event of a file, behind its magic number."""


def dump_from_gtids(executed: GtidSet, server_id: int) -> tuple[int, bytes]:
    """Return the request of all transactions that are not in a set.

    In a set with tags each source has one, after the UUID: twice its length, then its characters. Such a set has marks
    around the number of sources.
    """
    sources = executed.intervals()
    has_tags = any(":" in source for source, _ in sources)
    body = [struct.pack("<Q", len(sources) << 8 | _WITH_TAGS if has_tags else len(sources))]
    for source, intervals in sources:
        uuid, _, tag = source.partition(":")
        packed = [struct.pack("<QQ", first, last + 1) for first, last in intervals]
        name = bytes([2 * len(tag)]) + tag.encode() if has_tags else b""
        body += [UUID(uuid).bytes, name, struct.pack("<Q", len(packed)), *packed]
    gtids = b"".join(body)
    name = b"\0\0\0"  # the server finds the file
    head = struct.pack("<HII", _THROUGH_GTID, server_id, len(name))
    return COMMAND.COM_BINLOG_DUMP_GTID, head + name + struct.pack("<QI", FIRST_EVENT, len(gtids)) + gtids


def dump_from_file(name: str, server_id: int, pos: int = FIRST_EVENT, *, flags: int = 0) -> tuple[int, bytes]:
    """Return the request of everything from a position in a file on, which has 32 bits in it.

    Raises BinlogError for a position that has more.
    """
    if pos >> 32:
        raise BinlogError(
            "a binlog file cannot be read from a position above 4 GB on without GTIDs",
            hint="set gtid_mode=ON and max_binlog_size to at most 1 GB, then take a new snapshot under another "
            "topic.prefix",
            file=name,
            pos=pos,
        )
    return COMMAND.COM_BINLOG_DUMP, struct.pack("<IHI", pos, flags, server_id) + name.encode()
