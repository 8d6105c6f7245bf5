"""Prerequisites on a real server: every problem is reported at once, with its value and its correction."""

from __future__ import annotations

from contextlib import closing

import pytest

from tailrace.producer.app.connection_settings import mysql_source
from tailrace.producer.app.validation import check_source
from tailrace.producer.config import load
from tailrace.producer.errors import PrerequisiteError, TableAccessError
from tailrace.producer.model.binlog_events import ChangeRefused, Event, RowsEvent
from tailrace.producer.model.table import CatalogTable, TableId
from tailrace.producer.mysql.catalog import read_table, read_tables
from tailrace.producer.mysql.connection import SourceSettings, connect
from tailrace.producer.mysql.prerequisites import check
from tailrace.producer.mysql.source import MySqlSource
from tailrace.producer.serialization.captured_tables import CapturedTables
from tests.embedded.mysql import MySqlServer
from tests.support.binlog import account_settings, executed, follow, only, settings_of
from tests.support.capture import eventually
from tests.support.database import Database

BASE = {
    "database.hostname": "127.0.0.1",
    "database.user": "weak",
    "database.password": "w",
    "database.server.id": "4711",
    "topic.prefix": "p",
    "bootstrap.servers": "k:1",
}


@pytest.fixture
def shop(own_database: Database) -> Database:
    """A database with one table, on a server whose global settings tests may change."""
    own_database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    return own_database


def problems_of(settings: SourceSettings, tables: list[TableId], server_id: int = 4711) -> tuple[str, ...]:
    """Return the problems."""
    with connect(settings) as session:
        try:
            check(session, tables, server_id=server_id)
        except PrerequisiteError as error:
            return error.problems
    return ()


def test_correct_server_has_no_problems(own_server: MySqlServer, shop: Database) -> None:
    """root, and the account with no more grants than needed."""
    tables = [TableId(shop.name, "t")]
    capture = account_settings(own_server.host, own_server.port, own_server.capture_user, own_server.capture_password)

    assert problems_of(settings_of(own_server), tables) == ()
    assert problems_of(capture, tables) == ()


@pytest.mark.parametrize(
    ("setting", "value", "usual", "statement"),
    [
        ("binlog_format", "MIXED", "ROW", "SET PERSIST binlog_format = 'ROW'"),
        ("binlog_row_image", "NOBLOB", "FULL", "SET PERSIST binlog_row_image = 'FULL'"),
        ("binlog_row_value_options", "PARTIAL_JSON", "", "SET PERSIST binlog_row_value_options = ''"),
    ],
)
def test_wrong_setting_is_reported_with_value_and_statement(
    shop: Database, setting: str, value: str, usual: str, statement: str
) -> None:
    """One setting is wrong, and only that is reported."""
    shop.execute(f"SET GLOBAL {setting} = '{value}'")
    try:
        [problem] = problems_of(settings_of(shop.server), [TableId(shop.name, "t")])
    finally:
        shop.execute(f"SET GLOBAL {setting} = '{usual}'")

    assert problem.startswith(f"{setting} is {value}")
    assert statement in problem


def test_statements_correct_the_problems(own_server: MySqlServer, shop: Database) -> None:
    """Every problem ends with a statement, which the server accepts and which solves the problem."""
    wrong = {"binlog_format": "STATEMENT", "binlog_row_image": "MINIMAL"}
    for setting, value in wrong.items():
        shop.execute(f"SET GLOBAL {setting} = '{value}'")
    tables = [TableId(shop.name, "t")]
    found = problems_of(settings_of(own_server), tables)
    for problem in found:
        shop.execute(problem.rpartition("; ")[2])

    assert len(found) == 2
    assert problems_of(settings_of(own_server), tables) == ()


def test_minimal_metadata_is_a_note(own_server: MySqlServer, shop: Database) -> None:
    """A start says in which mode it runs, and how it is changed."""
    shop.execute("SET GLOBAL binlog_row_metadata = 'MINIMAL'")
    try:
        with closing(connect(settings_of(own_server))) as session:
            notes = check(session, [TableId(shop.name, "t")], server_id=4711)
    finally:
        shop.execute("SET GLOBAL binlog_row_metadata = 'FULL'")

    assert any("binlog_row_metadata is MINIMAL" in note and "= 'FULL' avoids it" in note for note in notes)


def test_missing_grants_are_reported_together(own_server: MySqlServer, shop: Database) -> None:
    """An account that sees the name of the table but may read nothing."""
    shop.execute("CREATE USER IF NOT EXISTS weak IDENTIFIED BY 'w'")
    shop.execute(f"GRANT INSERT ON `{shop.name}`.* TO weak")

    settings = {**BASE, "database.port": str(own_server.port), "database.include.list": shop.name}
    config, tables = load(None, {}, settings), [TableId(shop.name, "t")]
    source = mysql_source(config)
    with closing(source.open_snapshot_session()) as session, pytest.raises(PrerequisiteError) as raised:
        check_source(config, source, session, CapturedTables(config, session.describe), tables)
    client, replica, table = raised.value.problems
    for problem in (client, replica, table):
        shop.execute(problem.rpartition("; ")[2])

    assert "REPLICATION CLIENT" in client
    assert "REPLICATION SLAVE" in replica
    assert f"{shop.name}.t" in table
    with closing(source.open_snapshot_session()) as session:
        assert check_source(config, source, session, CapturedTables(config, session.describe), tables).problems == []


def test_table_with_columns_that_may_not_be_read_is_reported(own_server: MySqlServer, shop: Database) -> None:
    """The catalog shows the other columns alone, as if they were all."""
    shop.execute("CREATE TABLE u (id INT PRIMARY KEY, v INT)")
    shop.execute("CREATE USER IF NOT EXISTS partial IDENTIFIED BY 'p'")
    shop.execute(f"GRANT SELECT (id) ON `{shop.name}`.t TO partial")
    shop.execute(f"GRANT SELECT (id) ON `{shop.name}`.u TO partial")
    with closing(connect(account_settings(own_server.host, own_server.port, "partial", "p"))) as session:
        found = dict(read_tables(session, [TableId(shop.name, name) for name in ("t", "u", "gone")]))
        with pytest.raises(TableAccessError, match="gone cannot be read"):
            read_table(session, TableId(shop.name, "gone"))
    assert isinstance(found[TableId(shop.name, "t")], CatalogTable)
    fault = found[TableId(shop.name, "u")]
    assert isinstance(fault, TableAccessError)
    assert fault.hint == f"GRANT SELECT ON `{shop.name}`.`u` TO 'partial'@'%'"


def test_grants_by_a_role_count(own_server: MySqlServer, shop: Database) -> None:
    """The checks use the grants instead of parsing SHOW GRANTS."""
    shop.execute("CREATE ROLE IF NOT EXISTS reader")
    shop.execute("GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO reader")
    shop.execute("CREATE USER IF NOT EXISTS actor IDENTIFIED BY 'a' DEFAULT ROLE reader")

    actor = account_settings(own_server.host, own_server.port, "actor", "a")
    assert problems_of(actor, [TableId(shop.name, "t")]) == ()


def test_server_id_must_not_be_the_servers_own(own_server: MySqlServer, shop: Database) -> None:
    """The server's id is 1."""
    [problem] = problems_of(settings_of(own_server), [TableId(shop.name, "t")], server_id=1)

    assert problem.startswith("database.server.id is 1")


def test_cascading_keys_are_noted(own_server: MySqlServer, shop: Database) -> None:
    """Changes by CASCADE are not logged: a note, since the user must know."""
    shop.execute(
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY to_parent (p) REFERENCES t (id) ON DELETE CASCADE)"
    )
    with connect(settings_of(own_server)) as session:
        noted = check(session, [TableId(shop.name, "t"), TableId(shop.name, "child")], server_id=4711)
        others = check(session, [TableId(shop.name, "t")], server_id=4711)
    shop.execute("DROP TABLE child")

    [note] = set(noted) - set(others)
    assert "CASCADE" in note


def test_cascades_that_the_server_logs_are_not_noted(newest_server: MySqlServer) -> None:
    """Since MySQL 9.6; the log has the rows."""
    shop = Database(newest_server, "cascades")
    shop.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    shop.execute(
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY to_parent (p) REFERENCES t (id) ON DELETE CASCADE)"
    )
    shop.execute("INSERT INTO t VALUES (1)")
    shop.execute("INSERT INTO child VALUES (10, 1)")
    start = executed(newest_server)
    shop.execute("DELETE FROM t")

    rows = only(RowsEvent, follow(newest_server, start))

    with connect(settings_of(newest_server)) as session:
        noted = check(session, [TableId(shop.name, "child")], server_id=4711)
    shop.drop()
    assert [(event.op, event.table.id.table) for event in rows] == [("d", "child"), ("d", "t")]
    assert not [note for note in noted if "CASCADE" in note]


def test_settings_that_lose_transactions_in_a_crash_are_noted(own_server: MySqlServer, shop: Database) -> None:
    tables = [TableId(shop.name, "t")]
    with connect(settings_of(own_server)) as session:
        noted = check(session, tables, server_id=4711)
        shop.execute("SET GLOBAL sync_binlog = 1")
        shop.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
        none = check(session, tables, server_id=4711)

    assert [note.split(":")[0] for note in noted] == ["sync_binlog is 0", "innodb_flush_log_at_trx_commit is 2"]
    assert none == ()


@pytest.mark.mysql("8.0.15")
def test_unseen_xa_commits_are_noted() -> None:
    """An older server shows only with PROCESS when the rows of an XA commit become visible."""
    with MySqlServer(version="8.0.15") as older, older.connect() as root, root.cursor() as cursor:
        cursor.execute("CREATE USER least IDENTIFIED BY 'l'")
        cursor.execute("GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO least")
        with connect(account_settings(older.host, older.port, "least", "l")) as session:
            *_, note = check(session, [], server_id=4711)
        cursor.execute(note.rpartition("; ")[2])
        with connect(account_settings(older.host, older.port, "least", "l")) as session:
            after = check(session, [], server_id=4711)

    assert "the account 'least'@'%' lacks PROCESS, which MySQL 8.0.15 needs" in note
    assert "PROCESS" not in str(after)


def test_server_without_binlog() -> None:
    """GTIDs are not required."""
    with MySqlServer(
        settings={
            "log_bin": None,
            "skip_log_bin": "ON",
            "gtid_mode": "OFF",
            "enforce_gtid_consistency": "OFF",
            "log_slave_updates": "OFF",
        }
    ) as bare:
        database = Database(bare, "shop")
        database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        found = problems_of(settings_of(bare), [TableId("shop", "t")])

    assert [problem.split(" is ")[0] for problem in found] == ["log_bin"]


def test_databases_excluded_from_the_binlog_are_reported() -> None:
    """binlog_ignore_db drops the changes of a captured database."""
    with MySqlServer(settings={"binlog_ignore_db": "shop"}) as filtering:
        database = Database(filtering, "shop")
        database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        [problem] = problems_of(settings_of(filtering), [TableId("shop", "t")])

    assert "binlog_ignore_db: shop" in problem


@pytest.mark.long
def test_statements_that_are_not_logged_need_full_metadata() -> None:
    """A statement on a logged table is left out if its session uses another database; a stream refuses rows then."""
    with MySqlServer(settings={"binlog_do_db": "shop", "binlog_row_metadata": "MINIMAL"}) as filtering:
        created = Database(filtering, "shop")
        table = TableId(created.name, "t")
        [problem] = problems_of(settings_of(filtering), [table])
        source = MySqlSource(settings_of(filtering), server_id=4712)
        start = source.end_offset(epoch=1)
        with closing(connect(settings_of(filtering))) as session, session.cursor() as cursor:
            cursor.execute("USE shop")
            cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)")
            cursor.execute("USE mysql")
            cursor.execute("ALTER TABLE shop.t RENAME COLUMN a TO b, RENAME COLUMN b TO a")
            cursor.execute("INSERT INTO shop.t VALUES (1, 1, 10)")
        with closing(source.open_stream(start, lambda found: found == table)) as stream:
            refused: list[Event] = []

            def complete() -> bool:
                refused.extend(event for event in stream.poll(0.2) if isinstance(event, ChangeRefused | RowsEvent))
                return bool(refused)

            eventually(complete, "the rows", 30)
        created.execute(problem.rpartition("; ")[2])
        assert problems_of(settings_of(filtering), [table]) == ()

    assert "binlog_do_db: shop" in problem
    [change] = refused
    assert isinstance(change, ChangeRefused)
    assert "binlog_do_db: shop" in change.error.message
