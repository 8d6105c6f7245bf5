"""UUID, INET4 and INET6 of MariaDB, which the binlog does not tell from BINARY: by their declared types, or refused."""

from __future__ import annotations

import random
import threading
from base64 import b64decode
from collections.abc import Mapping
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from tailrace.producer.app.connection_settings import mysql_source
from tailrace.producer.errors import DefinitionLockedError, SourceUnavailableError
from tailrace.producer.mariadb.catalog import LoggedTables, read_types_with_end
from tailrace.producer.mariadb.source import MariaDbSource
from tailrace.producer.model.binlog_events import ChangeRefused, RowsEvent, TableVersion
from tailrace.producer.model.protocols import ChangeStream, Offset, Source
from tailrace.producer.model.split import Range
from tailrace.producer.model.table import Column, TableId
from tailrace.producer.mysql.types.canonical import canonical_text
from tailrace.producer.mysql.types.registry import column_type
from tailrace.schemas.verification import NULL
from tests.support.capture import CaptureThread, configured, eventually, records_of, verified_rows
from tests.support.database import Database
from tests.support.mariadb import family, modes, source_settings, wait_position
from tests.support.values import value_options

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mariadb import MariaDbServer

pytestmark = [pytest.mark.mariadb, pytest.mark.kafka]

_COLUMNS = {"u": "uuid", "s": "inet6", "f": "inet4"}
_UUIDS = (
    "00000000-0000-0000-0000-000000000000",
    "ffffffff-ffff-ffff-ffff-ffffffffff00",
    "6ccd780c-baba-1026-9564-5b8c656024db",  # version 1
    "01890a5d-ac96-774b-bcce-b302099a8057",  # version 7
    "0a000000-0000-4000-8000-000000000000",
)
_INET6 = (
    "::",
    "::1",
    "ffff::",
    "::1.2.3.4",
    "::ffff:1.2.3.4",
    "2001:db8:0:1:1:1:1:1",
    "1:0:0:2::3",
    "::fffe:1:2",
    "1::",
)
_INET4 = ("255.255.255.255", "10.0.0.0", "1.2.3.4", "127.0.0.0")


@pytest.fixture
def source(mariadb_server: MariaDbServer, prefix: str, maria: Database) -> Source:
    """The source without a capture, and without Kafka."""
    broker = cast("KafkaBroker", SimpleNamespace(bootstrap="127.0.0.1:9"))
    return mysql_source(configured(source_settings(mariadb_server, broker, prefix, maria.name)))


def _read(stream: ChangeStream, count: int) -> list[RowsEvent | ChangeRefused]:
    """Return the next events with rows, or those that are refused."""
    found: list[RowsEvent | ChangeRefused] = []

    def enough() -> bool:
        found.extend(event for event in stream.poll(1) if isinstance(event, RowsEvent | ChangeRefused))
        return len(found) >= count

    eventually(enough, f"{count} events")
    assert len(found) == count
    return found


def _types(event: RowsEvent | ChangeRefused) -> list[str] | str:
    """Return the types of the columns behind the first, or what is wrong with them."""
    if isinstance(event, ChangeRefused):
        return event.error.message
    return [column.data_type for column in event.table.columns[1:]]


def _end(source: Source) -> Offset:
    return source.end_offset(epoch=1)


def test_columns_that_swap_their_types(source: Source, maria: Database) -> None:
    """The TABLE_MAP events are equal before and behind the statement; the definitions are not."""
    maria.execute("CREATE TABLE t (id INT PRIMARY KEY, a UUID, b BINARY(16), c INET4, d INET6)")
    with closing(source.open_stream(_end(source), lambda _: True)) as stream:
        maria.execute("INSERT INTO t VALUES (1, UUID(), 'b', '1.2.3.4', '::1')")
        [before] = _read(stream, 1)
        maria.execute("DELETE FROM t")
        _read(stream, 1)
        maria.execute("ALTER TABLE t MODIFY a BINARY(16), MODIFY b UUID")
        maria.execute("INSERT INTO t VALUES (2, 'a', UUID(), '1.2.3.4', '::1')")
        [behind] = _read(stream, 1)
    assert _types(before) == ["uuid", "binary", "inet4", "inet6"]
    assert _types(behind) == ["binary", "uuid", "inet4", "inet6"]
    assert isinstance(before, RowsEvent)
    assert isinstance(behind, RowsEvent)
    assert before.table.fingerprint != behind.table.fingerprint


def test_types_before_a_statement_that_was_executed_already(source: Source, maria: Database) -> None:
    """What the catalog says is of a later time: it is refused, or it is known from before."""
    maria.execute("CREATE TABLE t (id INT PRIMARY KEY, v UUID)")
    maria.execute("CREATE TABLE other (id INT PRIMARY KEY, v BINARY(16))")
    start = _end(source)
    maria.execute("INSERT INTO t VALUES (1, UUID())")
    maria.execute("INSERT INTO other VALUES (1, 'a')")
    maria.execute("ALTER TABLE t ADD n INT, ADD INDEX (n)")
    maria.execute("INSERT INTO t VALUES (2, UUID(), 1)")
    maria.execute("DELETE FROM t")
    maria.execute("ALTER TABLE t MODIFY v BINARY(16)")
    maria.execute("INSERT INTO t VALUES (3, 'a', 1)")
    maria.execute("DELETE FROM t")
    maria.execute("ALTER TABLE t MODIFY v UUID")
    maria.execute("INSERT INTO t VALUES (4, UUID(), 1)")
    with closing(source.open_stream(start, lambda _: True)) as stream:
        found = list(map(_types, _read(stream, 7)))
    unknown = "the log does not say which columns are not BINARY"
    assert [types[: len(unknown)] if isinstance(types, str) else types for types in found] == [
        unknown,
        ["binary"],
        unknown,
        unknown,
        unknown,
        unknown,
        ["uuid", "int"],
    ]
    known = [TableVersion(TableId(maria.name, "t"), (Column("v", "uuid"),), (), b"")]
    with closing(source.open_stream(start, lambda _: True, (), known)) as stream:
        found = list(map(_types, _read(stream, 7)))
    assert found[:2] == [["uuid"], ["binary"]]
    assert [types[: len(unknown)] for types in found[2:6]] == [unknown] * 4
    assert found[6] == ["uuid", "int"]


@pytest.mark.parametrize(
    ("statements", "known"),
    [
        (["ALTER TABLE t DROP n"], False),
        (["ALTER TABLE t COMMENT 'c'"], False),
        (["ALTER TABLE t RENAME TO u", "CREATE TABLE t (id INT PRIMARY KEY, v UUID)"], False),
        (["DROP TABLE t"], False),
        (["CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, v UUID)"], False),
        (["CREATE TABLE u LIKE t", "RENAME TABLE t TO w, u TO t"], False),
        (["CREATE TABLE u (id INT)", "TRUNCATE t", "FLUSH BINARY LOGS"], True),
    ],
)
def test_statements_behind_a_change(source: Source, maria: Database, statements: list[str], *, known: bool) -> None:
    """Each statement counts that may change a table; what is stored holds up to there."""
    maria.execute("CREATE TABLE t (id INT PRIMARY KEY, v BINARY(4), n INT)")
    start = _end(source)
    maria.execute("INSERT INTO t VALUES (1, 'a', 1)")
    for statement in statements:
        maria.execute(statement)
    with closing(source.open_stream(start, lambda _: True)) as stream:
        [event] = _read(stream, 1)
    assert isinstance(event, RowsEvent if known else ChangeRefused)
    without = [TableVersion(TableId(maria.name, "t"), (Column("v", "binary"),), (), b"")]
    with closing(source.open_stream(start, lambda _: True, (), without)) as stream:
        assert _types(_read(stream, 1)[0]) == ["binary", "int"]


_SWAP = "MODIFY a BINARY(16), MODIFY b UUID"


@pytest.mark.parametrize(
    "statements",
    [
        [f"ALTER TABLE .p {_SWAP}"],
        ["SET sql_mode=MSSQL", f"ALTER TABLE [p] {_SWAP}"],
        ["SET sql_mode=ANSI_QUOTES", f"SET STATEMENT sql_mode='' FOR ALTER TABLE \"p\" {_SWAP}"],
        ["SET sql_mode=MSSQL", "ALTER TABLE p DROP [a], DROP b, ADD [a] BINARY(16), ADD b UUID"],
    ],
)
def test_statements_of_other_dialects(source: Source, maria: Database, statements: list[str]) -> None:
    """No grammar decides that types stay in force."""
    maria.execute("CREATE TABLE p (id INT PRIMARY KEY, a UUID, b BINARY(16))")
    with closing(source.open_stream(_end(source), lambda _: True)) as stream:
        maria.execute("INSERT INTO p VALUES (1, UUID(), 'b')")
        assert _types(_read(stream, 1)[0]) == ["uuid", "binary"]
        maria.execute("DELETE FROM p")
        _read(stream, 1)
        with maria.connect() as session, session.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        maria.execute("INSERT INTO p (id) VALUES (2)")
        assert _types(_read(stream, 1)[0]) == ["binary", "uuid"]


def test_change_that_is_not_logged(source: Source, maria: Database) -> None:
    """The rows behind it are refused once; a TABLE_MAP event of the table without rows does not use that up."""
    maria.execute("CREATE TABLE t (id INT PRIMARY KEY, a UUID, b BINARY(16))")
    maria.execute("CREATE TABLE o (id INT PRIMARY KEY, v INT)")
    maria.execute("INSERT INTO t VALUES (1, UUID(), 'b')")
    maria.execute("INSERT INTO o VALUES (1, 1)")
    stored = TableVersion(TableId(maria.name, "t"), (Column("a", "uuid"), Column("b", "binary")), (), b"")
    start = _end(source)
    with maria.connect() as session, session.cursor() as cursor:
        cursor.execute("SET SESSION sql_log_bin = 0")
        cursor.execute("DELETE FROM t")
        cursor.execute("ALTER TABLE t MODIFY a BINARY(16), MODIFY b UUID")
        cursor.execute("INSERT INTO t VALUES (1, 'a', UUID())")
        cursor.execute("SET SESSION sql_log_bin = 1")
        cursor.execute("UPDATE t JOIN o ON t.id = o.id SET o.v = 2, t.id = t.id")
        cursor.execute("INSERT INTO t VALUES (2, 'a', UUID())")
        cursor.execute("INSERT INTO t VALUES (3, 'a', UUID())")
    with closing(source.open_stream(start, lambda _: True, (), [stored])) as stream:
        other, refused, read = map(_types, _read(stream, 3))
    assert other == ["int"]
    assert "no statement that changed it" in refused
    assert read == ["binary", "uuid"]


@pytest.mark.long
def test_locked_table(source: Source, maria: Database) -> None:
    """The catalog does not show its columns: that is no reason to take it for a table without them."""
    assert isinstance(source, MariaDbSource)
    maria.execute("CREATE TABLE o (id INT PRIMARY KEY, v UUID)")
    names = [TableId(maria.name, name) for name in ("o", "t")]

    def create() -> None:
        with maria.connect() as creator, creator.cursor() as cursor:
            cursor.execute("CREATE TABLE t (v UUID) SELECT UUID() v, SLEEP(4) n")

    creating = threading.Thread(target=create)
    sleeping = "SELECT 1 FROM information_schema.PROCESSLIST WHERE STATE = 'User sleep'"
    with closing(source.connect()) as session:
        creating.start()
        eventually(lambda: maria.execute(sleeping), "a lock")
        found, _ = read_types_with_end(session, None, lambda table: table in names)
        assert [table for table, each in found.items() if isinstance(each, DefinitionLockedError)] == names[1:]
        creating.join()
        found, _ = read_types_with_end(session, names[1:], lambda table: table in names)
    assert found == {names[1]: TableVersion(names[1], (Column("v", "uuid"),), (), b"")}


def test_catalog_of_another_server(source: Source, maria: Database) -> None:
    """The stream may go on with the one that it has, while the name already leads to another."""
    assert isinstance(source, MariaDbSource)
    maria.execute("CREATE TABLE t (id INT PRIMARY KEY, v UUID)")
    offset = source.end_offset(epoch=1)
    table = TableId(maria.name, "t")
    with closing(LoggedTables(source.connect, offset.server_uuid)) as tables:
        assert not tables.is_sequence(table)
    with (
        closing(LoggedTables(source.connect, "7-other:3306")) as tables,
        pytest.raises(SourceUnavailableError, match="another server"),
    ):
        tables.is_sequence(table)


def test_statements_that_the_binlog_leaves_out(prefix: str) -> None:
    """It has rows of a table, but not the statement of a session that uses an excluded database."""
    from tests.embedded.mariadb import SOURCE, MariaDbServer  # noqa: PLC0415

    with MariaDbServer(settings={**SOURCE, "binlog_ignore_db": "scratch"}) as filtering:
        maria = Database(family(filtering), f"d_{prefix}")
        broker = cast("KafkaBroker", SimpleNamespace(bootstrap="127.0.0.1:9"))
        source = mysql_source(configured(source_settings(filtering, broker, prefix, maria.name)))
        maria.execute("CREATE DATABASE scratch")
        maria.execute("CREATE TABLE t (id INT PRIMARY KEY, v UUID)")
        maria.execute("CREATE TABLE plain (id INT PRIMARY KEY, v INT)")
        start = _end(source)
        maria.execute("INSERT INTO t VALUES (1, UUID())")
        maria.execute("INSERT INTO plain VALUES (1, 1)")
        for stored in ((), [TableVersion(TableId(maria.name, "t"), (Column("v", "uuid"),), (), b"")]):
            with closing(source.open_stream(start, lambda _: True, (), stored)) as stream:
                refused, read = map(_types, _read(stream, 2))
            assert "binlog_ignore_db: scratch" in refused
            assert read == ["int"]


def test_prepared_transactions_from_before_the_start(source: Source, maria: Database) -> None:
    """Their definitions hold there: nothing was altered since."""
    for table in ("t", "m"):
        maria.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v UUID)")
    with maria.connect() as session, session.cursor() as cursor:
        for statement in ("XA START 'a'", "INSERT INTO t VALUES (1, UUID())", "XA END 'a'", "XA PREPARE 'a'"):
            cursor.execute(statement)
        start = _end(source)
        maria.execute("INSERT INTO t VALUES (2, UUID())")
        with closing(source.open_stream(start, lambda _: True)) as stream:
            assert _types(_read(stream, 1)[0]) == ["uuid"]
            cursor.execute("XA COMMIT 'a'")
            assert _types(_read(stream, 1)[0]) == ["uuid"]
            maria.execute("INSERT INTO t VALUES (3, UUID())")
            assert _types(_read(stream, 1)[0]) == ["uuid"]
    with closing(source.open_stream(start, lambda _: True)) as stream:
        assert list(map(_types, _read(stream, 3))) == [["uuid"]] * 3


def _texts(database: Database, table: str, *columns: str) -> dict[object, tuple[object, ...]]:
    rows = database.execute(f"SELECT id, {', '.join(columns)} FROM {table}")
    return {row[0]: tuple(row[1:]) for row in rows}


def _insert_values(maria: Database, first: int) -> None:
    """Insert the same values behind a number: NULL, chosen texts, and random bytes."""
    pick = random.Random(6)
    maria.execute("INSERT INTO t VALUES (%s, NULL, NULL, NULL)", (first,))
    for number, values in enumerate(zip(_UUIDS * 2, _INET6, _INET4 * 2, strict=False), first + 1):
        maria.execute("INSERT INTO t VALUES (%s, %s, %s, %s)", (number, *values))
    for number in range(first + 100, first + 300):
        groups = [pick.choice((0, 0, 0xFFFF, pick.randrange(1 << 16))) for _ in range(8)]
        u = bytearray(pick.randbytes(16))
        u[6] &= 0x7F  # the server refuses some of the other versions
        values = (bytes(u).hex(), b"".join(group.to_bytes(2, "big") for group in groups).hex(), pick.randbytes(4).hex())
        maria.execute("INSERT INTO t VALUES ({}, x'{}', x'{}', x'{}')".format(number, *values))
    maria.execute(f"INSERT IGNORE INTO k SELECT u, s, id FROM t WHERE id > {first}")
    maria.execute(f"INSERT INTO p SELECT s, id FROM t WHERE id > {first} ON DUPLICATE KEY UPDATE v = -t.id")


def test_values(mariadb_server: MariaDbServer, kafka_broker: KafkaBroker, prefix: str, maria: Database) -> None:
    """Snapshot and stream write the text of the server, also of zeros, of NULL, and of a key; a restart goes on."""
    maria.execute("CREATE TABLE t (id INT PRIMARY KEY, u UUID, s INET6, f INET4)")
    maria.execute("CREATE TABLE k (id UUID, a INET6, v INT, PRIMARY KEY (id, a))")
    maria.execute("CREATE TABLE p (id INET6 PRIMARY KEY, v INT)")
    _insert_values(maria, 0)
    settings = source_settings(mariadb_server, kafka_broker, prefix, maria.name)
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        _insert_values(maria, 1000)
        maria.execute("UPDATE t SET f = NULL WHERE id BETWEEN 50 AND 150")
        maria.execute("UPDATE k SET v = -v WHERE v < 150")
        wait_position(capture, maria)
    _insert_values(maria, 2000)
    maria.execute("DELETE FROM t WHERE id BETWEEN 100 AND 120")
    maria.execute("DELETE FROM k WHERE v > 220")
    with CaptureThread(settings) as capture:
        wait_position(capture, maria)
        assert modes(capture) == dict.fromkeys("kpt", "streaming")
    found = verified_rows(kafka_broker.bootstrap, prefix, maria.name, "t").values()
    assert {row["id"]: (row["u"], row["s"], row["f"]) for row in found} == _texts(maria, "t", "u", "s", "f")
    canonical = {name: canonical_text(Column(name, kind), value_options()) for name, kind in _COLUMNS.items()}
    assert _texts(maria, "t", *(each.sql for each in canonical.values())) == {
        row["id"]: tuple(NULL if row[name] is None else row[name].encode().hex().upper() for name in _COLUMNS)
        for row in found
    }
    keys = verified_rows(kafka_broker.bootstrap, prefix, maria.name, "k").values()
    assert {row["id"]: (row["a"], row["v"]) for row in keys} == _texts(maria, "k", "a", "v")
    split = verified_rows(kafka_broker.bootstrap, prefix, maria.name, "p").values()
    assert {row["id"]: (row["v"],) for row in split} == _texts(maria, "p", "v")


def test_types_that_change_while_the_producer_is_stopped(
    mariadb_server: MariaDbServer, kafka_broker: KafkaBroker, prefix: str, maria: Database
) -> None:
    """Each row has the type of its place: what was known is stored. What is not known is read again."""
    maria.execute("CREATE TABLE t (id INT PRIMARY KEY, v UUID)")
    settings = source_settings(mariadb_server, kafka_broker, prefix, maria.name)
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        maria.execute("INSERT INTO t VALUES (1, UUID())")
        wait_position(capture, maria)
    maria.execute("INSERT INTO t VALUES (2, '6ccd780c-baba-1026-9564-5b8c656024db')")
    maria.execute("DELETE FROM t WHERE id = 1")
    maria.execute("ALTER TABLE t MODIFY v BINARY(16)")
    maria.execute("UPDATE t SET id = 3")
    maria.execute("ALTER TABLE t MODIFY v UUID")
    maria.execute("INSERT INTO t VALUES (4, UUID())")
    with CaptureThread(settings) as capture:
        wait_position(capture, maria)
        maria.execute("INSERT INTO t VALUES (5, NULL)")

        def rows() -> list[dict[str, object]]:
            records = records_of(kafka_broker.bootstrap, prefix, maria.name, "t")
            return [after for record in records if record.value and (after := record.json["after"])]

        def last() -> dict[object, tuple[object, ...]]:
            return {row["id"]: (row["v"],) for row in rows() if row["id"] not in {1, 2}}

        eventually(lambda: last() == _texts(maria, "t", "v"), "the table is read again")
    assert [row["v"] for row in rows() if row["id"] == 2] == ["6ccd780c-baba-1026-9564-5b8c656024db"]


_COMPRESSED = {
    "a": "VARCHAR(10) COMPRESSED CHARACTER SET utf8mb4",
    "b": "VARCHAR(255) COMPRESSED CHARACTER SET latin1",
    "c": "VARCHAR(9000) COMPRESSED CHARACTER SET utf8mb4",
    "d": "TINYTEXT COMPRESSED CHARACTER SET utf8mb4",
    "e": "TEXT COMPRESSED CHARACTER SET utf16",
    "f": "LONGTEXT COMPRESSED CHARACTER SET utf8mb4",
    "x": "VARBINARY(255) COMPRESSED",
    "y": "TINYBLOB COMPRESSED",
    "z": "MEDIUMBLOB COMPRESSED",
}


def test_compressed_columns(
    mariadb_server: MariaDbServer, kafka_broker: KafkaBroker, prefix: str, maria: Database
) -> None:
    """Values of any length, compressed or not, with and without the header of zlib; the snapshot has the same."""
    columns = ", ".join(f"{name} {kind}" for name, kind in _COMPRESSED.items())
    maria.execute(f"CREATE TABLE t (id INT PRIMARY KEY, {columns}, w INT)")
    settings = source_settings(mariadb_server, kafka_broker, prefix, maria.name)
    longest = {"a": 10, "b": 255, "c": 9000, "d": 250, "e": 5000, "f": 80_000, "x": 255, "y": 250, "z": 70_000}

    def write(first: int) -> None:
        for wrap in ("ON", "OFF"):
            maria.execute(f"SET column_compression_zlib_wrap = {wrap}, column_compression_threshold = 20")
            for number, share in enumerate((0, 0.02, 0.5, 1), first + 10 * (wrap == "ON")):
                texts = [
                    f"REPEAT('a{'é' if name in 'ef' else 'b'}', {int(longest[name] * share) // 3})" for name in longest
                ]
                maria.execute(f"INSERT INTO t VALUES ({number}, {', '.join(texts)}, {number})")
            own = [
                f"LEFT(CONCAT(SHA2({number}, 512), SHA2(1, 512), 'x'), {min(size, 255)})" for size in longest.values()
            ]
            maria.execute(f"INSERT INTO t VALUES ({number + 1}, {', '.join(own)}, 0)")
        maria.execute(f"INSERT INTO t (id) VALUES ({first + 99})")

    write(0)
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        write(100)
        maria.execute("UPDATE t SET w = -1 WHERE id < 50")
        wait_position(capture, maria)
        assert modes(capture) == {"t": "streaming"}
    found = verified_rows(kafka_broker.bootstrap, prefix, maria.name, "t").values()

    def value(row: Mapping[str, Any], name: str) -> object:
        return b64decode(row[name]) if name in {"x", "y", "z"} and row[name] is not None else row[name]

    names = [*_COMPRESSED, "w"]
    assert {row["id"]: tuple(value(row, name) for name in names) for row in found} == _texts(maria, "t", *names)


@pytest.mark.parametrize("kind", ["INET4", "INET6"])
def test_ranges_of_addresses(source: Source, maria: Database, kind: str) -> None:
    """The server finds bounds and rows of a split in the order of the bytes, also those that end with zeros."""
    pick, width = random.Random(9), 4 if kind == "INET4" else 16
    keys = sorted({pick.randbytes(width - 3) + pick.choice((b"\0\0\0", b"a\0\0", b"\0b\xff")) for _ in range(300)})
    maria.execute(f"CREATE TABLE t (k {kind} PRIMARY KEY, v INT)")
    maria.execute("INSERT INTO t VALUES " + ", ".join(f"(x'{key.hex()}', 1)" for key in pick.sample(keys, len(keys))))
    table = TableId(maria.name, "t")
    with closing(source.open_snapshot_session()) as session:
        found = session.describe(table)
        columns = session.splitting_columns(found, found.primary_key)
        assert [column.column.name for column in columns] == ["k"]
        assert session.min_key(table, columns, Range(None, None)) == (keys[0],)
        assert session.max_key(table, columns) == (keys[-1],)
        assert session.next_bound(table, columns, Range((keys[7],), None), 100) == (keys[107],)
        assert session.bound_after(table, columns, (keys[7],), Range(None, (keys[99],))) == (keys[8],)
        ordering = session.key_ordering(columns)
        assert ordering.sort_keys([(key,) for key in keys]) == sorted(ordering.sort_keys([(key,) for key in keys]))
    raw = column_type(found.table.column("k"), value_options()).raw_key()
    assert [raw(key.rstrip(b"\0")) for key in keys] == keys
