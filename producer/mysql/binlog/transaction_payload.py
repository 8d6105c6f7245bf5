"""TRANSACTION_PAYLOAD event: the compressed events of a transaction (binlog_transaction_compression, MySQL 8.0.20).

Body: fields of (type, size, value), all packed integers, up to type 0, then the payload. It contains events without
checksums. They are wrapped in packets again, so that one loop parses all events. The payload is decompressed in pieces:
the memory depends on the largest event in it, not on the size of the transaction.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from io import BytesIO
from typing import Final, Protocol

import zstandard

from tailrace.producer.errors import BinlogError
from tailrace.producer.mysql.binlog.event_types import NEW_SNAPSHOT
from tailrace.producer.mysql.binlog.packets import packet_header
from tailrace.producer.mysql.binlog.table_map import packed

_END, _SIZE, _COMPRESSION = 0, 1, 2
_ZSTD, _NONE = 0, 255
_EVENT_HEADER: Final = struct.Struct("<IBIIIH")
_PIECE: Final = 1 << 18
_MAX_EVENT: Final = 1 << 30
"""The largest event that a server writes: max_allowed_packet is 1 GiB at most."""


class _Reader(Protocol):
    def read(self, size: int, /) -> bytes: ...


def payload_packets(body: memoryview) -> Iterator[bytes]:
    """Yield the inner events of a TRANSACTION_PAYLOAD body, each in a packet with 0 as position, in pieces.

    Each piece has whole packets. Raises BinlogError if the compression is unknown or the payload is damaged.
    """
    size = len(body)
    compression = _NONE
    at = 0
    while True:
        field, at = packed(body, at)
        if field == _END:
            break
        length, at = packed(body, at)
        value, _ = packed(body, at)
        at += length
        if field == _SIZE:
            size = value
        elif field == _COMPRESSION:
            compression = value
    payload = body[at : at + size]
    if compression == _ZSTD:
        # A frame whose window is larger than 128 MiB is refused; servers write at most that.
        return _packets(zstandard.ZstdDecompressor().stream_reader(payload, read_across_frames=True))
    if compression == _NONE:
        return _packets(BytesIO(payload))
    raise BinlogError(
        "a transaction in the binlog has an unknown compression",
        hint=f"SET GLOBAL binlog_transaction_compression=OFF, then {NEW_SNAPSHOT}",
        compression=compression,
    )


def _packets(reader: _Reader) -> Iterator[bytes]:
    data = b""
    while True:
        more = _read(reader, max(_PIECE, _missing(data)))
        data += more
        if not more:
            if data:
                raise BinlogError("a compressed transaction in the binlog ends within an event")
            return
        parts: list[bytes] = []
        at = 0
        while len(data) - at >= _EVENT_HEADER.size:
            ts, event_type, server_id, size, _, flags = _EVENT_HEADER.unpack_from(data, at)
            if not _EVENT_HEADER.size <= size <= _MAX_EVENT:
                raise BinlogError(
                    "a compressed transaction in the binlog is damaged: an event has an impossible size", size=size
                )
            if at + size > len(data):
                break
            parts.append(packet_header(size + 1))
            parts.append(_EVENT_HEADER.pack(ts, event_type, server_id, size, 0, flags))
            parts.append(data[at + _EVENT_HEADER.size : at + size])
            at += size
        data = data[at:]
        if parts:
            yield b"".join(parts)


def _missing(data: bytes) -> int:
    """Return how many bytes of the first event are missing; 0 if its header is incomplete."""
    return _EVENT_HEADER.unpack_from(data)[3] - len(data) if len(data) >= _EVENT_HEADER.size else 0


def _read(reader: _Reader, size: int) -> bytes:
    """Read up to ``size`` bytes; less only at the end."""
    parts: list[bytes] = []
    try:
        while size > 0 and (part := reader.read(min(size, _PIECE))):
            parts.append(part)
            size -= len(part)
    except zstandard.ZstdError as error:
        raise BinlogError("a compressed transaction in the binlog is damaged", cause=str(error)) from error
    return b"".join(parts)
