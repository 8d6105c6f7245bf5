"""Captures of a server with binlog_row_metadata=MINIMAL: topics equal the source, whatever altered the tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.embedded.mysql import MySqlServer
from tests.support.capture import CaptureThread, eventually, properties, records_of
from tests.support.database import Database
from tests.support.incremental_checks import state_of
from tests.support.upsert_reader import consumer_rows

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker

OPTIONS = {"snapshot.max.threads": 1}
TABLES = ("t", "u", "swapped")


@pytest.fixture(scope="module")
def server() -> Iterator[MySqlServer]:
    """A server with the metadata that MySQL logs by default."""
    with MySqlServer(settings={"binlog_row_metadata": "MINIMAL"}) as started:
        yield started


@pytest.fixture
def database(server: MySqlServer) -> Iterator[Database]:
    """A database with three tables of the same columns."""
    created = Database(server, "captured")
    for table in TABLES:
        created.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, a INT, b INT, e ENUM('x','y'))")
        created.execute(f"INSERT INTO {table} VALUES (1, 1, 10, 'x'), (2, 2, 20, 'y')")
    yield created
    created.drop()


class Topics:
    """What a reader has of the topics."""

    def __init__(self, broker: KafkaBroker, prefix: str, database: Database) -> None:
        self.broker, self.prefix, self.database = broker, prefix, database

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of a reader in the order of their ids."""
        rows = consumer_rows(self.broker, self.prefix, f"{self.database.name}.{table}").values()
        return sorted(rows, key=lambda row: int(row["id"]))

    def source(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of the source in the same order."""
        names = [row[0] for row in self.database.execute(f"SHOW COLUMNS FROM {table}")]
        return [
            dict(zip(names, row, strict=True)) for row in self.database.execute(f"SELECT * FROM {table} ORDER BY id")
        ]

    def wait_equal(self, *tables: str) -> None:
        """Wait until a reader has what the source has."""
        for table in tables:
            eventually(lambda: self.rows(table) == self.source(table), f"equal rows of {table}", 120)  # noqa: B023

    def changes(self, table: str) -> list[Any]:
        """Return the rows after each change that the stream has written."""
        found = [r.json for r in records_of(self.broker.bootstrap, self.prefix, self.database.name, table) if r.value]
        return [change["after"] for change in found if change["op"] in "cu"]

    def definition(self, table: str) -> list[str] | None:
        """Return the names of the columns in the stored definition."""
        stored = (state_of(self.broker, self.prefix, f"key/{self.database.name}.{table}") or {}).get("definition")
        return stored and [column["name"] for column in stored["columns"]]


def run(database: Database, *statements: str) -> None:
    """Run statements in one session."""
    with database.connect() as session, session.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def in_error(capture: CaptureThread) -> set[str]:
    """Return the tables in error."""
    tables = capture.status.snapshot()["tables"]
    return {name.partition(".")[2] for name, status in tables.items() if status["mode"] == "error"}


def test_alterations_restarts_and_a_backlog(
    server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """History is complete where definitions are proven; a table with two statements in the backlog is read again."""
    topics = Topics(kafka_broker, prefix, database)
    settings = properties(server, kafka_broker, prefix, database.name, OPTIONS)
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        run(database, "INSERT INTO t VALUES (3, 3, 30, 'x')")
        capture.wait_position(server)
        run(
            database,
            "ALTER TABLE t RENAME COLUMN a TO c, RENAME COLUMN b TO a",
            "INSERT INTO t VALUES (4, 4, 40, 'y')",
        )
        run(database, "INSERT INTO u VALUES (3, 3, 30, 'x')", "INSERT INTO swapped VALUES (3, 3, 30, 'x')")
        capture.wait_position(server)
        eventually(lambda: not in_error(capture), "no table in error", 60)
        run(database, "ALTER TABLE t MODIFY e ENUM('y','x')")
        capture.wait_position(server)
    changed = topics.changes("t")
    assert changed[0] == {"id": 3, "a": 3, "b": 30, "e": "x"}
    assert json.dumps(changed[-1]) == '{"id": 4, "c": 4, "a": 40, "e": "y"}'
    assert topics.definition("t") is None, "the last statement has ended it"
    assert topics.definition("u") == ["id", "a", "b", "e"]

    run(
        database,
        "INSERT INTO t VALUES (5, 5, 50, 'y')",  # behind the ALTER before the stop
        "INSERT INTO u VALUES (4, 4, 40, 'y')",
        "ALTER TABLE u RENAME COLUMN a TO z",
        "INSERT INTO u VALUES (5, 5, 50, 'y')",
        "ALTER TABLE u RENAME COLUMN b TO a",
        "INSERT INTO u VALUES (6, 6, 60, 'y')",
        "CREATE TABLE g (id INT PRIMARY KEY, b INT, a INT, e ENUM('x','y'))",
        "INSERT INTO g SELECT id, a, b, e FROM swapped",
        "RENAME TABLE swapped TO former, g TO swapped",
        "INSERT INTO swapped VALUES (4, 4, 40, 'y')",
    )
    with CaptureThread(settings) as capture:
        topics.wait_equal("u", "swapped")
        assert not in_error(capture)
        run(database, "INSERT INTO u VALUES (7, 7, 70, 'x')", "UPDATE t SET a = 0", "DELETE FROM swapped WHERE id = 1")
        topics.wait_equal(*TABLES)
    assert {"id": 5, "c": 5, "a": 50, "e": "y"} in topics.changes("t"), (
        "behind a statement that was read before the stop"
    )
    assert {"id": 4, "a": 4, "b": 40, "e": "y"} in topics.changes("u"), "before the first statement"
    assert not any(row["id"] == 5 for row in topics.changes("u")), "between two statements: read again instead"
    assert topics.definition("u") == ["id", "z", "a", "e"]


def test_a_statement_that_was_not_logged(
    server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """A start finds it before a row is written with a wrong name: the table is read again, the others go on."""
    topics = Topics(kafka_broker, prefix, database)
    settings = properties(server, kafka_broker, prefix, database.name, OPTIONS)
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        run(database, *(f"INSERT INTO {table} VALUES (3, 3, 30, 'x')" for table in TABLES))
        capture.wait_position(server)
    run(
        database,
        "SET sql_log_bin = 0",
        "ALTER TABLE t RENAME COLUMN a TO c, RENAME COLUMN b TO a",
        "ALTER TABLE swapped RENAME COLUMN a TO c, RENAME COLUMN b TO a",
        "SET sql_log_bin = 1",
        "INSERT INTO u VALUES (4, 4, 40, 'x')",
        "INSERT INTO t VALUES (4, 4, 40, 'x')",
        "INSERT INTO t VALUES (5, 5, 50, 'x')",
        "INSERT INTO swapped VALUES (4, 4, 40, 'x')",
    )
    with CaptureThread(settings) as capture:
        topics.wait_equal("t", "u")
        eventually(lambda: in_error(capture) == {"swapped"}, "an error until the next change")
        capture.wait_position(server)
    assert topics.definition("swapped") is None, "another start does not compare it again"
    with CaptureThread(settings) as capture:
        run(database, "INSERT INTO swapped VALUES (5, 5, 50, 'x')")
        topics.wait_equal(*TABLES)
        assert not in_error(capture)
        assert capture.status.snapshot()["stream"]["row_metadata"] == "MINIMAL"
    assert not any(set(row) == {"id", "a", "b", "e"} and row["id"] > 3 for row in topics.changes("t"))
    assert {"id": 4, "a": 4, "b": 40, "e": "x"} in topics.changes("u")


def test_a_new_table_that_the_account_may_not_read(
    server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """It is in error until the account may read it: no change has to follow."""
    topics = Topics(kafka_broker, prefix, database)
    run(
        database,
        "CREATE USER narrow IDENTIFIED BY 'narrow'",
        "GRANT PROCESS, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO narrow",
        *(f"GRANT SELECT ON {table} TO narrow" for table in TABLES),
    )
    account = {"database.user": "narrow", "database.password": "narrow"}
    try:
        with CaptureThread(properties(server, kafka_broker, prefix, database.name, {**OPTIONS, **account})) as capture:
            capture.wait_snapshot()
            run(database, "CREATE TABLE late (id INT PRIMARY KEY)", "INSERT INTO late VALUES (1), (2)")
            eventually(lambda: in_error(capture) == {"late"}, "the table is in error")
            run(database, "GRANT SELECT ON late TO narrow")
            topics.wait_equal("late")
            eventually(lambda: not in_error(capture), "no table in error")
    finally:
        run(database, "DROP USER narrow")
