"""The parser on bytes made by hand: cutting, positions, damage, and everything that must not be passed over."""

from __future__ import annotations

import struct
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.producer.errors import BinlogError, SourceError, SourceUnavailableError
from tailrace.producer.model.binlog_events import (
    ChangeRefused,
    Event,
    PositionAdvanced,
    RowsEvent,
    TransactionBegin,
    TransactionCommit,
)
from tailrace.producer.model.table import Column, TableId
from tailrace.producer.mysql.binlog import definition_cache
from tailrace.producer.mysql.binlog import parser as module
from tailrace.producer.mysql.binlog.parser import BinlogParser
from tailrace.runtime.errors import SchemaError
from tests.support.binlog_bytes import (
    DELETE,
    EOF_PACKET,
    GTID,
    ROW,
    SOURCE,
    UPDATE,
    WRITE,
    Columns,
    LogBytes,
    contents,
    error_packet,
    feed_all,
    names_option,
    orders,
    parse,
    plain_event,
)


def test_transaction_is_parsed_with_its_positions() -> None:
    """GTID, BEGIN, TABLE_MAP, ROWS, XID."""
    log = LogBytes()
    starts = [log.pos, log.gtid().pos, log.query("BEGIN").pos, log.table_map().pos, log.rows(ROW).pos, log.xid().pos]

    _, begin, rows, commit = parse(log)

    assert begin == TransactionBegin(
        f"{SOURCE}:1", "binlog.000001", starts[0], starts[2], 1_700_000_000, 1_700_000_000_123_456, 7, 1
    )
    assert isinstance(rows, RowsEvent)
    assert (rows.op, rows.pos, rows.end, rows.data[rows.start : rows.stop]) == ("c", starts[3], starts[4], ROW)
    assert rows.table.columns == (Column("id", "int", nullable=False, unsigned=False), Column("v", "int"))
    assert commit == TransactionCommit(f"{SOURCE}:1", "binlog.000001", starts[5], 1_700_000_000)


@given(st.data())
def test_any_split_of_the_bytes_gives_the_same_events(data: st.DataObject) -> None:
    """The network may deliver the bytes in any chunks."""
    log = LogBytes(checksum=data.draw(st.booleans()))
    for _ in range(3):
        log.transaction().transaction(b"\0\1\0\0\0\2\0\0\0\0\1\0\0\0\3\0\0\0", UPDATE).transaction(table="other")
        log.gtid().query("CREATE TABLE x (i INT)")
    whole = contents(parse(log))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(log.data)), max_size=40)))

    parser = BinlogParser(orders)
    events: list[Event] = []
    for start, stop in zip([0, *cuts], [*cuts, len(log.data)], strict=True):
        events += parser.feed(log.data[start:stop]) if stop > start else []

    assert contents(events) == whole
    assert (parser.file, parser.pos) == ("binlog.000001", log.pos)


@pytest.mark.parametrize("checksum", [True, False])
def test_events_of_several_packets_are_joined(checksum: bool) -> None:
    """Sizes around the limit of a packet, where the last packet may be empty; delivered in chunks."""
    for around in (0xFFFFFF, 2 * 0xFFFFFF):
        for difference in (-1, 0, 1):
            log = LogBytes(checksum=checksum).begin().table_map()
            overhead = 1 + 19 + 8 + 2 + 2 + (4 if checksum else 0)
            image = b"x" * (around + difference - overhead)
            log.rows(image).xid().transaction()
            parser, events = BinlogParser(orders), []
            for at in range(0, len(log.data), 1 << 20):
                events += parser.feed(log.data[at : at + (1 << 20)])

            big, small = (e for e in events if isinstance(e, RowsEvent))
            assert big.stop - big.start == len(image)
            assert big.data[big.start : big.stop] == image
            assert small.data[small.start : small.stop] == ROW
            assert parser.pos == log.pos


def test_positions_are_counted_beyond_32_bits() -> None:
    """A transaction may extend a file past 4 GiB: the field of the header wraps, the position does not."""
    log = LogBytes(pos=2**32 - 150)
    log.transaction().transaction()

    events = [e for e in parse(log) if not isinstance(e, PositionAdvanced)]

    ends = [e.end for e in events]
    assert ends == sorted(ends)
    assert ends[-1] == log.pos > 2**32


def test_position_follows_skipped_transactions() -> None:
    """The server does not send executed transactions: the next event has the new position."""
    log = LogBytes()
    log.pos += 5_000
    log.transaction()

    begin, *_, commit = (e for e in parse(log) if not isinstance(e, PositionAdvanced))

    assert isinstance(begin, TransactionBegin)
    assert begin.pos > 5_000
    assert commit.end == log.pos


def test_heartbeat_only_reports_a_position() -> None:
    """Its end field is a position; it has no bytes in the file."""
    log = LogBytes().transaction()
    position = log.pos
    heartbeat = struct.pack("<IBIIIH", 0, 27, 1, 19 + 13 + 4, position + 900, 0) + b"binlog.000001"
    event = heartbeat + crc32(heartbeat).to_bytes(4, "little")
    packet = (len(event) + 1).to_bytes(3, "little") + b"\0\0" + event
    parser = BinlogParser(orders)
    parser.feed(log.data)

    assert parser.feed(packet) == [PositionAdvanced("binlog.000001", position + 900, 0)]
    assert parser.feed(packet) == []


def test_damaged_event_is_rejected() -> None:
    """One bit in the bytes of a row is wrong, and there is a checksum."""
    log = LogBytes().transaction()
    at = log.data.rindex(ROW)
    damaged = log.data[:at] + b"\1" + log.data[at + 1 :]

    with pytest.raises(BinlogError, match="checksum differs") as caught:
        parse(damaged)
    assert caught.value.hint.startswith("check the event with mysqlbinlog; if the file is damaged, take a new snapshot")
    assert {"file", "pos"} <= caught.value.context.keys()
    assert len(parse(damaged, verify=False)) == 4


@pytest.mark.parametrize(
    ("event_type", "words", "hint"),
    [
        (26, "INCIDENT", "take a new snapshot under another topic.prefix: the server lost changes from its binlog"),
        (34, "ANONYMOUS_GTID", "set gtid_mode=ON and enforce_gtid_consistency=ON, then take a new snapshot"),
        (20, "unknown", "use a supported server version"),
        (99, "unknown", "use a supported server version"),
        (160, "unknown", "use a supported server version"),
    ],
)
def test_unsupported_event_is_rejected_with_number_and_position(event_type: int, words: str, hint: str) -> None:
    """It is never ignored."""
    log = LogBytes().transaction()
    position = log.pos

    with pytest.raises(BinlogError) as caught:
        parse(log.add(event_type, b"\0" * 60))

    assert str(event_type) in caught.value.message
    assert words in caught.value.message
    assert (caught.value.context["file"], caught.value.context["pos"]) == ("binlog.000001", position)
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize("event_type", [3, 5, 9, 11, 13, 14, 17, 28, 35, 36, 37])
def test_ignored_events_only_move_the_position(event_type: int) -> None:
    """Known types without changes."""
    log = LogBytes().add(event_type, b"\0" * 20)

    assert {type(e) for e in parse(log)} == {PositionAdvanced}
    assert parse(log)[-1].end == log.pos


def test_errors_of_the_server_have_hints() -> None:
    """Purged, second reader, no grant, shut down: with a hint, retryable only if a retry may help."""
    log = LogBytes().data
    for code, text, error, hint in (
        (1236, "the master has purged binary logs", BinlogError, "the binlog was purged past the stored position; and"),
        (1236, "A slave with the same server_uuid/server_id as this slave", BinlogError, "set database.server.id to"),
        (1236, "Slave has more GTIDs than", BinlogError, "take a new snapshot under another topic.prefix: the server"),
        (1236, "Cannot replicate anonymous transaction when AUTO_POSITION = 1", BinlogError, "set gtid_mode=ON and"),
        (1236, "Slave can not handle events with the checksum", BinlogError, "set binlog_checksum to CRC32 or NONE"),
        (1236, "bogus data in log event", BinlogError, "if the binlog is damaged, take a new snapshot under another"),
        (1227, "Access denied", SourceError, "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* to the account"),
        (1053, "Server shutdown in progress", SourceUnavailableError, ""),
    ):
        with pytest.raises(error) as caught:
            parse(log + error_packet(code, text))
        assert isinstance(caught.value, BinlogError | SourceError)
        assert hint in caught.value.hint
        assert caught.value.context["code"] == code
        assert isinstance(caught.value, SourceUnavailableError) == (code == 1053)
    with pytest.raises(SourceUnavailableError):
        parse(log + EOF_PACKET)
    parser = BinlogParser(orders)
    parser.feed(log + error_packet(1053, "x" * 50)[:-1])
    with pytest.raises(SourceUnavailableError):
        parser.feed(b"x")


def test_rows_need_the_table_map_of_their_table() -> None:
    """Table ids are valid within one file; one special id only marks the end of a statement."""
    with pytest.raises(BinlogError, match=r"(?s)lack the TABLE_MAP event.*hint: take a new snapshot under ano"):
        parse(LogBytes().begin().rows(ROW))
    with pytest.raises(BinlogError, match="lack the TABLE_MAP event"):
        parse(LogBytes().transaction().rotate("binlog.000002").format().begin().rows(ROW))
    assert len(contents(parse(LogBytes().begin().rows(b"", table_id=0xFFFFFF).xid()))) == 2


def test_one_id_for_two_tables() -> None:
    """The latest TABLE_MAP counts."""
    log = LogBytes().transaction(table="other").transaction().transaction(table="other")

    assert [e[0] for e in contents(parse(log)) if e[0] in {"c", "u", "d"}] == ["c"]


def test_rows_must_have_every_column() -> None:
    """binlog_row_image=MINIMAL of a session, and a TABLE_MAP that does not match."""
    with pytest.raises(SchemaError, match=r"(?s)shop.orders .*without some.*columns: v.*binlog_row_image=FULL, al"):
        parse(LogBytes().begin().table_map().rows(ROW, bitmaps=b"\1"))
    with pytest.raises(SchemaError, match="without some of their columns"):
        parse(LogBytes().begin().table_map().rows(ROW + ROW, UPDATE, bitmaps=b"\3\2"))
    with pytest.raises(BinlogError, match="3 columns, but"):
        parse(LogBytes().begin().table_map().rows(ROW, columns=3))


def test_extra_data_before_the_images_is_skipped() -> None:
    """Partition numbers, and what cluster replication adds; the usual form precedes and follows it."""
    log = LogBytes().begin().table_map()
    log.rows(ROW).rows(ROW, extra=b"\1\7\0").rows(ROW).rows(ROW + ROW, UPDATE, extra=b"\1\7\0\x08\0").rows(
        ROW, DELETE
    ).xid()

    rows = [e for e in parse(log) if isinstance(e, RowsEvent)]

    assert [(r.op, r.data[r.start : r.stop]) for r in rows] == [
        ("c", ROW),
        ("c", ROW),
        ("c", ROW),
        ("u", ROW + ROW),
        ("d", ROW),
    ]


def test_hidden_columns_of_functional_indexes_are_dropped() -> None:
    """Servers before 8.0.18 describe them, but do not log them."""
    hidden = "3bb8c14d415110ac3b3c55ce9108ae2d"
    columns = (b"\3\3\3", b"", b"\6", b"\1\1\0" + names_option("id", "v", hidden))
    log = LogBytes().begin().table_map(columns=columns)
    log.rows(ROW, columns=3, bitmaps=b"\xfb").rows(ROW + ROW, UPDATE, columns=3, bitmaps=b"\xfb\xfb").xid()

    rows = [e for e in parse(log) if isinstance(e, RowsEvent)]

    assert [c.name for c in rows[0].table.columns] == ["id", "v"]
    assert rows[0].table is rows[1].table
    plain = (b"\3\3\3", b"", b"\6", b"\1\1\0" + names_option("id", "v", "w"))
    with pytest.raises(SchemaError, match="without some"):
        parse(LogBytes().begin().table_map(columns=plain).rows(ROW, columns=3, bitmaps=b"\xfb"))


def test_rows_events_v1() -> None:
    """They have no extra data."""
    body = (90).to_bytes(6, "little") + b"\1\0\2"
    log = LogBytes().begin().table_map()
    log.add(23, body + b"\xff" + ROW).add(24, body + b"\xff\xff" + ROW + ROW).add(25, body + b"\xff" + ROW).xid()

    rows = [e for e in parse(log) if isinstance(e, RowsEvent)]

    assert [(r.op, r.data[r.start : r.stop]) for r in rows] == [("c", ROW), ("u", ROW + ROW), ("d", ROW)]


def test_unknown_format_is_rejected() -> None:
    """The binlogs of other servers only look similar."""
    with pytest.raises(BinlogError, match=r"(?s)format.*version: 10.11.6-MariaDB.*hint: read from MySQL 5.7 or newer"):
        parse(LogBytes().format({GTID: 19}, version="10.11.6-MariaDB"))
    with pytest.raises(BinlogError, match="format"):
        parse(LogBytes().format({WRITE: 8}))


@pytest.mark.parametrize(
    ("columns", "error", "words"),
    [
        ((b"\3", b"", b"\0", b"\1\1\0"), SchemaError, "hint: SET GLOBAL binlog_row_metadata=FULL .since MySQL 8"),
        ((b"\x0c", b"", b"\0", names_option("old")), SchemaError, "hint: ALTER TABLE `shop`.`orders` FORCE"),
        ((b"\x96", b"", b"\0", names_option("new")), SchemaError, "known.*exclude the table, or change the"),
        ((b"\3", b"\1\2", b"\0", names_option("x")), SchemaError, "not known.*hint: exclude the table"),
        ((b"\3\3", b"", b"\0", names_option("x")), BinlogError, "names 1 of 2.*hint: check the event"),
        ((b"\x0f", b"\x0a\0", b"\0", names_option("x")), BinlogError, "cannot be read.*hint: check the ev"),
        ((b"\x0f", b"\x0a\0", b"\0", b"\2\3\xfc\xff\xff" + names_option("x")), SchemaError, "to a collation of"),
    ],
    ids=["minimal", "datetime of 5.5", "new type", "metadata left", "names missing", "no charset", "unknown collation"],
)
def test_unreadable_table_map_is_rejected(columns: Columns, error: type[Exception], words: str) -> None:
    """Each with its hint."""
    with pytest.raises(error, match=f"(?s){words}"):
        parse(LogBytes().begin().table_map(columns=columns).rows(ROW, columns=len(columns[0])))


def test_changes_that_cannot_be_read_are_events() -> None:
    """What follows is parsed: the reader decides whether to stop."""
    minimal = LogBytes().begin().table_map().rows(ROW, bitmaps=b"\xfd").xid().transaction()
    partial = LogBytes().begin().table_map().add(39, (90).to_bytes(6, "little") + b"\0" * 40).xid().transaction()
    statement = LogBytes().begin().query("UPDATE orders SET v = 1").xid().transaction()
    call = LogBytes().begin().query("SELECT f()").xid().transaction()
    rollback = LogBytes().begin().table_map().rows(ROW).query("ROLLBACK").transaction()
    unknown = (b"\x96\3", b"", b"\0", names_option("a", "b"))
    definition = LogBytes().begin().table_map(columns=unknown).rows(ROW).rows(ROW).xid().transaction()
    for log, count, tables in (
        (minimal, 1, (TableId("shop", "orders"),)),
        (partial, 1, (TableId("shop", "orders"),)),
        (statement, 1, (TableId("shop", "orders"),)),
        (call, 1, ()),
        (rollback, 1, (TableId("shop", "orders"),)),
        (definition, 2, (TableId("shop", "orders"),)),
    ):
        events = BinlogParser(orders).feed(log.data)
        refused = [e for e in events if isinstance(e, ChangeRefused)]
        assert [e.tables for e in refused] == [tables] * count
        assert len({e.pos for e in refused}) == count
        for event in refused:
            assert event.error.hint
            assert (event.error.context["file"], event.error.context["pos"]) == (event.file, event.pos)
        assert [type(e).__name__ for e in events][-3:] == ["TransactionBegin", "RowsEvent", "TransactionCommit"]


def test_partial_rows_of_other_tables_are_ignored() -> None:
    """Sessions may log them for tables that are not captured."""
    log = LogBytes().begin().table_map("other").add(39, (90).to_bytes(6, "little") + b"\0" * 40).xid()

    assert [type(e).__name__ for e in parse(log)][1:] == ["TransactionBegin", "TransactionCommit"]


def test_table_maps_of_other_tables_are_not_read() -> None:
    """The columns of other tables cannot stop the capture."""
    broken = (b"\x96", b"", b"\0", b"")

    assert len(contents(parse(LogBytes().begin().table_map("other", broken).rows(ROW, columns=1).xid()))) == 2


def test_packet_without_an_event_is_rejected() -> None:
    """The two lengths must agree."""
    log = LogBytes()
    with pytest.raises(BinlogError, match=r"(?s)one event.*hint: check the event with mysqlbinlog; if"):
        parse(log.data + b"\x40\0\0\0\0" + plain_event(3, b"\0" * 60))


def test_caches_are_bounded_and_a_used_definition_keeps_its_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """Codecs belong to the object: another one for an equal definition would be compiled once more."""
    monkeypatch.setattr(definition_cache, "_MAX_DEFINITIONS", 4)
    monkeypatch.setattr(module, "_MAX_TABLE_IDS", 6)
    log = LogBytes()
    for n in range(30):
        log.begin().table_map("orders", table_id=1000 + n).rows(ROW, table_id=1000 + n)
        log.table_map(f"other{n}", table_id=2000 + n).rows(ROW, table_id=2000 + n).xid()
    parser = BinlogParser(lambda _table: True)

    events = [event for event in feed_all(parser, log.data) if isinstance(event, RowsEvent)]

    assert len(events) == 60
    assert len({id(event.table) for event in events if event.table.id.table == "orders"}) == 1
    assert len(parser._definitions) <= 8
    assert len(parser._tables) <= 8


def test_the_error_of_a_damaged_packet_has_its_position() -> None:
    """The events before it have been read."""
    log = LogBytes().transaction().begin().table_map().rows(ROW).table_map()
    start, pos = len(log.data), log.pos
    log.rows(ROW).xid()
    damaged = bytearray(log.data)
    damaged[start] ^= 1
    with pytest.raises(BinlogError, match="exactly one event") as raised:
        parse(bytes(damaged))
    assert raised.value.context["pos"] == pos
