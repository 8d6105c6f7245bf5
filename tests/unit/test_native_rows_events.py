"""The extension and the Python loop parse the same bytes into the same events, or the same error."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast
from unittest import mock

import pytest

from tailrace.producer.model.binlog_events import Event, RowsEvent
from tailrace.producer.mysql.binlog.parser import BinlogParser
from tailrace.producer.native import loader
from tailrace.runtime.errors import TailraceError
from tests.support.binlog_bytes import (
    ALL_KINDS,
    ALL_KINDS_IMAGE,
    DELETE,
    INTS,
    PAYLOAD,
    QUERY,
    ROW,
    ROWS_QUERY,
    UPDATE,
    WRITE,
    XID,
    Columns,
    LogBytes,
    orders,
    query_body,
)
from tests.unit.test_malformed_bytes import mutated
from tests.unit.test_transaction_payload import MAP, WRITE_BODY, inner, payload

if TYPE_CHECKING:
    from tailrace.producer.native.codec import RowsEventParser

pytestmark = pytest.mark.skipif(
    not loader.is_used(), reason=f"the compiled extension is not used: {loader.unused_because()}"
)

SEED = 20_261_123
LOGS = 400


def random_log(choose: random.Random, *, transactions: int = 6) -> LogBytes:
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


def parsed(data: bytes, cuts: Sequence[int], *, native: bool, verify: bool) -> tuple[list[object], str, object]:
    """Return the events of a log that arrives in pieces, the error at its end, and where the parser is then."""
    with mock.patch.dict(os.environ, {} if native else {loader.SWITCH: "0"}):
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
    return [comparable(event) for event in found], error, (parser.file, parser.pos, transactions.number, changed)


def comparable(event: Event) -> object:
    """Return an event whose images are what they contain, and whose table is a value."""
    if isinstance(event, RowsEvent):
        images = event.data[event.start : event.stop]
        return type(event), event._replace(data=images, start=0, stop=len(images))
    return type(event), str(event)


@pytest.mark.parametrize("damaged", [False, True])
def test_both_parse_alike(damaged: bool) -> None:
    rows = errors = 0
    for number in range(LOGS):
        choose = random.Random(SEED + number)
        log = random_log(choose)
        data = mutated(log.data, choose) if damaged else log.data
        cuts = sorted(choose.randrange(len(data)) for _ in range(choose.choice((0, 1, 5))))
        verify = choose.random() < 0.7
        expected = parsed(data, cuts, native=False, verify=verify)
        assert parsed(data, cuts, native=True, verify=verify) == expected, f"log {number}"
        rows += sum(isinstance(event, tuple) and event[0] is RowsEvent for event in expected[0])
        errors += bool(expected[1])
    assert rows > LOGS
    assert errors > LOGS // 4 if damaged else not errors


class Counting:
    """The parser of the extension, counting what it is given and what it returns."""

    def __init__(self, native: RowsEventParser) -> None:
        self._native = native
        self.calls = self.events = 0

    def parse(self, *given: Any) -> tuple[int, int, int, str | None]:
        """Parse, and count."""
        events: list[Event] = given[9]
        before = len(events)
        found = self._native.parse(*given)
        self.calls += 1
        self.events += len(events) - before
        return found


def test_the_extension_parses_all_that_is_known() -> None:
    """The Python loop learns the definition of each table and the form of its rows events."""
    log = LogBytes().begin().table_map().rows(ROW).rows(ROW * 2, UPDATE).table_map("other", table_id=91).xid()
    parser = BinlogParser(orders)
    parser.feed(log.data)
    assert parser._native is not None
    counting = Counting(parser._native)
    parser._native = cast("RowsEventParser", counting)
    start = len(log.data)
    log.begin().add(ROWS_QUERY, b"\0UPDATE orders").table_map().rows(ROW).table_map("other", table_id=91)
    log.rows(ROW, table_id=91).table_map().rows(ROW * 2, UPDATE).xid()

    events = parser.feed(log.data[start:])

    assert [(event.op, event.number, event.query) for event in events if isinstance(event, RowsEvent)] == [
        ("c", 1, "UPDATE orders"),
        ("u", 3, None),
    ]
    assert (counting.calls, counting.events) == (1, 2)
