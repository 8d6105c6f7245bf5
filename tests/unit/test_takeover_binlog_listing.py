"""The event count of a connector against the binlog as the server lists it, and the GTIDs before a position."""

from __future__ import annotations

import pytest

from tailrace.producer.errors import TakeoverError
from tailrace.producer.model.codec import EventRows, KeyChange
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.takeover.binlog_listing import (
    ConsumedEvents,
    DerivedGtids,
    ListedEvent,
    gtids_before,
    translate_event_count,
)

UUID = "58e3a85e-e597-11f1-8ae5-02fc00000001"


def gtid(pos: int, number: int) -> ListedEvent:
    """A GTID event."""
    return ListedEvent(pos, "Gtid", f"SET @@SESSION.GTID_NEXT= '{UUID}:{number}'")


TRANSACTION = [
    ListedEvent(200, "Query", "BEGIN"),
    ListedEvent(300, "Rows_query", "# update t"),
    ListedEvent(400, "Table_map", "table_id: 90 (d.t)"),
    ListedEvent(500, "Update_rows", "table_id: 90"),
    ListedEvent(600, "Update_rows", "table_id: 90 flags: STMT_END_F"),
    ListedEvent(700, "Query", "SAVEPOINT `x`"),
    ListedEvent(800, "Table_map", "table_id: 91 (d.other)"),
    ListedEvent(900, "Write_rows", "table_id: 91 flags: STMT_END_F"),
    ListedEvent(1000, "Table_map", "table_id: 92 (elsewhere.t)"),
    ListedEvent(1050, "Table_map", "table_id: 90 (d.t)"),
    ListedEvent(1100, "Delete_rows_v1", "table_id: 90 flags: STMT_END_F"),
    ListedEvent(1200, "Xid", "COMMIT /* xid=9 */"),
]


@pytest.mark.parametrize(
    ("done", "rows", "found"),
    [
        (1, 0, ConsumedEvents(0, 0)),
        (3, 0, ConsumedEvents(0, 0)),
        (3, 7, ConsumedEvents(0, 7)),
        (4, 0, ConsumedEvents(1, 0)),
        (4, 2, ConsumedEvents(1, 2)),
        (5, 0, ConsumedEvents(2, 0)),
        (7, 3, ConsumedEvents(2, 3)),
        (8, 0, ConsumedEvents(3, 0)),
        (10, 1, ConsumedEvents(3, 1)),
        (11, 0, ConsumedEvents(4, 0)),
    ],
)
def test_rows_events_of_all_tables_are_counted(done: int, rows: int, found: ConsumedEvents) -> None:
    assert translate_event_count(TRANSACTION, done, rows) == found


def test_create_table_select_is_counted() -> None:
    events = [
        ListedEvent(1, "Query", "BEGIN"),
        ListedEvent(2, "Query", "use `d`; CREATE TABLE `n` (`a` int) START TRANSACTION"),
        ListedEvent(3, "Table_map", "table_id: 9 (d.n)"),
        ListedEvent(4, "Write_rows", "table_id: 9 flags: STMT_END_F"),
    ]

    assert translate_event_count(events, 3, 4) == ConsumedEvents(1, 4)


@pytest.mark.parametrize(("done", "rows"), [(12, 0), (13, 0), (1, 1), (5, 2), (11, 1)])
def test_impossible_counts_are_rejected(done: int, rows: int) -> None:
    with pytest.raises(
        TakeoverError, match=r"(?s)does not match.*hint: check that database.hostname is the server.*or start"
    ):
        translate_event_count(TRANSACTION, done, rows)


def test_transaction_without_begin_is_rejected() -> None:
    with pytest.raises(TakeoverError, match="does not match"):
        translate_event_count([ListedEvent(1, "Query", "XA START X'61',X'',1"), *TRANSACTION[1:]], 4, 0)


LOG = [
    ListedEvent(4, "Format_desc", "Server ver: 8.0.33"),
    ListedEvent(126, "Previous_gtids", f"{UUID}:1-7"),
    gtid(160, 8),
    ListedEvent(230, "Query", "use `d`; CREATE TABLE t (id INT)"),
    ListedEvent(300, "Anonymous_Gtid", "SET @@SESSION.GTID_NEXT= 'ANONYMOUS'"),
    ListedEvent(350, "Query", "BEGIN"),
    ListedEvent(400, "Xid", "COMMIT"),
    gtid(450, 9),
    ListedEvent(500, "Query", "BEGIN"),
    ListedEvent(550, "Table_map", "table_id: 90 (d.t)"),
    ListedEvent(600, "Write_rows", "table_id: 90 flags: STMT_END_F"),
    ListedEvent(650, "Xid", "COMMIT"),
    gtid(700, 10),
    ListedEvent(750, "Transaction_payload", "compression='ZSTD'"),
    ListedEvent(900, "Query", "BEGIN"),
    ListedEvent(900, "Xid", "COMMIT"),
    ListedEvent(900, "Rotate", "binlog.000002;pos=4"),
]


@pytest.mark.parametrize(
    ("pos", "last", "within"),
    [
        (160, 7, None),
        (300, 8, None),
        (450, 8, None),
        (500, 8, (9, 450)),
        (700, 9, None),
        (750, 9, (10, 700)),
    ],
)
def test_gtids_before_a_position(pos: int, last: int, within: tuple[int, int] | None) -> None:
    number, at = within or (0, 0)

    assert gtids_before(LOG, pos, end=950) == DerivedGtids(
        GtidSet.parse(f"{UUID}:1-{last}"), f"{UUID}:{number}" if within else "", at
    )


def test_gtids_at_the_end_of_a_file() -> None:
    assert gtids_before(LOG[:-5], 700, end=700) == DerivedGtids(GtidSet.parse(f"{UUID}:1-9"), "", 0)


@pytest.mark.parametrize("pos", [231, 230, 550, 650, 2000])
def test_position_where_nothing_can_start(pos: int) -> None:
    assert gtids_before(LOG, pos, end=950) is None


def test_done_rows_are_skipped() -> None:
    records: list[tuple[bytes, bytes | None] | KeyChange] = [(b"a", b"1"), (b"a", None), (b"b", b"2"), (b"b", None)]
    rows = EventRows(list(records), [0, 0, 1, 1], [((1,), None), ((2,), None)])

    assert rows.skip_rows(0) is rows
    assert rows.skip_rows(1) == EventRows(records[2:], [0, 0], [((2,), None)])
    assert rows.skip_rows(2) == EventRows([], [], [])
    assert rows.skip_rows(1, repeat_key_change=True) == rows.skip_rows(1)


def test_changed_key_of_the_last_done_row_is_repeated() -> None:
    """The connector may have written its delete and not its insert."""
    change = KeyChange(b"a", b"b", b"1", b"2", b"", b"")
    keys = [((1,), (2,)), ((3,), (3,)), ((4,), (5,))]
    rows = EventRows([change, (b"c", b"3"), change], [0, 1, 2], list(keys))

    assert rows.skip_rows(1, repeat_key_change=True) is rows
    assert rows.skip_rows(1) == EventRows([(b"c", b"3"), change], [0, 1], keys[1:])
    assert rows.skip_rows(2, repeat_key_change=True) == EventRows([change], [0], keys[2:])
    assert rows.skip_rows(3, repeat_key_change=True) == EventRows([change], [0], keys[2:])
    assert rows.skip_rows(3) == EventRows([], [], [])
    assert rows.skip_rows(9, repeat_key_change=True) == EventRows([], [], []), "more rows than the event has"
