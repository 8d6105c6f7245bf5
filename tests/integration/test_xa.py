"""Two-phase XA transactions: written at their XA COMMIT, dropped at their XA ROLLBACK, across all that may happen."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from pymysql import MySQLError

from tailrace.producer.errors import BinlogError
from tests.embedded.mysql import MySqlServer
from tests.support.capture import CaptureThread, eventually, properties, records_of, verified_rows
from tests.support.incremental_window import request_snapshot
from tests.support.replication import run
from tests.support.upsert_reader import consumer_rows

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database

ROWS = 2_000


def prepare(database: Database, xid: str, *statements: str) -> None:
    """Run the first phase in a session that ends."""
    with database.connect() as session, session.cursor() as cursor:
        cursor.execute(f"XA START '{xid}'")
        for statement in statements:
            cursor.execute(statement)
        cursor.execute(f"XA END '{xid}'")
        cursor.execute(f"XA PREPARE '{xid}'")


def finish(database: Database, word: str, *xids: str) -> None:
    """Run the second phase in another session; the server may still be ending the first one."""

    def done(xid: str) -> bool:
        try:
            with database.connect() as session, session.cursor() as cursor:
                cursor.execute(f"XA {word} '{xid}'")
        except MySQLError as error:
            if error.args[0] != 1397:  # XAER_NOTA: the id is not known yet
                raise
            return False
        return True

    for xid in xids:
        eventually(lambda: done(xid), f"XA {word} {xid}", 30)  # noqa: B023


def close_sessions(database: Database) -> None:
    """Close every session of the producer, the binlog connection included."""
    database.kill_sessions("(DB IS NULL OR DB <> %s) AND USER <> 'unauthenticated user'", (database.name,))


def test_second_phase_decides_across_reconnects_and_restarts(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """Prepared before the capture, before a lost connection, and before a restart; of captured and other tables."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))")
    database.execute("CREATE TABLE other (id INT PRIMARY KEY)")
    database.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd'), (5, 'e')")
    settings = properties(
        mysql_server, kafka_broker, prefix, database.name, {"table.include.list": f"{database.name}.t"}
    )
    prepare(database, f"{prefix}-early", "INSERT INTO t VALUES (10, 'early')")
    prepare(database, f"{prefix}-early-other", "INSERT INTO other VALUES (10)")
    prepare(database, f"{prefix}-early-back", "INSERT INTO t VALUES (11, 'never')")
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        finish(database, "COMMIT", f"{prefix}-early-other", f"{prefix}-early")
        finish(database, "ROLLBACK", f"{prefix}-early-back")
        capture.wait_position(mysql_server)

        prepare(database, f"{prefix}-b", "INSERT INTO t VALUES (20, 'b')", "DELETE FROM t WHERE id = 1")
        prepare(database, f"{prefix}-b-other", "INSERT INTO other VALUES (20)")
        prepare(database, f"{prefix}-b-back", "INSERT INTO t VALUES (21, 'never')")
        capture.wait_position(mysql_server)
        close_sessions(database)
        finish(database, "COMMIT", f"{prefix}-b", f"{prefix}-b-other")
        finish(database, "ROLLBACK", f"{prefix}-b-back")
        database.execute("UPDATE t SET v = 'b2' WHERE id = 20")
        capture.wait_position(mysql_server)

        prepare(database, f"{prefix}-c", "UPDATE t SET v = 'c' WHERE id = 2", "UPDATE t SET id = 30 WHERE id = 3")
        prepare(database, f"{prefix}-c-other", "INSERT INTO other VALUES (30)")
        prepare(database, f"{prefix}-c-back", "DELETE FROM t WHERE id = 4")
        capture.wait_position(mysql_server)
    prepare(database, f"{prefix}-down", "INSERT INTO t VALUES (40, 'down')")
    database.execute("XA START 'one'")
    database.execute("INSERT INTO t VALUES (50, 'one phase')")
    database.execute("XA END 'one'")
    database.execute("XA COMMIT 'one' ONE PHASE")
    finish(database, "ROLLBACK", f"{prefix}-c-back")
    with CaptureThread(settings) as capture:
        finish(database, "COMMIT", f"{prefix}-c-other", f"{prefix}-c", f"{prefix}-down")
        database.execute("UPDATE t SET v = 'after' WHERE id = 30")
        capture.wait_position(mysql_server)
    with CaptureThread(settings) as capture:
        capture.wait_position(mysql_server)

    rows = verified_rows(kafka_broker.bootstrap, prefix, database.name, "t")
    assert {row["id"]: row["v"] for row in rows.values()} == dict(database.execute("SELECT id, v FROM t"))
    changes = [r.json for r in records_of(kafka_broker.bootstrap, prefix, database.name, "t") if r.value]
    assert "never" not in str(changes)
    assert sum(change["op"] == "c" and change["after"]["id"] == 10 for change in changes) == 1


def test_search_for_a_prepared_transaction_has_an_end(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """The error names the setting, and the start with a higher limit finds the transaction."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))")
    prepare(database, f"{prefix}-old", "INSERT INTO t VALUES (10, 'old')")
    for _ in range(3):
        database.execute("FLUSH BINARY LOGS")
    settings = properties(mysql_server, kafka_broker, prefix, database.name, {"tailrace.xa.search.max.bytes": 1})

    def end() -> BaseException | None:
        with suppress(BinlogError), CaptureThread(settings) as capture:
            capture.wait_snapshot()
            finish(database, "COMMIT", f"{prefix}-old")
            database.execute("INSERT INTO t VALUES (20, 'behind')")
            eventually(lambda: not capture.running, "the end of the search")
        return capture.failure()

    error = end()
    assert isinstance(error, BinlogError)
    assert "its XA PREPARE was not found" in str(error)
    assert error.hint.startswith("raise tailrace.xa.search.max.bytes, so that older binlog files are searched")
    assert "were not searched" in str(error)

    del settings["tailrace.xa.search.max.bytes"]
    with CaptureThread(settings) as capture:
        capture.wait_position(mysql_server)
    rows = verified_rows(kafka_broker.bootstrap, prefix, database.name, "t").values()
    assert {row["id"]: row["v"] for row in rows} == {10: "old", 20: "behind"}


def test_xa_during_the_snapshot(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """Both phases lie before, in and after the windows of splits, while the connections are closed twice."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(200))")
    database.executemany("INSERT INTO t VALUES (%s, %s)", [(n, f"v{n}") for n in range(1, ROWS + 1)])
    stop, failure = threading.Event(), []

    def write() -> None:
        number = 0
        try:
            while not stop.is_set():
                number += 1
                at, xid = number * 7919 % ROWS, f"{prefix}-{number}"
                prepare(
                    database,
                    xid,
                    f"UPDATE t SET v = 'n{number}' WHERE id = {at}",
                    f"DELETE FROM t WHERE id = {(at + 700) % ROWS}",
                    f"INSERT INTO t VALUES ({ROWS * 10 + number}, 'fresh')",
                )
                stop.wait(0.01 * (number % 5))
                finish(database, "ROLLBACK" if number % 4 == 0 else "COMMIT", xid)
        except BaseException as error:  # noqa: BLE001 - raised again by the test's thread
            failure.append(error)

    writer = threading.Thread(target=write)
    with CaptureThread(properties(mysql_server, kafka_broker, prefix, database.name)) as capture:
        writer.start()
        try:
            for splits in (3, 15):
                eventually(lambda: capture.status.snapshot()["snapshot"]["splits_done"] >= splits, "splits")  # noqa: B023
                close_sessions(database)
            capture.wait_snapshot()
        finally:
            stop.set()
            writer.join()
        assert not failure, failure
        capture.wait_position(mysql_server)

    rows = verified_rows(kafka_broker.bootstrap, prefix, database.name, "t")
    assert {row["id"]: row["v"] for row in rows.values()} == dict(database.execute("SELECT id, v FROM t"))


@pytest.mark.long
def test_purged_transaction_puts_its_tables_in_error(
    own_server: MySqlServer, own_database: Database, kafka_broker: KafkaBroker, prefix: str
) -> None:
    """The state knows the tables of a prepared transaction; the others go on, and it is read when that is requested."""
    database = own_database
    for table in ("t", "other"):
        database.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(20))")
        database.execute(f"INSERT INTO {table} VALUES (1, 'a')")
    changes = {"signal.enabled.channels": "kafka", "signal.poll.interval.ms": 50}
    settings = properties(own_server, kafka_broker, prefix, database.name, changes)
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        prepare(database, f"{prefix}-x", "INSERT INTO t VALUES (10, 'x')", "DELETE FROM t WHERE id = 1")
        capture.wait_position(own_server)
    database.execute("FLUSH BINARY LOGS")
    database.execute("PURGE BINARY LOGS TO %s", (database.execute("SHOW MASTER STATUS")[0][0],))
    with CaptureThread(settings) as capture:
        finish(database, "COMMIT", f"{prefix}-x")
        database.execute("INSERT INTO other VALUES (2, 'b')")
        capture.wait_position(own_server)
        modes = {name.rpartition(".")[2]: each["mode"] for name, each in capture.status.snapshot()["tables"].items()}
        assert modes == {"t": "error", "other": "streaming"}
        request_snapshot(kafka_broker, prefix, database, "t")
        capture.wait_snapshot()
        for table in ("t", "other"):
            expected = dict(database.execute(f"SELECT id, v FROM {table}"))
            eventually(lambda: _read(kafka_broker, prefix, f"{database.name}.{table}") == expected, table)  # noqa: B023


@pytest.mark.long
def test_a_file_that_cannot_be_read_may_have_the_xa_prepare(kafka_broker: KafkaBroker, prefix: str) -> None:
    """Its transaction has no GTID. The rows are not those of a former transaction of its xid, nor of an empty one."""
    with MySqlServer() as server:
        run(server, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "INSERT INTO d.t VALUES (1)")
        run(server, "XA START 'x'", "INSERT INTO d.t VALUES (4)", "XA END 'x'", "XA PREPARE 'x'")
        for mode in ("ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF"):
            run(server, f"SET GLOBAL gtid_mode = {mode}")
        run(server, "XA ROLLBACK 'x'", "INSERT INTO d.t VALUES (5)")
        run(server, "XA START 'x'", "INSERT INTO d.t VALUES (2)", "XA END 'x'", "XA PREPARE 'x'")
        for mode in ("OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"):
            run(server, f"SET GLOBAL gtid_mode = {mode}")
        run(server, "FLUSH BINARY LOGS", "INSERT INTO d.t VALUES (3)")
        unread = pytest.raises(BinlogError, match="cannot be read to its end, and may have it")
        with unread, CaptureThread(properties(server, kafka_broker, prefix, "d")) as capture:
            capture.wait_snapshot()
            run(server, "XA COMMIT 'x'")
            capture.wait_position(server)


def _read(broker: KafkaBroker, prefix: str, table: str) -> dict[int, str]:
    return {row["id"]: row["v"] for row in consumer_rows(broker, prefix, table).values()}
