"""Random logs, whole and damaged: the extension and the Python loop parse them into the same events, or one error."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import NamedTuple
from unittest import mock

from tailrace.producer.model.binlog_events import Event, RowsEvent
from tailrace.producer.mysql.binlog.parser import BinlogParser
from tailrace.producer.native.loader import SWITCH
from tailrace.runtime.errors import TailraceError
from tests.support.binlog_bytes import (
    ALL_KINDS,
    ALL_KINDS_IMAGE,
    DELETE,
    INTS,
    MAP,
    PAYLOAD,
    QUERY,
    ROW,
    ROWS_QUERY,
    UPDATE,
    WRITE,
    WRITE_BODY,
    XID,
    Columns,
    LogBytes,
    inner,
    mutated,
    orders,
    payload,
    query_body,
)


class Parsed(NamedTuple):
    """What a parser made of a log."""

    events: list[object]
    error: str
    """Empty if there is none."""
    state: object
    """Where the parser is then, and what it knows of the transaction."""

    @property
    def rows(self) -> int:
        """Number of rows events."""
        return sum(isinstance(event, RowsEvent) for event in self.events)


def compare_packets(choose: random.Random, *, damaged: bool) -> Parsed:
    """Parse a random log with both. Raises AssertionError if they differ."""
    log = _random_log(choose).data
    data = mutated(log, choose) if damaged else log
    cuts = sorted(choose.randrange(len(data)) for _ in range(choose.choice((0, 1, 5))))
    verify = choose.random() < 0.7
    expected = _parsed(data, cuts, native=False, verify=verify)
    found = _parsed(data, cuts, native=True, verify=verify)
    assert found == expected, f"verify {verify} cuts {cuts}\n{data.hex()}"
    return expected


def _random_log(choose: random.Random, *, transactions: int = 6) -> LogBytes:
    """Return a log of usual and unusual transactions; positions may pass 4 GB."""
    log = LogBytes(checksum=choose.random() < 0.7, pos=choose.choice((4, 0xFFFFFE00)))
    for _ in range(transactions):
        log.begin()
        for _ in range(choose.randint(0, 5)):
            if choose.random() < 0.2:
                log.add(ROWS_QUERY, b"\0UPDATE orders")
            columns = choose.choice((INTS, INTS, ALL_KINDS))
            log.table_map(choose.choice(("orders", "orders", "other")), columns)
            for _ in range(choose.randint(1, 3)):
                _add_rows(log, choose, columns)
            if choose.random() < 0.1:
                log.query("SAVEPOINT a")
        log.xid()
        if choose.random() < 0.2:
            events = inner(
                (QUERY, query_body("BEGIN")), (19, MAP), (30, WRITE_BODY + ROW * 2), (XID, b"\1" + b"\0" * 7)
            )
            log.gtid().add(PAYLOAD, payload(events, choose.choice((0, 255))))
    return log


def _add_rows(log: LogBytes, choose: random.Random, columns: Columns) -> None:
    kind = choose.choice((WRITE, UPDATE, DELETE))
    extra = b"\0\0" if choose.random() < 0.1 else b""
    if columns is ALL_KINDS:
        log.rows(ALL_KINDS_IMAGE, kind, columns=12, bitmaps=b"\xff\x0f" * (2 if kind == UPDATE else 1), extra=extra)
    else:
        log.rows(ROW * choose.randint(1, 3), kind, extra=extra)


def _parsed(data: bytes, cuts: Sequence[int], *, native: bool, verify: bool) -> Parsed:
    with mock.patch.dict(os.environ, {} if native else {SWITCH: "0"}):
        parser = BinlogParser(orders, verify=verify)
    assert (parser._native is not None) == native
    found: list[Event] = []
    error = ""
    try:
        for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True):
            found += parser.feed(data[start:stop])
            while parser.pending:
                found += parser.feed(b"")
    except TailraceError as raised:
        error = f"{type(raised).__name__}: {raised.message} {raised.hint} {raised.context}"
    transactions = parser._transactions
    changed = sorted(str(cached.table.id) for cached in transactions.changed)
    return Parsed(
        [_comparable(event) for event in found], error, (parser.file, parser.pos, transactions.number, changed)
    )


def _comparable(event: Event) -> object:
    """Return an event whose images are what they contain; those of two parsers have the same offsets otherwise."""
    if isinstance(event, RowsEvent):
        images = event.data[event.start : event.stop]
        return event._replace(data=images, start=0, stop=len(images))
    return type(event), str(event)
