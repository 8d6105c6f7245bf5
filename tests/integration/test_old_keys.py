"""tailrace.start.at before the key of now, of tables without a primary key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tailrace.producer.model.binlog_events import RowsEvent
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.catalog import read_table
from tailrace.producer.mysql.connection import connect
from tests.support.binlog import executed, only, open_stream, read_until, settings_of
from tests.support.capture import CaptureThread, eventually, properties, records_of
from tests.support.incremental_checks import signal_completed
from tests.support.upsert_reader import consumer_rows

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.support.database import Database

HISTORY = (
    "CREATE TABLE t (a INT, v INT)",
    "INSERT INTO t VALUES (1, 10), (2, 20)",
    "ALTER TABLE t ADD b INT",
    "INSERT INTO t VALUES (3, 30, NULL), (4, 40, NULL)",
    "UPDATE t SET b = a",
    "ALTER TABLE t MODIFY b INT NOT NULL, ADD UNIQUE (b)",
    "INSERT INTO t VALUES (5, 50, 5)",
)
"""Rows without the key column of now, and rows that have NULL in it."""


@pytest.mark.parametrize("index", ["UNIQUE", "PRIMARY KEY"])
def test_index_that_is_added_later(kafka_broker: KafkaBroker, prefix: str, database: Database, index: str) -> None:
    """The rows before it are refused by name, and all rows are read behind it."""
    [[before]] = database.execute("SELECT @@global.gtid_executed")
    for statement in HISTORY:
        database.execute(statement.replace("UNIQUE", index))
    given = {"snapshot.mode": "no_data", "tailrace.start.at": before}
    with CaptureThread(properties(database.server, kafka_broker, prefix, database.name, given)) as capture:
        capture.wait_position(database.server)
        eventually(lambda: signal_completed(kafka_broker, prefix), "the table is read", 60)
        capture.wait_snapshot()
        assert capture.status.snapshot()["tables"][f"{database.name}.t"]["changes_skipped"]
    rows: dict[bytes, dict[str, Any]] = consumer_rows(kafka_broker, prefix, f"{database.name}.t")
    found = sorted((row["a"], row["b"], row["v"]) for row in rows.values())
    assert found == sorted(database.execute("SELECT a, b, v FROM t"))
    keys = {r.key for r in records_of(kafka_broker.bootstrap, prefix, database.name, "t")}
    assert keys == {b'{"b":%d}' % number for number in range(1, 6)}


@pytest.mark.parametrize(
    ("columns", "row", "is_logged"),
    [
        ("a INT NOT NULL UNIQUE", "1", True),
        ("a INT NOT NULL, b INT NOT NULL, UNIQUE (b, a), UNIQUE (a)", "1, 2", True),
        ("a VARCHAR(9), PRIMARY KEY (a(3))", "'a'", True),
        ("a INT UNIQUE", "1", False),
        ("v INT, g INT AS (v + 1) VIRTUAL NOT NULL UNIQUE", "1, DEFAULT", False),
    ],
)
def test_the_catalog_marks_the_index_that_the_binlog_names(
    database: Database, columns: str, row: str, *, is_logged: bool
) -> None:
    """What ``is_key_logged`` rests on."""
    begin = executed(database.server)
    database.execute(f"CREATE TABLE u ({columns})")
    database.execute(f"INSERT INTO u VALUES ({row})")
    with connect(settings_of(database.server)) as session:
        found = read_table(session, TableId(database.name, "u"))
    with open_stream(database.server, begin) as stream:
        [event] = only(RowsEvent, read_until(stream, begin, executed(database.server)))
    assert found.is_key_logged is is_logged
    assert event.table.primary_key == (found.index_key if is_logged else ())
