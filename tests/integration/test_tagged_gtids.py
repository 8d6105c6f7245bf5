"""GTIDs with tags (since MySQL 8.3) on a real server: the sets, the log, and all that names a transaction."""

from __future__ import annotations

import random
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tailrace.producer.model.binlog_events import QueryEvent, TransactionBegin
from tailrace.producer.mysql.binlog.xa_history import BinlogHistory
from tailrace.producer.mysql.connection import connect
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.offset import MySqlOffset
from tailrace.producer.mysql.resume import read_history, resume_offset
from tailrace.producer.mysql.watermark import current_offset, take_low
from tailrace.producer.takeover.binlog_listing import gtids_before_position
from tests.embedded.mysql import MySqlServer
from tests.support.binlog import everything, executed, follow, settings_of
from tests.support.capture import CaptureThread, properties, records_of, verified_rows
from tests.support.database import Database

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker

SOURCES = [
    f"{server}{tag}"
    for server in ("11111111-1111-1111-1111-111111111111", "aaaaaaaa-0000-0000-0000-ffffffffffff")
    for tag in ("", ":a", ":_1", ":mysqlsh")
]


@pytest.fixture
def mysql_server(newest_server: MySqlServer) -> MySqlServer:
    """The server of these tests."""
    return newest_server


def tagged(database: Database, tag: str, *statements: str) -> None:
    """Run statements whose transactions get GTIDs with a tag; '': without one."""
    database.execute("SET gtid_next = %s", (f"AUTOMATIC:{tag}" if tag else "AUTOMATIC",))
    for statement in statements:
        database.execute(statement)
    database.execute("SET gtid_next = 'AUTOMATIC'")


def some_set(pick: random.Random) -> GtidSet:
    """Return a random set of few numbers, so that two of them have some in common."""
    return GtidSet(
        {
            source: [(first, first + pick.randrange(4)) for first in (pick.randrange(1, 20) for _ in range(3))]
            for source in pick.sample(SOURCES, pick.randrange(len(SOURCES)))
        }
    )


def test_sets_are_those_of_the_server(database: Database) -> None:
    """Its text, subsets, differences and unions; the server separates the lines of its text."""
    pick = random.Random(4711)
    pairs = [(some_set(pick), some_set(pick)) for _ in range(200)]
    pairs += [(one.union(other), other) for one, other in pairs]
    for one, other in pairs:
        [(text, is_subset, difference, union)] = database.execute(
            "SELECT GTID_SUBTRACT(a, ''), GTID_SUBSET(b, a), GTID_SUBTRACT(a, b), GTID_SUBTRACT(CONCAT(a, ',', b), '') "
            "FROM (SELECT %s AS a, %s AS b) AS both_sets",
            (str(one), str(other)),
        )
        assert text.replace("\n", "") == str(one)
        assert bool(is_subset) == one.contains(other)
        assert GtidSet.parse(difference) == one.minus(other)
        assert union.replace("\n", "") == str(one.union(other))


def test_the_log_is_read_from_any_set(database: Database) -> None:
    """The server sends what is not in the set, and each transaction has the GTID that the server lists."""
    tagged(database, "", "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    start = executed(database.server)
    tagged(database, "Mixed_9", "INSERT INTO t VALUES (2)", "CREATE TABLE u (id INT)", "INSERT INTO t VALUES (3)")
    tagged(database, "", "SET binlog_transaction_compression = ON", "INSERT INTO t VALUES (4)")
    tagged(database, "b", "INSERT INTO t VALUES (5)")
    end = executed(database.server)
    assert ":b:1:mixed_9:1-3" in str(end)

    events = follow(database.server, start)

    begins = [event for event in events if isinstance(event, TransactionBegin | QueryEvent)]
    gtids = [event.gtid for event in begins]
    [file] = {event.file for event in begins}
    listed = [
        (pos, info.split("'")[1])
        for _, pos, kind, _, _, info in database.execute(f"SHOW BINLOG EVENTS IN '{file}'")
        if kind in {"Gtid", "Gtid_tagged_log_event"}
    ]
    assert [(event.pos, event.gtid) for event in begins] == listed[-len(begins) :]
    assert start.with_gtids(gtids) == end
    assert all(event.commit_ts_us > 1_700_000_000_000_000 for event in begins)
    for gtid in gtids:
        sent = follow(database.server, end.without(gtid))
        assert [event.gtid for event in sent if isinstance(event, TransactionBegin | QueryEvent)] == [gtid]


def test_a_position_is_derived_kept_and_searched(database: Database) -> None:
    """By what names a transaction: the barrier of a split, the stored offset, a search, a connector without GTIDs."""
    tagged(database, "x", "CREATE TABLE t (id INT PRIMARY KEY)")
    server = database.server
    with closing(connect(settings_of(server))) as session:
        before = current_offset(session)
        tagged(database, "x", "INSERT INTO t VALUES (1)")
        end = current_offset(session)
        last = str(end.gtids.minus(before.gtids))
        assert last == f"{end.server_uuid}:x:2"
        assert take_low(session, end, 60).gtids == end.gtids
        assert resume_offset(session, read_history(session), before) == before
        assert resume_offset(session, read_history(session), before._replace(gtids=end.gtids)).epoch == 2, (
            "a done transaction follows"
        )
        assert MySqlOffset.from_json(end.to_json()) == end
        assert gtids_before_position(session, end.file, before.pos) == (before.gtids, "", 0)
        [_, (_, statement, *_)] = database.execute(f"SHOW BINLOG EVENTS IN '{end.file}' FROM {before.pos} LIMIT 2")
        assert gtids_before_position(session, end.file, statement) == (before.gtids, last, before.pos)
    history = BinlogHistory(settings_of(server), server_id=4719, captures=everything)
    found = history.end_of(last)
    assert found is not None
    assert found[:3] == (last, end.file, end.pos)


def test_tagged_transactions_are_captured(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """In snapshot and log, across a restart; XA transactions are read again by their GTIDs."""
    tagged(database, "app", "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))", "INSERT INTO t VALUES (1, 'a')")
    settings = properties(mysql_server, kafka_broker, prefix, database.name)
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        tagged(database, "app", "INSERT INTO t VALUES (2, 'b')", "UPDATE t SET v = 'c' WHERE id = 1")
        tagged(database, "app", "XA START 'x'", "INSERT INTO t VALUES (3, 'x')", "XA END 'x'", "XA PREPARE 'x'")
        capture.wait_position(mysql_server)
    tagged(database, "other", "XA COMMIT 'x'", "DELETE FROM t WHERE id = 2")
    with CaptureThread(settings) as capture:
        capture.wait_position(mysql_server)

    rows = verified_rows(kafka_broker.bootstrap, prefix, database.name, "t")
    assert {row["id"]: row["v"] for row in rows.values()} == {1: "c", 3: "x"}
    [(server,)] = database.execute("SELECT @@server_uuid")
    changes = [r.json for r in records_of(kafka_broker.bootstrap, prefix, database.name, "t") if r.value]
    numbers = [change["source"]["gtid"].rpartition(":") for change in changes if change["op"] != "r"]
    assert [source for source, _, _ in numbers] == [f"{server}:app"] * 2 + [f"{server}:other"] * 2
