"""What docs/concepts.md says about the order of the server's own steps, on each version that is tested.

A commit goes to the binlog, then to the engine, and its GTID to gtid_executed: what the watermarks rest on is which of
these a session sees first. The server is held in the middle, so a version of another order fails here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from tailrace.producer.errors import SourceError, SourceUnavailableError
from tailrace.producer.mysql import watermark, xa_commits
from tailrace.producer.mysql.connection import connect, query
from tests.embedded.mysql import MySqlServer
from tests.support.binlog import account_settings, settings_of
from tests.support.capture import eventually
from tests.support.commit_hold import KINDS, HeldServer, prepare_commit
from tests.support.hint_statements import check_hints
from tests.support.replication import REPLICA_SETTINGS, follow, run
from tests.support.unseen_commits import SEMI_SYNC

OLDEST, LATER = VERSIONS = ("8.0.15", "8.0.33")
FORMER = pytest.param("5.7.22", marks=[pytest.mark.long, pytest.mark.mysql("5.7.22")])
NEWEST = pytest.param("9.7", marks=[pytest.mark.long, pytest.mark.mysql("9.7")])
SEEN_LATE = {("5.7.22", "one phase"), ("8.0.15", "other session"), ("8.0.15", "one phase")}
"""Commits whose GTID is executed before their rows are visible."""
HELD_BY_A_REPLICA = pytest.mark.parametrize("server", [LATER, NEWEST], indirect=True)
SYNCED_LATE = pytest.mark.parametrize("server", [FORMER, OLDEST], indirect=True)
"""Versions whose packages have no semi-synchronous plugin."""
ATOMIC_DDL = pytest.mark.parametrize("server", [OLDEST, LATER, NEWEST], indirect=True)
"""The catalog of MySQL 5.7 waits for a statement that is running (``test_mysql57.py``)."""

pytestmark = pytest.mark.mysql(*VERSIONS)


@pytest.fixture(scope="module", params=[FORMER, OLDEST, LATER, NEWEST])
def server(request: pytest.FixtureRequest) -> Iterator[HeldServer]:
    """A server with a table of one row, v = 0."""
    with HeldServer(version=request.param, settings=SEMI_SYNC if request.param in {LATER, "9.7"} else {}) as held:
        create_row(held)
        yield held


def create_row(server: MySqlServer) -> None:
    """Create the table."""
    run(server, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v INT)", "INSERT INTO d.t VALUES (1, 0)")


def seen(server: MySqlServer) -> int:
    """Return what a new SELECT sees."""
    [(value,)] = run(server, "SELECT v FROM d.t")
    return int(value)


def position(server: MySqlServer) -> tuple[str, int]:
    """Return the end of the binlog."""
    file, pos, *_ = run(server, "SHOW MASTER STATUS")[0]
    return file, pos


def executed(server: MySqlServer) -> str:
    """Return the executed GTID set."""
    return str(run(server, "SELECT @@global.gtid_executed")[0][0])


def commit_of(server: MySqlServer, kind: str) -> Any:
    """Return a commit of v + 1."""
    return prepare_commit(server, kind, "UPDATE d.t SET v = v + 1", f"{kind}-{seen(server)}")


@pytest.mark.parametrize("kind", KINDS)
def test_the_low_watermark_is_visible(server: HeldServer, kind: str) -> None:
    """A GTID that is executed is visible, or the thread that commits shows that it is not, and is waited for."""
    commit, before, known = commit_of(server, kind), seen(server), executed(server)
    with closing(connect(settings_of(server))) as session:
        with server.committing(commit):
            assert executed(server) != known
            late = seen(server) == before
            assert late == ((server.version, kind) in SEEN_LATE)
            barrier = watermark.current_offset(session)
            if xa_commits.commits_early(server.version) and kind != "plain":  # of which kind it is cannot be seen
                with pytest.raises(
                    SourceUnavailableError, match=r"(?s)an XA commit on the server does not end.*: a semi-sync"
                ):
                    watermark.take_low(session, barrier, 0)
            else:
                low = watermark.take_low(session, barrier, 0)
                assert str(low.gtids) == executed(server).replace("\n", "")
        low = watermark.take_low(session, barrier, 60)
        assert str(low.gtids) == executed(server).replace("\n", "")
    assert seen(server) == before + 1


@pytest.mark.parametrize("kind", ["other session", "one phase"])
@pytest.mark.parametrize("version", [OLDEST, pytest.param(LATER, marks=pytest.mark.long), NEWEST])
def test_the_low_watermark_of_a_replica_is_visible(version: str, kind: str) -> None:
    """A thread that applies a commit has the order of one that a client runs; it shows no statement in one phase."""
    with MySqlServer(version=version) as primary, HeldServer(version=version, settings=REPLICA_SETTINGS) as replica:
        follow(replica, primary)
        run(
            primary,
            "CREATE DATABASE d",
            "CREATE TABLE d.t (id INT PRIMARY KEY, v INT)",
            "INSERT INTO d.t VALUES (1, 0)",
        )
        commit = commit_of(primary, kind)
        run(replica, f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{executed(primary)}', 60)")
        run(replica, "CREATE USER blind IDENTIFIED BY 'b'", "GRANT REPLICATION CLIENT ON *.* TO blind")
        with replica.committing(commit):
            late = seen(replica) == 0
            assert late == ((version, kind) in SEEN_LATE)
            with closing(connect(settings_of(replica))) as session:
                if late:
                    with pytest.raises(
                        SourceUnavailableError, match=r"(?s)an XA commit on the server does not end.*: a semi-sync"
                    ):
                        xa_commits.wait_until_visible(session, 0)
                else:
                    xa_commits.wait_until_visible(session, 60)
            with closing(connect(account_settings(replica.host, replica.port, "blind", "b"))) as session:
                if late:
                    with pytest.raises(SourceError, match=r"GRANT PROCESS ON \*\.\* TO 'blind'@'%'"):
                        xa_commits.wait_until_visible(session, 0)
                else:
                    xa_commits.wait_until_visible(session, 0)
        run(replica, f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{executed(primary)}', 60)")
        with closing(connect(settings_of(replica))) as session:
            xa_commits.wait_until_visible(session, 60)
        assert seen(replica) == 1


def test_without_xa_no_grant_is_needed() -> None:
    """The counters of a server that has run no XA transaction say so."""
    with MySqlServer(version="8.0.15") as plain:
        run(plain, "CREATE USER blind IDENTIFIED BY 'b'", "GRANT REPLICATION CLIENT ON *.* TO blind")
        with closing(connect(account_settings(plain.host, plain.port, "blind", "b"))) as session:
            assert not xa_commits.sees_commits(session)
            xa_commits.wait_until_visible(session, 0)


@ATOMIC_DDL
def test_the_catalog_has_what_is_executed(server: HeldServer) -> None:
    """What is known of keys rests on it: a definition is read behind the offset at which it holds."""
    columns = "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = 'd' AND TABLE_NAME IN ('n', 'm')"
    for statement, found in (
        ("CREATE TABLE d.n (a INT PRIMARY KEY)", {"a"}),
        ("ALTER TABLE d.n ADD COLUMN b INT", {"a", "b"}),
        ("RENAME TABLE d.n TO d.m", {"a", "b"}),
        ("DROP TABLE d.m", set()),
    ):
        known = executed(server)
        with server.committing(partial(run, server, statement)):
            assert executed(server) != known
            assert {name for (name,) in run(server, columns)} == found


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_the_binlog_has_what_a_select_sees(server: HeldServer, kind: str) -> None:
    """While transactions are committed, a position that is read after a SELECT is behind all that it saw."""
    ends, failures = {seen(server): position(server)}, []
    first = seen(server)

    def write() -> None:
        try:
            for number in range(first + 1, first + 41):
                prepare_commit(server, kind, f"UPDATE d.t SET v = {number}", f"{kind}-{number}")()
                ends[number] = position(server)
        except BaseException as error:  # noqa: BLE001 - raised again by the test's thread
            failures.append(error)

    writer = threading.Thread(target=write)
    pairs = []
    with closing(connect(settings_of(server))) as session:
        low = watermark.current_offset(session)
        writer.start()
        while writer.is_alive():
            value = int(query(session, "SELECT v FROM d.t")[0][0])
            high = watermark.take_high(session, low)
            pairs.append((value, (high.file, high.pos)))
    writer.join()
    assert not failures, failures
    assert len({value for value, _ in pairs}) > 2
    assert all(at >= ends[value] for value, at in pairs)


def test_what_hints_name_exists(server: HeldServer) -> None:
    check_hints(server)


@HELD_BY_A_REPLICA
@pytest.mark.parametrize("kind", KINDS)
def test_the_binlog_moves_before_rows_are_visible(server: HeldServer, kind: str) -> None:
    """A position alone is no low watermark: a commit that waits for its replica is behind it, and is not seen."""
    commit, before, known, end = commit_of(server, kind), seen(server), executed(server), position(server)
    run(server, "SET GLOBAL rpl_semi_sync_master_enabled = ON")
    thread = threading.Thread(target=commit)
    thread.start()
    try:
        eventually(lambda: position(server) > end, "the binlog moves", 60)
        assert seen(server) == before
        assert executed(server) == known
    finally:
        run(server, "SET GLOBAL rpl_semi_sync_master_enabled = OFF")
        thread.join(60)
    eventually(lambda: seen(server) == before + 1, "the commit", 60)
    assert executed(server) != known


@HELD_BY_A_REPLICA
def test_waiting_for_a_gtid_ends_when_it_is_executed(server: HeldServer) -> None:
    """WAIT_FOR_EXECUTED_GTID_SET does not return before the rows of a plain commit are visible."""
    commit, before, end = commit_of(server, "plain"), seen(server), position(server)
    run(server, "SET GLOBAL rpl_semi_sync_master_enabled = ON")
    thread = threading.Thread(target=commit)
    thread.start()
    try:
        eventually(lambda: position(server) > end, "the binlog moves", 60)
        [(uuid,)] = run(server, "SELECT @@server_uuid")
        wanted = f"{uuid}:1-{int(executed(server).rsplit('-', 1)[-1]) + 1}"
        assert run(server, f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{wanted}', 0.2)") == [(1,)]
    finally:
        run(server, "SET GLOBAL rpl_semi_sync_master_enabled = OFF")
        thread.join(60)
    assert run(server, f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{wanted}', 60)") == [(0,)]
    assert seen(server) == before + 1


@SYNCED_LATE
def test_a_transaction_that_is_not_synced_is_neither_visible_nor_executed(server: HeldServer) -> None:
    """The same two, of a plain commit: the binlog has it for a second, in which it may be seen."""
    [(uuid,)] = run(server, "SELECT @@server_uuid")
    run(server, "SET GLOBAL sync_binlog = 1", "SET GLOBAL binlog_group_commit_sync_delay = 1000000")
    was_unseen = False
    try:
        with closing(connect(settings_of(server))) as session:  # a new one for each query would take too long
            for _ in range(20):
                commit, before, known = commit_of(server, "plain"), seen(server), executed(server)
                wanted = f"'{uuid}:1-{int(known.rsplit('-', 1)[-1]) + 1}'"
                end = query(session, "SHOW MASTER STATUS")
                thread = threading.Thread(target=commit)
                thread.start()
                until = time.monotonic() + 60
                while query(session, "SHOW MASTER STATUS") == end and time.monotonic() < until:
                    pass
                waited = query(session, f"SELECT WAIT_FOR_EXECUTED_GTID_SET({wanted}, 0.1), v FROM d.t")
                assert query(session, f"SELECT WAIT_FOR_EXECUTED_GTID_SET({wanted}, 60)") == [(0,)]
                assert seen(server) == before + 1
                thread.join(60)
                if waited == [(1, before)]:
                    was_unseen = True
                    break
    finally:
        run(server, "SET GLOBAL binlog_group_commit_sync_delay = 0", "SET GLOBAL sync_binlog = 0")
    assert was_unseen
