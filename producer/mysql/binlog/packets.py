"""Packets of the dump connection: length u24, number u8, status u8, then an event; a full packet is continued."""

from __future__ import annotations

from typing import Final

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
