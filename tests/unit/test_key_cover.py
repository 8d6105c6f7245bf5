"""The spans of a table's splits, and the cover that the extension makes of them; see test_split_registry.py too."""

from __future__ import annotations

import pytest

from tailrace.producer.model.binlog_events import TransactionBegin
from tailrace.producer.model.split import EndedRange, KeyColumn, Range, Split
from tailrace.producer.model.table import Column, TableId
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.key_order import KeyOrder
from tailrace.producer.native import loader
from tailrace.producer.streaming.change_emitter import DECLINED, SKIPPED, WRITTEN, cover_of, key_spans
from tailrace.producer.streaming.split_registry import SplitRegistry
from tailrace.producer.streaming.tracked_table import TrackedTable
from tests.support.stream import FILE, SERVER, START

ID = Column("id", "bigint", nullable=False)
TABLE = TableId("d", "t")
LEAST, GREATEST = -(1 << 63), (1 << 63) - 1


def _order(*columns: Column) -> KeyOrder:
    return KeyOrder(
        [KeyColumn(column, is_integer=column.data_type == "bigint") for column in columns], lambda _sql: (0,)
    )


def _split(number: int, lower: int | None, upper: int | None, *, closed: bool = False, above: bool = False) -> Split:
    low, high = None if lower is None else (lower,), None if upper is None else (upper,)
    return Split(TABLE, "s", number, Range(low, high, closed, above), low, high)


def _planned(greatest: int | None, *, order: KeyOrder | None = None) -> tuple[SplitRegistry, TrackedTable]:
    registry = SplitRegistry()
    table = registry.track(TABLE, TableMode.WAITING)
    registry.start_planning(TABLE)
    table.compare_by(order or _order(ID))
    registry.set_range(TABLE, None if greatest is None else (greatest,))
    return registry, table


def test_spans_of_an_initial_snapshot() -> None:
    """Unread keys are skipped, those of an open split declined, those of ended ones and above the greatest written."""
    registry, table = _planned(50)
    registry.open(_split(1, 10, 20))
    committed = _split(2, 30, 50, closed=True)
    registry.open(committed)
    registry.commit(committed, START, START)
    registry.restore_ended(EndedRange.of(_split(0, None, 5), 3))
    assert key_spans(table) == {
        LEAST: WRITTEN,
        5: SKIPPED,
        10: DECLINED,
        20: SKIPPED,
        30: table.opened[committed.id],
        51: WRITTEN,
    }
    registry.open(_split(3, 50, None, above=True))
    assert (key_spans(table) or {})[51] == DECLINED


def test_unread_keys_of_an_incremental_snapshot_are_written() -> None:
    """Readers rely on each change."""
    registry = SplitRegistry()
    table = registry.track(TABLE, TableMode.STREAMING)
    registry.start_incremental(TABLE)
    table.compare_by(_order(ID))
    abandoned = _split(0, None, 5)
    registry.open(abandoned)
    assert key_spans(table) == {LEAST: DECLINED, 5: WRITTEN}
    registry.abandon_split(abandoned)
    assert key_spans(table) == {LEAST: WRITTEN, 5: WRITTEN}


def test_bounds_beyond_64_bits_are_left_out() -> None:
    """The keys of an unsigned column: the extension declines those that are greater."""
    registry, table = _planned(GREATEST + 9)
    registry.open(_split(0, 7, GREATEST + 5))
    registry.open(_split(1, GREATEST + 5, GREATEST + 9, closed=True))
    assert key_spans(table) == {LEAST: SKIPPED, 7: DECLINED}
    _, table = _planned(GREATEST)
    assert key_spans(table) == {LEAST: SKIPPED}


@pytest.mark.parametrize("columns", [(), (ID, ID), (Column("c", "binary", nullable=False, length=2),)])
def test_other_keys_have_no_spans(columns: tuple[Column, ...]) -> None:
    """Only one integer is compared by the extension."""
    _, table = _planned(None, order=_order(*columns))
    assert key_spans(table) is None


def test_other_modes_have_no_spans() -> None:
    """While a table is planned its changes are held, while it waits they are skipped, uncounted."""
    registry = SplitRegistry()
    table = registry.track(TABLE, TableMode.WAITING)
    table.compare_by(_order(ID))
    assert key_spans(table) is None
    registry.start_planning(TABLE)
    assert key_spans(table) is None


def test_of_ranges_that_overlap_the_later_one_decides() -> None:
    """They are not expected."""
    registry, table = _planned(90)
    registry.open(_split(0, 1, 20, closed=True))
    committed = _split(1, 20, 40)
    registry.open(committed)
    registry.commit(committed, START, START)
    assert key_spans(table) == {LEAST: SKIPPED, 1: DECLINED, 20: table.opened[committed.id], 40: SKIPPED, 91: WRITTEN}


@pytest.mark.skipif(not loader.is_used(), reason="the extension is not used")
def test_a_committed_split_decides_once_for_each_transaction() -> None:
    """Up to its LW changes are skipped, up to its HW declined, then written; its END removes the cover."""
    registry, table = _planned(50)
    split = _split(0, None, 50, closed=True)
    registry.open(split)
    low = START._replace(gtids=GtidSet({SERVER: [(1, 2)]}))
    registry.commit(split, low, START._replace(pos=400))
    begins = [TransactionBegin(f"{SERVER}:{n}", FILE, 100 * n, 100 * n + 9, 7, 0, 1, 1) for n in range(1, 6)]
    cover = cover_of(table, lambda: START)
    assert cover is not None
    assert cover is cover_of(table, lambda: START)
    decisions = [cover.decision(key, begin) for begin in begins for key in (LEAST, 50)]
    assert decisions == [SKIPPED] * 4 + [DECLINED] * 2 + [WRITTEN] * 4
    assert cover.decision(51, begins[0]) == WRITTEN
    assert len(registry.end_passed(START._replace(pos=400))) == 1
    assert cover_of(table, lambda: START) is not cover
    assert key_spans(table) == {LEAST: WRITTEN, 51: WRITTEN}


@pytest.mark.skipif(not loader.is_used(), reason="the extension is not used")
def test_a_cover_refuses_spans_that_are_no_cover() -> None:
    """All keys have a decision, in order."""
    from tailrace.producer.native.codec import KeyCover  # noqa: PLC0415 - the module is optional

    for starts, spans in (([], []), ([5], [0]), ([LEAST, 5, 5], [0, 1, 2]), ([LEAST], [3]), ([LEAST], [0, 1])):
        with pytest.raises(ValueError, match=r"spans|decision"):
            KeyCover(starts, spans, lambda *_: 0)
    cover = KeyCover([LEAST], ["split"], lambda *_: 7)
    with pytest.raises(ValueError, match="decision"):
        cover.decision(1, TransactionBegin(f"{SERVER}:1", FILE, 1, 2, 7, 0, 1, 1))
