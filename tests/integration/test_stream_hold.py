"""A split that holds the changes of all tables for too long is given up: the others go on, and nothing is lost."""

from __future__ import annotations

import multiprocessing
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.capture import CaptureProcess, CaptureThread, eventually, properties, records_of, verified_rows
from tests.support.mysql_proxy import MySqlProxy

if TYPE_CHECKING:
    from pathlib import Path

    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database

_READING_K = b"`k` WHERE"
"""In the SELECT of a snapshot reader; k is one split, so its planner has no such query."""


def _create(database: Database) -> None:
    database.execute("CREATE TABLE a (id INT PRIMARY KEY, v INT)")
    database.execute("INSERT INTO a VALUES (1, 1), (2, 2)")
    database.execute("CREATE TABLE k (f FLOAT PRIMARY KEY, v INT)")
    database.execute("INSERT INTO k VALUES (1.5, 1), (2.5, 2), (3.5, 3)")


def _change(database: Database) -> None:
    """Change k, whose split is open, and then a."""
    database.execute("UPDATE k SET v = 9 WHERE v = 2")
    database.execute("DELETE FROM k WHERE v = 1")
    database.execute("INSERT INTO k VALUES (4.5, 4)")
    database.execute("INSERT INTO a VALUES (1000, 0)")


def _settings(proxy: MySqlProxy, broker: KafkaBroker, prefix: str, database: Database) -> dict[str, str]:
    changes = {
        "database.port": proxy.port,
        "database.ssl.mode": "disabled",
        "tailrace.snapshot.max.hold.ms": 1000,
    }
    return properties(database.server, broker, prefix, database.name, changes)


def _check(broker: KafkaBroker, prefix: str, database: Database) -> None:
    for table, key in (("a", "id"), ("k", "f")):
        rows = verified_rows(broker.bootstrap, prefix, database.name, table).values()
        assert {row[key]: row["v"] for row in rows} == dict(database.execute(f"SELECT {key}, v FROM {table}")), table


@pytest.mark.parametrize("stopped", [False, pytest.param(True, marks=pytest.mark.long)])
def test_split_that_holds_the_stream_is_given_up(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database, stopped: bool
) -> None:
    """Its SELECT is not answered, or its process is stopped; it is read when the stream has gone on, in the session."""
    _create(database)

    def table_k(capture: CaptureThread) -> dict[str, Any]:
        found: dict[str, Any] = capture.status.snapshot()["tables"][f"{database.name}.k"]
        return found

    with MySqlProxy(mysql_server) as proxy:
        proxy.delay(_READING_K)
        with CaptureThread(_settings(proxy, kafka_broker, prefix, database)) as capture:
            assert proxy.reached.wait(120)
            readers = multiprocessing.active_children()
            for reader in readers if stopped else ():
                assert reader.pid is not None
                os.kill(reader.pid, signal.SIGSTOP)
            _change(database)
            capture.wait_position(mysql_server)
            eventually(lambda: "tailrace.snapshot.max.hold.ms" in table_k(capture)["put_off"], "the split is put off")
            ended = [reader for reader in readers if not reader.is_alive()]
            for reader in set(readers) - set(ended) if stopped else ():
                assert reader.pid is not None
                os.kill(reader.pid, signal.SIGCONT)
            assert len(ended) == 1
            proxy.release()
            capture.wait_snapshot()
            assert table_k(capture)["put_off"] == ""
            database.execute("UPDATE k SET v = v + 10")
            capture.wait_position(mysql_server)
            assert capture.status.snapshot()["stream"]["disconnects"] == 0
    _check(kafka_broker, prefix, database)


@pytest.mark.long
@pytest.mark.parametrize("why", ["held", "locked"])
def test_producer_is_killed_while_a_table_is_put_off(
    kafka_broker: KafkaBroker, prefix: str, database: Database, tmp_path: Path, why: str
) -> None:
    """What was skipped when the split was given up is behind the stored offset, and in the rows that are read later."""
    _create(database)

    def written() -> bool:
        return any(
            r.json["after"]["id"] == 1000 for r in records_of(kafka_broker.bootstrap, prefix, database.name, "a")
        )

    with MySqlProxy(database.server) as proxy, database.connect() as other, other.cursor() as cursor:
        if why == "locked":
            cursor.execute("LOCK TABLES k WRITE, a WRITE")
        else:
            proxy.delay(_READING_K)
        settings = _settings(proxy, kafka_broker, prefix, database)
        with CaptureProcess(settings, tmp_path / "producer") as capture:
            if why == "locked":
                eventually(lambda: "it is locked" in capture.log.read_text(), "the lock is found")
                cursor.execute("UPDATE k SET v = 9 WHERE v = 2")
                cursor.execute("UNLOCK TABLES")
                cursor.execute("LOCK TABLES k WRITE")
                database.execute("INSERT INTO a VALUES (1000, 0)")
            else:
                assert proxy.reached.wait(120)
                _change(database)
            eventually(written, "the change of a")
            capture.kill()
            proxy.release()
            cursor.execute("UNLOCK TABLES")
            capture.start()
            eventually(lambda: capture.log.read_text().count("snapshot of table completed") >= 2, "both are read")
            database.execute("UPDATE k SET v = v + 10")
            database.execute("UPDATE a SET v = v + 10")

            def equal() -> bool:
                rows = verified_rows(kafka_broker.bootstrap, prefix, database.name, "a").values()
                return all(row["v"] >= 10 for row in rows)

            eventually(equal, "the last change")
    _check(kafka_broker, prefix, database)
