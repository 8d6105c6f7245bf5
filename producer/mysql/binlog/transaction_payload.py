"""TRANSACTION_PAYLOAD event: the compressed events of a transaction (binlog_transaction_compression, MySQL 8.0.20).

Body: fields of (type, size, value), all packed integers, up to type 0, then the payload. It contains events without
checksums. They are wrapped in packets again, so that one loop parses all events.
"""

from __future__ import annotations

import struct
from typing import Final

import zstandard

from tailrace.producer.errors import BinlogError
from tailrace.producer.mysql.binlog.table_map import packed

_END, _SIZE, _COMPRESSION = 0, 1, 2
_ZSTD, _NONE = 0, 255
_EVENT_HEADER: Final = struct.Struct("<IBIIIH")


def open_payload(body: bytes) -> bytes:
    """Return the inner events of a TRANSACTION_PAYLOAD body, each in a packet, with 0 as position.

    Raises BinlogError if the compression is unknown or the payload is damaged.
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
        payload = _decompress(payload)
    elif compression != _NONE:
        raise BinlogError(
            "a transaction in the binlog has an unknown compression",
            hint="SET GLOBAL binlog_transaction_compression=OFF",
            compression=compression,
        )
    return _into_packets(payload)


def _decompress(payload: bytes) -> bytes:
    try:
        return zstandard.ZstdDecompressor().decompressobj(read_across_frames=True).decompress(payload)
    except zstandard.ZstdError as error:
        raise BinlogError("a compressed transaction in the binlog is damaged", cause=str(error)) from error


def _into_packets(events: bytes) -> bytes:
    parts: list[bytes] = []
    at = 0
    while at < len(events):
        if len(events) - at < _EVENT_HEADER.size:
            raise BinlogError("a compressed transaction in the binlog ends within an event")
        ts, event_type, server_id, size, _, flags = _EVENT_HEADER.unpack_from(events, at)
        if size < _EVENT_HEADER.size or at + size > len(events):
            raise BinlogError("a compressed transaction in the binlog ends within an event")
        parts.append(packet_header(size + 1))
        parts.append(_EVENT_HEADER.pack(ts, event_type, server_id, size, 0, flags))
        parts.append(events[at + _EVENT_HEADER.size : at + size])
        at += size
    return b"".join(parts)


def packet_header(length: int) -> bytes:
    """Return the header of a packet of that length and its OK byte; lengths above 16 MB are capped."""
    return min(length, 0xFFFFFF).to_bytes(3, "little") + b"\0\0"
