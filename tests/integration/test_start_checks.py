"""What a start asks the source: bounded, independent of global settings, and unharmed by what happens meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest

from tailrace.producer.errors import SourceUnavailableError, TableAccessError
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.catalog import list_tables, read_table, read_tables
from tailrace.producer.mysql.connection import connect, query
from tailrace.producer.mysql.offset import MySqlOffset
from tailrace.producer.mysql.prerequisites import (
    SETTINGS,
    CheckedSource,
    Checks,
    account_may_read,
    check,
    server_id_is_unique,
)
from tailrace.producer.mysql.session_variables import SESSION_VARIABLES
from tailrace.producer.mysql.snapshot_session import MySqlSnapshotSession
from tailrace.producer.mysql.source import MySqlSource
from tests.embedded.kafka import KafkaBroker
from tests.embedded.mysql import MySqlServer
from tests.support.binlog import account_settings, settings_of
from tests.support.capture import CaptureThread, properties, verified_rows
from tests.support.database import Database

ODD = {
    "sql_select_limit": "1",
    "max_execution_time": "1",
    "sql_big_selects": "OFF",
    "max_join_size": "1",
    "lock_wait_timeout": "1",
    "completion_type": "'RELEASE'",
    "sql_auto_is_null": "ON",
    "sql_buffer_result": "ON",
    "max_sort_length": "4",
    "sql_quote_show_create": "OFF",
    "transaction_isolation": "'SERIALIZABLE'",
    "time_zone": "'+05:30'",
    "sql_mode": "'ANSI,PAD_CHAR_TO_FULL_LENGTH,NO_BACKSLASH_ESCAPES'",
    "net_write_timeout": "1",
    "net_read_timeout": "1",
    "information_schema_stats_expiry": "86400",
    "init_connect": "'SET NAMES latin1, SESSION sql_select_limit = 2'",
}
"""Global values that an operator may have set for other applications."""


@pytest.fixture
def odd_server(own_server: MySqlServer, own_database: Database) -> Iterator[MySqlServer]:
    """The server with odd globals, and afterwards with its own ones."""
    before = {name: own_database.execute(f"SELECT @@global.{name}")[0][0] for name in ODD}
    for name, value in ODD.items():
        own_database.execute(f"SET GLOBAL {name} = {value}")
    try:
        yield own_server
    finally:
        for name, old in before.items():
            own_database.execute(f"SET GLOBAL {name} = %s", (old,))


def test_globals_of_the_server_do_not_change_what_a_session_reads(
    odd_server: MySqlServer, own_database: Database
) -> None:
    """All rows of a join, in UTF-8, as an account for which init_connect runs."""
    own_database.execute("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(9))")
    own_database.executemany("INSERT INTO t (name) VALUES (%s)", [("żółw",), ("\U0001f422",), ("c",)])
    capture = account_settings(odd_server.host, odd_server.port, odd_server.capture_user, odd_server.capture_password)
    with closing(connect(capture)) as session:
        rows = query(session, f"SELECT a.name FROM `{own_database.name}`.t a, `{own_database.name}`.t b ORDER BY a.id")
        variables = {name: query(session, f"SELECT @@session.{name}")[0][0] for name in SESSION_VARIABLES}
        text = query(session, f"SHOW CREATE TABLE `{own_database.name}`.t")[0][1]

    assert [name for (name,) in rows] == ["żółw"] * 3 + ["\U0001f422"] * 3 + ["c"] * 3
    assert text.startswith("CREATE TABLE `t`")
    switches = {"ON": "1", "OFF": "0", "'NO_CHAIN'": "NO_CHAIN"}
    assert {name: str(value) for name, value in variables.items()} == {
        name: switches.get(value, value.strip("'")) for name, value in SESSION_VARIABLES.items()
    }


def test_broken_connection_is_not_a_missing_grant(own_server: MySqlServer, own_database: Database) -> None:
    """Every check that tolerates a missing grant reports a lost connection as such, so the producer tries again."""
    own_database.execute("CREATE TABLE t (id INT PRIMARY KEY)")

    def lose_connection(source: CheckedSource) -> Iterator[str]:
        own_database.execute("KILL %s", query(source.session, "SELECT CONNECTION_ID()")[0])
        yield from ()

    for rule in (account_may_read, server_id_is_unique):
        with closing(connect(settings_of(own_server))) as session, pytest.raises(SourceUnavailableError):
            check(
                session,
                [TableId(own_database.name, "t")],
                server_id=4711,
                checks=Checks(SETTINGS, (lose_connection, rule), ()),
            )


def test_table_that_was_dropped_meanwhile_is_no_fault(own_server: MySqlServer, own_database: Database) -> None:
    """The checks pass, and the table is left out."""
    for name in ("a", "b", "c"):
        own_database.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, v TEXT)")
    with closing(connect(settings_of(own_server))) as session:
        tables = list_tables(session, lambda table: table.database == own_database.name)
        own_database.execute("DROP TABLE b")
        check(session, tables, server_id=4711)
        assert [table.table for table, _ in read_tables(session, tables)] == ["a", "c"]


def test_queries_do_not_grow_with_the_tables(own_server: MySqlServer, own_database: Database) -> None:
    """300 tables of every kind of key; the account has its grants by a role, and one table lacks them."""
    own_database.execute("CREATE ROLE IF NOT EXISTS many_reader")
    own_database.execute(f"GRANT SELECT ON `{own_database.name}`.* TO many_reader")
    own_database.execute("GRANT PROCESS, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO many_reader")
    own_database.execute("CREATE USER IF NOT EXISTS many IDENTIFIED BY 'm' DEFAULT ROLE many_reader")
    own_database.execute(f"CREATE DATABASE IF NOT EXISTS `{own_database.name}_2`")
    for number in range(300):
        key = ("id INT PRIMARY KEY", "id INT NOT NULL UNIQUE", "id VARCHAR(9) PRIMARY KEY")[number % 3]
        own_database.execute(f"CREATE TABLE t{number} ({key}, v TEXT)")
    own_database.execute(f"CREATE TABLE `{own_database.name}_2`.hidden (id INT PRIMARY KEY)")
    own_database.execute(f"GRANT INSERT ON `{own_database.name}_2`.hidden TO many")
    many = account_settings(own_server.host, own_server.port, "many", "m")
    try:
        with closing(connect(many)) as session:
            before = _questions(session)
            tables = list_tables(session, lambda table: table.database.startswith(own_database.name))
            check(session, tables, server_id=4711)
            found = dict(read_tables(session, tables))
            count = _questions(session) - before
    finally:
        own_database.execute(f"DROP DATABASE `{own_database.name}_2`")

    assert len(found) == len(tables) == 301
    assert [table.table for table, each in found.items() if isinstance(each, TableAccessError)] == ["hidden"]
    assert count < 30, count


def test_definitions_read_together_equal_those_read_one_by_one(own_server: MySqlServer, own_database: Database) -> None:
    """Also names that the catalog's collation holds to be equal, and a key that only the order of keys decides."""
    for name in ("x", "X", "é", "e"):
        own_database.execute(
            f"CREATE TABLE `{name}` (id INT PRIMARY KEY, `only in {name}` TEXT, KEY (`only in {name}`(3)))"
        )
    own_database.execute(
        "CREATE TABLE k (z INT NOT NULL, a INT NOT NULL, n INT, t TEXT NOT NULL, "
        "UNIQUE zz (z), UNIQUE aa (a), UNIQUE nn (n), UNIQUE tt (t(5)))"
    )
    own_database.execute("CREATE TABLE p (t VARCHAR(90), b BINARY(4), c INT, PRIMARY KEY (t(10), b), KEY (c))")
    with closing(connect(settings_of(own_server))) as session:
        tables = list_tables(session, lambda table: table.database == own_database.name)
        together = dict(read_tables(session, tables))
        alone = {table: read_table(session, table) for table in tables}

    assert together == alone
    of = {table.table: found for table, found in alone.items()}
    assert of["k"].unique_key == ("z",)
    assert (of["p"].primary_key, of["p"].prefix_columns) == (("t", "b"), frozenset({"t"}))


def test_definition_does_not_depend_on_the_next_value_of_a_counter(
    own_server: MySqlServer, own_database: Database
) -> None:
    """An insert between two splits changes SHOW CREATE TABLE, but not the definition."""
    own_database.execute(
        "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(90) DEFAULT ') ENGINE=x AUTO_INCREMENT=7') "
        "COMMENT 'AUTO_INCREMENT=8'"
    )
    with closing(MySqlSnapshotSession(connect(settings_of(own_server)))) as session:
        texts: list[str] = []
        for _ in range(2):
            texts.append(session.definition_text(TableId(own_database.name, "t")))
            own_database.execute("INSERT INTO t (v) VALUES ('x'), ('y')")

    assert texts[0] == texts[1]
    assert "AUTO_INCREMENT=7" in texts[0]
    assert "AUTO_INCREMENT=8" in texts[0]
    assert "=3" not in texts[0]


def test_tables_that_appear_and_vanish_during_the_start(
    database: Database, kafka_broker: KafkaBroker, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both between the list of the tables and the offset of the stream, which is behind the rows of the new one."""
    for name in ("kept", "gone"):
        database.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY)")
        database.execute(f"INSERT INTO {name} VALUES (1)")
    start_offset = MySqlSource.start_offset

    def start_late(source: MySqlSource, *, epoch: int = 1) -> MySqlOffset:
        database.execute("DROP TABLE gone")
        database.execute("CREATE TABLE late (id INT PRIMARY KEY)")
        database.execute("INSERT INTO late VALUES (1), (2)")
        return start_offset(source, epoch=epoch)

    monkeypatch.setattr(MySqlSource, "start_offset", start_late)
    with CaptureThread(properties(database.server, kafka_broker, prefix, database.name)) as capture:
        capture.wait_snapshot()
        database.execute("INSERT INTO late VALUES (3)")
        capture.wait_position(database.server)

    for name, rows in (("kept", 1), ("late", 3)):
        assert len(verified_rows(kafka_broker.bootstrap, prefix, database.name, name)) == rows


def _questions(session: object) -> int:
    rows: Sequence[tuple[str, str]] = query(session, "SHOW SESSION STATUS LIKE 'Questions'")  # type: ignore[arg-type]
    return int(rows[0][1])
