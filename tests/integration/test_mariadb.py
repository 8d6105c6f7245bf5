"""MariaDB as a source: snapshot, stream, XA, restart and failover on real servers, each change exactly once."""

from __future__ import annotations

import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import pytest
from pymysql import MySQLError

from tailrace.producer.app.connection_settings import mysql_source
from tailrace.producer.app.validation import check_source
from tailrace.producer.errors import PrerequisiteError, SourceUnavailableError
from tailrace.producer.mariadb.offset import current_offset
from tailrace.producer.mariadb.snapshot_session import MariaDbSnapshotSession
from tailrace.producer.serialization.captured_tables import CapturedTables
from tailrace.producer.verify.table_checksums import answers
from tailrace.schemas.verification import ChosenKeys, RepairRequest, Window
from tests.support.capture import CaptureThread, configured, eventually, records_of, verified_rows
from tests.support.database import Database
from tests.support.mariadb import family, modes, source_settings, wait_position

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mariadb import MariaDbServer

pytestmark = [pytest.mark.mariadb, pytest.mark.kafka]


def _require_equal(broker: KafkaBroker, prefix: str, database: Database, table: str) -> None:
    """Assert that the records of a table form a chain that ends in its rows."""
    rows = verified_rows(broker.bootstrap, prefix, database.name, table).values()
    expected = {row[0]: row[1] for row in database.execute(f"SELECT id, v FROM {table}")}
    assert {row["id"]: row["v"] for row in rows} == expected


@pytest.mark.long
def test_rows_changes_and_a_restart(
    mariadb_server: MariaDbServer, kafka_broker: KafkaBroker, prefix: str, maria: Database
) -> None:
    """Several splits, two domains, XA transactions of which one is committed after a restart, compressed events."""
    maria.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, y YEAR, p POINT, v VARCHAR(600), j JSON, b BINARY(16), "
        "n INT DEFAULT -1, l VARCHAR(9) CHARACTER SET latin1 DEFAULT 'é')"
    )
    maria.execute("CREATE SEQUENCE s")
    maria.executemany("INSERT INTO t (id, v, j) VALUES (%s, %s, '[1]')", [(n, f"v{n}") for n in range(1, 181)])
    settings = source_settings(mariadb_server, kafka_broker, prefix, maria.name)
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        maria.execute("UPDATE t SET v = 'u' WHERE id < 5")
        maria.execute("DELETE FROM t WHERE id = 5")
        maria.execute("SELECT NEXTVAL(s)")
        maria.execute("DROP SEQUENCE s")
        maria.execute("SET SESSION gtid_domain_id = 3")
        maria.execute("INSERT INTO t (id, v) VALUES (200, 'other domain')")
        maria.execute("SET SESSION gtid_domain_id = 0")
        maria.execute("SET GLOBAL log_bin_compress = ON")
        maria.execute("UPDATE t SET v = REPEAT('x', 600) WHERE id BETWEEN 10 AND 20")
        maria.execute("DELETE FROM t WHERE id BETWEEN 18 AND 20")
        maria.execute(f"CREATE TABLE c (id INT PRIMARY KEY, v INT COMMENT '{'x' * 300}')")
        maria.execute("SET GLOBAL log_bin_compress = OFF")
        maria.execute("INSERT INTO c VALUES (1, 1), (2, 2)")
        maria.execute("CREATE OR REPLACE TABLE c (id INT PRIMARY KEY, v INT)")
        maria.execute("RENAME TABLE c WAIT 5 TO r")
        maria.execute("INSERT INTO r VALUES (1, 5)")
        with maria.connect() as session, session.cursor() as cursor:
            for xid, end in (("a", "XA COMMIT 'a'"), ("b", "XA ROLLBACK 'b'"), ("c", "")):
                cursor.execute(f"XA START '{xid}'")
                cursor.execute(f"INSERT INTO t (id, v) VALUES ({300 + ord(xid)}, 'xa')")
                cursor.execute(f"XA END '{xid}'")
                cursor.execute(f"XA PREPARE '{xid}'")
                if end:
                    cursor.execute(end)
        wait_position(capture, maria)
        assert capture.status.snapshot()["stream"]["barrier"] == "innodb_trx"
        assert "s" not in modes(capture)
    maria.execute("XA COMMIT 'c'")
    maria.execute("UPDATE t SET v = 'later' WHERE id = 7")
    with CaptureThread(settings) as capture:
        wait_position(capture, maria)

    _require_equal(kafka_broker, prefix, maria, "t")
    # It is read if there is time for it.
    renamed = records_of(kafka_broker.bootstrap, prefix, maria.name, "r")
    assert {record.json["after"]["v"] for record in renamed if record.value} == {5}
    records = [r.json for r in records_of(kafka_broker.bootstrap, prefix, maria.name, "t") if r.value]
    assert {(r["after"]["n"], r["after"]["l"]) for r in records if r["after"]} == {(-1, "é")}
    source = records[-1]["source"]
    assert source["connector"] == "mariadb"
    assert source["gtid"].startswith("0-1-")
    assert {r["source"]["gtid"] for r in records if r["after"] and r["after"]["id"] == 200} == {"3-1-1"}


@pytest.mark.long
def test_changes_during_a_snapshot(
    mariadb_server: MariaDbServer, kafka_broker: KafkaBroker, prefix: str, maria: Database
) -> None:
    """Transactions of both engines and XA transactions change rows while they are read."""
    for table, engine in (("t", "InnoDB"), ("m", "MyISAM")):
        maria.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT) ENGINE={engine}")
        maria.executemany(f"INSERT INTO {table} VALUES (%s, 0)", [(n,) for n in range(600)])
    stop = threading.Event()

    def write(writer: int) -> None:
        with maria.connect() as session, session.cursor() as cursor:
            number = 0
            while not stop.is_set():
                number += 1
                table = "m" if writer == 0 else "t"
                change = f"UPDATE {table} SET v = v + 1 WHERE id % 7 = {writer} AND id % 50 = {number % 50}"
                if writer == 1:
                    for statement in ("XA START 'w'", change, "XA END 'w'", "XA PREPARE 'w'", "XA COMMIT 'w'"):
                        cursor.execute(statement)
                else:
                    cursor.execute(change)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for writer in writers:
        writer.start()
    try:
        with CaptureThread(source_settings(mariadb_server, kafka_broker, prefix, maria.name)) as capture:
            capture.wait_snapshot()
            stop.set()
            for writer in writers:
                writer.join()
            wait_position(capture, maria)
    finally:
        stop.set()
    _require_equal(kafka_broker, prefix, maria, "t")
    _require_equal(kafka_broker, prefix, maria, "m")


@pytest.mark.long
def test_failover(kafka_broker: KafkaBroker, prefix: str) -> None:
    """A replica with a binlog of its own goes on where the primary ended; one that lacks the end is refused."""
    from tests.embedded.mariadb import SOURCE, MariaDbServer  # noqa: PLC0415

    with MariaDbServer(settings=SOURCE) as primary, MariaDbServer(settings={**SOURCE, "server_id": 2}) as replica:
        with replica.connect() as session, session.cursor() as cursor:
            cursor.execute(
                f"CHANGE MASTER TO MASTER_HOST='{primary.host}', MASTER_PORT={primary.port}, "
                f"MASTER_USER='{primary.user}', MASTER_PASSWORD='{primary.password}', "
                "MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1"
            )
            cursor.execute("RESET MASTER")
            cursor.execute("START SLAVE")
        database = Database(family(primary), "d")
        database.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
        database.executemany("INSERT INTO t VALUES (%s, 0)", [(n,) for n in range(120)])
        settings = source_settings(primary, kafka_broker, prefix, "d")
        with CaptureThread(settings) as capture:
            capture.wait_snapshot()
            wait_position(capture, database)
        [(end,)] = database.execute("SELECT @@global.gtid_binlog_pos")
        database.close()
        with replica.connect() as session, session.cursor() as cursor:
            cursor.execute("SELECT MASTER_GTID_WAIT(%s, 120)", (end,))
            cursor.execute("STOP SLAVE")
        primary.kill()
        taken_over = Database(family(replica), "d", create=False)
        taken_over.execute("UPDATE t SET v = 1 WHERE id < 30")
        with CaptureThread({**settings, "database.port": str(replica.port)}) as capture:
            wait_position(capture, taken_over)
        _require_equal(kafka_broker, prefix, taken_over, "t")
        changed = records_of(kafka_broker.bootstrap, prefix, "d", "t")[-1].json["source"]
        assert changed["gtid"].split("-")[1] == "2"
        taken_over.close()


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        ("SET GLOBAL binlog_row_metadata = 'NO_LOG'", "SET GLOBAL binlog_row_metadata = 'FULL'"),
        ("CREATE TABLE h (id INT PRIMARY KEY) WITH SYSTEM VERSIONING", "DROP SYSTEM VERSIONING"),
        ("CREATE TABLE b (id INT PRIMARY KEY, b TEXT, UNIQUE (b))", "hidden column"),
        ("SET GLOBAL binlog_row_image = 'MINIMAL'", "SET GLOBAL binlog_row_image = 'FULL'"),
    ],
)
def test_refused_at_the_start(
    mariadb_server: MariaDbServer, kafka_broker: KafkaBroker, prefix: str, maria: Database, *, fault: str, named: str
) -> None:
    """What cannot be captured is named before a record is written, with what corrects it."""
    config = configured(source_settings(mariadb_server, kafka_broker, prefix, maria.name))
    source = mysql_source(config)
    maria.execute(fault)
    try:
        tables = source.list_tables(config.filters.tables.includes)
        with closing(source.open_snapshot_session()) as session:
            captured = CapturedTables(config, session.describe)
            try:
                problems = check_source(config, source, session, captured, tables).problems
            except PrerequisiteError as error:
                problems = list(error.problems)
        assert len(problems) == 1
        assert named in problems[0]
    finally:
        maria.execute("SET GLOBAL binlog_row_metadata = 'FULL', binlog_row_image = 'FULL'")


@pytest.mark.long
def test_table_that_becomes_one_that_is_not_captured(
    mariadb_server: MariaDbServer, kafka_broker: KafkaBroker, prefix: str, maria: Database
) -> None:
    """The others go on, also at a restart, which does not refuse to start for such a table."""
    for table in "bho":
        maria.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)")
    settings = source_settings(mariadb_server, kafka_broker, prefix, maria.name)
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        maria.execute("ALTER TABLE h ADD SYSTEM VERSIONING")
        maria.execute("INSERT INTO h VALUES (1, 1)")
        maria.execute("ALTER TABLE b ADD t TEXT UNIQUE")
        maria.execute("INSERT INTO b VALUES (1, 1, 't')")
        maria.execute("INSERT INTO o VALUES (1, 1)")
        wait_position(capture, maria)
        assert modes(capture) == {"b": "error", "h": "error", "o": "streaming"}
    with CaptureThread(settings) as capture:
        maria.execute("UPDATE o SET v = 2")
        wait_position(capture, maria)
        assert modes(capture) == {"b": "error", "h": "error", "o": "streaming"}
    _require_equal(kafka_broker, prefix, maria, "o")


def test_low_watermark_waits_for_what_is_not_visible(mariadb_server: MariaDbServer, maria: Database) -> None:
    """A replica does not respond: the binlog and ``gtid_binlog_pos`` have a transaction that no SELECT sees.

    A statement that only reads, also with locks, is not waited for.
    """
    for table in "tr":
        maria.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY)")
        maria.execute(f"INSERT INTO {table} VALUES (0)")
    maria.execute(
        "SET GLOBAL rpl_semi_sync_master_wait_point = 'AFTER_SYNC', rpl_semi_sync_master_timeout = 600000, "
        "rpl_semi_sync_master_enabled = ON"
    )
    [before] = maria.execute("SELECT @@global.gtid_binlog_pos")
    statements = ("INSERT INTO t VALUES (1)", "SELECT SLEEP(600) FROM r", "SELECT SLEEP(600) FROM r FOR UPDATE")
    threads = [threading.Thread(target=_execute, args=(maria, each)) for each in statements]
    for thread in threads:
        thread.start()
    try:
        with closing(MariaDbSnapshotSession(maria.connect())) as session:
            eventually(lambda: maria.execute("SELECT @@global.gtid_binlog_pos") != [before], "the binlog")
            eventually(lambda: len(maria.execute(_SLEEPS)) == 2, "the statements that read")
            with maria.connect() as other:
                barrier = current_offset(other)
            with pytest.raises(SourceUnavailableError, match="did not become visible"):
                session.low_watermark(barrier, 0.5)
            assert maria.execute("SELECT * FROM t") == [(0,)]
            maria.execute("SET GLOBAL rpl_semi_sync_master_enabled = OFF")
            low = session.low_watermark(barrier, 60)
            assert low.gtids == barrier.gtids
            assert maria.execute("SELECT * FROM t") == [(0,), (1,)]
            assert session.low_watermark(barrier, 60) == low
    finally:
        maria.execute("SET GLOBAL rpl_semi_sync_master_enabled = OFF")
        for (thread_id,) in maria.execute(_SLEEPS):
            maria.execute(f"KILL QUERY {thread_id}")
        for thread in threads:
            thread.join()


_SLEEPS = "SELECT ID FROM information_schema.PROCESSLIST WHERE INFO LIKE 'SELECT SLEEP(600)%'"


def _execute(database: Database, statement: str) -> None:
    """Run a statement that may be killed, in a session of its own."""
    with database.connect() as session, session.cursor() as cursor, suppress(MySQLError):
        cursor.execute(statement)


def test_chosen_keys(mariadb_server: MariaDbServer, kafka_broker: KafkaBroker, prefix: str, maria: Database) -> None:
    maria.execute("CREATE TABLE t (u UUID, l VARCHAR(9) CHARACTER SET latin1, i INET6 NOT NULL, PRIMARY KEY (u, l))")
    nil, lost = f"{'0' * 8}-0000-0000-0000-{'0' * 12}", "123e4567-e89b-12d3-a456-426655440000"
    maria.executemany("INSERT INTO t VALUES (%s, 'é', '::1')", [(nil,), (lost,)])
    changes = {"signal.enabled.channels": "kafka", "signal.poll.interval.ms": "50"}
    settings = source_settings(mariadb_server, kafka_broker, prefix, maria.name) | changes
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        maria.execute("DELETE FROM t WHERE u = %s", (lost,))
        wait_position(capture, maria)
        keys = ChosenKeys(("u", "l"), tuple(f"{text.encode().hex().upper()},C3A9" for text in (nil, lost)))
        topic = f"{prefix}.{maria.name}.t"
        _, window = answers(configured(settings), topic, iter([RepairRequest(keys)]))
        assert isinstance(window, Window)

    records = records_of(kafka_broker.bootstrap, prefix, maria.name, "t")
    found = [(r.json["op"], r.json["before"], r.json["after"]) for r in records if r.value]
    kept, deleted = ({"u": text, "l": "é", "i": "::1"} for text in (nil, lost))
    streamed, repaired = sorted(found[:-2], key=str), found[-2:]
    assert streamed == [("d", deleted, None), ("r", None, kept), ("r", None, deleted)]
    assert repaired == [("d", deleted | {"i": "::"}, None), ("r", None, kept)]
