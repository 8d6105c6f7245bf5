"""XA transactions that change nothing, on each version of the server: the binlog has both phases of them, or none.

The stream looks for the XA PREPARE of each XA COMMIT. One that no XA PREPARE precedes would let it search the binlog,
and stop it where files are purged.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

import pymysql
import pytest

from tests.support.capture import eventually
from tests.support.mariadb import family
from tests.support.replication import run

if TYPE_CHECKING:
    from tests.embedded.mysql import MySqlServer

BODIES: dict[str, tuple[str, ...]] = {
    "nothing": (),
    "rows that are read": ("SELECT * FROM d.t",),
    "rows that are locked": ("SELECT * FROM d.t FOR UPDATE",),
    "no row": ("UPDATE d.t SET v = 9 WHERE id = 77",),
    "the same value": ("UPDATE d.t SET v = 1 WHERE id = 1",),
    "a savepoint": ("SAVEPOINT s", "UPDATE d.t SET v = v + 1", "ROLLBACK TO s"),
    "a temporary table": ("INSERT INTO d.temporary VALUES (1)",),
    "another engine": ("INSERT INTO d.m VALUES (1)",),
    "rows": ("UPDATE d.t SET v = v + 1",),
}
ALWAYS_LOGGED = "rows"
ONE, OTHER = "one session", "other session"
PREPARED = re.compile(r"XA PREPARE X'(\w*)',X'',1")
COMMITTED = re.compile(r"XA COMMIT X'(\w*)',X'',1$")


@pytest.mark.parametrize(
    "version",
    [
        pytest.param("5.7.22", marks=[pytest.mark.long, pytest.mark.mysql("5.7.22")]),
        pytest.param("8.0.15", marks=pytest.mark.mysql("8.0.15")),
        pytest.param("8.0.33", marks=[pytest.mark.long, pytest.mark.mysql("8.0.33")]),
        pytest.param("9.7", marks=[pytest.mark.long, pytest.mark.mysql("9.7")]),
    ],
)
def test_both_phases_are_logged_or_none(version: str) -> None:
    from tests.embedded.mysql import MySqlServer  # noqa: PLC0415

    with MySqlServer(version=version) as server:
        assert committed_alone(server) == set()


@pytest.mark.long
@pytest.mark.parametrize(
    "version", [pytest.param(each, marks=pytest.mark.mariadb(each)) for each in ("10.11", "11.4", "11.8")]
)
def test_both_phases_are_logged_or_none_by_mariadb(version: str) -> None:
    """A session that logs nothing (sql_log_bin=0) leaves the XA COMMIT of another one alone."""
    from tests.embedded.mariadb import SOURCE, MariaDbServer  # noqa: PLC0415

    with MariaDbServer(version=version, settings=SOURCE) as server:
        assert committed_alone(family(server)) <= {f"{body} {OTHER} 0" for body in BODIES}


def committed_alone(server: MySqlServer) -> set[str]:
    """Run all transactions, ended by the session that prepares and by another one, with and without a log.

    Return those of which the binlog has the XA COMMIT alone.
    """
    run(server, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v INT)", "INSERT INTO d.t VALUES (1, 1)")
    run(server, "CREATE TABLE d.m (id INT) ENGINE = MyISAM")
    for ends in (ONE, OTHER):
        for log in (1, 0):
            for body in BODIES:
                run_phases(server, f"{body} {ends} {log}", body, is_other=ends == OTHER, log=log)
    events = [(str(row[2]), str(row[5])) for row in run(server, "SHOW BINLOG EVENTS")]
    events += [
        (str(row[2]), str(row[5]))
        for (file, *_) in run(server, "SHOW BINARY LOGS")[1:]
        for row in run(server, f"SHOW BINLOG EVENTS IN '{file}'")
    ]
    prepared = [_text(match[1]) for _, info in events if (match := PREPARED.search(info))]
    committed = [_text(match[1]) for kind, info in events if kind == "Query" and (match := COMMITTED.search(info))]
    for ends in (ONE, OTHER):
        xid = f"{ALWAYS_LOGGED} {ends} 1"
        assert prepared.count(xid) == committed.count(xid) == 1, (xid, events[-20:])
    return set(committed) - set(prepared)


def _text(xid: str) -> str:
    return bytes.fromhex(xid).decode()


def run_phases(server: MySqlServer, xid: str, body: str, *, is_other: bool, log: int) -> None:
    """Run one transaction; a version may refuse a statement in it."""
    session = server.connect()
    cursor = session.cursor()
    cursor.execute("CREATE TEMPORARY TABLE d.temporary (id INT) ENGINE = InnoDB")
    cursor.execute(f"SET SESSION sql_log_bin = {log}")
    cursor.execute(f"XA START '{xid}'")
    for statement in BODIES[body]:
        with suppress(pymysql.Error):
            cursor.execute(statement)
    cursor.execute(f"XA END '{xid}'")
    with suppress(pymysql.Error):
        cursor.execute(f"XA PREPARE '{xid}'")
    if not is_other:
        with suppress(pymysql.Error):
            cursor.execute(f"XA COMMIT '{xid}'")
        session.close()
        return
    cursor.execute("SELECT CONNECTION_ID()")
    [(number,)] = cursor.fetchall()
    session.close()
    gone = f"SELECT 1 FROM information_schema.PROCESSLIST WHERE ID = {number}"
    eventually(lambda: not run(server, gone), "the end of the session that prepared", 60)
    with suppress(pymysql.Error):
        run(server, f"XA COMMIT '{xid}'")
