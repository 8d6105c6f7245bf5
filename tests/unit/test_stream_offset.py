"""The stream's offset within a transaction: what a restart skips, on the same server and on another one."""

from __future__ import annotations

import random

import pytest
from structlog.testing import capture_logs

from tailrace.producer.errors import BinlogError
from tailrace.producer.kafka.state_store import OFFSET_KEY, StoredOffset, decode
from tailrace.producer.model.binlog_events import (
    PositionAdvanced,
    QueryEvent,
    RowsEvent,
    TableVersion,
    TransactionBegin,
    TransactionCommit,
    TransactionMark,
)
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.offset import MySqlOffset
from tailrace.producer.streaming.offset import StreamOffset

UUID = "58e3a85e-e597-11f1-8ae5-02fc00000001"
FILE = "binlog.000001"
POSITION = MySqlOffset(1, FILE, 450, GtidSet({UUID: [(1, 8)]}), "server")
A, B = TableId("d", "a"), TableId("d", "b")


def begin(number: int = 9) -> TransactionBegin:
    return TransactionBegin(f"{UUID}:{number}", FILE, 450, 550, 0, 0, None, 1)


def rows(number: int, table: TableId = A, pos: int = 0) -> RowsEvent:
    return RowsEvent(
        "c", TableVersion(table, (), (), b""), b"", 0, 0, FILE, pos or 500 + number * 10, 0, 0, 1, None, number
    )


def resumed(mark: TransactionMark, position: MySqlOffset = POSITION) -> StreamOffset:
    offset = StreamOffset(StoredOffset(position, (mark,)))
    assert offset.state().transactions == (mark,)
    offset.begin(begin())
    return offset


def test_events_up_to_the_mark_are_done_whatever_is_captured_now() -> None:
    """Event 2 belonged to a table that is not captured any more, event 4 to one that was not captured before."""
    offset = StreamOffset(StoredOffset(POSITION))
    offset.begin(begin())
    for event in (rows(1), rows(2, B), rows(3)):
        assert not offset.is_done(event)
        offset.done(event, event.table.id, 5)
    [mark] = offset.state().transactions
    assert (mark.number, mark.pos, mark.table_rows) == (3, 530, {"d.a": 10, "d.b": 5})

    restarted = resumed(mark)

    assert [restarted.is_done(event) for event in (rows(1), rows(3), rows(4, B), rows(5))] == [True, True, False, False]
    assert restarted.state().transactions == (mark,), "what was done stays done"
    restarted.done(rows(4, B), B, 2)
    assert not restarted.resuming
    assert restarted.state().transactions[0].table_rows == {"d.a": 10, "d.b": 7}


def test_another_event_at_the_number_of_the_mark_is_an_error() -> None:
    """The server gave the same GTID to another transaction."""
    offset = resumed(TransactionMark(f"{UUID}:9", 2, 520))

    assert offset.is_done(rows(1))
    with pytest.raises(BinlogError, match="not the one that was read before") as caught:
        offset.is_done(rows(2, pos=700))
    assert caught.value.context["gtid"] == f"{UUID}:9"
    assert caught.value.hint.startswith(
        "take a new snapshot under another topic.prefix: the source has lost binlog in a"
    )


def test_rows_of_the_next_event_are_done_after_a_takeover() -> None:
    """They belong to one event, even if that is of a table which is not captured."""
    mark = TransactionMark(f"{UUID}:9", 2, rows=3, records={"d.a": 5})

    offset = resumed(mark)
    assert offset.counts == {"d.a": 5}
    assert [offset.is_done(rows(n)) for n in (1, 2, 3)] == [True, True, False]
    assert (offset.rows_to_skip(rows(3)), offset.rows_to_skip(rows(4))) == (3, 0)
    assert offset.skips_rows_of_connector
    assert offset.state().transactions == (mark,)
    offset.done(rows(3), A, 4)

    assert offset.rows_to_skip(rows(4)) == 0
    found = offset.state().transactions[0]
    assert (found.number, found.rows, found.table_rows) == (3, 0, None)


def test_another_server_skips_the_same_rows() -> None:
    """Its events have other boundaries, and b is not captured any more."""
    mark = TransactionMark(f"{UUID}:9", 3, 530, rows=1, table_rows={"d.a": 10, "d.b": 5}, relocated=True)
    offset = resumed(mark)

    first = rows(1)
    assert not offset.is_done(first)
    assert offset.rows_to_skip(first) == 10
    assert not offset.skips_rows_of_connector
    offset.done(first, A, 8)
    assert offset.state().transactions[0].table_rows == {"d.a": 10, "d.b": 5}
    assert offset.state().transactions[0].relocated
    assert offset.rows_to_skip(rows(2)) == 2
    offset.done(rows(2), A, 4)
    assert offset.rows_to_skip(rows(3)) == 0
    offset.done(rows(3), A, 1)
    assert offset.state().transactions[0].table_rows == {"d.a": 13, "d.b": 5}
    assert offset.rows_to_skip(rows(4, B)) == 5
    offset.done(rows(4, B), B, 5)

    [after] = offset.state().transactions
    assert (after.relocated, after.number, after.pos, after.table_rows) == (False, 4, 540, {"d.a": 13, "d.b": 5})
    offset.commit(TransactionCommit(f"{UUID}:9", FILE, 900, 0))
    offset.begin(begin(10))
    assert not offset.resuming
    assert offset.state().transactions[0].table_rows == {}


def test_rows_without_a_key_are_repeated_on_another_server() -> None:
    """It may have them in another order, so their number says nothing; those of another table are skipped as usual."""
    mark = TransactionMark(f"{UUID}:9", 3, 530, table_rows={"d.a": 10, "d.b": 5}, relocated=True)
    offset = StreamOffset(StoredOffset(POSITION, (mark,)), has_unique_rows=lambda version: version.id == B)
    offset.begin(begin())

    with capture_logs() as logs:
        assert offset.rows_to_skip(rows(1)) == 0
        offset.done(rows(1), A, 8)
        assert offset.rows_to_skip(rows(2)) == 0
    assert [(line["table"], line["rows"], line["gtid"]) for line in logs] == [("d.a", 10, f"{UUID}:9")]
    assert offset.resuming
    assert offset.rows_to_skip(rows(3, B)) == 5
    offset.done(rows(3, B), B, 5)
    assert not offset.resuming
    assert offset.state().transactions[0].table_rows == {"d.a": 8, "d.b": 5}


def test_mark_is_kept_until_its_transaction_comes() -> None:
    """Another server may have committed other transactions before it."""
    mark = TransactionMark(f"{UUID}:9", 3, 530, table_rows={"d.a": 10}, relocated=True)
    offset = StreamOffset(StoredOffset(POSITION, (mark,)))

    offset.begin(begin(10))
    assert offset.rows_to_skip(rows(1)) == 0
    offset.done(rows(1), A, 1)
    assert [found.gtid for found in offset.state().transactions] == [f"{UUID}:9", f"{UUID}:10"]
    barrier = offset.barrier()
    assert barrier.contains(begin(9))
    assert barrier.contains(begin(10))
    offset.commit(TransactionCommit(f"{UUID}:10", FILE, 700, 0))
    assert offset.state().transactions == (mark,)
    offset.begin(begin(9))
    assert offset.rows_to_skip(rows(1)) == 10


def test_create_table_select_is_done_on_another_server_too() -> None:
    statement = QueryEvent(f"{UUID}:9", "d", "CREATE …", FILE, 460, 500, 0, 1, None, in_transaction=True, number=1)

    assert resumed(TransactionMark(f"{UUID}:9", 1, 455, table_rows={"d.a": 1}, relocated=True)).is_done(statement)
    assert not resumed(TransactionMark(f"{UUID}:9", 0, 0, table_rows={})).is_done(statement)


def test_too_many_tables_are_not_counted() -> None:
    offset = StreamOffset(StoredOffset(POSITION))
    offset.begin(begin())
    for number in range(1, 1002):
        offset.done(rows(number), TableId("d", f"t{number}"), 1)

    assert offset.state().transactions[0].table_rows is None


def test_rows_are_not_counted_under_two_configurations() -> None:
    """After skipped.operations has changed, the counts before and after the restart do not add up."""
    mark = TransactionMark(f"{UUID}:9", 1, 510, table_rows={"d.a": 10}, uncounted="d")
    offset = resumed(mark)
    offset.done(rows(2), A, 5)

    [after] = offset.state().transactions
    assert (after.table_rows, after.uncounted) == (None, "")


def test_announced_file_does_not_move_the_position_back() -> None:
    """The server begins with the start of the file, whatever it sends of it."""
    offset = StreamOffset(StoredOffset(POSITION))

    offset.advance(PositionAdvanced(FILE, 4, 0))
    assert offset.position == POSITION
    offset.advance(PositionAdvanced("binlog.000002", 4, 0))
    assert offset.position == POSITION._replace(file="binlog.000002", pos=4)


def test_stored_form() -> None:
    stored = StoredOffset(POSITION, (TransactionMark(f"{UUID}:9", 3, 530, table_rows={"d.a": 10}, uncounted="t"),))

    assert decode({OFFSET_KEY: stored.to_json()}, MySqlOffset.from_json).offset == stored


def test_the_position_is_made_of_several_transactions_at_once() -> None:
    """The same as made at each event; the file may change between them."""
    choose = random.Random(20_261_123)
    for _ in range(50):
        offset, expected, number = StreamOffset(StoredOffset(POSITION)), POSITION, 8
        for step in range(30):
            number += choose.choice((1, 1, 1, 3))
            file, pos = f"binlog.{1 + step // 10:06}", 1000 + step * 100
            transaction = TransactionBegin(f"{UUID}:{number}", file, pos, pos + 10, 0, 0, None, 1)
            offset.begin(transaction)
            expected = expected.at_begin(transaction)
            if choose.random() < 0.2:
                assert (offset.position, offset.state().position) == (expected, expected)
                assert offset.barrier() == expected.including(transaction.gtid)
            commit = TransactionCommit(transaction.gtid, file, pos + 90, 0)
            statement = QueryEvent(transaction.gtid, "d", "DROP …", file, pos, pos + 90, 0, 1, None)
            offset.commit(commit if choose.random() < 0.9 else statement)
            expected = expected.after(commit)
            if choose.random() < 0.2:
                assert (offset.position, offset.state().position) == (expected, expected)
                assert offset.barrier() == expected
            if choose.random() < 0.1:
                offset.advance(PositionAdvanced(file, pos + 95, 0))
                expected = expected.advanced_to(PositionAdvanced(file, pos + 95, 0))
        assert offset.position == expected


def test_ended_transactions_are_not_kept_without_end() -> None:
    """Nobody asks for the position while transactions without captured rows are read."""
    offset = StreamOffset(StoredOffset(POSITION))
    for number in range(9, 3509):
        offset.begin(begin(number))
        offset.commit(TransactionCommit(f"{UUID}:{number}", FILE, 900, 0))
        assert len(offset._ended) < 1001
    offset.commit(QueryEvent(f"{UUID}:3509", "d", "x" * 1000, FILE, 900, 950, 0, 1, None))
    assert not offset._ended, "the text of a statement is not kept"

    assert offset.position == POSITION._replace(pos=950, gtids=GtidSet({UUID: [(1, 3509)]}))
