"""What a snapshot of a server without GTIDs waits for: InnoDB's list of transactions, and what is not in a commit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pymysql
import pytest
from pymysql.connections import Connection

from tailrace.producer.errors import SourceUnavailableError
from tailrace.producer.model.protocols import Offset
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql import engine_commits, watermark
from tailrace.producer.mysql.connection import connect
from tailrace.producer.mysql.file_offset import FileOffset
from tailrace.producer.mysql.source import MySqlSource
from tests.embedded.mysql import MySqlServer
from tests.support.binlog import settings_of
from tests.support.capture import CaptureThread, eventually, properties
from tests.support.commit_hold import KINDS, HeldServer, prepare_commit
from tests.support.replication import run
from tests.support.unseen_commits import SEMI_SYNC, WITHOUT_GTIDS, held, release

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker

VERSION = "8.0.33"
VERSIONS = ("8.0.15", VERSION)
ROWS = 8
LISTS = "SELECT IS_USED_LOCK('tailrace innodb_trx') IS NOT NULL"
"""Whether a session reads InnoDB's list. A test that read the list itself would keep InnoDB from renewing it."""
TABLE = ("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v INT)")
NUMBERS = "VALUES " + ", ".join(f"({number})" for number in range(1, 1001))
BUSY = {
    "User sleep": "SELECT SLEEP(600)",
    "LOCK WAIT": "UPDATE d.t SET v = v + 1 WHERE id = 1",
    "Waiting for table metadata lock": "SELECT * FROM d.locked",
    "executing|Sending data": "SELECT COUNT(*) FROM d.n a, d.n b, d.n c WHERE a.n + b.n + c.n < 0",
    "updating|executing|Sending data": "UPDATE d.n SET n = 0 WHERE (SELECT COUNT(*) FROM d.m a, d.m b, d.m c WHERE "
    "a.n + b.n + c.n < d.n.n) < 0",
}
"""Statements that end only when they are killed, and what their threads show meanwhile."""
COMMITS = {
    "UPDATE d.t SET v = v + 1 WHERE id = 2": "SELECT SUM(v) FROM d.t",
    "INSERT INTO d.t SELECT id + 100, 0 FROM d.t": "SELECT COUNT(*) FROM d.t",
    "DELETE FROM d.t WHERE id > 100": "SELECT COUNT(*) FROM d.t",
    "CALL d.p()": "SELECT SUM(v) FROM d.t",
    "SELECT d.f()": "SELECT SUM(v) FROM d.t",
    "ALTER TABLE d.n ADD COLUMN m INT, ALGORITHM = COPY": "SELECT COUNT(*) FROM information_schema.COLUMNS "
    "WHERE TABLE_SCHEMA = 'd'",
    "CREATE INDEX i ON d.n (n)": "SELECT COUNT(*) FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = 'd'",
    "CREATE TABLE d.x SELECT * FROM d.t": "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'd'",
}
"""Statements that commit behind a state of their own, and queries whose answers change when they are visible."""

pytestmark = pytest.mark.mysql(*VERSIONS)


@pytest.fixture(scope="module")
def server() -> Iterator[MySqlServer]:
    """A server whose commits wait for a replica that does not exist, when that is switched on."""
    with MySqlServer(version=VERSION, settings={**WITHOUT_GTIDS, **SEMI_SYNC}) as started:
        prepare_tables(started)
        yield started


def prepare_tables(server: MySqlServer) -> None:
    """Create what the statements of this module use."""
    values = ", ".join(f"({number}, 0)" for number in range(1, ROWS + 1))
    run(server, *TABLE, f"INSERT INTO d.t VALUES {values}", "CREATE TABLE d.locked (n INT)")
    for table in ("n", "m"):
        run(server, f"CREATE TABLE d.{table} (n INT)", f"INSERT INTO d.{table} {NUMBERS}")
    run(server, "SET GLOBAL log_bin_trust_function_creators = ON")
    run(server, "CREATE PROCEDURE d.p() BEGIN START TRANSACTION; UPDATE d.t SET v = v + 1 WHERE id = 2; COMMIT; END")
    run(server, "CREATE FUNCTION d.f() RETURNS INT BEGIN UPDATE d.t SET v = v + 1 WHERE id = 2; RETURN 1; END")


def value(server: MySqlServer, row: int = 1) -> int:
    """Return what a new SELECT sees."""
    return int(run(server, f"SELECT v FROM d.t WHERE id = {row}")[0][0])


@pytest.mark.parametrize("kind", KINDS)
def test_the_low_watermark_contains_what_is_visible(server: MySqlServer, kind: str) -> None:
    """A transaction that the binlog has and no SELECT sees is waited for, whichever way it is committed."""
    before = value(server)
    commit = prepare_commit(server, kind, "UPDATE d.t SET v = v + 1 WHERE id = 1", f"{kind}-{before}")
    with closing(connect(settings_of(server))) as session:
        barrier = watermark.current_offset(session)
        thread = held(server, commit)
        try:
            end = watermark.current_offset(session)
            assert barrier.coordinates < end.coordinates
            assert value(server) == before
            with pytest.raises(
                SourceUnavailableError, match=r"(?s)(did not become visible|does not end).*in SHOW PROCESSLIST: a"
            ):
                watermark.take_low(session, barrier, 1)
        finally:
            release(server, thread)
        low = watermark.take_low(session, barrier, 60)
        assert isinstance(low, FileOffset)
        assert low.coordinates >= end.coordinates
    assert value(server) == before + 1


def id_of(session: Connection[Any]) -> int:
    """Return the number of a session's thread."""
    with session.cursor() as cursor:
        cursor.execute("SELECT CONNECTION_ID()")
        [(number,)] = cursor.fetchall()
    return int(number)


def listed(server: MySqlServer, thread: int) -> str:
    """Return the state of a session's transaction, '' if it has none; not so often that InnoDB keeps its list."""
    time.sleep(0.2)
    query = f"SELECT trx_state FROM information_schema.INNODB_TRX WHERE trx_mysql_thread_id = {thread}"
    return "".join(str(row[0]) for row in run(server, query))


def shows(server: MySqlServer, thread: int, states: str) -> bool:
    """Whether a session shows one of the states."""
    if states == "LOCK WAIT":
        return listed(server, thread) == states
    rows = run(server, f"SELECT STATE FROM information_schema.PROCESSLIST WHERE ID = {thread}")
    return bool(rows) and rows[0][0] in states.split("|")


@contextmanager
def running(server: MySqlServer, change: str, statement: str) -> Iterator[int]:
    """Run both in one transaction of a session, whose id this yields; kill it at the end of the block."""
    session = server.connect(autocommit=False)
    number = id_of(session)
    session.cursor().execute("SET innodb_lock_wait_timeout = 600")
    session.cursor().execute(change)

    def run_long() -> None:
        with suppress(pymysql.Error):
            session.cursor().execute(statement)

    thread = threading.Thread(target=run_long)
    thread.start()
    try:
        yield number
    finally:
        run(server, f"KILL {number}")
        thread.join(60)
        with suppress(pymysql.Error):
            session.close()


def take_low(server: MySqlServer, timeout_s: float) -> None:
    """Take a low watermark of the end of the binlog."""
    with closing(connect(settings_of(server))) as session:
        watermark.take_low(session, watermark.current_offset(session), timeout_s)


def check_busy(
    server: MySqlServer, low: Callable[[MySqlServer, float], None] = take_low, busy: Mapping[str, str] = BUSY
) -> None:
    """Take a low watermark while transactions that have changed rows are in statements of every kind."""
    with ExitStack() as stack:
        locker = stack.enter_context(closing(server.connect()))
        locker.cursor().execute("LOCK TABLES d.locked WRITE")
        threads: dict[int, str] = {}
        for row, (states, statement) in enumerate(busy.items(), 1):
            change = f"UPDATE d.t SET v = v + 1 WHERE id = {row}"
            thread = stack.enter_context(running(server, change, statement))
            eventually(lambda: shows(server, thread, states), states, 60)  # noqa: B023
            threads[thread] = states
        low(server, 10)
        for thread, states in threads.items():
            eventually(lambda: shows(server, thread, states), states, 10)  # noqa: B023


def check_open(server: MySqlServer, low: Callable[[MySqlServer, float], None] = take_low) -> None:
    """Take a low watermark while a transaction is idle, another one prepared, and a third one changes more rows."""
    prepared = prepare_commit(server, "other session", "UPDATE d.t SET v = v + 1 WHERE id = 3", "open")
    idle, busy = server.connect(autocommit=False), server.connect(autocommit=False)
    idle.cursor().execute("UPDATE d.t SET v = v + 1 WHERE id = 2")
    run(server, "CREATE TABLE d.many (n INT)")
    thread_of_busy = id_of(busy)
    fill = "INSERT INTO d.many SELECT a.n FROM d.n a, d.n b, d.n c"

    def write() -> None:
        with pytest.raises(pymysql.Error, match=r"interrupted|Lost connection"):
            busy.cursor().execute(fill)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        eventually(lambda: listed(server, thread_of_busy), "a transaction that writes", 60)
        low(server, 60)
        assert listed(server, thread_of_busy)
    finally:
        run(server, f"KILL {thread_of_busy}")
        thread.join(60)
        idle.rollback()
        idle.close()
        prepared()


def check_commits(server: MySqlServer) -> None:
    """Look at what sessions show while the binlog has their changes and no SELECT sees them."""
    run(server, "SET GLOBAL sync_binlog = 1", "SET GLOBAL binlog_group_commit_sync_delay = 1000000")
    try:
        for statement, visible in COMMITS.items():
            states = states_in_commit(server, statement, visible)
            assert not states & engine_commits.NO_COMMIT, statement
            # Whether the catalog shows a definition that is not committed is not the point here.
            assert states or "information_schema" in visible, statement
    finally:
        run(server, "SET GLOBAL binlog_group_commit_sync_delay = 0", "SET GLOBAL sync_binlog = 0")


def states_in_commit(server: MySqlServer, statement: str, visible: str) -> set[str]:
    """Return the states of the session that runs a statement, from its arrival in the binlog until it is visible."""
    states: set[str] = set()
    with closing(server.connect()) as session, closing(server.connect()) as observer, observer.cursor() as cursor:

        def read(sql: str) -> list[tuple[Any, ...]]:
            cursor.execute(sql)
            return list(cursor.fetchall())

        number, at, before = id_of(session), read("SHOW MASTER STATUS"), read(visible)
        thread = threading.Thread(target=session.cursor().execute, args=(statement,))
        thread.start()
        while thread.is_alive():
            is_logged = read("SHOW MASTER STATUS") != at
            shown = read(f"SELECT STATE FROM information_schema.PROCESSLIST WHERE ID = {number}")
            if is_logged and read(visible) == before:
                states.update(str(row[0]) for row in shown)
        thread.join()
    return states


def test_statements_that_commit_nothing_do_not_hold_a_snapshot(server: MySqlServer) -> None:
    """A query, a wait for a lock or a sleep may last for hours in a transaction that has changed rows."""
    check_busy(server)


def test_a_commit_shows_that_it_is_one(server: MySqlServer) -> None:
    """Whatever a session showed before its commit, it does not show that in it."""
    check_commits(server)


@pytest.mark.kafka
def test_a_capture_starts_while_a_query_runs(server: MySqlServer, kafka_broker: KafkaBroker, prefix: str) -> None:
    """Its transaction has changed rows; the key of the second table is not in the binlog, so it needs a position."""
    tables = ("CREATE TABLE c.t (id INT PRIMARY KEY, v INT)", "CREATE TABLE c.u (id INT NOT NULL UNIQUE)")
    run(server, "CREATE DATABASE c", *tables, "INSERT INTO c.t VALUES (1, 0), (2, 0)", "INSERT INTO c.u VALUES (1)")
    with running(server, "UPDATE c.t SET v = 1 WHERE id = 1", "SELECT SLEEP(600)") as thread:
        with CaptureThread(properties(server, kafka_broker, prefix, "c")) as capture:
            capture.wait_snapshot()
        assert shows(server, thread, "User sleep")


@pytest.mark.long
@pytest.mark.parametrize(
    "version", [VERSIONS[0], *(pytest.param(each, marks=pytest.mark.mysql(each)) for each in ("5.7.22", "9.7"))]
)
def test_statements_on_the_other_servers(version: str) -> None:
    """The same states, under other names."""
    with MySqlServer(version=version, settings=WITHOUT_GTIDS) as other:
        prepare_tables(other)
        check_busy(other)
        check_open(other)
        check_commits(other)


def test_the_start_waits_for_a_table_that_is_created(server: MySqlServer) -> None:
    """Its CREATE precedes the start of the stream, so it must be in the list of tables that follows."""
    source = MySqlSource(settings_of(server), server_id=4711)
    created = TableId("d", "created")
    starts: list[Offset] = []
    commit = held(server, lambda: run(server, "CREATE TABLE d.created (id INT PRIMARY KEY)"))
    start = threading.Thread(target=lambda: starts.append(source.start_offset()))
    try:
        start.start()
        eventually(lambda: starts or run(server, LISTS)[0][0], "the wait", 60)
        assert not starts
    finally:
        release(server, commit)
        start.join(70)
    assert starts
    assert created in source.list_tables(lambda table: table == created)


def test_open_transactions_do_not_hold_a_snapshot(server: MySqlServer) -> None:
    """What is idle, or changes more rows, was not in its commit; neither is an XA transaction that is prepared."""
    check_open(server)


def test_several_readers_do_not_keep_each_other_from_the_list(server: MySqlServer) -> None:
    """InnoDB makes its list only when nobody has asked for a tenth of a second; here all wait for the same commit."""
    lows: list[object] = []
    commit = prepare_commit(server, "plain", "UPDATE d.t SET v = v + 1 WHERE id = 1", "")
    thread = held(server, commit)

    def read() -> None:
        with closing(connect(settings_of(server))) as session:
            lows.append(watermark.take_low(session, watermark.current_offset(session), 60))

    readers = [threading.Thread(target=read) for _ in range(12)]
    try:
        for reader in readers:
            reader.start()
        eventually(lambda: run(server, LISTS)[0][0], "a list", 60)
        assert not lows
    finally:
        release(server, thread)
    for reader in readers:
        reader.join(70)
    assert len(lows) == 12


def test_a_list_that_may_be_cut_off_is_not_used(server: MySqlServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """InnoDB lists no more than fit into its memory for that, and does not say so."""
    monkeypatch.setattr(engine_commits, "_MOST", 1)
    with (
        closing(connect(settings_of(server))) as session,
        pytest.raises(SourceUnavailableError, match=r"(?s)more open transactions than InnoDB surely lists.*hint: let"),
    ):
        watermark.take_low(session, watermark.current_offset(session), 1)


def test_a_reader_that_is_lost_does_not_hold_the_others(server: MySqlServer) -> None:
    """The server keeps the lock of a process that is stopped, or whose host is gone."""
    with closing(server.connect()) as lost, closing(connect(settings_of(server))) as session:
        lost.cursor().execute("SELECT GET_LOCK('tailrace innodb_trx', 0)")
        watermark.take_low(session, watermark.current_offset(session), 30)
        assert run(server, LISTS)[0][0], "the turn of another session was released"


@pytest.mark.long
@pytest.mark.parametrize(
    ("version", "kind", "settings"),
    [
        (VERSIONS[0], "other session", WITHOUT_GTIDS),
        (VERSIONS[0], "one phase", WITHOUT_GTIDS),
        pytest.param("5.7.22", "one phase", WITHOUT_GTIDS, marks=pytest.mark.mysql("5.7.22")),
        pytest.param("5.7.22", "one phase", {}, marks=pytest.mark.mysql("5.7.22")),
    ],
)
def test_the_older_servers_hold_xa_commits_too(version: str, kind: str, settings: dict[str, object]) -> None:
    """These give no semi-synchronous plugin: a commit is held where its GTID would be executed."""
    with HeldServer(version=version, settings=settings) as server:
        run(
            server, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v INT)", "INSERT INTO d.t VALUES (1, 0)"
        )
        commit = prepare_commit(server, kind, "UPDATE d.t SET v = v + 1", kind)
        with closing(connect(settings_of(server))) as session:
            barrier = watermark.current_offset(session)
            with server.committing(commit):
                assert value(server) == 0
                with pytest.raises(
                    SourceUnavailableError, match=r"(?s)(did not become visible|does not end).*in SHOW PROCESSLIST: a"
                ):
                    watermark.take_low(session, barrier, 1)
            watermark.take_low(session, barrier, 60)
        assert value(server) == 1


@pytest.mark.long
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "other session"])
@pytest.mark.mysql("5.7.22")
def test_a_commit_that_is_not_synced_is_waited_for(kind: str) -> None:
    """MySQL 5.7, whose package gives no semi-synchronous plugin: the log has a commit, and is synced late.

    The XA COMMIT of another session is visible before the log has it.
    """
    with (
        MySqlServer(version="5.7.22", settings=WITHOUT_GTIDS) as server,
        closing(connect(settings_of(server))) as session,
    ):
        run(server, *TABLE, "INSERT INTO d.t VALUES (1, 0)")
        run(server, "SET GLOBAL sync_binlog = 1", "SET GLOBAL binlog_group_commit_sync_delay = 1000000")
        was_unseen = False
        for number in range(1, 20):
            commit = prepare_commit(server, kind, "UPDATE d.t SET v = v + 1", f"x{number}")
            barrier = watermark.current_offset(session)
            logged = run(server, "SHOW MASTER STATUS")
            thread = threading.Thread(target=commit)
            thread.start()
            eventually(lambda: run(server, "SHOW MASTER STATUS") != logged, "the transaction in the binlog", 60)  # noqa: B023
            end, seen = watermark.current_offset(session), value(server)
            low = watermark.take_low(session, barrier, 60)
            assert isinstance(low, FileOffset)
            assert low.coordinates >= end.coordinates
            assert value(server) == number
            thread.join(60)
            was_unseen = was_unseen or seen < number
            if was_unseen:
                break
        assert was_unseen
