"""Topics that take less than the producer sends: batches become smaller, and what is left over concerns one table."""

from __future__ import annotations

import os
import random
import string
from typing import TYPE_CHECKING

import pytest

from tailrace.schemas.names import watermarks_topic
from tests.support.capture import CaptureThread, eventually, properties, verified_rows
from tests.support.incremental_checks import state_of
from tests.support.incremental_window import request_snapshot
from tests.support.topics import last_rows

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database


def _text(length: int) -> str:
    return "".join(random.choices(string.ascii_letters + string.digits, k=length))


def _modes(capture: CaptureThread) -> dict[str, str]:
    tables = capture.status.snapshot()["tables"]
    return {name.partition(".")[2]: str(found["mode"]) for name, found in tables.items()}


def test_rows_that_are_refused_together_are_sent_apart(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """By a snapshot reader and by the stream. The topic takes each row, so the table is in no error."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)")
    database.executemany("INSERT INTO t VALUES (%s, %s)", [(n, _text(4_000)) for n in range(1, 31)])
    changes = {"topic.creation.default.max.message.bytes": 20_000, "producer.override.batch.size": 60_000}
    with CaptureThread(properties(mysql_server, kafka_broker, prefix, database.name, changes)) as capture:
        capture.wait_snapshot()
        assert capture.status.snapshot()["stream"]["disconnects"] == 1
        with database.connect() as session, session.cursor() as cursor:
            cursor.execute("UPDATE t SET v = REVERSE(v)")
            session.commit()
        capture.wait_position(mysql_server)
        assert capture.status.snapshot()["stream"]["disconnects"] == 1
    rows = verified_rows(kafka_broker.bootstrap, prefix, database.name, "t").values()
    assert {row["id"]: row["v"] for row in rows} == dict(database.execute("SELECT id, v FROM t"))


def test_a_refused_row_behind_a_statement_of_its_table_is_sent_once(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """Each session reads the statement again, by which a table in error is taken up: it must not be before the row."""
    for name in ("altered", "well"):
        database.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, c LONGBLOB, v INT)")
        database.execute(f"INSERT INTO {name} VALUES (1, NULL, 1)")
    changes = {"topic.creation.default.max.message.bytes": 20_000, "producer.override.batch.size": 20_000}
    settings = properties(mysql_server, kafka_broker, prefix, database.name, changes)

    def differs(*tables: str) -> bool:
        return any(
            {row["id"]: row["v"] for row in last_rows(kafka_broker.bootstrap, f"{prefix}.{database.name}.{t}").values()}
            != dict(database.execute(f"SELECT id, v FROM {t}"))
            for t in tables
        )

    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
    with database.connect() as session, session.cursor() as cursor:
        cursor.execute("ALTER TABLE altered ADD d INT")
        cursor.execute("UPDATE altered SET v = 2, c = %s", (os.urandom(50_000),))
        cursor.execute("CREATE TABLE created (id INT PRIMARY KEY, c LONGBLOB, v INT)")
        cursor.execute("INSERT INTO created VALUES (1, %s, 1)", (os.urandom(50_000),))
        cursor.execute("UPDATE well SET v = 2")
        session.commit()
    with CaptureThread(settings) as capture:
        expected = {"altered": "error", "created": "error", "well": "streaming"}
        eventually(lambda: _modes(capture) == expected and not differs("well"), "two tables in error")
        capture.wait_position(mysql_server)
        assert capture.status.snapshot()["stream"]["disconnects"] <= 6  # it is not refused in each session
        for name in ("altered", "created"):
            database.execute(f"UPDATE {name} SET c = NULL, v = v + 1")
            database.execute(f"ALTER TABLE {name} COMMENT 'corrected'")
        eventually(lambda: not differs("altered", "created", "well"), "the tables are read")


@pytest.mark.long
@pytest.mark.parametrize("incremental", [False, True], ids=["initial", "incremental"])
def test_watermarks_that_are_refused_concern_one_table(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database, *, incremental: bool
) -> None:
    """The bounds of its splits are longer than the topic takes: the table is in error, the other one is captured."""
    kafka_broker.create_topic(watermarks_topic(prefix), settings={"max.message.bytes": "1500"})
    for name in ("wide", "well"):
        database.execute(f"CREATE TABLE {name} (id VARCHAR(700) CHARACTER SET ascii PRIMARY KEY, v INT)")
        width = 690 if name == "wide" else 9
        database.executemany(f"INSERT INTO {name} VALUES (%s, %s)", [(_text(width), n) for n in range(30)])
    changes = {
        "snapshot.mode": "no_data" if incremental else "initial",
        "incremental.snapshot.chunk.size": 10,
        "producer.override.batch.size": 1500,
        "signal.enabled.channels": "kafka",
        "signal.poll.interval.ms": 50,
    }
    settings = properties(mysql_server, kafka_broker, prefix, database.name, changes)

    def differs() -> bool:
        rows = last_rows(kafka_broker.bootstrap, f"{prefix}.{database.name}.well").values()
        return {row["id"]: row["v"] for row in rows} != dict(database.execute("SELECT id, v FROM well"))

    with CaptureThread(settings) as capture:
        if incremental:
            capture.wait_snapshot()
            request_snapshot(kafka_broker, prefix, database, "wide", "well")
        expected = {"wide": "error", "well": "streaming"}
        eventually(lambda: _modes(capture) == expected and not differs(), "one table in error, and the other one read")
        database.execute("UPDATE well SET v = v + 100")
        database.execute("UPDATE wide SET v = v + 100")
        eventually(lambda: not differs(), "the changes")
        assert _modes(capture) == expected
    fault = state_of(kafka_broker, prefix, f"table/{database.name}.wide")
    assert fault is not None
    assert fault["fault"]["reason"] == "a record is larger than its topic accepts"
    with CaptureThread(settings) as capture:
        capture.wait_position(mysql_server)
    assert not differs()
