"""Compressed transactions, made by hand: opened whole, or refused."""

from __future__ import annotations

import pytest
import zstandard

from tailrace.producer.errors import BinlogError
from tailrace.producer.model.binlog_events import RowsEvent, TransactionBegin
from tests.support.binlog_bytes import (
    INTS,
    PAYLOAD,
    QUERY,
    ROW,
    TABLE_MAP,
    WRITE,
    XID,
    LogBytes,
    parse,
    plain_event,
    query_body,
    table_map_body,
)


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


@pytest.mark.parametrize("compression", [0, 255])
def test_compressed_transaction_is_decompressed(compression: int) -> None:
    """Its events have the position of the payload event."""
    events = inner((QUERY, query_body("BEGIN")), (TABLE_MAP, MAP), (WRITE, WRITE_BODY + ROW), (XID, b"\1" + b"\0" * 7))
    log = LogBytes().gtid()
    position = log.pos
    log.add(PAYLOAD, payload(events, compression)).transaction()

    _, begin, rows, commit, *after = parse(log)

    assert isinstance(begin, TransactionBegin)
    assert isinstance(rows, RowsEvent)
    assert rows.data[rows.start : rows.stop] == ROW
    assert (rows.pos, rows.end) == (position, commit.end)
    assert begin.pos < position < begin.end == commit.end
    assert [type(e).__name__ for e in after] == ["TransactionBegin", "RowsEvent", "TransactionCommit"]
    assert after[-1].end == log.pos


def test_compressed_transaction_with_a_large_event() -> None:
    """An inner event may be larger than a packet, while the payload event is not."""
    image = b"x" * (0xFFFFFF + 1000)
    events = inner(
        (QUERY, query_body("BEGIN")), (TABLE_MAP, MAP), (WRITE, WRITE_BODY + image), (XID, b"\1" + b"\0" * 7)
    )
    for compression in (0, 255):
        log = LogBytes().gtid().add(PAYLOAD, payload(events, compression)).transaction()
        big, small = (e for e in parse(log) if isinstance(e, RowsEvent))
        assert big.data[big.start : big.stop] == image
        assert small.data[small.start : small.stop] == ROW


@pytest.mark.parametrize(
    "body",
    [
        payload(b"", data=b"nonsense"),
        payload(b"", 7),
        payload(inner((QUERY, query_body("BEGIN")))[:-3], 255),
        payload(b"\0" * 10, 255),
    ],
    ids=["not zstd", "unknown compression", "truncated", "no header"],
)
def test_damaged_compressed_transaction_is_rejected(body: bytes) -> None:
    """None of its events are used."""
    with pytest.raises(BinlogError, match="compress"):
        parse(LogBytes().gtid().add(PAYLOAD, body))
