"""Prerequisites on a real server: every fault is found, with its value and its remedy, all in one go."""

from __future__ import annotations

import pytest

from tailrace.producer.errors import PrerequisiteError
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.connection import SourceSettings, connect
from tailrace.producer.mysql.prerequisites import check
from tests.embedded.mysql import MySqlServer
from tests.support.binlog import account_settings, settings_of
from tests.support.database import Database


@pytest.fixture
def shop(own_database: Database) -> Database:
    """A database with one table, on a server whose global settings tests may change."""
    own_database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    return own_database


def faults_of(settings: SourceSettings, tables: list[TableId], server_id: int = 4711) -> tuple[str, ...]:
    """Return what is wrong."""
    with connect(settings) as session:
        try:
            check(session, tables, server_id=server_id)
        except PrerequisiteError as error:
            return error.problems
    return ()


def test_server_as_it_should_be_has_no_faults(own_server: MySqlServer, shop: Database) -> None:
    """root, and the account with no more grants than needed."""
    tables = [TableId(shop.name, "t")]
    capture = account_settings(own_server.host, own_server.port, own_server.capture_user, own_server.capture_password)

    assert faults_of(settings_of(own_server), tables) == ()
    assert faults_of(capture, tables) == ()


@pytest.mark.parametrize(
    ("setting", "value", "usual", "remedy"),
    [
        ("binlog_format", "MIXED", "ROW", "SET PERSIST binlog_format = 'ROW'"),
        ("binlog_row_image", "NOBLOB", "FULL", "SET PERSIST binlog_row_image = 'FULL'"),
        ("binlog_row_metadata", "MINIMAL", "FULL", "SET PERSIST binlog_row_metadata = 'FULL'"),
        ("binlog_row_value_options", "PARTIAL_JSON", "", "SET PERSIST binlog_row_value_options = ''"),
        ("gtid_mode", "ON_PERMISSIVE", "ON", "SET PERSIST gtid_mode = ON"),
    ],
)
def test_wrong_setting_is_told_with_value_and_statement(
    shop: Database, setting: str, value: str, usual: str, remedy: str
) -> None:
    """One setting is wrong, and only that is told."""
    shop.execute(f"SET GLOBAL {setting} = '{value}'")
    try:
        [fault] = faults_of(settings_of(shop.server), [TableId(shop.name, "t")])
    finally:
        shop.execute(f"SET GLOBAL {setting} = '{usual}'")

    assert fault.startswith(f"{setting} is {value}")
    assert remedy in fault


def test_remedies_work(own_server: MySqlServer, shop: Database) -> None:
    """Every statement that a fault ends with is accepted, and mends it."""
    wrong = {"binlog_format": "STATEMENT", "binlog_row_image": "MINIMAL", "binlog_row_metadata": "MINIMAL"}
    for setting, value in wrong.items():
        shop.execute(f"SET GLOBAL {setting} = '{value}'")
    tables = [TableId(shop.name, "t")]
    found = faults_of(settings_of(own_server), tables)
    for fault in found:
        shop.execute(fault.rpartition("; ")[2])

    assert len(found) == 3
    assert faults_of(settings_of(own_server), tables) == ()


def test_missing_grants_are_all_told(own_server: MySqlServer, shop: Database) -> None:
    """An account that sees the table's name but may read nothing."""
    shop.execute("CREATE USER IF NOT EXISTS weak IDENTIFIED BY 'w'")
    shop.execute(f"GRANT INSERT ON `{shop.name}`.* TO weak")
    weak = account_settings(own_server.host, own_server.port, "weak", "w")

    client, replica, table = faults_of(weak, [TableId(shop.name, "t")])
    for fault in (client, replica, table):
        shop.execute(fault.rpartition("; ")[2])

    assert "REPLICATION CLIENT" in client
    assert "REPLICATION SLAVE" in replica
    assert f"{shop.name}.t" in table
    assert faults_of(weak, [TableId(shop.name, "t")]) == ()


def test_grants_by_a_role_count(own_server: MySqlServer, shop: Database) -> None:
    """What the server allows is what counts, not what SHOW GRANTS prints."""
    shop.execute("CREATE ROLE IF NOT EXISTS reader")
    shop.execute("GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO reader")
    shop.execute("CREATE USER IF NOT EXISTS actor IDENTIFIED BY 'a' DEFAULT ROLE reader")

    assert faults_of(account_settings(own_server.host, own_server.port, "actor", "a"), [TableId(shop.name, "t")]) == ()


def test_server_id_must_not_be_the_servers_own(own_server: MySqlServer, shop: Database) -> None:
    """The server's id is 1."""
    [fault] = faults_of(settings_of(own_server), [TableId(shop.name, "t")], server_id=1)

    assert fault.startswith("database.server.id is 1")


def test_cascading_keys_are_noted(own_server: MySqlServer, shop: Database) -> None:
    """Changes by CASCADE are made below the log: no fault, but the user must know."""
    shop.execute(
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY to_parent (p) REFERENCES t (id) ON DELETE CASCADE)"
    )
    with connect(settings_of(own_server)) as session:
        notes = check(session, [TableId(shop.name, "t"), TableId(shop.name, "child")], server_id=4711)
        none = check(session, [TableId(shop.name, "t")], server_id=4711)
    shop.execute("DROP TABLE child")

    assert len(notes) == 1
    assert "CASCADE" in notes[0]
    assert none == ()


def test_server_without_log_and_gtids_tells_everything_at_once() -> None:
    """No log at all, no GTIDs, a filter on databases does not hide the rest."""
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
        found = faults_of(settings_of(bare), [TableId("shop", "t")])

    assert [fault.split(" is ")[0] for fault in found] == ["log_bin", "enforce_gtid_consistency", "gtid_mode"]


def test_databases_left_out_of_the_log_are_told() -> None:
    """binlog_ignore_db drops the changes of a captured database."""
    with MySqlServer(settings={"binlog_ignore_db": "shop"}) as filtering:
        database = Database(filtering, "shop")
        database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        [fault] = faults_of(settings_of(filtering), [TableId("shop", "t")])

    assert "binlog_ignore_db: shop" in fault


@pytest.mark.long
def test_server_that_cannot_log_names_is_told() -> None:
    """MySQL 5.7: positions and the catalog can be read there, rows cannot."""
    with MySqlServer(version="5.7.22") as old:
        database = Database(old, "shop")
        database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        [fault] = faults_of(settings_of(old), [TableId("shop", "t")])

    assert fault.startswith("the server is MySQL 5.7.22")
