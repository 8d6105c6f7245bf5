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


def bytes_needed(rest: bytes) -> int:
    """Return how many bytes are required before parsing can continue."""
    if len(rest) < EVENT_BODY:
        return len(rest) + 1
    length = int.from_bytes(rest[:3], "little")
    if length < MAX_PACKET:
        return 4 + length
    return multi_packet_length(int.from_bytes(rest[14:18], "little"))
