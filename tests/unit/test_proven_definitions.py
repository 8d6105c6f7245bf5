"""Definitions of the catalog for rows without names: which statements end them, and what is proven by the log ahead."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from tailrace.producer.errors import BinlogError, DefinitionLockedError
from tailrace.producer.model.binlog_events import QueryEvent, TableVersion, TransactionCommit
from tailrace.producer.model.table import Column, TableId
from tailrace.producer.mysql.binlog import proven_definitions
from tailrace.producer.mysql.binlog.log_ahead import LogAhead
from tailrace.producer.mysql.binlog.named_tables import NamedTables, named_by
from tailrace.producer.mysql.binlog.proven_definitions import Missing, ProvenDefinitions, UnsettledError, Wanted
from tailrace.producer.serialization.key_memory import KeyMemory
from tailrace.runtime.errors import SchemaError
from tests.support.capture import eventually

T, U = TableId("d", "t"), TableId("d", "o u")
ODD = tuple(TableId("d", name) for name in ("--", "漢字", "tİx", "1t", "T2", "πελατησ"))
COLUMNS = (Column("id", "int", nullable=False), Column("v", "enum", enum_values=("a",), charset="utf8mb4"))
OTHER = (Column("id", "int", nullable=False), Column("w", "enum", enum_values=("a",), charset="utf8mb4"))
FILE = "binlog.000009"
MISSING = Missing("the columns' names", "SET GLOBAL binlog_row_metadata=FULL avoids it")
WAIT = "wait until the statement has ended"


def statement(sql: str, pos: int = 500, **changes: Any) -> QueryEvent:
    """Return a statement in the log."""
    event = QueryEvent("g:1", "d", sql, FILE, pos, pos + 100, 0, 1, None, query_pos=pos)
    return event._replace(**changes)


def version(table: TableId = T, columns: tuple[Column, ...] = COLUMNS) -> TableVersion:
    """Return a stored definition."""
    return TableVersion(table, columns, ("id",), b"", f"{FILE}:4")


class Log:
    """A log with its catalog, as a source and as the streams that read it ahead."""

    def __init__(self, *events: QueryEvent | TransactionCommit, end: int = 10_000) -> None:
        self.events, self.end = list(events), end
        self.catalog: dict[TableId, TableVersion | SchemaError] = {}
        self.opened: list[tuple[str, int]] = []
        self.requested: list[Collection[TableId] | None] = []
        self.fails = False
        self.locked: set[TableId] = set()
        self.file, self.pos = FILE, 0

    def has(self, table: TableId, columns: tuple[Column, ...] = COLUMNS) -> None:
        """Put a table into the catalog."""
        self.catalog[table] = TableVersion(table, columns, ("id",), b"")

    def read(
        self, tables: Collection[TableId] | None
    ) -> tuple[Mapping[TableId, TableVersion | SchemaError], tuple[str, int]]:
        """Read the catalog."""
        self.requested.append(tables)
        wanted = self.catalog if tables is None else tables
        locked = dict.fromkeys(self.locked, DefinitionLockedError("the table is locked", hint=WAIT))
        return {t: locked.get(t) or self.catalog[t] for t in wanted if t in self.catalog}, (FILE, self.end)

    def at(self, begin: tuple[str, int]) -> Log:
        """Begin to read ahead."""
        self.opened.append(begin)
        self.pos = begin[1]
        return self

    def open(self) -> None:
        """Connect."""
        if self.fails:
            raise BinlogError("purged")

    def close(self) -> None:
        """Disconnect."""

    def poll(self, _: float) -> list[QueryEvent | TransactionCommit]:
        """Return the next event."""
        found = next((event for event in self.events if event.end > self.pos), None)
        self.pos = self.end if found is None else found.end
        return [] if found is None else [found]

    def definitions(self, *stored: TableVersion) -> ProvenDefinitions:
        """Return the definitions of a stream of this log."""
        return ProvenDefinitions(self.read, LogAhead(self.at), stored, MISSING)


def definition_of(definitions: ProvenDefinitions, table: TableId = T, pos: int = 300) -> TableVersion | str:
    """Read a TABLE_MAP event as the parser does."""
    for _ in range(3):
        try:
            return definitions.of(table)
        except UnsettledError:
            definitions.want(Wanted(table, FILE, pos, pos - 50))
            while not definitions.settle():
                pass
        except SchemaError as error:
            refused = error
            break
    else:
        raise AssertionError("not settled")
    assert refused.hint in {MISSING.hint, WAIT, "run no DDL with sql_log_bin=0"}
    return refused.message


CHANGING = (
    "ALTER TABLE t ADD x INT",
    "alter table D.T add x int",
    "RENAME TABLE a TO b, `t` TO c, x TO y",
    "DROP TABLE a, d.t",
    "DROP DATABASE d",
    "drop schema if exists `d`",
    "/*!50000 ALTER TABLE t ADD x INT */",
    "/*!99999 ANALYZE */ ALTER TABLE t ADD x INT",
    "ALTER /*!99999 USER */ TABLE t ADD x INT",
    "SET STATEMENT x = 1 FOR ALTER TABLE t ADD x INT",
    "CREATE UNIQUE INDEX i ON t (v)",
    "ALTER TABLE p EXCHANGE PARTITION q WITH TABLE t",
    "CREATE TABLE t LIKE u",
    "CREATE TABLE IF NOT EXISTS t AS SELECT 1",
    "something new about t",
)


@pytest.mark.parametrize("sql", CHANGING)
def test_statements_that_end_a_definition(sql: str) -> None:
    """Whatever has the name in it, unless it is known to define something else."""
    log = Log()
    definitions = log.definitions(version(), version(U))
    ended = definitions.on_statement(statement(sql))

    assert T in ended
    assert (U in ended) == ("drop " in sql.lower() and "table" not in sql.lower())


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE tt ADD t2 INT",
        "CREATE DATABASE d",
        "ALTER DATABASE d CHARACTER SET latin1",
        "DROP DATABASE d2",
        "GRANT SELECT ON d.t TO u",
        "CREATE DEFINER=`root`@`%` TRIGGER r AFTER INSERT ON t FOR EACH ROW SET @a = 1",
        "TRUNCATE TABLE t",
    ],
)
def test_statements_that_end_no_definition(sql: str) -> None:
    """They name other tables, or define something else."""
    assert Log().definitions(version()).on_statement(statement(sql)) == ()


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE /*!50001t*/ RENAME COLUMN a TO b, RENAME COLUMN b TO a",
        "ALTER TABLE /*!!80000t*/ ADD x INT",
        "DROP /*!50000DATABASE*/ d",
        "ALTER TABLE /*M!100000t*/ ADD x INT",
        "ALTER TABLE `#mysql50#t@002du` ADD x INT",
    ],
)
def test_statements_that_hide_a_name(sql: str) -> None:
    """The digits of a version are joined to the name behind them: they end all definitions."""
    assert set(Log().definitions(version(), version(U)).on_statement(statement(sql))) == {T, U}


def test_the_time_does_not_grow_with_the_square_of_the_accents() -> None:
    """Who may create a table of any database could hold the process otherwise, at each start."""
    accents = "\u0301\u0327"
    event = statement(f"CREATE TABLE other.x (id INT) /* {accents * 200_000} T{accents}ab */")
    started = time.thread_time()

    assert {"tab", "other", "x"} <= named_by(event)
    assert time.thread_time() - started < 5


def test_names_of_tables_that_are_gone_are_forgotten() -> None:
    """A server that creates and drops tables does not let them grow; a table that comes back is known again."""
    names = NamedTables([T, U])
    for table in (T, U, T):
        names.discard(table)
    assert len(names) == 0
    assert names.changed_by(named_by(statement("DROP TABLE t"))) == set()
    names.add(T)
    assert names.changed_by(named_by(statement("DROP TABLE t"))) == {T}


def test_odd_names() -> None:
    """A name without words is in every statement, and bytes that are no text may be any name."""
    for sql, expected in (
        ("ALTER TABLE `漢字` ADD x INT", {ODD[0], ODD[1]}),
        ("ALTER TABLE `Tİx` ADD x INT", {ODD[0], ODD[2]}),
        ("ALTER TABLE `tix` ADD x INT", {ODD[0], ODD[2]}),
        ("ALTER TABLE d.1t ADD x INT", {ODD[0], ODD[3]}),
        ("ALTER TABLE t2 ADD x INT", {ODD[0], ODD[4]}),
        ("ALTER TABLE ΠΕΛΑΤΗΣ ADD x INT", {ODD[0], ODD[5]}),
        ("ALTER TABLE πελατης ADD x INT", {ODD[0], ODD[5]}),
    ):
        assert set(Log().definitions(*map(version, ODD)).on_statement(statement(sql))) == expected
    replaced = statement("ALTER TABLE \ufffd ADD x INT", has_replaced=True)
    assert set(Log().definitions(*map(version, ODD)).on_statement(replaced)) == set(ODD)


def test_a_definition_is_proven_up_to_the_end_of_the_log() -> None:
    """A statement behind the rows that names the table disproves it until the stream has read the statement."""
    other, changing = statement("ALTER TABLE a ADD x INT", 400), statement("ALTER TABLE t ADD x INT", 700)
    log = Log(other, changing)
    log.has(T)
    log.has(U)
    definitions = log.definitions()

    assert "a statement that follows" in str(definition_of(definitions))
    assert definition_of(definitions, U, 350) == version(U)._replace(since=f"{FILE}:300")
    assert definitions.on_statement(other) == ()
    assert "a statement that follows" in str(definition_of(definitions, T, 600))
    assert definitions.on_statement(changing) == ()  # none was in force
    assert definition_of(definitions, T, 900) == version()._replace(since=f"{FILE}:900")
    assert log.opened == [(FILE, 250)], "the log ahead is read once"
    assert log.requested == [None, [T]]
    assert set(definitions.on_statement(statement("DROP TABLE t", 9_000))) == {T}


def test_a_statement_of_the_own_transaction_is_before_the_rows() -> None:
    """CREATE TABLE … SELECT is in one transaction with its rows."""
    log = Log(statement("CREATE TABLE t (id INT)", 270, in_transaction=True), TransactionCommit("g:1", FILE, 400, 0))
    log.has(T)

    assert definition_of(log.definitions()) == version()._replace(since=f"{FILE}:300")


def test_stored_definitions_are_compared_with_the_catalog() -> None:
    """One that differs is refused once; one that a statement changes is in force until then."""
    log = Log(statement("ALTER TABLE t ADD x INT", 700))
    log.has(T, OTHER)
    log.has(U, OTHER)
    definitions = log.definitions(version(), version(U))

    assert definition_of(definitions) == version()
    with pytest.raises(SchemaError, match=r"(?s)no statement that changed it.*hint: run no DDL with") as refused:
        definitions.of(U)
    definitions.on_refused(U, refused.value)
    assert definition_of(definitions, U, 360) == version(U, OTHER)._replace(since=f"{FILE}:360")


def test_a_log_that_cannot_be_read_ahead_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what was stored is not used then: it cannot be compared. It is tried again after a while."""
    log = Log()
    log.has(T)
    log.fails = True
    definitions = log.definitions(version())

    assert "purged" in str(definition_of(definitions))
    log.fails = False
    assert "purged" in str(definition_of(definitions, T, 400))
    definitions.on_statement(statement("ALTER TABLE t ADD x INT", 500))
    assert definition_of(definitions, T, 600) == version()._replace(since=f"{FILE}:600")

    monkeypatch.setattr(proven_definitions, "RETRY_S", 0.1)
    log.has(U)
    log.end, log.fails = 20_000, True
    assert "purged" in str(definition_of(definitions, U, 11_000))
    log.fails = False
    eventually(
        lambda: definition_of(definitions, U, 11_000) == version(U)._replace(since=f"{FILE}:11000"), "another try", 10
    )


def test_a_locked_table_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its definition is waited for if it is wanted; a stored one is in force, and is compared later."""
    monkeypatch.setattr(proven_definitions, "_LOCK_WAIT_S", 0.3)
    monkeypatch.setattr(proven_definitions, "RETRY_S", 0.3)
    log = Log(statement("ALTER TABLE t ADD x INT", 700))
    log.has(T)
    log.has(U)
    log.locked = {U}
    definitions = log.definitions(version())

    assert definition_of(definitions) == version(), "it is in force up to the statement"
    began = time.monotonic()
    assert "locked" in str(definition_of(definitions, U, 350))
    assert time.monotonic() - began > 0.3
    log.locked = set()
    eventually(lambda: definition_of(definitions, U, 360) == version(U)._replace(since=f"{FILE}:360"), "retry", 10)

    log.locked = {T, U}
    definitions = log.definitions(version(), version(U))
    assert definition_of(definitions, U, 370) == version(U)
    log.locked = set()
    log.has(U, OTHER)
    log.has(ODD[3])
    assert not isinstance(definition_of(definitions, ODD[3], 380), str)
    assert "no statement that changed it" in str(definition_of(definitions, U, 390))


def test_refusing_by_words_of_two_statements_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log ahead joins the words of all statements, but no statement that is read has the whole name."""
    monkeypatch.setattr(proven_definitions, "RETRY_S", 0.1)
    table = TableId("d", "order-items")
    log = Log(statement("ALTER TABLE `order` ADD x INT", 400), statement("CREATE TABLE items (id INT)", 700))
    log.has(table)
    definitions = log.definitions()

    assert "a statement that follows" in str(definition_of(definitions, table))
    requested = len(log.requested)
    assert [definitions.on_statement(event) for event in log.events if isinstance(event, QueryEvent)] == [(), ()]
    eventually(lambda: not isinstance(definition_of(definitions, table, 900), str), "another try", 10)
    assert len(log.requested) == requested + 1


def test_a_table_that_the_catalog_lacks_is_looked_for_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once and for a while if the log has just created it; else later, as it may be granted."""
    monkeypatch.setattr(proven_definitions, "RETRY_S", 0.1)
    log = Log()
    definitions = log.definitions()
    assert "it is not there" in str(definition_of(definitions))
    assert len(log.requested) == 1, "without waiting"
    log.has(T)
    eventually(lambda: definition_of(definitions, T, 310) == version()._replace(since=f"{FILE}:310"), "a retry", 10)

    monkeypatch.setattr(proven_definitions, "_COMMIT_WAIT_S", 0.5)
    definitions.on_statement(statement("CREATE TABLE `o u` AS SELECT 1", 400, in_transaction=True))
    definitions.want(Wanted(U, FILE, 450, 350))
    assert not definitions.settle()
    log.has(U)
    assert definition_of(definitions, U, 450) == version(U)._replace(since=f"{FILE}:450")


def test_a_log_that_is_too_long_ends_no_stored_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in force by the statements that the stream reads, and compared with the next reading."""
    monkeypatch.setattr(proven_definitions, "_MOST_S", 0.0)
    monkeypatch.setattr(proven_definitions, "_PROGRESS_S", -1.0)
    log = Log(statement("ALTER TABLE a ADD x INT", 700))
    log.has(T)
    definitions = log.definitions(version(U))
    assert "too long" in str(definition_of(definitions))
    assert definition_of(definitions, U) == version(U)

    monkeypatch.setattr(proven_definitions, "_MOST_S", 60.0)
    with capture_logs() as logs:
        definitions = log.definitions(version())
        assert definition_of(definitions) == version()
    assert any("no change is written while" in entry["event"] for entry in logs)


def test_rows_that_are_returned_later_store_no_definition() -> None:
    """It may have ended between: a stored one of later rows stays."""
    memory, earlier = KeyMemory(), version()._replace(fingerprint=b"f").of_earlier_rows()
    memory.set_definition(earlier)
    assert memory.definitions() == []
    memory.set_definition(version())
    memory.set_definition(earlier)

    assert memory.definitions() == [version()]
    assert earlier.fingerprint != b"f"
    assert earlier.of_earlier_rows() == earlier
    full = version()._replace(since="")
    assert full.of_earlier_rows() is full


def test_a_definition_is_stored_and_restored() -> None:
    """The state has it until it ends, and a table whose rows have names needs none."""
    memory, restored = KeyMemory(), KeyMemory()
    memory.set_definition(version())
    assert "definition" not in next(iter(memory.dump().values())), "snapshot readers do not need it"
    [(name, body)] = memory.take_unsaved()
    restored.load({name: orjson.loads(body)})

    assert restored.definitions() == memory.definitions() == [version()]
    memory.set_definition(version())
    assert memory.take_unsaved() == []
    memory.set_definition(version()._replace(since=""))
    assert memory.definitions() == []
    [(_, body)] = memory.take_unsaved()
    assert "definition" not in orjson.loads(body)
