"""What a snapshot of MariaDB waits for, on each version: what ``engine_commits.py`` takes for a commit, and what not.

A commit is held by semi-synchronous replication: the binlog has it, and InnoDB does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from tailrace.producer.errors import SourceUnavailableError
from tailrace.producer.mariadb.offset import current_offset
from tailrace.producer.mariadb.snapshot_session import MariaDbSnapshotSession
from tailrace.producer.mysql import engine_commits
from tests.embedded.mysql import MySqlServer
from tests.integration.test_engine_commits import (
    BUSY,
    COMMITS,
    check_busy,
    check_open,
    id_of,
    listed,
    prepare_tables,
    running,
    shows,
    value,
)
from tests.support.capture import eventually
from tests.support.commit_hold import KINDS, prepare_commit
from tests.support.hint_statements import check_hints
from tests.support.mariadb import family
from tests.support.replication import run
from tests.support.unseen_commits import held, release

pytestmark = pytest.mark.mariadb

STAGES = {
    "performance_schema": "ON",
    "performance_schema_instrument": "'stage/%=ON'",
    "performance_schema_consumer_events_stages_current": "ON",
    "performance_schema_consumer_events_stages_history": "ON",
    "performance_schema_events_stages_history_size": 100,
}
"""The server keeps what each thread has shown in the list of processes."""
SEMI_SYNC = {
    "rpl_semi_sync_master_wait_point": "AFTER_SYNC",
    "rpl_semi_sync_master_timeout": 600_000,
}
WAITS = "Waiting for semi-sync ACK"
CREATED = [statement for statement in COMMITS if "SELECT" in statement and statement.startswith("CREATE TABLE")]
"""Statements that 10.11 commits in the state of a query; see the next test."""
OTHER_COMMITS = (
    ("CALL d.read_and_commit()",),
    ("BEGIN NOT ATOMIC UPDATE d.t SET v = v + 1 WHERE id = 3; END",),
    ("INSERT INTO d.t VALUES (900, 1) RETURNING id",),
    ("DELETE d.t FROM d.t JOIN d.n ON n = 1 WHERE id = 900",),
    ("PREPARE p FROM 'UPDATE d.t SET v = v + 1 WHERE id = 3'", "EXECUTE p"),
    ("BEGIN", "UPDATE d.t SET v = v + 1 WHERE id = 3", "SELECT COUNT(*) FROM d.n a, d.m b", "COMMIT"),
    ("BEGIN", "UPDATE d.t SET v = v + 1 WHERE id = 3", "BEGIN"),
    ("BEGIN", "UPDATE d.t SET v = v + 1 WHERE id = 3", "CREATE TABLE d.implicit (n INT)"),
    ("SET autocommit = 0", "UPDATE d.t SET v = v + 1 WHERE id = 3", "SET autocommit = 1"),
)
"""The last statement of each commits."""


@pytest.fixture(
    scope="module",
    params=[
        "11.4",
        *(pytest.param(each, marks=[pytest.mark.long, pytest.mark.mariadb(each)]) for each in ("10.11", "11.8")),
    ],
)
def server(request: pytest.FixtureRequest) -> Iterator[MySqlServer]:
    """A server whose commits wait for a replica that does not exist, when that is switched on."""
    from tests.embedded.mariadb import SOURCE, MariaDbServer  # noqa: PLC0415

    with MariaDbServer(version=request.param, settings={**SOURCE, **SEMI_SYNC, **STAGES}) as started:
        prepare_tables(family(started))
        run(
            family(started),
            "CREATE PROCEDURE d.read_and_commit() BEGIN DECLARE found INT; START TRANSACTION; "
            "UPDATE d.t SET v = v + 1 WHERE id = 3; SELECT COUNT(*) INTO found FROM d.n a, d.m b; COMMIT; END",
        )
        yield family(started)


def take_low(server: MySqlServer, timeout_s: float) -> None:
    """Take a low watermark of the end of the binlog."""
    with closing(MariaDbSnapshotSession(server.connect())) as session, server.connect() as other:
        session.low_watermark(current_offset(other), timeout_s)


@pytest.mark.parametrize("kind", KINDS)
def test_the_low_watermark_contains_what_is_visible(server: MySqlServer, kind: str) -> None:
    """A transaction is in the binlog, and then visible, whichever way it is committed; it is waited for."""
    before = value(server)
    thread = held(server, prepare_commit(server, kind, "UPDATE d.t SET v = v + 1 WHERE id = 1", f"{kind}-{before}"))
    try:
        assert value(server) == before
        with pytest.raises(SourceUnavailableError, match=r"did not become visible|does not end"):
            take_low(server, 2)
    finally:
        release(server, thread)
    take_low(server, 60)
    assert value(server) == before + 1


def test_a_commit_shows_that_it_is_one(server: MySqlServer) -> None:
    """What a session shows around the wait for its replica is not what it shows where it certainly does not commit."""
    for statements in (*((each,) for each in COMMITS), *OTHER_COMMITS):
        shown = states_around_the_wait(server, statements)
        assert shown, statements
        if statements[-1] in CREATED:
            shown.discard("Sending data")
        assert not shown & engine_commits.NO_COMMIT, statements


def test_a_table_that_is_filled_by_a_query_may_be_in_its_commit(server: MySqlServer) -> None:
    """Its statement has changed other rows, by a function, and shows what a query does; a query does not hold."""
    slow = "SELECT COUNT(*) FROM d.n a, d.n b, d.n c, d.n e WHERE a.n + b.n + c.n + e.n < 0"
    for statement, waits in ((f"CREATE TABLE d.filled SELECT d.f() AS v UNION ALL {slow}", True), (slow, False)):
        with running(server, "DO 0" if waits else "UPDATE d.t SET v = v + 1 WHERE id = 5", statement) as thread:
            eventually(lambda: listed(server, thread) and shows(server, thread, "Sending data"), "a query", 60)
            if waits:
                with pytest.raises(SourceUnavailableError, match="did not become visible"):
                    take_low(server, 2)
            else:
                take_low(server, 60)
            assert shows(server, thread, "Sending data")


def states_around_the_wait(server: MySqlServer, statements: tuple[str, ...]) -> set[str]:
    """Return the states of a session before, in and behind the wait between the binlog and the engine."""
    states = (
        "SELECT EVENT_NAME FROM performance_schema.events_stages_history JOIN performance_schema.threads "
        "USING (THREAD_ID) WHERE PROCESSLIST_ID = {} ORDER BY EVENT_ID"
    )
    with closing(server.connect()) as session, session.cursor() as cursor:
        number: int = id_of(session)
        for statement in statements[:-1]:
            cursor.execute(statement)
        thread = held(server, partial(cursor.execute, statements[-1]))
        try:
            eventually(lambda: WAITS in _state(server, number), statements[-1], 60)
        finally:
            release(server, thread)
        names = [str(name).rpartition("/")[2] for (name,) in run(server, states.format(number))]
    found = [at for at, name in enumerate(names) if WAITS in name]
    return {name for at in found for name in names[at - 1 : at + 2]}


def _state(server: MySqlServer, number: int) -> str:
    rows: list[tuple[Any, ...]] = run(server, f"SELECT STATE FROM information_schema.PROCESSLIST WHERE ID = {number}")
    return "".join(str(state) for (state,) in rows)


def test_statements_that_commit_nothing_do_not_hold_a_snapshot(server: MySqlServer) -> None:
    """A query, a wait for a lock or a sleep may last for hours in a transaction that has changed rows."""
    queries = {states: statement for states, statement in BUSY.items() if not statement.startswith("UPDATE d.n")}
    check_busy(server, take_low, queries)


def test_what_hints_name_exists(server: MySqlServer) -> None:
    check_hints(server)


def test_open_transactions_do_not_hold_a_snapshot(server: MySqlServer) -> None:
    """What is idle, or changes more rows, was not in its commit; neither is an XA transaction that is prepared."""
    check_open(server, take_low)
