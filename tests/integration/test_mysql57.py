"""MySQL 5.7: its binlog has no optional metadata, and its JSON prints doubles in another way."""

from __future__ import annotations

import math
import random
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import pymysql
import pytest

from tailrace.producer.errors import DefinitionLockedError, PrerequisiteError, SourceUnavailableError, TableLockedError
from tailrace.producer.model.table import CatalogTable, TableId
from tailrace.producer.mysql import catalog, watermark, xa_commits
from tailrace.producer.mysql.connection import connect
from tailrace.producer.mysql.prerequisites import check
from tailrace.producer.mysql.source import MySqlSource
from tests.embedded.mysql import MySqlServer
from tests.integration.test_minimal_capture import Topics, in_error
from tests.support.binlog import settings_of
from tests.support.capture import CaptureThread, eventually, properties, records_of
from tests.support.codec import BothSources
from tests.support.commit_hold import HeldServer, prepare_commit
from tests.support.database import Database
from tests.support.replication import REPLICA_SETTINGS, follow, run
from tests.support.unseen_commits import WITHOUT_GTIDS
from tests.support.values import value_options

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker

VERSION = "5.7.22"
pytestmark = pytest.mark.mysql(VERSION)

COLUMNS = {
    "TINYINT UNSIGNED": ("255", "255"),
    "BIGINT UNSIGNED": ("18446744073709551615", "-1"),
    "DECIMAL(10,2) UNSIGNED ZEROFILL": ("1.5", '"AJY="'),
    "FLOAT UNSIGNED": ("1.5", "1.5"),
    "YEAR": ("1901", "1901"),
    "VARCHAR(9) CHARACTER SET latin1": ("'é'", '"é"'),
    "CHAR(9) CHARACTER SET utf8": ("'ü'", '"ü"'),
    "TEXT CHARACTER SET ucs2": ("'ü'", '"ü"'),
    "TEXT CHARACTER SET utf8mb4": ("'😀'", '"\\uD83D\\uDE00"'),
    "BLOB": ("'a'", '"YQ=="'),
    "VARBINARY(9)": ("'a'", '"YQ=="'),
    "BINARY(3)": ("'a'", '"YQAA"'),
    "ENUM('é','?') CHARACTER SET latin1": ("'é'", '"é"'),
    "SET('x','y','z')": ("'z,x'", '"x,z"'),
    "BIT(9)": ("b'100000001'", '"AQE="'),
    "TIME(3)": ("'-733:00:00.0011'", "-2638800001000"),
    "DATETIME(6)": ("'1969-12-31 23:59:59.000001'", "-999999"),
    "TIMESTAMP NULL": ("'2038-01-19 03:14:07'", '"2038-01-19T03:14:07Z"'),
    "POINT": ("POINT(1, -2.5)", '{"x":1.0,"y":-2.5,"wkb":"AQEAAAAAAAAAAADwPwAAAAAAAATA","srid":null}'),
    "LINESTRING": ("ST_GeomFromText('LINESTRING(0 0, 1 1)', 4326)", None),
    "JSON": ("JSON_ARRAY(1e0, -0e0, 1.0, 1e20, x'01', NOW(6))", None),
}
"""Types whose definition the TABLE_MAP event lacks, in part; a literal, and its JSON."""
DOUBLES = (0.0, -0.0, 1.0, -100.0, 999999999999999.0, 1e15, 1234567890123456.5, 1e16, 1e-5, 1e-15, 1e-16, 5e-324, 0.1)


@pytest.fixture(scope="module")
def server() -> Iterator[MySqlServer]:
    """A server of that version."""
    with MySqlServer(version=VERSION) as started:
        yield started


@pytest.fixture
def old(server: MySqlServer) -> Iterator[Database]:
    """A database on it."""
    fresh = Database(server, "old")
    yield fresh
    fresh.drop()


def test_signs_character_sets_and_labels_are_those_of_the_definition(old: Database) -> None:
    """The event has types, sizes and nullability only."""
    both = BothSources(old)
    columns = ", ".join(f"c{at} {kind}" for at, kind in enumerate(COLUMNS))
    old.execute(f"CREATE TABLE t (id INT UNSIGNED PRIMARY KEY, {columns}) CHARACTER SET utf8mb4")
    old.execute(f"INSERT INTO t VALUES (4294967295, {', '.join(literal for literal, _ in COLUMNS.values())})")
    table, options = both.table("t"), value_options()

    [(key, row)] = both.logged(table, options)

    assert key == b'{"id":4294967295}'
    assert [(key, row)] == both.selected(table, options)
    for at, (_, json) in enumerate(COLUMNS.values()):
        assert json is None or f'"c{at}":{json}'.encode() in row


def test_doubles_in_json_are_those_of_a_select(old: Database) -> None:
    """Those of every kind, within containers too; what is no double keeps its digits."""
    pick = random.Random(7)
    chosen = [struct.unpack("<d", pick.randbytes(8))[0] for _ in range(200)]
    chosen += [pick.choice((1, -1)) * pick.randrange(10**17) / 10 ** pick.randrange(20) for _ in range(300)]
    doubles = [*DOUBLES, *filter(math.isfinite, chosen)]
    both = BothSources(old)
    old.execute("CREATE TABLE t (id INT PRIMARY KEY, j JSON)")
    for number, value in enumerate(doubles):
        old.execute(
            f"INSERT INTO t VALUES ({number}, JSON_ARRAY({value!r}e0))"
            if "e" not in repr(value)
            else f"INSERT INTO t VALUES ({number}, JSON_OBJECT('v', {value!r}))"
        )
    old.execute("INSERT INTO t VALUES (-1, JSON_ARRAY(1, 1e0, 1.0, CAST(1 AS DECIMAL(10,5)), -0e0, 'x: 1.0'))")
    table, options = both.table("t"), value_options()
    logged = both.logged(table, options)

    assert sorted(logged) == sorted(both.selected(table, options))
    assert logged[-1][1] == b'{"id":-1,"j":"[1,1,1.0,1.00000,-0,\\"x: 1.0\\"]"}'


def _columns(database: Database) -> None:
    columns = ", ".join(f"c{at} {kind}" for at, kind in enumerate(COLUMNS))
    database.execute(f"CREATE TABLE v (id INT UNSIGNED PRIMARY KEY, {columns}) CHARACTER SET utf8mb4")


def _insert(database: Database, number: int) -> None:
    # The bytes of a JSON value are of a type with another number in MySQL 8.0.
    literals = [literal.replace("x'01', NOW(6)", "2.5, DATE'2020-01-01'") for literal, _ in COLUMNS.values()]
    database.execute(f"INSERT INTO v VALUES ({number}, {', '.join(literals)})")


@pytest.mark.kafka
@pytest.mark.parametrize(
    "settings", [pytest.param(WITHOUT_GTIDS, id="default"), pytest.param({}, id="gtids", marks=pytest.mark.long)]
)
def test_rows_changes_ddl_and_a_restart(settings: dict[str, object], kafka_broker: KafkaBroker, prefix: str) -> None:
    """What a reader has of the topics is what the server has, and all is streamed in the end."""
    with MySqlServer(version=VERSION, settings=settings) as server:
        old = Database(server, "captured")
        topics = Topics(kafka_broker, prefix, old)
        tables = ("t", "u", "swapped")
        for table in tables:
            old.execute(f"CREATE TABLE {table} (id INT UNSIGNED PRIMARY KEY, a INT, b INT, e ENUM('x','y'))")
            old.execute(f"INSERT INTO {table} VALUES (1, 1, 10, 'x'), (4294967295, 2, 20, 'y')")
        given = properties(server, kafka_broker, prefix, old.name)
        with CaptureThread(given) as capture:
            capture.wait_snapshot()
            old.execute("INSERT INTO t VALUES (3, 3, 30, 'x')")
            topics.wait_equal("t")
            old.execute("ALTER TABLE t CHANGE a c INT, CHANGE b a INT")
            old.execute("INSERT INTO t VALUES (4, 4, 40, 'y')")
            old.execute("CREATE TABLE gone (id INT PRIMARY KEY)")
            with pytest.raises(pymysql.OperationalError, match="Unknown table"):
                old.execute("DROP TABLE gone, missing")
            old.execute("INSERT INTO u VALUES (3, 3, 30, 'x')")
            topics.wait_equal("u", "swapped")
            assert {"id": 4, "c": 4, "a": 40, "e": "y"} in topics.changes("t")
            assert capture.status.snapshot()["stream"]["row_metadata"] is None
        for statement in (
            "INSERT INTO t VALUES (5, 5, 50, 'y')",
            "INSERT INTO u VALUES (4, 4, 40, 'y')",
            "ALTER TABLE u CHANGE a z INT",
            "INSERT INTO u VALUES (5, 5, 50, 'y')",
            "CREATE TABLE g (id INT UNSIGNED PRIMARY KEY, b INT, a INT, e ENUM('x','y'))",
            "INSERT INTO g SELECT id, a, b, e FROM swapped",
            "RENAME TABLE swapped TO former, g TO swapped",
            "INSERT INTO swapped VALUES (4, 4, 40, 'y')",
        ):
            old.execute(statement)
        with CaptureThread(given) as capture:
            topics.wait_equal("swapped")
            for statement in ("UPDATE t SET a = 0", "UPDATE u SET z = 0", "DELETE FROM swapped WHERE id = 1"):
                old.execute(statement)
            topics.wait_equal(*tables)
            eventually(lambda: not in_error(capture), "no table in error")
    assert {"id": 5, "c": 5, "a": 50, "e": "y"} in topics.changes("t")
    assert {"id": 4, "a": 4, "b": 40, "e": "y"} in topics.changes("u"), "before the statement"


@pytest.mark.kafka
@pytest.mark.long
def test_records_are_those_of_a_newer_server(server: MySqlServer, kafka_broker: KafkaBroker, prefix: str) -> None:
    """All types, by the snapshot and by the stream; only JSON prints its doubles in another way."""
    found = {}
    with MySqlServer(version="8.0.15") as newer:
        for each, topic in ((server, f"{prefix}a"), (newer, f"{prefix}b")):
            database = Database(each, "types")
            _columns(database)
            _insert(database, 1)
            with CaptureThread(properties(each, kafka_broker, topic, "types")) as capture:
                capture.wait_snapshot()
                _insert(database, 2)
                database.execute("UPDATE v SET c0 = NULL")
                database.execute("DELETE FROM v")
                capture.wait_position(each)
            read = records_of(kafka_broker.bootstrap, topic, "types", "v")
            found[each.version] = [
                (record.json["op"], record.json["before"], record.json["after"]) for record in read if record.value
            ]
            database.drop()
    json = f"c{len(COLUMNS) - 1}"
    texts = {version: {row[json] for _, *rows in found[version] for row in rows if row} for version in found}
    assert texts == {
        "5.7.22": {'[1,-0,1.0,100000000000000000000,2.5,"2020-01-01"]'},
        "8.0.15": {'[1.0,-0.0,1.0,100000000000000000000,2.5,"2020-01-01"]'},
    }
    for records in found.values():
        for _, *rows in records:
            for row in filter(None, rows):
                del row[json]
    assert found["5.7.22"] == found["8.0.15"]
    assert [op for op, _, _ in found["5.7.22"]] == ["r", "c", "u", "u", "d", "d"]


def test_hints_are_those_of_the_version(server: MySqlServer) -> None:
    """The server has no SET PERSIST; a statement of a hint is one that it understands."""
    run(server, "SET GLOBAL binlog_row_image = MINIMAL")
    try:
        with (
            MySqlSource(settings_of(server), server_id=4711).connect() as session,
            pytest.raises(PrerequisiteError) as failure,
        ):
            check(session, (), server_id=4711)
    finally:
        run(server, "SET GLOBAL binlog_row_image = FULL")
    [problem] = failure.value.problems
    assert problem.endswith("SET GLOBAL binlog_row_image = 'FULL', and set it in the option file")
    with MySqlSource(settings_of(server), server_id=4711).connect() as session:
        notes = check(session, (), server_id=4711)
    assert not any("PERSIST" in note for note in notes)
    assert any("sync_binlog is 0" in note and note.endswith("in the option file") for note in notes)
    assert any("MySQL 8.0 can avoid it" in note for note in notes)


def test_an_xa_commit_that_a_select_sees_is_waited_for_until_it_is_logged(server: MySqlServer) -> None:
    """That of another session is visible first: a position behind the SELECT must have it."""
    run(server, "CREATE DATABASE xa", "CREATE TABLE xa.t (v INT)", "INSERT INTO xa.t VALUES (0)")
    run(server, "SET GLOBAL sync_binlog = 1", "SET GLOBAL binlog_group_commit_sync_delay = 1000000")
    waited = False
    try:
        with closing(connect(settings_of(server))) as session:
            low = watermark.current_offset(session)
            for number in range(1, 20):
                commit = prepare_commit(server, "other session", "UPDATE xa.t SET v = v + 1", f"x{number}")
                thread = threading.Thread(target=commit)
                thread.start()
                eventually(lambda: run(server, "SELECT v FROM xa.t") == [(number,)], "the row", 60)  # noqa: B023
                try:
                    xa_commits.wait_until_logged(session, 0)
                except SourceUnavailableError as error:
                    waited = "an XA commit on the server does not end" in str(error)
                high = watermark.take_high(session, low)
                thread.join(60)
                assert high.coordinates == watermark.current_offset(session).coordinates
                if waited:
                    break
    finally:
        run(server, "SET GLOBAL binlog_group_commit_sync_delay = 0", "SET GLOBAL sync_binlog = 0", "DROP DATABASE xa")
    assert waited


@pytest.mark.long
def test_a_replica_that_applies_a_commit_in_one_phase_is_waited_for() -> None:
    """Its GTID is executed before its row is visible, and its thread shows neither a statement nor a state."""
    with MySqlServer(version=VERSION) as primary, HeldServer(version=VERSION, settings=REPLICA_SETTINGS) as replica:
        follow(replica, primary)
        run(primary, "CREATE DATABASE d", "CREATE TABLE d.t (v INT)", "INSERT INTO d.t VALUES (0)")
        commit = prepare_commit(primary, "one phase", "UPDATE d.t SET v = v + 1", "x")
        [(before,)] = run(primary, "SELECT @@global.gtid_executed")
        run(replica, f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{before}', 60)")
        with closing(connect(settings_of(replica))) as session:
            with replica.committing(commit):
                barrier = watermark.current_offset(session)
                assert run(replica, "SELECT v FROM d.t") == [(0,)]
                assert not before.endswith(str(barrier.gtids))
                with pytest.raises(SourceUnavailableError, match="did not become visible"):
                    watermark.take_low(session, barrier, 2)
            watermark.take_low(session, barrier, 60)
            assert run(replica, "SELECT v FROM d.t") == [(1,)]


@pytest.mark.long
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("query_number", [0, 1, 2], ids=["columns", "grants", "indexes"])
def test_what_the_catalog_leaves_out_is_not_taken_for_absent(
    monkeypatch: pytest.MonkeyPatch, query_number: int, *, waits: bool
) -> None:
    """A query of the catalog waits for a table that a statement has locked, and leaves it out after a while."""
    with HeldServer(version=VERSION, settings={"sync_binlog": "1"}) as server:
        run(
            server,
            "CREATE DATABASE d",
            "CREATE TABLE d.t (id INT PRIMARY KEY)",
            "CREATE TABLE d.u (id INT PRIMARY KEY)",
        )
        locked, other = TableId("d", "t"), TableId("d", "u")
        grouped, queries = catalog._grouped, iter(range(100))
        with ExitStack() as held, closing(connect(settings_of(server))) as session:

            def locked_from(*arguments: Any) -> Any:
                if next(queries) == query_number:
                    held.enter_context(server.committing(lambda: run(server, "ALTER TABLE d.t COMMENT 'x', FORCE")))
                return grouped(*arguments)

            monkeypatch.setattr(catalog, "_grouped", locked_from)
            session.cursor().execute("SET lock_wait_timeout = 1")
            if waits:
                with pytest.raises(TableLockedError):
                    dict(catalog.read_tables(session, (locked, other)))
            else:
                found = dict(catalog.read_tables(session, (locked, other), waits=False))
                assert isinstance(found[other], CatalogTable)
                if isinstance(described := found[locked], CatalogTable):
                    assert query_number == 1, "of grants alone nothing is lost"
                    assert described.primary_key == ("id",)
                else:
                    assert isinstance(found[locked], DefinitionLockedError)
            held.close()
            monkeypatch.undo()
            found = dict(catalog.read_tables(session, (locked, other), waits=waits))
            read = {table: each for table, each in found.items() if isinstance(each, CatalogTable)}
            assert {table: each.primary_key for table, each in read.items()} == {locked: ("id",), other: ("id",)}
