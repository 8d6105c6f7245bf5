"""The binlog stream of a real server: its events, their positions, and its end."""

from __future__ import annotations

import time

import pytest

from tailrace.producer.model.binlog_events import (
    PositionAdvanced,
    QueryEvent,
    RowsEvent,
    TransactionBegin,
    TransactionCommit,
)
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.connection import binlog_position, connect, executed_gtids
from tailrace.producer.mysql.gtid import GtidSet
from tests.embedded.mysql import MySqlServer
from tests.support.binlog import (
    DEADLINE_S,
    executed,
    follow,
    images,
    only,
    open_stream,
    settings_of,
)
from tests.support.database import Database


@pytest.mark.parametrize("ssl_mode", ["disabled", "required"])
def test_transactions_arrive_complete_and_in_order(database: Database, ssl_mode: str) -> None:
    """Inserts, an update and a delete in transactions, with and without TLS."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(10))")
    start = executed(database.server)
    session = database.connect(autocommit=False)
    with session.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        cursor.execute("UPDATE t SET v = 'c' WHERE id = 2")
        session.commit()
        cursor.execute("DELETE FROM t WHERE id = 1")
        session.commit()
    thread = session.thread_id()  # type: ignore[no-untyped-call]
    session.close()

    events = [e for e in follow(database.server, start, ssl_mode=ssl_mode) if not isinstance(e, PositionAdvanced)]

    assert [type(e).__name__ for e in events] == [
        "TransactionBegin",
        "RowsEvent",
        "RowsEvent",
        "TransactionCommit",
        "TransactionBegin",
        "RowsEvent",
        "TransactionCommit",
    ]
    assert [e.op for e in only(RowsEvent, events)] == ["c", "u", "d"]
    assert [images(e) for e in only(RowsEvent, events)] == [
        b"\0\x01\0\0\0\x01a" + b"\0\x02\0\0\0\x01b",
        b"\0\x02\0\0\0\x01b" + b"\0\x02\0\0\0\x01c",
        b"\0\x01\0\0\0\x01a",
    ]
    begins, commits = only(TransactionBegin, events), only(TransactionCommit, events)
    assert [b.gtid for b in begins] == [c.gtid for c in commits]
    assert {b.thread for b in begins} == {thread}
    assert all(abs(b.commit_ts_us - time.time_ns() // 1000) < 60_000_000 for b in begins)
    assert {b.server_id for b in begins} == {1}
    assert only(RowsEvent, events)[0].table.id == TableId(database.name, "t")
    assert only(RowsEvent, events)[0].table is only(RowsEvent, events)[2].table


def test_positions_equal_those_the_server_lists(database: Database) -> None:
    """Across a rotation, begin and end of every event are where SHOW BINLOG EVENTS has them."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT)")
    start = executed(database.server)
    for number in range(4):
        database.execute(f"INSERT INTO t VALUES ({number}, REPEAT('x', 3000))")
        if number == 1:
            database.execute("FLUSH BINARY LOGS")
    database.execute("ALTER TABLE t ADD COLUMN w INT")

    events = follow(database.server, start)

    listed: dict[tuple[str, int], tuple[str, int]] = {}
    # Other tests' statements in these files are no text of one character set.
    with database.connect(use_unicode=False) as session, session.cursor() as cursor:
        for file in {e.file for e in events}:
            cursor.execute(f"SHOW BINLOG EVENTS IN '{file}'")
            listed |= {(row[0].decode(), row[1]): (row[2].decode(), row[4]) for row in cursor.fetchall()}
    assert len({e.file for e in only(RowsEvent, events)}) == 2
    for begin in only(TransactionBegin, events):
        assert listed[begin.file, begin.pos][0] == "Gtid"
        assert listed[begin.file, listed[begin.file, begin.pos][1]] == ("Query", begin.end)
    for rows in only(RowsEvent, events):
        assert listed[rows.file, rows.pos] == ("Write_rows", rows.end)
    for commit in only(TransactionCommit, events):
        assert ("Xid", commit.end) in listed.values()
    [statement] = only(QueryEvent, events)
    assert listed[statement.file, statement.pos][0] == "Gtid"
    file, pos, _ = binlog_position(connect(settings_of(database.server)))
    assert (events[-1].file, events[-1].end) == (file, pos)


def test_position_is_right_if_everything_before_was_skipped(database: Database) -> None:
    """Start at the end: only heartbeats and file headers arrive, and the position is still the end of the binlog."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    database.execute("INSERT INTO t VALUES (1)")
    file, pos, gtids = binlog_position(connect(settings_of(database.server)))
    stream = open_stream(database.server, GtidSet.parse(gtids))
    deadline = time.monotonic() + DEADLINE_S
    events = []
    while (stream.file, stream.pos) != (file, pos):
        assert time.monotonic() < deadline
        events += stream.poll(0.5)
    stream.close()

    assert {type(e) for e in events} == {PositionAdvanced}
    assert (events[-1].file, events[-1].end) == (file, pos)


def test_other_tables_give_only_their_transactions(database: Database) -> None:
    """The GTID set must advance on every transaction, also without captured rows."""
    database.execute("CREATE TABLE wanted (id INT PRIMARY KEY)")
    database.execute("CREATE TABLE other (id INT PRIMARY KEY)")
    start = executed(database.server)
    database.execute("INSERT INTO other VALUES (1)")
    database.execute("INSERT INTO wanted VALUES (1)")
    database.execute("DELETE FROM other")

    events = follow(database.server, start, captures=lambda t: t == TableId(database.name, "wanted"))

    assert [type(e).__name__ for e in events if not isinstance(e, PositionAdvanced)] == [
        *("TransactionBegin", "TransactionCommit"),
        *("TransactionBegin", "RowsEvent", "TransactionCommit"),
        *("TransactionBegin", "TransactionCommit"),
    ]


def test_start_in_the_past_repeats_exactly_what_is_not_executed(database: Database) -> None:
    """Ten transactions; the set has some in the middle too: those are not sent."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    start = executed(database.server)
    for number in range(10):
        database.execute(f"INSERT INTO t VALUES ({number})")
    gtids = [c.gtid for c in only(TransactionCommit, follow(database.server, start))]
    assert len(gtids) == 10
    some = start
    for gtid in (*gtids[:4], gtids[6]):
        some = some.with_gtid(gtid)

    events = follow(database.server, some)

    assert [c.gtid for c in only(TransactionCommit, events)] == [*gtids[4:6], *gtids[7:]]
    assert [images(r)[1] for r in only(RowsEvent, events)] == [4, 5, 7, 8, 9]


def test_empty_start_requests_the_whole_binlog() -> None:
    """An empty set means that nothing is executed: the whole binlog is sent."""
    with MySqlServer() as server:
        database = Database(server, "fresh")
        database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        database.execute("INSERT INTO t VALUES (1)")

        events = [e for e in follow(server, GtidSet({})) if not isinstance(e, PositionAdvanced)]

    assert [type(e).__name__ for e in events[-5:]] == [
        "QueryEvent",
        "QueryEvent",
        "TransactionBegin",
        "RowsEvent",
        "TransactionCommit",
    ]


def test_empty_transaction_advances_the_set(database: Database) -> None:
    """A GTID without rows, as replicas with filters log them."""
    start = executed(database.server)
    database.execute("SET gtid_next = 'aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee:7'")
    try:
        database.execute("BEGIN")
        database.execute("COMMIT")
    finally:
        database.execute("SET gtid_next = 'AUTOMATIC'")

    events = follow(database.server, start)

    assert [e.gtid for e in events if isinstance(e, TransactionBegin | TransactionCommit)] == [
        "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee:7"
    ] * 2


def test_statements_have_the_character_set_of_their_client(database: Database) -> None:
    """DDL with non-ASCII text from a utf8mb4 and from a latin1 client."""
    start = executed(database.server)
    database.execute("CREATE TABLE `tæ` (id INT COMMENT '漢字')")
    latin = database.connect(charset="latin1")
    with latin.cursor() as cursor:
        cursor.execute("ALTER TABLE `tæ` ADD COLUMN `ö` INT")
    latin.close()

    statements = only(QueryEvent, follow(database.server, start))

    assert [(s.database, s.sql, s.in_transaction) for s in statements] == [
        (database.name, "CREATE TABLE `tæ` (id INT COMMENT '漢字')", False),
        (database.name, "ALTER TABLE `tæ` ADD COLUMN `ö` INT", False),
    ]
    assert len({s.gtid for s in statements}) == 2


@pytest.mark.parametrize("megabytes", [15.9, 16, 20, 33])
def test_rows_larger_than_a_packet_are_joined(database: Database, megabytes: float) -> None:
    """Events of 16 MB and more arrive in several packets."""
    size = int(megabytes * 2**20)
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v LONGBLOB)")
    start = executed(database.server)
    value = b"0123456789abcdef" * (size // 16)
    database.execute(f"INSERT INTO t VALUES (1, REPEAT('0123456789abcdef', {size // 16}))")
    database.execute("INSERT INTO t VALUES (2, 'after')")

    big, small = only(RowsEvent, follow(database.server, start))

    assert images(big) == b"\0\x01\0\0\0" + len(value).to_bytes(4, "little") + value
    assert images(small) == b"\0\x02\0\0\0\x05\0\0\0after"
    assert big.end - big.pos == len(images(big)) + 19 + 10 + 2 + 4


def test_definition_changes_between_rows(database: Database) -> None:
    """Each rows event has the definition at the time it was logged."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    start = executed(database.server)
    database.execute("INSERT INTO t VALUES (1)")
    database.execute("ALTER TABLE t ADD COLUMN v VARCHAR(300) CHARACTER SET latin1 FIRST")
    database.execute("INSERT INTO t VALUES ('a', 2)")
    database.execute("DROP TABLE t")
    database.execute("CREATE TABLE t (`x y` DATE)")
    database.execute("INSERT INTO t VALUES ('2024-01-02')")

    tables = [r.table for r in only(RowsEvent, follow(database.server, start))]

    assert [[c.name for c in t.columns] for t in tables] == [["id"], ["v", "id"], ["x y"]]
    assert [t.primary_key for t in tables] == [("id",), ("id",), ()]
    assert len({t.fingerprint for t in tables}) == 3


def test_wide_table_with_an_unusual_name(database: Database) -> None:
    """More than 250 columns change the form of the count; names may contain nearly any character."""
    names = [f"c{n}" for n in range(300)]
    table = "o`dd.na me-漢🎉"[:-1]
    columns = ", ".join(f"{n} TINYINT" for n in names)
    quoted = table.replace("`", "``")
    database.execute(f"CREATE TABLE `{quoted}` ({columns})")
    start = executed(database.server)
    database.execute(f"INSERT INTO `{quoted}` (c0, c299) VALUES (1, 2)")
    database.execute(f"UPDATE `{quoted}` SET c1 = 3")

    insert, update = only(RowsEvent, follow(database.server, start))

    assert insert.table.id == TableId(database.name, table)
    assert [c.name for c in insert.table.columns] == names
    assert images(insert)[-2:] == b"\x01\x02"
    assert images(update)[-3:] == b"\x01\x03\x02"


def test_table_ids_may_repeat_after_a_restart() -> None:
    """Ids restart with the server: one id, two tables, in one stream."""
    ids: list[set[int]] = []
    with MySqlServer() as server:
        database = Database(server, "shop")
        database.execute("CREATE TABLE a (id INT PRIMARY KEY)")
        database.execute("CREATE TABLE b (name VARCHAR(5) PRIMARY KEY)")
        start = executed(server)
        for table, value in (("a", "1"), ("b", "'x'")):
            server.restart()
            with server.connect(database="shop") as session, session.cursor() as cursor:
                cursor.execute(f"INSERT INTO {table} VALUES ({value})")
                cursor.execute(f"SHOW BINLOG EVENTS IN '{binlog_position(session)[0]}'")
                ids.append({int(row[5].split()[1]) for row in cursor.fetchall() if row[2] == "Table_map"})

        rows = only(RowsEvent, follow(server, start))

    assert ids[0] & ids[1], "the server gave other ids: the test shows nothing"
    assert [(r.table.id.table, r.table.columns[0].name) for r in rows] == [("a", "id"), ("b", "name")]


def test_other_engines_end_transactions_with_a_statement(database: Database) -> None:
    """MyISAM: COMMIT is logged as text, and a rollback does not revert rows."""
    database.execute("CREATE TABLE m (id INT PRIMARY KEY) ENGINE=MyISAM")
    start = executed(database.server)
    database.execute("INSERT INTO m VALUES (1)")

    events = [e for e in follow(database.server, start) if not isinstance(e, PositionAdvanced)]

    assert [type(e).__name__ for e in events] == ["TransactionBegin", "RowsEvent", "TransactionCommit"]


def test_rollback_to_a_savepoint_removes_its_rows(database: Database) -> None:
    """A rollback to a savepoint removes its rows before they are logged; the SAVEPOINT itself is logged."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    start = executed(database.server)
    session = database.connect(autocommit=False)
    with session.cursor() as cursor:
        for sql in (
            "INSERT INTO t VALUES (1)",
            "SAVEPOINT here",
            "INSERT INTO t VALUES (2)",
            "ROLLBACK TO here",
            "SAVEPOINT there",
            "INSERT INTO t VALUES (3)",
        ):
            cursor.execute(sql)
        session.commit()
    session.close()

    events = [e for e in follow(database.server, start) if not isinstance(e, PositionAdvanced)]

    assert [type(e).__name__ for e in events] == ["TransactionBegin", "RowsEvent", "RowsEvent", "TransactionCommit"]
    assert [images(r)[1] for r in only(RowsEvent, events)] == [1, 3]


def test_executed_gtids_and_position_agree(database: Database) -> None:
    """The GTIDs of the stream equal the executed GTIDs of the server."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT)")
    start = executed(database.server)
    for _ in range(50):
        database.execute("INSERT INTO t VALUES ()")
    session = connect(settings_of(database.server))
    target = GtidSet.parse(executed_gtids(session))
    session.close()
    seen = start
    for event in follow(database.server, start):
        if isinstance(event, TransactionCommit):
            seen = seen.with_gtid(event.gtid)

    assert seen == target
