"""binlog_row_metadata=MINIMAL: rows are read with a definition that is proven for their position, or refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Final

import pytest

from tailrace.producer.model.binlog_events import (
    ChangeRefused,
    PositionAdvanced,
    QueryEvent,
    RowsEvent,
    TableVersion,
    TransactionCommit,
)
from tailrace.producer.model.protocols import ChangeStream, Offset
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.catalog import read_table
from tailrace.producer.mysql.connection import binlog_position, connect
from tailrace.producer.mysql.source import MySqlSource
from tailrace.producer.serialization.key_memory import KeyMemory
from tailrace.schemas.sequence import file_number
from tests.embedded.mysql import MySqlServer
from tests.support.binlog import settings_of
from tests.support.capture import eventually
from tests.support.database import Database

DEFINED: Final = "(id INT PRIMARY KEY, v INT UNSIGNED NOT NULL, e ENUM('a','b'), f FLOAT(7,3), g POINT)"
INSERT: Final = "REPLACE INTO t (id) VALUES ({})"

CHANGES: Final = {
    "same shape": ("ALTER TABLE t RENAME COLUMN v TO w",),
    "run comment": ("/*!50000 ALTER TABLE t RENAME COLUMN v TO w */",),
    "split comment": ("ALTER /*! TABLE t RENAME */ COLUMN v TO w",),
    "labels": ("ALTER TABLE t MODIFY e ENUM('b','a')",),
    "key": (
        "TRUNCATE t",
        "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (v)",
    ),
    "index as key": ("TRUNCATE t", "ALTER TABLE t DROP PRIMARY KEY", "CREATE UNIQUE INDEX i ON t (v)"),
    "other table of the name": ("RENAME TABLE t TO u", "CREATE TABLE t (id INT PRIMARY KEY, w INT UNSIGNED NOT NULL)"),
    "away and back": ("RENAME TABLE t TO u", "ALTER TABLE u RENAME COLUMN v TO w", "RENAME TABLE u TO t"),
    "swap": ("CREATE TABLE g LIKE t", "ALTER TABLE g RENAME COLUMN v TO w", "RENAME TABLE t TO d, g TO t"),
    "swap of three": (
        "CREATE TABLE g (w INT, id INT PRIMARY KEY)",
        "RENAME TABLE g TO h, t TO g, h TO t",
    ),
    "rename by ALTER": ("CREATE TABLE g (id INT PRIMARY KEY, w INT)", "DROP TABLE t", "ALTER TABLE g RENAME AS t"),
    "like": ("CREATE TABLE g (id INT PRIMARY KEY, w INT)", "DROP TABLE t", "CREATE TABLE t LIKE g"),
    "database": (
        "DROP DATABASE {database}",
        "CREATE DATABASE {database}",
        "USE {database}",
        "CREATE TABLE {database}.t (id INT, w INT)",
    ),
    "character set": ("ALTER TABLE t ADD c VARCHAR(9)", "ALTER TABLE t CONVERT TO CHARACTER SET latin1"),
    "quoted": ("ALTER TABLE {database} . `t` RENAME COLUMN v TO w",),
    "prepared": ("PREPARE s FROM 'ALTER TABLE t RENAME COLUMN v TO w'", "EXECUTE s"),
    "procedure": ("CREATE PROCEDURE p() ALTER TABLE t RENAME COLUMN v TO w", "CALL p()"),
}
"""What gives t another definition."""
QUICK: Final = {"same shape", "run comment", "swap", "database"}
"""Those that are enough to see that a reader that is behind counts statements as one that follows."""
HARMLESS: Final = (
    "ANALYZE TABLE t",
    "TRUNCATE t",
    "CREATE VIEW w AS SELECT * FROM t",
    "CREATE TRIGGER r BEFORE INSERT ON t FOR EACH ROW SET NEW.v = 1",
    "DROP TRIGGER r",
    "CREATE TEMPORARY TABLE t (x INT); DROP TEMPORARY TABLE t",
    "CREATE TABLE tt (id INT PRIMARY KEY)",
    "ALTER TABLE tt ADD x INT",
    "CREATE USER IF NOT EXISTS minimal",
    "GRANT SELECT ON t TO minimal",
)


@pytest.fixture(scope="module")
def server() -> Iterator[MySqlServer]:
    """A server with the metadata that MySQL logs by default."""
    with MySqlServer(settings={"binlog_row_metadata": "MINIMAL"}) as started:
        yield started


@pytest.fixture
def database(server: MySqlServer) -> Iterator[Database]:
    """A database with a table."""
    created = Database(server, "minimal")
    created.execute("SET sql_mode = ''")
    created.execute(f"CREATE TABLE t {DEFINED}")
    yield created
    created.drop()


class Reader:
    """Reads what the log has of a database, with definitions that were stored."""

    def __init__(self, database: Database, start: Offset | None = None, stored: Iterable[TableVersion] = ()) -> None:
        self.server, self.name = database.server, database.name
        self.source = MySqlSource(settings_of(self.server), server_id=4712)
        self.start = start or self.source.end_offset(epoch=1)
        self.stored = list(stored)
        self.redefined: list[TableId] = []
        self.stream: ChangeStream | None = None

    def __enter__(self) -> Reader:
        self.stream = self.source.open_stream(self.start, lambda t: t.database == self.name, (), self.stored)
        return self

    def __exit__(self, *_: object) -> None:
        assert self.stream is not None
        self.stream.close()

    def read(self) -> list[TableVersion | str]:
        """Return the definition of each rows event up to the end of the log, or why it is refused."""
        with closing(connect(settings_of(self.server))) as session:
            file, pos, _ = binlog_position(session)
        found: list[TableVersion | str] = []

        def complete() -> bool:
            assert self.stream is not None
            at_end = False
            for event in self.stream.poll(0.2):
                # All events of a compressed transaction have its end.
                is_end = isinstance(event, TransactionCommit | PositionAdvanced | QueryEvent)
                at_end = at_end or (is_end and (file_number(event.file), event.end) >= (file_number(file), pos))
                if isinstance(event, RowsEvent):
                    found.append(event.table)
                elif isinstance(event, ChangeRefused):
                    assert event.tables == (TableId(self.name, "t"),)
                    found.append(f"{event.error.message} {event.error.hint}")
                elif isinstance(event, QueryEvent):
                    self.redefined += event.redefined
            return at_end

        eventually(complete, "the end of the log", 60)
        return found


def catalog(database: Database) -> TableVersion:
    """Return the definition now, as a TABLE_MAP event with FULL metadata has it."""
    database.execute("SET GLOBAL binlog_row_metadata = FULL")
    try:
        with Reader(database) as reader:
            run(database, ["DELETE FROM t", INSERT.format(999)])
            *_, version = reader.read()
    finally:
        database.execute("SET GLOBAL binlog_row_metadata = MINIMAL")
    assert isinstance(version, TableVersion)
    return version


def run(database: Database, statements: Sequence[str]) -> None:
    """Run statements in one session."""
    with database.connect() as session, session.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        for statement in statements:
            cursor.execute(statement.format(database=f"`{database.name}`"))


def same(left: TableVersion | str, right: TableVersion) -> bool:
    """Return whether all that a codec is made of is equal."""
    return not isinstance(left, str) and left[:3] == right[:3]


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_is_followed(database: Database, name: str) -> None:
    """Each rows event has the definition that FULL metadata would have, also where the bytes are the same."""
    before = catalog(database)
    with Reader(database) as reader:
        run(database, [INSERT.format(1)])
        [first] = reader.read()
        run(database, CHANGES[name])
        run(database, [INSERT.format(9)])
        *created, last = reader.read()
    after = catalog(database)

    assert same(first, before)
    assert not same(before, after)
    assert same(last, after)
    assert all(same(version, after) for version in created), created
    assert TableId(database.name, "t") in reader.redefined
    assert last[3] != first[3]


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in CHANGES]
)
def test_a_change_that_is_behind(database: Database, name: str) -> None:
    """Rows before and after all statements are read; those between two have no definition any more, and are refused."""
    before = catalog(database)
    with Reader(database) as reader:
        run(database, [INSERT.format(1)])
        [stored] = reader.read()
        assert isinstance(stored, TableVersion)
        behind = reader.source.end_offset(epoch=1)
    run(database, [INSERT.format(2), *CHANGES[name], INSERT.format(3)])
    run(database, ["ALTER TABLE t ADD added INT", INSERT.format(4)])
    with Reader(database, behind, [stored._replace(fingerprint=b"")]) as reader:
        first, *between, last = reader.read()
    after = catalog(database)

    assert first == stored
    assert same(first, before)
    assert between
    assert all(isinstance(each, str) and "a statement that follows" in each for each in between), between
    assert same(last, after)


def test_statements_that_change_nothing(database: Database) -> None:
    """They do not end a definition: a reader that is behind reads all rows."""
    with Reader(database) as reader:
        run(database, [INSERT.format(1)])
        [stored] = reader.read()
        assert isinstance(stored, TableVersion)
        behind = reader.source.end_offset(epoch=1)
    for number, statement in enumerate(HARMLESS):
        run(database, statement.split("; "))
        run(database, [INSERT.format(number + 10)])
    run(database, ["ALTER TABLE t ADD added INT"])

    with Reader(database, behind, [stored]) as reader:
        found = reader.read()

    assert [version for version in found if not same(version, stored)] == []
    assert len(found) == len(HARMLESS)
    assert reader.redefined == [stored.id]
    run(database, ["DROP USER minimal", "DROP VIEW w"])


def test_rows_of_a_prepared_transaction_store_no_definition(database: Database) -> None:
    """A statement behind XA PREPARE may have ended their definition, which no later statement would end again."""
    with Reader(database) as reader, database.connect() as session, session.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        for statement in ("XA START 'x'", INSERT.format(1), "XA END 'x'", "XA PREPARE 'x'"):
            cursor.execute(statement)
        assert reader.read() == []
        run(database, ["CREATE TABLE other LIKE t"])
        assert reader.read() == []
        for statement in ("XA COMMIT 'x'", "XA START 'x'", INSERT.format(2), "XA END 'x'", "XA PREPARE 'x'"):
            cursor.execute(statement)
        [kept] = reader.read()
        behind = reader.source.end_offset(epoch=1)
        cursor.execute("XA COMMIT 'x'")
        run(database, [INSERT.format(3)])
        _, current = reader.read()
    with Reader(database, behind) as later:
        reread, _ = later.read()
    memory = KeyMemory()
    for version in (kept, reread):
        assert isinstance(version, TableVersion)
        memory.set_definition(version)
        assert same(version, catalog(database))
        assert version.fingerprint != current[3], "so that the current one is stored"

    assert reader.redefined == [TableId(database.name, "t")]
    assert memory.definitions() == []


def test_a_table_that_is_gone(database: Database) -> None:
    """Nothing has its definition any more: its rows are refused, and those of another table are read."""
    behind = Reader(database).start
    run(database, [INSERT.format(1), "CREATE TABLE u (id INT PRIMARY KEY)", "INSERT INTO u VALUES (1)", "DROP TABLE t"])

    with Reader(database, behind) as reader:
        gone, other = reader.read()

    assert "a statement that follows" in str(gone)
    assert isinstance(other, TableVersion)
    assert other.id.table == "u"


UNLOGGED: Final = {"same shape": "ALTER TABLE t RENAME COLUMN v TO w", "other shape": "ALTER TABLE t ADD w INT"}


@pytest.mark.parametrize("name", UNLOGGED)
def test_a_change_that_is_not_logged_before_a_start(database: Database, name: str) -> None:
    """The start compares: the first rows are refused, so that the table is read again, later ones are read."""
    with Reader(database) as reader:
        run(database, [INSERT.format(1)])
        [stored] = reader.read()
        assert isinstance(stored, TableVersion)
        behind = reader.source.end_offset(epoch=1)
    run(database, ["SET sql_log_bin = 0", UNLOGGED[name], "SET sql_log_bin = 1", INSERT.format(2), INSERT.format(3)])
    after = catalog(database)

    with Reader(database, behind, [stored]) as reader:
        refused, second, third = reader.read()[:3]

    assert "sql_log_bin" in str(refused)
    assert same(second, after)
    assert same(third, after)


def test_a_change_that_is_not_logged_while_it_is_followed(database: Database) -> None:
    """Another shape is seen at once."""
    with Reader(database) as reader:
        run(database, [INSERT.format(1)])
        [first] = reader.read()
        run(database, ["SET sql_log_bin = 0", "ALTER TABLE t MODIFY v BIGINT UNSIGNED NOT NULL", "SET sql_log_bin = 1"])
        run(database, [INSERT.format(2), INSERT.format(3)])
        refused, last = reader.read()

    assert not isinstance(first, str)
    assert "another definition" in str(refused)
    assert same(last, catalog(database))


def test_a_stored_definition_is_not_used_if_the_log_is_another(database: Database) -> None:
    """A definition of columns that the rows do not have is refused, once; then the catalog is asked."""
    run(database, ["CREATE TABLE o (id INT PRIMARY KEY)"])
    with closing(connect(settings_of(database.server))) as session:
        other = read_table(session, TableId(database.name, "o")).table
    wrong = TableVersion(
        TableId(database.name, "t"), tuple(replace(c, catalog=None) for c in other.columns), ("id",), b"", "binlog.1:4"
    )
    with Reader(database, stored=[wrong]) as reader:
        run(database, [INSERT.format(1), INSERT.format(2)])
        refused, read = reader.read()

    assert "no statement that changed it" in str(refused)
    assert same(read, catalog(database))


def test_rows_in_both_forms(database: Database) -> None:
    """The setting may change at any time: what has names needs no proof."""
    with Reader(database) as reader:
        run(database, [INSERT.format(1)])
        run(database, ["SET GLOBAL binlog_row_metadata = FULL", INSERT.format(2)])
        run(database, ["SET GLOBAL binlog_row_metadata = MINIMAL", INSERT.format(3)])
        first, full, last = reader.read()

    assert not isinstance(first, str)
    assert not isinstance(full, str)
    assert first == last
    assert first[:3] == full[:3]
    assert (bool(first.since), full.since) == (True, "")


def test_labels_that_the_catalog_does_not_have(database: Database) -> None:
    """It has a question mark for a character of four bytes: a label with one is refused by name."""
    run(database, ["CREATE TABLE x (id INT PRIMARY KEY, e ENUM('?') CHARACTER SET utf8mb4)", "DROP TABLE t"])
    run(database, ["RENAME TABLE x TO t"])
    with Reader(database) as reader:
        run(database, [INSERT.format(1)])
        [refused] = reader.read()

    assert "labels of column e" in str(refused)
    assert "binlog_row_metadata=FULL" in str(refused)


@pytest.mark.parametrize("compressed", ["ON", "OFF"])
def test_rows_of_the_transaction_that_creates_their_table(compressed: str) -> None:
    """Also if they are in a compressed transaction: the reading waits within it."""
    settings = {"binlog_row_metadata": "MINIMAL", "binlog_transaction_compression": compressed}
    with MySqlServer(version="8.0.33", settings=settings) as server:
        database = Database(server, "minimal")
        run(database, [f"CREATE TABLE t {DEFINED}", INSERT.format(1), "CREATE TABLE other (id INT PRIMARY KEY)"])
        with Reader(database) as reader:
            with database.connect(autocommit=False) as session, session.cursor() as cursor:
                cursor.execute("INSERT INTO other VALUES (1)")
                cursor.execute("UPDATE t SET v = 2")
                cursor.execute("INSERT INTO other VALUES (2)")
                session.commit()
            other, updated, last = reader.read()
            run(database, ["DROP TABLE t", "CREATE TABLE t (PRIMARY KEY (id)) AS SELECT 8 AS id, 'x' AS w"])
            [created] = reader.read()
        after = catalog(database)
        database.close()

    assert not isinstance(other, str)
    assert other == last
    assert not isinstance(updated, str)
    assert [column.name for column in updated.columns] == ["id", "v", "e", "f", "g"]
    assert same(created, after)
