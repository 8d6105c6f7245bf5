"""Transactions of the log in all their forms: what is followed, and what must not be."""

from __future__ import annotations

import struct

import pytest

from tailrace.producer.errors import BinlogError
from tailrace.producer.model.binlog_events import (
    ChangeRefused,
    PositionAdvanced,
    PreparedTransactionEnded,
    QueryEvent,
    RowsEvent,
    TransactionBegin,
    TransactionCommit,
    TransactionPrepared,
    anonymous_name,
)
from tailrace.producer.mysql.binlog import event_types
from tailrace.producer.mysql.binlog.parser import BinlogParser
from tailrace.producer.mysql.binlog.transaction_parser import Names
from tests.support.binlog_bytes import (
    QUERY,
    ROW,
    SOURCE,
    TAGGED_GTID,
    XA_PREPARE,
    LogBytes,
    contents,
    feed_all,
    orders,
    parse,
    query_body,
)


def test_original_commit_time_is_used_if_it_differs() -> None:
    """On a replica, the immediate commit time is that of the replica."""
    begins = [
        e
        for e in parse(LogBytes().gtid(commit_us=9, original_us=5).query("BEGIN").xid())
        if isinstance(e, TransactionBegin)
    ]

    unknown = LogBytes().gtid(commit_us=9, original_us=(1 << 55) - 1).query("BEGIN").xid()

    assert [b.commit_ts_us for b in begins] == [5]
    assert [b.commit_ts_us for b in parse(unknown) if isinstance(b, TransactionBegin)] == [0]


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO orders VALUES (1)",
        "insert ignore into `shop`.`orders` select 1",
        "/* why */ REPLACE orders VALUES (1)",
        "UPDATE other, orders SET a = 1",
        "DELETE FROM shop.orders WHERE 1",
        "-- x\nDELETE a FROM other a JOIN orders b",
        "WITH c AS (SELECT 1) UPDATE orders SET a = 1",
        "LOAD DATA INFILE 'x' INTO TABLE orders",
        "/*!40000 DELETE */ FROM orders",
        "SELECT `shop`.`changes_rows`(1)",
    ],
)
def test_statement_based_changes_are_rejected(sql: str) -> None:
    """binlog_format is not ROW: the binlog does not have the rows."""
    with pytest.raises(BinlogError) as caught:
        parse(LogBytes().begin().query(sql))

    assert caught.value.hint == "SET GLOBAL binlog_format=ROW, also for sessions that set it"
    shown = str(caught.value.context["statement"])
    assert "orders" in shown or "changes_rows" in shown
    assert "why" not in shown
    assert "1" not in shown


@pytest.mark.parametrize(
    ("sql", "database"),
    [
        ("INSERT INTO other SELECT * FROM orders", "shop"),
        ("REPLACE INTO percona.checksums SELECT 'shop', 'orders' FROM shop.orders", "shop"),
        ("UPDATE orders SET a = 1", "elsewhere"),
        ("DELETE FROM other WHERE name = 'orders'", "shop"),
    ],
)
def test_statement_based_changes_of_other_tables_are_ignored(sql: str, database: str) -> None:
    """Tools log statements on purpose; tables that are not captured are irrelevant."""
    assert len(contents(parse(LogBytes().begin().query(sql, database=database).xid()))) == 2


def test_load_data_as_text_is_rejected() -> None:
    """EXECUTE_LOAD_QUERY is a statement with a longer post-header."""
    body = query_body("LOAD DATA INFILE 'x' INTO TABLE orders")
    with pytest.raises(BinlogError, match="logged as text"):
        parse(LogBytes().begin().add(18, body[:13] + b"\0" * 13 + body[13:]))


def test_statements_outside_and_within_a_transaction() -> None:
    """DDL has its own GTID; CREATE TABLE … SELECT of 8.0.21 is part of a transaction."""
    log = LogBytes().gtid().query("DROP TABLE x").begin().query("CREATE TABLE y (i INT) START TRANSACTION")
    log.table_map().rows(ROW).xid()

    events = [e for e in parse(log) if not isinstance(e, PositionAdvanced)]

    assert [type(e).__name__ for e in events] == [
        "QueryEvent",
        "TransactionBegin",
        "QueryEvent",
        "RowsEvent",
        "TransactionCommit",
    ]
    assert [(e.gtid, e.in_transaction, e.thread) for e in events if isinstance(e, QueryEvent)] == [
        (f"{SOURCE}:1", False, 7),
        (f"{SOURCE}:2", True, 7),
    ]


def test_statement_is_decoded_by_its_clients_character_set() -> None:
    """The status variables before the character set are skipped by their sizes."""
    before = b"\0" + b"\0" * 4 + b"\1" + b"\0" * 8 + b"\6\3std" + b"\3" + b"\0" * 4
    status = before + b"\4" + struct.pack("<HHH", 8, 8, 8) + b"\x0c\1shop\0"
    log = LogBytes().gtid()
    log.add(QUERY, query_body("X", status=status)[:-1] + "ALTER TABLE ö".encode("latin-1"))
    log.gtid().query("ALTER TABLE 漢")
    binary = b"\4" + struct.pack("<HHH", 63, 63, 8)  # the server takes names for utf8
    log.gtid().add(QUERY, query_body("TRUNCATE TABLE `tä`", status=binary))

    found = [e.sql for e in parse(log) if isinstance(e, QueryEvent)]
    assert found == ["ALTER TABLE ö", "ALTER TABLE 漢", "TRUNCATE TABLE `tä`"]


@pytest.mark.parametrize("collation", [45, 33, 28, 8, 63, 2047], ids=str)
@pytest.mark.parametrize(
    "sql",
    [
        b"CREATE TABLE other.x (id INT, b VARBINARY(4) DEFAULT _binary'\xff\xfe') /* \x81\xff */",
        b"CREATE PROCEDURE other.p() SELECT _binary'\xff\xfe'",
        b"/* \xff */ INSERT INTO other.x VALUES (_binary'\xff\x81')",
        b"SAVEPOINT `a\xff`",
        b"GRANT ALL ON *.* TO x -- \xff",
    ],
)
def test_a_statement_may_have_any_bytes(sql: bytes, collation: int) -> None:
    """The server logs what clients send; neither its bytes nor a collation that is not known stops the stream."""
    status = b"\4" + struct.pack("<HHH", collation, 8, 8)
    log = LogBytes().begin()
    body = query_body("", status=status, database="other") + sql

    events = contents(parse(log.add(QUERY, body).xid()))

    assert not any(isinstance(event, ChangeRefused) for event in events)
    load = body[:13] + b"\0" * 13 + body[13:]
    if b"INSERT" in sql:
        assert contents(parse(LogBytes().begin().add(18, load).xid()))


def test_a_changed_table_whose_name_is_no_text_is_refused_whatever_it_is() -> None:
    """A name that is not known may be that of a captured table; what is shown has no values."""
    status = b"\4" + struct.pack("<HHH", 2047, 8, 8)
    log = LogBytes().begin()
    log.add(QUERY, query_body("", status=status) + b"INSERT INTO ord\xffrs VALUES (1, 'secret')").xid()

    [refused] = [event for event in BinlogParser(orders).feed(log.data) if isinstance(event, ChangeRefused)]

    assert refused.tables == ()
    assert refused.error.context["statement"] == "INSERT INTO ord\ufffdrs VALUES (?, ?)"


def test_logged_rollback_is_rejected_if_it_reverts_captured_rows() -> None:
    """Rows of captured tables before a logged rollback: it is unknown which are reverted."""
    for sql in ("ROLLBACK", "ROLLBACK TO `sp`"):
        with pytest.raises(BinlogError, match=r"(?s)rollback.*hint: do not mix transactional and other tables in one"):
            parse(LogBytes().begin().table_map().rows(ROW).query(sql))
    harmless = LogBytes().begin().table_map("other").rows(ROW).query("SAVEPOINT `sp`").query("ROLLBACK TO `sp`")
    assert [type(e).__name__ for e in parse(harmless.query("ROLLBACK"))][1:] == [
        "TransactionBegin",
        "TransactionCommit",
    ]


def test_xa_transactions() -> None:
    """One phase is a transaction; in two phases, the events say where the rows are and whether they count."""
    start, end = "XA START X'61',X'',1", "XA END X'61',X'',1"
    one_phase = LogBytes().gtid().query(start).table_map().rows(ROW).query(end).add(XA_PREPARE, b"\1" + b"\0" * 13)
    assert [type(e).__name__ for e in parse(one_phase)][1:] == ["TransactionBegin", "RowsEvent", "TransactionCommit"]

    for table, captured in (("orders", True), ("other", False)):
        log = LogBytes()
        at = log.pos
        log.gtid().query(start).table_map(table).rows(ROW).query(end).add(XA_PREPARE, b"\0" + b"\0" * 13)
        [prepared] = [e for e in parse(log) if isinstance(e, TransactionPrepared)]
        expected = TransactionPrepared("X'61',X'',1", f"{SOURCE}:1", "binlog.000001", at, captured, log.pos)
        assert prepared == expected._replace(tables=(("shop", "orders"),) if captured else ())

    for word in ("COMMIT", "ROLLBACK"):
        begin, ended, commit = parse(LogBytes().gtid().query(f"XA {word} X'61',X'',1"))[1:]
        assert isinstance(begin, TransactionBegin)
        assert isinstance(ended, PreparedTransactionEnded)
        assert (ended.xid, ended.committed) == ("X'61',X'',1", word == "COMMIT")
        assert isinstance(commit, TransactionCommit)


@pytest.mark.parametrize(
    "log",
    [
        LogBytes().begin().begin(),
        LogBytes().begin().query("BEGIN"),
        LogBytes().xid(),
        LogBytes().gtid().xid(),
        LogBytes().query("BEGIN"),
        LogBytes().query("CREATE TABLE x (i INT)"),
    ],
    ids=["no end", "begin twice", "no begin", "end without begin", "no gtid", "statement without gtid"],
)
def test_transactions_must_be_complete(log: LogBytes) -> None:
    """Events that belong to no transaction are rejected."""
    with pytest.raises(BinlogError, match=r"(?s)file: .*hint: .*, (then )?take a new snapshot under another"):
        parse(log)


def test_rows_events_of_all_tables_are_numbered() -> None:
    """The number within a transaction does not depend on which tables are captured."""
    log = LogBytes().begin().table_map("other", table_id=91).rows(ROW, table_id=91)
    log.table_map().rows(ROW).table_map("other", table_id=91).rows(ROW, table_id=91).table_map().rows(ROW).xid()
    log.begin().query("CREATE TABLE `n` (`a` int) START TRANSACTION").table_map().rows(ROW).xid()

    found = [(type(e), e.number) for e in parse(log) if isinstance(e, (RowsEvent, QueryEvent))]

    assert found == [(RowsEvent, 2), (RowsEvent, 4), (QueryEvent, 1), (RowsEvent, 2)]


@pytest.mark.parametrize("names", [Names.POSITIONS, Names.EITHER])
def test_names_of_a_server_that_permits_transactions_without_gtids(names: Names) -> None:
    """It does not read by GTIDs, so where the offset is a position, the name is one also if there is a GTID."""
    log = LogBytes()
    positions = []
    for kind, body in ((event_types.ANONYMOUS_GTID, b"\0" * 42), (event_types.GTID_TAGGED, TAGGED_GTID)):
        positions.append(log.add(kind, body).pos)
        log.query("BEGIN").table_map().rows(ROW).xid()
    for _ in range(2):
        positions.append(log.gtid().pos)
        log.query("BEGIN").table_map().rows(ROW).xid()
    positions.append(log.gtid().pos)
    log.query("DROP TABLE x")

    events = feed_all(BinlogParser(orders, names=names), log.data)

    named = [e.gtid for e in events if isinstance(e, (TransactionCommit, QueryEvent))]
    assert [e.gtid for e in events if isinstance(e, TransactionBegin)] == named[:-1]
    by_position = [anonymous_name("binlog.000001", position) for position in positions]
    if names is Names.POSITIONS:
        assert named == by_position
    else:
        assert named[0] == by_position[0]
        assert named[1].endswith(":tag_one:1")
        assert named[2:] == [f"{SOURCE}:{number}" for number in (1, 2, 3)]
