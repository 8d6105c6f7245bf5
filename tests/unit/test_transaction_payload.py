"""Compressed transactions, made by hand: opened in pieces, or refused."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
import zstandard

from tailrace.producer.errors import BinlogError
from tailrace.producer.model.binlog_events import RowsEvent, TransactionBegin
from tailrace.producer.mysql.binlog.parser import BinlogParser
from tests.support.binlog_bytes import (
    MAP,
    PAYLOAD,
    QUERY,
    ROW,
    TABLE_MAP,
    WRITE,
    WRITE_BODY,
    XID,
    LogBytes,
    contents,
    feed_all,
    inner,
    orders,
    parse,
    payload,
    query_body,
)


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
    with pytest.raises(BinlogError, match=r"(?s)compress.*hint: .*, (then )?take a new snapshot") as caught:
        parse(LogBytes().gtid().add(PAYLOAD, body))
    unknown = "unknown" in caught.value.message
    assert caught.value.hint.startswith("SET GLOBAL binlog_transaction_compression=OFF, then ") == unknown


def test_nested_compressed_transaction_is_rejected() -> None:
    """No server writes one; each level would multiply the size."""
    nested = inner((QUERY, query_body("BEGIN")), (PAYLOAD, payload(inner((XID, b"\1" + b"\0" * 7)))))
    with pytest.raises(BinlogError, match="another one"):
        parse(LogBytes().gtid().add(PAYLOAD, payload(nested)))


@pytest.mark.parametrize("compression", [0, 255])
def test_positions_within_a_compressed_transaction_do_not_run_ahead(compression: int) -> None:
    """Several pieces: no position is reported before the commit, and what follows is parsed after it."""
    rows = [(WRITE, WRITE_BODY + ROW * 5000)] * 20
    events = inner((QUERY, query_body("BEGIN")), (TABLE_MAP, MAP), *rows, (XID, b"\1" + b"\0" * 7))
    log = LogBytes().gtid()
    log.add(PAYLOAD, payload(events, compression)).transaction()
    parser = BinlogParser(orders)
    batches = [parser.feed(log.data)]
    while parser.pending:
        batches.append(parser.feed(b""))

    assert len(batches) > 3
    names = [[type(e).__name__ for e in batch] for batch in batches]
    assert names[0][:3] == ["PositionAdvanced", "TransactionBegin", "RowsEvent"]
    assert {name for batch in names[1:-1] for name in batch} <= {"RowsEvent", "TransactionCommit"}
    assert [name for batch in names for name in batch].count("RowsEvent") == 21
    assert parser.pos == log.pos
    assert contents([e for batch in batches for e in batch]) == contents(parse(log))


@pytest.mark.parametrize("piece", [1, 700, 1 << 20])
def test_compressed_transaction_arrives_in_any_chunks(piece: int) -> None:
    """The bytes behind it wait until it is parsed."""
    events = inner((QUERY, query_body("BEGIN")), (TABLE_MAP, MAP), (WRITE, WRITE_BODY + ROW), (XID, b"\1" + b"\0" * 7))
    log = LogBytes().transaction().gtid().add(PAYLOAD, payload(events)).transaction()
    parser, found = BinlogParser(orders), []
    for at in range(0, len(log.data), piece):
        found += feed_all(parser, log.data[at : at + piece])

    assert contents(found) == contents(parse(log))
    assert parser.pos == log.pos


def test_memory_does_not_grow_with_a_compressed_transaction() -> None:
    """256 MiB of equal rows compress to some kilobytes; they are parsed in pieces."""
    compressor = zstandard.ZstdCompressor().compressobj()
    parts = [compressor.compress(inner((QUERY, query_body("BEGIN")), (TABLE_MAP, MAP)))]
    block = inner(*[(WRITE, WRITE_BODY + ROW * 900)] * 128)
    blocks = (256 << 20) // len(block)
    parts += [compressor.compress(block) for _ in range(blocks)]
    parts += [compressor.compress(inner((XID, b"\1" + b"\0" * 7))), compressor.flush()]
    data = LogBytes().gtid().add(PAYLOAD, payload(b"", data=b"".join(parts))).data
    assert len(data) < 1 << 20

    tracemalloc.start()
    try:
        parser = BinlogParser(orders)
        rows = sum(isinstance(e, RowsEvent) for e in parser.feed(data))
        while parser.pending:
            rows += sum(isinstance(e, RowsEvent) for e in parser.feed(b""))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert rows == blocks * 128
    assert peak < 8 << 20


def test_impossible_size_of_an_inner_event_is_rejected_before_it_is_read() -> None:
    """4 GiB are announced, and 64 MiB of zeros follow."""
    head = struct.pack("<IBIIIH", 0, WRITE, 1, 0xFFFFFFFF, 0, 0)
    body = payload(b"", data=zstandard.compress(head + b"\0" * (64 << 20)))
    with pytest.raises(BinlogError, match="impossible size"):
        parse(LogBytes().gtid().add(PAYLOAD, body))
