"""The extension and the Python loop parse the same bytes into the same events, or the same error."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, cast

import pytest

from tailrace.producer.model.binlog_events import Event, RowsEvent
from tailrace.producer.mysql.binlog.parser import BinlogParser
from tailrace.producer.native import loader
from tests.fuzz.packets import compare_packets
from tests.support.binlog_bytes import ROW, ROWS_QUERY, UPDATE, LogBytes, orders

if TYPE_CHECKING:
    from tailrace.producer.native.codec import RowsEventParser

pytestmark = pytest.mark.skipif(
    not loader.is_used(), reason=f"the compiled extension is not used: {loader.unused_because()}"
)

SEED = 20_261_123
LOGS = 400


@pytest.mark.parametrize("damaged", [False, True])
def test_both_parse_alike(damaged: bool) -> None:
    rows = errors = 0
    for number in range(LOGS):
        parsed = compare_packets(random.Random(SEED + number), damaged=damaged)
        rows += parsed.rows
        errors += bool(parsed.error)
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
    log.rows(ROW, table_id=91).table_map().rows(ROW * 2, UPDATE).rows(ROW, extra=b"\3\0\1\0").rows(ROW * 900).xid()

    events = parser.feed(log.data[start:])

    assert [(event.op, event.number, event.query) for event in events if isinstance(event, RowsEvent)] == [
        ("c", 1, "UPDATE orders"),
        ("u", 3, None),
        ("c", 4, None),
        ("c", 5, None),
    ]
    assert (counting.calls, counting.events) == (1, 4)
