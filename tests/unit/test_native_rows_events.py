"""The extension and the Python loop parse the same bytes into the same events, or the same error."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import pytest

from tailrace.producer.model.binlog_events import Event, RowsEvent, TransactionBegin, TransactionCommit
from tailrace.producer.mysql.binlog.parser import BinlogParser
from tailrace.producer.native import loader
from tests.fuzz.packets import compare_packets, compare_parsers
from tests.support.binlog_bytes import ROW, ROWS_QUERY, UPDATE, LogBytes, orders

if TYPE_CHECKING:
    from tailrace.producer.native.codec import PacketParser

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

    def __init__(self, native: PacketParser) -> None:
        self._native = native
        self.calls = self.events = 0

    def parse(self, *given: Any) -> tuple[int, int, str | None]:
        """Parse, and count."""
        events: list[Event] = given[9]
        before = len(events)
        found = self._native.parse(*given)
        self.calls += 1
        self.events += len(events) - before
        return found


def counted(log: LogBytes, *, known: int) -> tuple[list[Event], Counting]:
    """Parse the first ``known`` bytes of a log, then the others with a count of what the extension does."""
    parser = BinlogParser(orders)
    parser.feed(log.data[:known])
    assert parser._native is not None
    counting = Counting(parser._native)
    parser._native = cast("PacketParser", counting)
    return parser.feed(log.data[known:]), counting


def test_the_extension_parses_all_that_is_known() -> None:
    """The Python loop learns the source, the definition of each table and the form of its rows events."""
    log = LogBytes().begin().table_map().rows(ROW).rows(ROW * 2, UPDATE).table_map("other", table_id=91).xid()
    known = len(log.data)
    log.begin().add(ROWS_QUERY, b"\0UPDATE orders").table_map().rows(ROW).table_map("other", table_id=91)
    log.rows(ROW, table_id=91).table_map().rows(ROW * 2, UPDATE).rows(ROW, extra=b"\3\0\1\0").rows(ROW * 900).xid()
    log.gtid(original_us=5).query("BEGIN", database="", status=b"\0" * 300).xid()
    log.gtid(stamp=b"").query("BEGIN").table_map().rows(ROW).xid()

    events, counting = counted(log, known=known)

    assert [(event.op, event.number, event.query) for event in events if isinstance(event, RowsEvent)] == [
        ("c", 1, "UPDATE orders"),
        ("u", 3, None),
        ("c", 4, None),
        ("c", 5, None),
        ("c", 1, None),
    ]
    assert [event.commit_ts_us for event in events if isinstance(event, TransactionBegin)] == [
        1_700_000_000_123_456,
        5,
        0,
    ]
    assert (counting.calls, counting.events) == (1, len(events))


@pytest.mark.parametrize(
    "unusual",
    [
        lambda log: log.gtid().query("DROP TABLE x"),
        lambda log: log.begin().query("SAVEPOINT a").table_map().rows(ROW).xid(),
        lambda log: log.begin().table_map().rows(ROW).query("COMMIT"),
        lambda log: log.gtid(source="aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee").query("BEGIN").xid(),
    ],
    ids=["statement", "savepoint", "commit", "new source"],
)
def test_the_extension_continues_after_what_it_declines(unusual: Callable[[LogBytes], object]) -> None:
    log = LogBytes().transaction()
    known = len(log.data)
    log.transaction()
    unusual(log)
    log.transaction().transaction()

    events, counting = counted(log, known=known)

    assert counting.calls == 2
    assert sum(isinstance(event, TransactionCommit) for event in events) >= 3
    assert compare_parsers(log.data).error == ""


@pytest.mark.parametrize("checksum", [True, False])
def test_logs_that_are_cut_at_each_byte(checksum: bool) -> None:
    """In two parts, of which the first one may be all there is."""
    log = LogBytes(checksum=checksum).transaction().gtid(original_us=5).query("BEGIN")
    log.add(ROWS_QUERY, b"\0UPDATE orders").table_map().rows(ROW, UPDATE).rows(ROW).xid()
    whole = compare_parsers(log.data)
    for cut in range(1, len(log.data)):
        assert not compare_parsers(log.data[:cut]).error
        parts = compare_parsers(log.data, [cut])
        assert [event for event in parts.events if isinstance(event, RowsEvent)] == [
            event for event in whole.events if isinstance(event, RowsEvent)
        ]
        assert not parts.error
    compare_parsers(log.data, range(1, len(log.data)))


@pytest.mark.parametrize("checksum", [True, False])
def test_transactions_with_damage_at_each_byte(checksum: bool) -> None:
    log = LogBytes(checksum=checksum).transaction()
    start = len(log.data)
    log.transaction()
    errors = 0
    for at in range(start, len(log.data)):
        for change in (1, 0x80, 0xFF):
            damaged = bytearray(log.data)
            damaged[at] ^= change
            errors += bool(compare_parsers(bytes(damaged)).error)
    assert errors > 200


def test_a_position_beyond_64_bits_is_counted_by_python() -> None:
    """A damaged ROTATE may have any position."""
    for pos in ((1 << 62) - 200, (1 << 63) - 200, (1 << 64) - 200):
        parsed = compare_parsers(LogBytes(pos=pos).transaction().transaction().data)
        assert parsed.rows == 2
