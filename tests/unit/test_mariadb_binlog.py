"""Events of MariaDB's binlog that a test server does not write, or that are damaged."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from contextlib import closing

import pytest

from tailrace.producer.errors import BinlogError
from tailrace.producer.mariadb.binlog import (
    LoggedDefinitions,
    MariaDbStream,
    MariaDbTransactions,
    _read_format,
    uncompressed,
)
from tailrace.producer.mariadb.catalog import LoggedTables
from tailrace.producer.mariadb.declared_types import CurrentTypes, EarlierTypes, EnclosingTransaction
from tailrace.producer.mariadb.gtid import GtidPosition
from tailrace.producer.mariadb.offset import MariaDbOffset
from tailrace.producer.mariadb.statement import own_statement
from tailrace.producer.model.binlog_events import ChangeRefused, Event, QueryEvent, TableVersion, TransactionBegin
from tailrace.producer.model.ddl import Change
from tailrace.producer.model.table import Column, TableId
from tailrace.producer.mysql.authentication import Tls
from tailrace.producer.mysql.binlog.log_ahead import LogAhead
from tailrace.producer.mysql.binlog.transaction_parser import EventPosition
from tailrace.producer.mysql.connection import SourceSettings
from tailrace.producer.mysql.password import Password
from tailrace.producer.mysql.text.sql_tokens import SqlDialect
from tailrace.runtime.errors import SchemaError
from tests.support.binlog_bytes import names_option, query_body, table_map_body

AT = EventPosition("binlog.000001", 100, 142, 5, 7)


def transactions(before: str = "0-1-41") -> MariaDbTransactions:
    """Return the parser of transactions behind a position."""
    return MariaDbTransactions(lambda _: True, GtidPosition.parse(before))


def gtid_event(sequence: int, flags: int, more: bytes = b"") -> bytes:
    """Return the body of a GTID event of domain 0."""
    return (struct.pack("<QIB", sequence, 0, flags) + more).ljust(19, b"\0")


def statement(sql: str) -> Sequence[Event]:
    """Return the events of a statement that MariaDB 10.11.6 logged."""
    parser = transactions()
    parser.server_version = 101106
    parser.gtid(gtid_event(42, 1), 0, 19, AT)
    body = query_body(sql)
    return parser.statement(body, 0, len(body), AT)


def test_transaction_begins_with_its_gtid() -> None:
    """There is no BEGIN; in a group commit the number of the group comes before an xid."""
    body = gtid_event(42, 2 | 64, struct.pack("<QiBB", 9, 1, 2, 1) + b"abc")
    parser = transactions()
    parser.gtid(body, 0, len(body), AT)
    [begin] = parser.begun
    assert begin == TransactionBegin("0-7-42", AT.file, 100, 142, 5, 0, None, 7, "X'6162',X'63',1")
    parser = transactions()
    parser.gtid(gtid_event(42, 1), 0, 19, AT)
    assert parser.begun == ()


@pytest.mark.parametrize("sequence", [41, 5])
def test_sequence_numbers_out_of_order_are_refused(sequence: int) -> None:
    """Otherwise the position would include a transaction that was not read."""
    with pytest.raises(BinlogError, match="not in order") as raised:
        transactions().gtid(gtid_event(sequence, 0), 0, 19, AT)
    assert "gtid_strict_mode" in raised.value.hint


def test_version_of_the_server_is_known_for_its_comments() -> None:
    """MySQL takes some statements for comments that MariaDB runs."""
    lengths = bytearray(168)
    for event_type, length in {2: 13, 19: 8, 23: 8, 24: 8, 25: 8, 162: 19}.items():
        lengths[event_type - 1] = length
    body = struct.pack("<H50sIB", 4, b"10.11.6-MariaDB-log", 0, 19) + lengths + b"\1" + bytes(4)
    assert _read_format(body, 0, len(body)).server_version == 101106
    [refused] = statement("/*M!100000 INSERT */ INTO t VALUES (1)")
    assert isinstance(refused, ChangeRefused)
    assert refused.tables == (TableId("shop", "t"),)
    [definition] = statement("/*!50700 INSERT INTO t VALUES (1) */ ALTER TABLE t FORCE")
    assert isinstance(definition, QueryEvent)


@pytest.mark.parametrize(
    ("sql", "own"),
    [
        ("SET STATEMENT max_statement_time=5 FOR TRUNCATE t", "TRUNCATE t"),
        (
            "set statement a=SUBSTRING('for' FROM 1 FOR (2)), b='x FOR y' for/**/RENAME TABLE t TO u",
            "RENAME TABLE t TO u",
        ),
        ("SET STATEMENT a=1 FOR SET STATEMENT b=2 FOR DROP TABLE t", "DROP TABLE t"),
        ("/*M!100200 SET STATEMENT a=1 FOR */ DROP TABLE t", "DROP TABLE t"),
        ("SET STATEMENT a=1 FOR ANALYZE TABLE t", "ANALYZE TABLE t"),
        ("ANALYZE UPDATE t SET a = 1", "UPDATE t SET a = 1"),
        ("ANALYZE FORMAT=JSON DELETE FROM t", "DELETE FROM t"),
        ("ANALYZE FORMAT", "ANALYZE FORMAT"),
        ("SET STATEMENT a=1", "SET STATEMENT a=1"),
        ("SET STATEMENT a=1 FOR ", ""),
        ("SET DEFAULT ROLE r FOR u", "SET DEFAULT ROLE r FOR u"),
        ("ALTER TABLE statement FORCE", "ALTER TABLE statement FORCE"),
        ("SET", "SET"),
        ("", ""),
    ],
)
def test_statement_behind_settings_of_its_own(sql: str, own: str) -> None:
    """MariaDB logs the whole: without its own words nothing is known of what it does."""
    assert own_statement(sql, SqlDialect(server_version=101106, mariadb=True)) == own
    if "TABLE" in own or own.startswith("TRUNCATE"):
        [definition] = statement(sql)
        assert isinstance(definition, QueryEvent)
        assert definition.sql == own


@pytest.mark.parametrize("sql", ["INSERT INTO t VALUES (1)", "UPDATE t SET a = 1", "ANALYZE DELETE FROM t"])
def test_rows_logged_as_a_statement_with_settings_are_refused(sql: str) -> None:
    [refused] = statement(f"SET STATEMENT max_statement_time=5 FOR {sql}")
    assert isinstance(refused, ChangeRefused)
    assert (refused.tables, refused.others) == ((TableId("shop", "t"),), False)


def test_alter_in_two_phases_is_refused() -> None:
    """Its first event has the statement before it takes effect."""
    with pytest.raises(BinlogError, match="before it takes effect"):
        transactions().gtid(gtid_event(42, 1, b"\x02"), 0, 19, AT)


def test_hidden_column_of_a_hash_is_refused() -> None:
    """A SELECT does not have it, so the records of snapshot and stream would differ."""
    columns = (b"\3\x08", b"", b"\2", b"\1\1\0" + names_option("id", "DB_ROW_HASH_1"))
    definitions = LoggedDefinitions(
        lambda _: True, LoggedTables(lambda: pytest.fail("connects"), "1-a"), lambda table: table
    )
    cached = definitions.add(table_map_body("d", "t", columns))
    assert cached is not None
    assert cached.error is not None
    assert "hidden column" in cached.error.message


def test_compressed_bytes() -> None:
    """The length comes first, from its highest byte on."""
    text = b"row" * 1000
    packed = b"\x82" + len(text).to_bytes(2, "big") + zlib.compress(text)
    assert uncompressed(packed) == text
    for damaged in (b"\x92" + packed[1:], packed[:-9], b"\x82\0\x05" + packed[3:]):
        with pytest.raises(BinlogError):
            uncompressed(damaged)


@pytest.mark.parametrize(
    ("sql", "changes"),
    [
        ("CREATE OR REPLACE TABLE t (id INT)", [Change.DROP, Change.CREATE]),
        ("/* x */ create or replace table t select 1", [Change.DROP, Change.CREATE]),
        ("CREATE OR REPLACE DATABASE d", [Change.DROP_DATABASE, Change.DATABASE]),
        ("CREATE TABLE t (id INT)", [Change.CREATE]),
        ("CREATE OR REPLACE SEQUENCE t", []),
        ("CREATE OR REPLACE INDEX i ON t (id)", [Change.INDEX]),
    ],
)
def test_replaced_table_is_dropped_before(sql: str, changes: list[Change]) -> None:
    """The rows that it had are gone, and so are the tables of a database."""
    settings = SourceSettings("localhost", 1, "u", Password("p"), Tls("disabled"), 1, 1)
    start = MariaDbOffset(1, "b.1", 4, GtidPosition.parse(""), "1-a")
    tables = LoggedTables(lambda: pytest.fail("connects"), "1-a")
    types = CurrentTypes((), tables, lambda: LogAhead(lambda _: pytest.fail("reads ahead")))
    stream = MariaDbStream(settings, start=start, server_id=2, captures=lambda _: True, tables=tables, types=types)
    with closing(stream):
        effects = stream.ddl_effects(QueryEvent("0-1-1", "d", sql, "b.1", 4, 9, 1, 1, None))
    assert [effect.change for effect in effects] == changes


P = TableId("d", "p")
LOGGED = TableVersion(P, (Column("a", "binary", length=16), Column("b", "binary", length=16)), (), b"1")
STORED = TableVersion(P, (Column("a", "uuid"), Column("b", "binary", length=16)), (), b"1", "0-1-1")
WITHIN = EnclosingTransaction("b.000001", 100, "0-1-5", "0-1-4", 110400)


class Ahead:
    """What the catalog and the binlog behind position 100 have."""

    file = "b.000001"

    def __init__(self, *statements: str, **types: str) -> None:
        self.statements = [definition(sql, 200 + 10 * at) for at, sql in enumerate(statements)]
        self.types = types
        self.pos = 0
        self.fails = False

    def column_types(self, table: TableId) -> tuple[dict[str, str], str, int]:
        """Read the catalog."""
        return (dict(self.types) if table == P else {}), self.file, 1000

    def open(self) -> None:
        """Connect."""

    def poll(self, _: float) -> list[QueryEvent]:
        """Return all statements."""
        if self.fails:
            raise BinlogError("an event is not supported")
        self.pos = 1000
        return self.statements

    def close(self) -> None:
        """Disconnect."""

    def types_of(self, *stored: TableVersion) -> CurrentTypes:
        """Return the types of a stream."""
        return CurrentTypes(stored, self, lambda: LogAhead(lambda _: self))


def definition(sql: str, pos: int = 50) -> QueryEvent:
    """Return a statement in the binlog."""
    return QueryEvent("0-1-9", "d", sql, "b.000001", pos, pos + 5, 1, 1, None, query_pos=pos)


def read(types: CurrentTypes | EarlierTypes, table: TableVersion = LOGGED) -> list[str] | str:
    """Return the types of columns, or what is wrong with them."""
    try:
        return [column.data_type for column in types.with_types(table, WITHIN).columns]
    except SchemaError as error:
        return error.message


UNKNOWN = "the types of columns of d.p are not known here"
NAMING = (
    "ALTER TABLE .p MODIFY a BINARY(16), MODIFY b UUID",
    "ALTER TABLE [p] MODIFY a BINARY(16), MODIFY b UUID",
    'ALTER TABLE "p" MODIFY a BINARY(16), MODIFY b UUID',
    "ALTER TABLE p DROP [a], ADD [a] BINARY(16)",
    "ALTER TABLE p ADD x INT",
    "CREATE OR REPLACE TABLE d.P LIKE q",
    "DROP DATABASE d",
    "something new about p",
)


@pytest.mark.parametrize("sql", NAMING)
def test_a_statement_that_names_a_table_ends_its_types(sql: str) -> None:
    """Whatever its grammar is: a statement that is not understood may change them. State and stream learn the same."""
    types = Ahead(a="binary", b="uuid").types_of(STORED)
    assert types.on_statement(definition(sql)) == (P,)
    assert read(types) == ["binary", "uuid"]
    found = read(Ahead(sql, a="uuid", b="binary").types_of())
    assert found[: len(UNKNOWN)] == UNKNOWN


@pytest.mark.parametrize("sql", ["ALTER TABLE q MODIFY a UUID", "TRUNCATE p", "GRANT SELECT ON p TO u", "FLUSH LOGS"])
def test_other_statements_end_no_types(sql: str) -> None:
    """They name other tables, or change no definition."""
    types = Ahead(sql, a="uuid", b="binary").types_of(STORED)
    assert types.on_statement(definition(sql)) == ()
    assert read(types) == ["uuid", "binary"]
    assert read(Ahead(sql, a="uuid", b="binary").types_of()) == ["uuid", "binary"]


def test_stored_types_of_columns_that_are_gone() -> None:
    """A statement that is not logged has renamed one."""
    types = Ahead(c="uuid", b="binary").types_of(STORED)
    renamed = LOGGED._replace(columns=(Column("c", "binary", length=16), LOGGED.columns[1]))
    assert read(types, renamed) == ["uuid", "binary"]


def test_a_statement_ends_stored_types_that_were_found_wrong() -> None:
    """Nothing else removes them from the state: a restart behind the statement must not use them."""
    types = Ahead(a="binary", b="uuid").types_of(STORED)
    assert "the types of columns of d.p have changed" in read(types)
    assert types.on_statement(definition("ALTER TABLE p ADD x INT")) == (P,)


def test_stored_types_that_the_catalog_does_not_have() -> None:
    """Without a statement that follows they are not used: the table is read again, with what the catalog has."""
    types = Ahead(a="binary", b="uuid").types_of(STORED)
    assert read(types) == "the types of columns of d.p have changed, and the binlog has no statement that changed them"
    assert read(types) == ["binary", "uuid"]
    assert read(Ahead(NAMING[0], a="binary", b="uuid").types_of(STORED)) == ["uuid", "binary"]


def test_types_in_a_prepared_transaction_of_a_table_that_was_not_read_since() -> None:
    """They are what the catalog has, if no statement follows the transaction."""
    assert read(EarlierTypes(Ahead(a="uuid", b="binary").types_of(), WITHIN.gtid)) == ["uuid", "binary"]
    found = read(EarlierTypes(Ahead(NAMING[0], a="uuid", b="binary").types_of(), WITHIN.gtid))
    assert found[: len(UNKNOWN)] == UNKNOWN


def test_binlog_that_cannot_be_read_ahead_refuses_the_table() -> None:
    """The stream goes on up to what it cannot read."""
    ahead = Ahead(a="uuid", b="binary")
    ahead.fails = True
    found = read(ahead.types_of())
    assert "an event is not supported" in found
    assert read(ahead.types_of(STORED)) == ["uuid", "binary"]


@pytest.mark.parametrize("types", [{"a": "char", "b": "uuid"}, {"a": "inet4", "b": "uuid"}, {"b": "uuid"}])
def test_catalog_with_other_columns(types: dict[str, str]) -> None:
    """It is not of the definition in the binlog."""
    found = read(Ahead(**types).types_of())
    assert found[: len(UNKNOWN)] == UNKNOWN
