"""Streaming the binlog through lost connections: every transaction exactly once."""

from __future__ import annotations

import random
import threading
import time

from tailrace.producer.errors import SourceUnavailableError
from tailrace.producer.model.binlog_events import RowsEvent, TransactionBegin, TransactionCommit
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.gtid import GtidSet
from tests.support.binlog import DEADLINE_S, executed, images, open_stream
from tests.support.database import Database


def write(database: Database, transactions: int, seed: int) -> None:
    """Insert rows in transactions of different sizes, and rotate the binlog now and then."""
    choose = random.Random(seed)
    number = seed * 1_000_000
    with database.connect(autocommit=False) as session, session.cursor() as cursor:
        for index in range(transactions):
            for _ in range(choose.randint(1, 5)):
                number += 1
                cursor.execute(f"INSERT INTO t VALUES ({number}, REPEAT('x', {choose.randint(0, 3000)}))")
            session.commit()
            if index % 50 == 49:
                cursor.execute("FLUSH BINARY LOGS")


def test_stream_that_loses_its_connection_repeatedly_sees_every_row_once(database: Database) -> None:
    """Two writers; the stream's connection is killed during transactions, and resumes from its GTID set."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)")
    # A stream begins with the whole file: in a long one of other tests it would be killed before its first event.
    database.execute("FLUSH BINARY LOGS")
    seen = executed(database.server)
    writers = [threading.Thread(target=write, args=(database, 150, seed)) for seed in (1, 2)]
    for writer in writers:
        writer.start()
    choose = random.Random(3)
    ids: list[int] = []
    deadline = time.monotonic() + 3 * DEADLINE_S
    target: GtidSet | None = None
    while target is None or not seen.contains(target):
        assert time.monotonic() < deadline
        seen, found = read_some(database, seen, polls=choose.randint(1, 30))
        ids += found
        if target is None and not any(writer.is_alive() for writer in writers):
            target = executed(database.server)
    for writer in writers:
        writer.join()

    expected = sorted(row[0] for row in database.execute("SELECT id FROM t"))
    assert sorted(ids) == expected


def read_some(database: Database, seen: GtidSet, *, polls: int) -> tuple[GtidSet, list[int]]:
    """Read, kill the connection, and read until it is lost; return the GTID set and the ids."""
    ids: list[int] = []
    pending: list[int] = []
    try:
        stream = open_stream(database.server, seen, captures=lambda t: t == TableId(database.name, "t"), server_id=4720)
    except SourceUnavailableError:
        return seen, ids  # the producer tries again too
    try:
        for number in range(polls + 1000):
            if number == polls:
                database.kill_sessions("command LIKE 'Binlog Dump%'")
            for event in stream.poll(0.1 if number < polls else 1.0):
                if isinstance(event, TransactionBegin):
                    pending = []
                elif isinstance(event, RowsEvent):
                    pending += ids_of(images(event))
                elif isinstance(event, TransactionCommit):
                    ids += pending
                    seen = seen.with_gtid(event.gtid)
    except SourceUnavailableError:
        return seen, ids
    finally:
        stream.close()
    raise AssertionError("the killed connection did not end")


def ids_of(data: bytes) -> list[int]:
    """Read the ids of images of (INT, TEXT)."""
    found, at = [], 0
    while at < len(data):
        found.append(int.from_bytes(data[at + 1 : at + 5], "little"))
        at += 7 + int.from_bytes(data[at + 5 : at + 7], "little")
    return found
