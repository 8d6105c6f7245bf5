"""Events that the servers of most other tests are too old for."""

from __future__ import annotations

import pytest

from tailrace.producer.model.binlog_events import (
    PositionAdvanced,
    QueryEvent,
    RowsEvent,
    TransactionBegin,
    TransactionCommit,
)
from tests.embedded.mysql import MySqlServer
from tests.support.binlog import executed, follow, images, only
from tests.support.codec import BothSources
from tests.support.database import Database
from tests.support.values import value_options


@pytest.fixture
def mysql_server(newest_server: MySqlServer) -> MySqlServer:
    """The server of these tests."""
    return newest_server


def test_compressed_transactions_are_read(database: Database) -> None:
    """Since 8.0.20. One session compresses, the other does not: both arrive, at positions that the server lists."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT)")
    start = executed(database.server)
    with database.connect(autocommit=False) as session, session.cursor() as cursor:
        cursor.execute("SET binlog_transaction_compression = ON")
        cursor.execute("INSERT INTO t VALUES (1, REPEAT('x', 20000000)), (2, 'y')")
        cursor.execute("UPDATE t SET v = 'z' WHERE id = 2")
        session.commit()
    database.execute("DELETE FROM t WHERE id = 2")

    events = [e for e in follow(database.server, start) if not isinstance(e, PositionAdvanced)]

    listed = {}
    with database.connect(charset="latin1") as session, session.cursor() as cursor:
        cursor.execute(f"SHOW BINLOG EVENTS IN '{events[0].file}'")
        listed = {row[1]: (row[2], row[4]) for row in cursor.fetchall()}
    assert [type(e) for e in events] == [
        TransactionBegin,
        *[RowsEvent] * (len(events) - 5),
        TransactionCommit,
        TransactionBegin,
        RowsEvent,
        TransactionCommit,
    ]
    rows = only(RowsEvent, events)
    assert b"".join(images(r) for r in rows if r.op == "c").endswith(b"\0\2\0\0\0\1\0\0\0y")
    assert sum(len(images(r)) for r in rows if r.op == "c") == 20_000_000 + 9 + 10
    assert [images(r) for r in rows if r.op != "c"] == [
        b"\0\2\0\0\0\1\0\0\0y" + b"\0\2\0\0\0\1\0\0\0z",
        b"\0\2\0\0\0\1\0\0\0z",
    ]
    assert {listed[r.pos][0] for r in rows[:-1]} == {"Transaction_payload"}
    commits = only(TransactionCommit, events)
    assert listed[rows[0].pos][1] == commits[0].end
    assert listed[rows[-1].pos] == ("Delete_rows", rows[-1].end)


def test_create_table_select_is_a_statement_within_a_transaction(database: Database) -> None:
    """CREATE TABLE … SELECT is atomic since 8.0.21."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    database.execute("INSERT INTO t VALUES (1)")
    start = executed(database.server)
    database.execute("CREATE TABLE u (PRIMARY KEY (id)) SELECT id FROM t")
    database.execute("INSERT INTO u VALUES (2)")

    events = [e for e in follow(database.server, start) if not isinstance(e, PositionAdvanced)]

    assert [type(e) for e in events] == [
        TransactionBegin,
        QueryEvent,
        RowsEvent,
        TransactionCommit,
        TransactionBegin,
        RowsEvent,
        TransactionCommit,
    ]
    assert [e.in_transaction for e in only(QueryEvent, events)] == [True]
    assert [images(r)[1] for r in only(RowsEvent, events)] == [1, 2]


def test_functional_index_adds_no_column(database: Database) -> None:
    """Since 8.0.18 its hidden column is not described."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT, INDEX ((v + 1)))")
    start = executed(database.server)
    database.execute("INSERT INTO t VALUES (1, 2)")

    [rows] = only(RowsEvent, follow(database.server, start))

    assert [c.name for c in rows.table.columns] == ["id", "v"]


def test_invisible_columns_are_captured(database: Database) -> None:
    """An invisible column, and a primary key that the server generates (8.0.30), are in binlog and catalog."""
    start = executed(database.server)
    with database.connect() as session, session.cursor() as cursor:
        cursor.execute("SET sql_generate_invisible_primary_key = ON")
        cursor.execute("CREATE TABLE t (v INT, w INT INVISIBLE DEFAULT 7)")
        cursor.execute("INSERT INTO t VALUES (1)")

    [rows] = only(RowsEvent, follow(database.server, start))

    assert [c.name for c in rows.table.columns] == ["my_row_id", "v", "w"]
    assert rows.table.primary_key == ("my_row_id",)


def test_vectors_are_read_from_select_and_log(database: Database) -> None:
    """Since MySQL 9."""
    both = BothSources(database)
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VECTOR(3), w VECTOR)")
    database.execute("INSERT INTO t VALUES (1, TO_VECTOR('[1, -2.5, 3e38]'), TO_VECTOR('[0.1]')), (2, NULL, NULL)")
    table = both.table("t")

    rows = both.selected(table, value_options())

    assert rows == both.logged(table, value_options())
    assert rows == [
        (b'{"id":1}', b'{"id":1,"v":[1.0,-2.5,3.0E38],"w":[0.1]}'),
        (b'{"id":2}', b'{"id":2,"v":null,"w":null}'),
    ]


def test_a_generated_primary_key_is_the_key_where_the_catalog_hides_it(database: Database) -> None:
    """The binlog has the invisible column; show_gipk_in_create_table_and_information_schema=OFF is for applications."""
    both = BothSources(database)
    database.execute("SET sql_generate_invisible_primary_key = ON")
    database.execute("SET GLOBAL show_gipk_in_create_table_and_information_schema = OFF")
    try:
        database.execute("CREATE TABLE t (v VARCHAR(9))")
        database.execute("INSERT INTO t VALUES ('a'), ('b')")
        table = both.table("t")
        rows = both.selected(table, value_options(), order="v")
    finally:
        database.execute("SET GLOBAL show_gipk_in_create_table_and_information_schema = ON")

    assert table.key == ("my_row_id",)
    assert rows == both.logged(table, value_options())
    assert rows == [
        (b'{"my_row_id":1}', b'{"my_row_id":1,"v":"a"}'),
        (b'{"my_row_id":2}', b'{"my_row_id":2,"v":"b"}'),
    ]
