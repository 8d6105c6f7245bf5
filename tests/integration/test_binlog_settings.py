"""Settings that sessions and servers may change: which are supported, and which are rejected with a hint."""

from __future__ import annotations

import pytest

from tailrace.producer.errors import BinlogError
from tailrace.producer.model.binlog_events import QueryEvent, RowsEvent, TransactionCommit
from tailrace.producer.model.table import TableId
from tailrace.runtime.errors import SchemaError
from tests.embedded.mysql import MySqlServer
from tests.support.binlog import (
    executed,
    follow,
    images,
    only,
    open_stream,
    poll_until_it_fails,
    read_until,
)
from tests.support.database import Database


def test_rows_have_their_statement_if_the_server_logs_it(database: Database) -> None:
    """binlog_rows_query_log_events is set per session: one statement has it, the next one does not."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    start = executed(database.server)
    session = database.connect(autocommit=False)
    with session.cursor() as cursor:
        cursor.execute("SET binlog_rows_query_log_events = ON")
        cursor.execute("INSERT INTO t VALUES (1) /* é */")
        cursor.execute("SET binlog_rows_query_log_events = OFF")
        cursor.execute("INSERT INTO t VALUES (2)")
        session.commit()
    session.close()

    assert [r.query for r in only(RowsEvent, follow(database.server, start))] == [
        "INSERT INTO t VALUES (1) /* é */",
        None,
    ]


@pytest.mark.parametrize(
    ("session_setting", "kind", "named"),
    [
        ("binlog_format = STATEMENT", BinlogError, "SET GLOBAL binlog_format=ROW, also for sessions that set it"),
        ("binlog_row_image = MINIMAL", SchemaError, "SET GLOBAL binlog_row_image=FULL, also for sessions that set it"),
        ("binlog_row_value_options = PARTIAL_JSON", BinlogError, "SET GLOBAL binlog_row_value_options='', also for"),
    ],
)
def test_incomplete_logging_of_a_session_stops_the_stream(
    database: Database, session_setting: str, kind: type[Exception], named: str
) -> None:
    """Any session may change how it logs; for captured tables this is an error with a hint."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, j JSON, v INT)")
    database.execute("""INSERT INTO t VALUES (1, '{"a": "a longer text", "b": "another longer text"}', 1)""")
    database.execute("CREATE TABLE other LIKE t")
    database.execute("INSERT INTO other SELECT * FROM t")
    stream = open_stream(
        database.server, start := executed(database.server), captures=lambda t: t == TableId(database.name, "t")
    )
    try:
        with database.connect() as session, session.cursor() as cursor:
            cursor.execute(f"SET {session_setting}")
            cursor.execute("UPDATE other SET v = 2, j = JSON_SET(j, '$.a', 'b') WHERE id = 1")
            harmless = executed(database.server)
            assert len(only(TransactionCommit, read_until(stream, start, harmless))) == 1
            cursor.execute("UPDATE t SET v = 2, j = JSON_SET(j, '$.a', 'b') WHERE id = 1")
        with pytest.raises(kind) as caught:
            poll_until_it_fails(stream)
    finally:
        stream.close()

    assert named in str(caught.value)


def test_statements_are_read_by_the_modes_of_their_session(database: Database) -> None:
    """The binlog has sql_mode with each statement, and the version of the server with each file."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    start = executed(database.server)
    with database.connect() as session, session.cursor() as cursor:
        cursor.execute("SET sql_mode = 'NO_BACKSLASH_ESCAPES'")
        cursor.execute("ALTER TABLE t COMMENT '\\', RENAME TO u")
        cursor.execute("SET sql_mode = 'ANSI_QUOTES'")
        cursor.execute('ALTER TABLE u RENAME TO "v""w"')
        cursor.execute("SET sql_mode = ''")
        cursor.execute("ALTER TABLE `v\"w` COMMENT 'a\\', RENAME TO x -- ' /*!99999 , RENAME TO y */")

    stream = open_stream(database.server, start)
    try:
        events = only(QueryEvent, read_until(stream, start, executed(database.server)))
        effects = [effect for event in events for effect in stream.ddl_effects(event)]
    finally:
        stream.close()

    assert [(e.renamed_from and e.renamed_from.table, e.table.table) for e in effects] == [
        ("t", "u"),
        ("u", 'v"w'),
        (None, 'v"w'),
    ]


def test_checksums_may_change_from_file_to_file(own_database: Database) -> None:
    """CRC32, then NONE, then CRC32: every file states its own setting."""
    own_database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    start = executed(own_database.server)
    live = open_stream(own_database.server, start, server_id=4713)
    try:
        for number, checksum in enumerate(("CRC32", "NONE", "CRC32", "NONE")):
            own_database.execute(f"SET GLOBAL binlog_checksum = {checksum}")
            own_database.execute(f"INSERT INTO t VALUES ({number})")
        now = executed(own_database.server)

        assert [images(r)[1] for r in only(RowsEvent, read_until(live, start, now))] == [0, 1, 2, 3]
        assert [images(r)[1] for r in only(RowsEvent, follow(own_database.server, start))] == [0, 1, 2, 3]
    finally:
        live.close()
        own_database.execute("SET GLOBAL binlog_checksum = CRC32")


def test_rows_events_v1_are_read() -> None:
    """log_bin_use_v1_row_events=ON, for old replicas."""
    with MySqlServer(settings={"log_bin_use_v1_row_events": "ON"}) as server:
        database = Database(server, "v1")
        database.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
        start = executed(server)
        database.execute("INSERT INTO t VALUES (1, 2)")
        database.execute("UPDATE t SET v = 3")
        database.execute("DELETE FROM t")

        rows = only(RowsEvent, follow(server, start))

    assert [(r.op, images(r)) for r in rows] == [
        ("c", b"\0\x01\0\0\0\x02\0\0\0"),
        ("u", b"\0\x01\0\0\0\x02\0\0\0\0\x01\0\0\0\x03\0\0\0"),
        ("d", b"\0\x01\0\0\0\x03\0\0\0"),
    ]
