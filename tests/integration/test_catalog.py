"""The catalog: exact names, defaults, collations, estimates; sessions and their errors."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from pymysql import OperationalError

from tailrace.producer.errors import SourceError, SourceUnavailableError
from tailrace.producer.model.table import Collation, ColumnCatalog, TableId
from tailrace.producer.mysql.authentication import Tls
from tailrace.producer.mysql.catalog import estimated_size, list_tables, read_table
from tailrace.producer.mysql.connection import (
    binlog_position,
    connect,
    executed_gtids,
    query,
    server_uuid,
    wait_for_gtids,
)
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.password import Password
from tailrace.runtime.errors import ConfigError, SchemaError
from tests.support.binlog import account_settings, settings_of
from tests.support.capture import eventually
from tests.support.database import Database


def test_names_are_exact_and_not_patterns(database: Database) -> None:
    """'_' and '%' are plain characters; names that are equal in the collation of the catalog are different tables."""
    for name in ("a_b", "axb", "a%b", "A_B", "á_b"):
        database.execute(f"CREATE TABLE `{name}` (`only in {name}` INT PRIMARY KEY)")
    with connect(settings_of(database.server)) as session:
        for name in ("a_b", "axb", "a%b", "A_B", "á_b"):
            found = read_table(session, TableId(database.name, name))
            assert [c.name for c in found.table.columns] == [f"only in {name}"]
            assert found.primary_key == (f"only in {name}",)
        with pytest.raises(SchemaError, match=r"(?s)does not exist.*hint: create it, or exclude it"):
            read_table(session, TableId(database.name, "a__"))
        listed = list_tables(session, lambda t: t.database == database.name and t.table != "axb")

    assert [t.table for t in listed] == ["A_B", "a%b", "a_b", "á_b"]


def test_views_and_system_databases_are_not_listed(database: Database) -> None:
    """Only base tables of users can be captured."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    database.execute("CREATE VIEW v AS SELECT * FROM t")
    with connect(settings_of(database.server)) as session:
        listed = list_tables(session, lambda _: True)

    assert TableId(database.name, "t") in listed
    assert TableId(database.name, "v") not in listed
    assert not {t.database for t in listed} & {"mysql", "sys", "performance_schema", "information_schema"}


def test_definitions_include_what_only_the_catalog_has(database: Database) -> None:
    """Defaults, expressions, generated columns, comments, AUTO_INCREMENT."""
    database.execute(
        "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, a INT DEFAULT 7 COMMENT 'it''s', b VARCHAR(9) DEFAULT '', "
        "c DATETIME DEFAULT CURRENT_TIMESTAMP, d INT AS (a + 1) STORED, "
        "e VARCHAR(40) DEFAULT (UUID()), f BIT(3) DEFAULT b'101')"
    )
    with connect(settings_of(database.server)) as session:
        columns = {c.name: c.catalog for c in read_table(session, TableId(database.name, "t")).table.columns}

    integer = "int(11)" if database.server.version == "8.0.15" else "int"  # 8.0.19 dropped the display width
    plain = ColumnCatalog(
        integer,
        collation=None,
        default=None,
        default_is_expression=False,
        generated=False,
        auto_increment=False,
        comment="",
    )
    text = replace(plain, collation="utf8mb4_0900_ai_ci")
    assert columns == {
        "id": replace(plain, auto_increment=True, extra="auto_increment"),
        "a": replace(plain, default="7", comment="it's"),
        "b": replace(text, column_type="varchar(9)", default=""),
        "c": replace(
            plain,
            column_type="datetime",
            default="CURRENT_TIMESTAMP",
            default_is_expression=True,
            extra="DEFAULT_GENERATED",
        ),
        "d": replace(plain, generated=True, extra="STORED GENERATED"),
        "e": replace(
            text, column_type="varchar(40)", default="uuid()", default_is_expression=True, extra="DEFAULT_GENERATED"
        ),
        "f": replace(plain, column_type="bit(3)", default="b'101'"),
    }


def test_collations_say_whether_blanks_count(database: Database) -> None:
    """PAD SPACE and NO PAD."""
    database.execute(
        "CREATE TABLE t (a VARCHAR(9) COLLATE utf8mb4_0900_ai_ci, b CHAR(8) COLLATE utf8mb4_bin, "
        "c TINYTEXT COLLATE latin1_swedish_ci, d VARBINARY(5), e INT, f ENUM('x'))"
    )
    with connect(settings_of(database.server)) as session:
        found = read_table(session, TableId(database.name, "t"))

    assert found.collations == {
        "a": Collation("utf8mb4_0900_ai_ci", pads=False),
        "b": Collation("utf8mb4_bin", pads=True),
        "c": Collation("latin1_swedish_ci", pads=True),
    }


class _Altering:
    """A session in which a statement of another session comes before one of its queries."""

    def __init__(self, session: Any, database: Database, query: str, statement: str) -> None:
        self._session, self._database, self._query, self._statement = session, database, query, statement

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def cursor(self) -> _Altering:
        return _Altering(self._session.cursor(), self._database, self._query, self._statement)

    def __enter__(self) -> _Altering:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def execute(self, sql: str, args: Any = None) -> None:
        if self._query in sql and self._statement:
            with suppress(OperationalError):  # it has run already
                self._database.execute(self._statement)
        self._session.execute(sql, args)


@pytest.mark.parametrize(
    ("query", "statement"),
    [
        ("information_schema.STATISTICS", "ALTER TABLE t RENAME COLUMN id TO nr"),
        ("information_schema.COLUMNS", "ALTER TABLE t RENAME COLUMN id TO nr"),
        (
            "information_schema.STATISTICS",
            "ALTER TABLE t ADD COLUMN nr INT FIRST, DROP PRIMARY KEY, ADD PRIMARY KEY (nr)",
        ),
    ],
)
def test_definition_that_changes_between_two_queries(database: Database, query: str, statement: str) -> None:
    """Its key would otherwise have a column that it does not have."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    with connect(settings_of(database.server)) as session:
        found = read_table(_Altering(session, database, query, statement), TableId(database.name, "t"))  # type: ignore[arg-type]

    assert found.primary_key == ("nr",)
    assert found.table.columns[0].name == "nr"


def test_size_estimate_is_not_a_day_old_and_counts_large_values(database: Database) -> None:
    """The statistics cache of 8.0 would show 0 rows for a table that was filled later."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v LONGBLOB)")
    with connect(settings_of(database.server)) as session:
        assert estimated_size(session, TableId(database.name, "t")).rows == 0
        database.execute("INSERT INTO t VALUES (1, REPEAT('x', 1000000)), (2, REPEAT('x', 1000000))")
        database.execute("ANALYZE TABLE t")
        found = estimated_size(session, TableId(database.name, "t"))
    assert found.rows == 2
    assert 1_000_000 < found.row_bytes < 1_500_000


@pytest.mark.long
def test_a_definition_is_read_while_a_statement_locks_its_table(database: Database) -> None:
    """The stream reads it between the changes of all tables. The estimate of the rows waits, and so does SHOW KEYS."""
    columns = "a INT NOT NULL, b INT NOT NULL, v VARCHAR(9)"
    database.execute(f"CREATE TABLE t ({columns}, UNIQUE KEY z (b, a), UNIQUE KEY y (a))")
    database.execute("INSERT INTO t VALUES " + ", ".join(f"({number}, 1, 'x')" for number in range(40)))
    index = "ADD INDEX i ((CAST(SHA2(REPEAT(v, 30000000), 512) AS CHAR(128))))"  # takes long for each row

    def alter() -> None:
        with suppress(OperationalError), altering.cursor() as cursor:  # it is killed
            cursor.execute(f"ALTER TABLE t {index}, ALGORITHM=INPLACE, LOCK=EXCLUSIVE")

    def locked() -> bool:
        with database.connect() as probe, probe.cursor() as cursor:
            cursor.execute("SET lock_wait_timeout = 1")
            try:
                cursor.execute("SELECT 1 FROM t LIMIT 0")
            except OperationalError:
                return True
        return False

    with database.connect() as altering, connect(settings_of(database.server)) as session:
        number = altering.thread_id()  # type: ignore[no-untyped-call]
        statement = threading.Thread(target=alter)
        statement.start()
        try:
            eventually(locked, "the lock of the statement", 60)
            found = read_table(session, TableId(database.name, "t"))
            assert locked(), "the statement had ended"
        finally:
            database.execute(f"KILL QUERY {number}")
            statement.join()
    assert found.unique_key == ("b", "a")


def test_session_reads_in_utc_with_fixed_modes(database: Database) -> None:
    """Independent of the defaults of the server."""
    with connect(settings_of(database.server, ssl_mode="required")) as session:
        assert query(
            session, "SELECT @@time_zone, @@character_set_results, @@autocommit, @@transaction_isolation, @@sql_mode"
        ) == [("+00:00", "utf8mb4", 1, "READ-COMMITTED", "NO_ENGINE_SUBSTITUTION")]
        assert query(session, "SHOW STATUS LIKE 'Ssl_cipher'")[0][1]


def test_positions_of_the_binlog(database: Database) -> None:
    """File, position and GTIDs advance with a transaction; a session can wait for a GTID set."""
    with connect(settings_of(database.server)) as session:
        file, pos, gtids = binlog_position(session)
        database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        later_file, later_pos, later_gtids = binlog_position(session)
        future = f"{server_uuid(session)}:1000000000"

        assert (later_file, later_pos > pos) == (file, True)
        assert GtidSet.parse(later_gtids).contains(GtidSet.parse(gtids))
        assert later_gtids == executed_gtids(session) != gtids
        assert wait_for_gtids(session, later_gtids, 5.0)
        assert wait_for_gtids(session, "", 5.0)
        assert not wait_for_gtids(session, future, 0.1)


def test_rejected_account_is_not_retryable(database: Database) -> None:
    """A wrong password has another error than an unreachable server, and is never printed."""
    settings = replace(settings_of(database.server), password=Password("not-this-one"))

    with pytest.raises(SourceError) as caught:
        connect(settings)

    assert not isinstance(caught.value, SourceUnavailableError)
    assert "database.password" in caught.value.hint
    assert "not-this-one" not in str(caught.value) + repr(settings)


def test_unreachable_server_is_retryable() -> None:
    """No server listens, or the host name is unknown."""
    for settings in (account_settings("127.0.0.1", 1), account_settings("nowhere.invalid", 3306)):
        with pytest.raises(SourceUnavailableError, match=r"hint: check database.hostname and database.port, and that"):
            connect(settings)


def test_untrusted_certificate_is_rejected(database: Database) -> None:
    """verify_ca with the authorities of the system, and a missing file."""
    with pytest.raises(SourceError, match="TLS"):
        connect(settings_of(database.server, ssl_mode="verify_ca"))
    with pytest.raises(ConfigError, match="cannot be read"):
        connect(replace(settings_of(database.server), tls=Tls("verify_ca", ca="/nowhere.pem")))
    with pytest.raises(ConfigError, match=r"database\.ssl\.mode"):
        connect(settings_of(database.server, ssl_mode="often"))


def test_failed_statement_is_named(database: Database) -> None:
    """The error has the text and the code of the server, and the statement."""
    with connect(settings_of(database.server)) as session, pytest.raises(SourceError) as caught:
        query(session, "SELECT * FROM nowhere.nothing")

    assert caught.value.context["code"] in {1049, 1146}
    assert caught.value.context["statement"] == "SELECT * FROM nowhere.nothing"


def test_killed_session_is_retryable(database: Database) -> None:
    """The connection is lost between two statements."""
    with connect(settings_of(database.server)) as session:
        thread = query(session, "SELECT CONNECTION_ID()")[0][0]
        database.execute(f"KILL {thread}")
        with pytest.raises(SourceUnavailableError):
            query(session, "SELECT 1")
