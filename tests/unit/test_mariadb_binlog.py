"""Events of MariaDB's binlog that a test server does not write, or that are damaged."""

from __future__ import annotations

import re
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
from tailrace.producer.mariadb.declared_types import declared, is_ambiguous, logged_as_binary
from tailrace.producer.mariadb.gtid import GtidPosition
from tailrace.producer.mariadb.offset import MariaDbOffset
from tailrace.producer.mariadb.statement import own_statement
from tailrace.producer.model.binlog_events import ChangeRefused, Event, QueryEvent, TableVersion, TransactionBegin
from tailrace.producer.model.ddl import Change
from tailrace.producer.model.table import Column, TableId
from tailrace.producer.mysql.authentication import Tls
from tailrace.producer.mysql.binlog.named_tables import changes, named_by
from tailrace.producer.mysql.binlog.table_map import DefinitionDiffersError
from tailrace.producer.mysql.binlog.transaction_parser import EventPosition
from tailrace.producer.mysql.connection import SourceSettings
from tailrace.producer.mysql.password import Password
from tailrace.producer.mysql.text.sql_tokens import SqlDialect
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
    assert raised.value.hint.startswith(
        "SET GLOBAL gtid_strict_mode = ON, and give each server that is written to a gtid_"
    )
    assert raised.value.hint.endswith("then take a new snapshot under another topic.prefix")


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
    with pytest.raises(BinlogError, match=r"(?s)before it takes effect.*SET GLOBAL binlog_alter_two_phase = OFF, al"):
        transactions().gtid(gtid_event(42, 1, b"\x02"), 0, 19, AT)


def test_hidden_column_of_a_hash_is_refused() -> None:
    """A SELECT does not have it, so the records of snapshot and stream would differ."""
    columns = (b"\3\x08", b"", b"\2", b"\1\1\0" + names_option("id", "DB_ROW_HASH_1"))
    definitions = LoggedDefinitions(
        lambda _: True, LoggedTables(lambda: pytest.fail("connects"), "1-a"), None, lambda: 110400
    )
    cached = definitions.add(table_map_body("d", "t", columns))
    assert cached is not None
    assert cached.error is not None
    assert "hidden column" in cached.error.message
    assert cached.error.hint == "exclude it with table.exclude.list, or make the key an index of a shorter prefix"


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
    stream = MariaDbStream(settings, start=start, server_id=2, captures=lambda _: True, tables=tables)
    with closing(stream):
        effects = stream.ddl_effects(QueryEvent("0-1-1", "d", sql, "b.1", 4, 9, 1, 1, None))
    assert [effect.change for effect in effects] == changes


P = TableId("d", "p")
LOGGED = TableVersion(P, (Column("a", "binary", length=16), Column("b", "binary", length=16)), (), b"1")
CATALOG = TableVersion(P, (Column("a", "uuid"), Column("b", "binary")), (), b"", "b.000001:100")


def definition(sql: str) -> QueryEvent:
    """Return a statement in the binlog."""
    return QueryEvent("0-1-9", "d", sql, "b.000001", 50, 55, 1, 1, None, query_pos=50)


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE .p MODIFY a BINARY(16), MODIFY b UUID",
        "ALTER TABLE [p] MODIFY a BINARY(16), MODIFY b UUID",
        'ALTER TABLE "p" MODIFY a BINARY(16), MODIFY b UUID',
        "ALTER TABLE p DROP [a], ADD [a] BINARY(16)",
        "ALTER TABLE p ADD x INT",
        "CREATE OR REPLACE TABLE d.P LIKE q",
        "DROP DATABASE d",
        "something new about p",
    ],
)
def test_a_statement_that_names_a_table_ends_its_types(sql: str) -> None:
    """Whatever its grammar is: a statement that is not understood may change them."""
    assert changes(P, named_by(definition(sql)))


@pytest.mark.parametrize("sql", ["ALTER TABLE q MODIFY a UUID", "TRUNCATE p", "GRANT SELECT ON p TO u", "FLUSH LOGS"])
def test_other_statements_end_no_types(sql: str) -> None:
    """They name other tables, or change no definition."""
    assert not changes(P, named_by(definition(sql)))


def test_types_are_those_of_the_catalog() -> None:
    """Equal bytes of another type are another definition; what is stored of it is compared with the catalog later."""
    found = declared(LOGGED, CATALOG, 110400)
    assert [column.data_type for column in found.columns] == ["uuid", "binary"]
    swapped = CATALOG._replace(columns=(Column("a", "binary"), Column("b", "uuid")))
    assert found.fingerprint != declared(LOGGED, swapped, 110400).fingerprint
    assert logged_as_binary(found) == CATALOG


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        ((Column("c", "uuid"), Column("b", "binary")), r"column a is binary\(16\)"),
        ((Column("a", "inet4"), Column("b", "binary")), r"column a is binary\(16\), not inet4"),
    ],
)
def test_columns_that_the_catalog_has_otherwise(columns: tuple[Column, ...], what: str) -> None:
    """A statement that is not logged has changed them."""
    with pytest.raises(DefinitionDiffersError) as caught:
        declared(LOGGED, CATALOG._replace(columns=columns), 110400)
    assert re.fullmatch(what, str(caught.value.context["log"]))


@pytest.mark.parametrize(
    ("column", "version", "ambiguous"),
    [
        (Column("a", "binary", length=16), 101100, True),
        (Column("a", "binary", length=4), 101100, True),
        (Column("a", "binary", length=5), 110800, False),
        (Column("a", "varbinary", length=8), 110700, True),
        (Column("a", "varbinary", length=8), 110600, False),
        (Column("a", "varbinary", length=9), 110700, False),
        (Column("a", "varbinary", length=8, compressed=True), 110700, False),
        (Column("a", "int"), 110700, False),
    ],
)
def test_columns_that_may_be_of_another_type(column: Column, version: int, *, ambiguous: bool) -> None:
    """Only for these the catalog is read."""
    assert is_ambiguous(LOGGED._replace(columns=(column,)), version) is ambiguous
