"""Faults: the producer is killed, Kafka restarts, the source closes connections. The topic must stay right."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tailrace.producer.errors import SourceUnavailableError
from tailrace.producer.snapshot.hooks import SnapshotHooks
from tailrace.schemas.names import state_topic, watermarks_topic
from tests.bench.usage import descendants
from tests.support.background_writes import writing
from tests.support.capture import CaptureProcess, CaptureThread, eventually, properties, verified_rows
from tests.support.topics import read_topic

if TYPE_CHECKING:
    from tailrace.producer.model.split import Split
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database

ROWS = 6_000


def _change(cursor: Any, n: int) -> None:
    """Write updates, deletes, inserts and key changes."""
    at = n * 7919 % ROWS
    cursor.execute("UPDATE t SET v = %s WHERE id BETWEEN %s AND %s", (f"n{n}", at, at + 3))
    cursor.execute("DELETE FROM t WHERE id = %s", (at + 4,))
    cursor.execute("INSERT INTO t VALUES (%s, 'fresh')", (ROWS * 10 + n,))
    cursor.execute("UPDATE t SET id = %s WHERE id = %s", (ROWS * 20 + n, at + 5))


def _writer(database: Database) -> AbstractContextManager[None]:
    return writing(database, _change, pause_s=0.02)


def _fill(database: Database) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(200))")
    database.executemany("INSERT INTO t VALUES (%s, %s)", [(n, f"v{n}") for n in range(1, ROWS + 1)])


def _position_reached(broker: KafkaBroker, prefix: str, database: Database) -> bool:
    executed = str(database.execute("SELECT @@global.gtid_executed")[0][0])
    stored = [
        orjson.loads(r.value)
        for r in read_topic(broker.bootstrap, state_topic(prefix))
        if r.key == b"offset" and r.value
    ]
    return bool(database.execute("SELECT GTID_SUBSET(%s, %s)", (executed, stored[-1]["position"]["gtids"]))[0][0])


def _splits(broker: KafkaBroker, prefix: str, kind: str) -> int:
    marks = read_topic(broker.bootstrap, watermarks_topic(prefix))
    return sum(orjson.loads(mark.value)["kind"] == kind for mark in marks if mark.value)


def _equal(broker: KafkaBroker, prefix: str, database: Database) -> None:
    rows = verified_rows(broker.bootstrap, prefix, database.name, "t")
    found = {row["id"]: row["v"] for row in rows.values()}
    assert found == dict(database.execute("SELECT id, v FROM t"))


@pytest.mark.parametrize(
    "splits_before_kill", [pytest.param(1, marks=pytest.mark.long), 20, pytest.param(50, marks=pytest.mark.long)]
)
def test_kill_during_the_snapshot(  # noqa: PLR0917 - fixtures
    splits_before_kill: int,
    mysql_server: MySqlServer,
    kafka_broker: KafkaBroker,
    prefix: str,
    database: Database,
    tmp_path: Path,
) -> None:
    """SIGKILL while splits are read and the table is written to; the next start reads only what is missing."""
    _fill(database)
    with CaptureProcess(properties(mysql_server, kafka_broker, prefix, database.name), tmp_path) as producer:
        with _writer(database):
            eventually(lambda: _topics_exist(kafka_broker, prefix), "the first start")
            eventually(lambda: _splits(kafka_broker, prefix, "HIGH") >= splits_before_kill, "splits before the kill")
            producer.kill()
            producer.start()
            eventually(lambda: _finished(kafka_broker, prefix), "snapshot complete")
        eventually(lambda: _position_reached(kafka_broker, prefix, database), "binlog read to its end")
        assert producer.stop() == 0

    _equal(kafka_broker, prefix, database)


def test_the_parent_of_the_readers_is_killed(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database, tmp_path: Path
) -> None:
    """The producer forks its readers through it. They end with it, and the next ones import what they need."""
    _fill(database)
    with CaptureProcess(properties(mysql_server, kafka_broker, prefix, database.name), tmp_path) as producer:
        eventually(lambda: _topics_exist(kafka_broker, prefix), "the first split")
        [forker] = [pid for pid in descendants(producer.pid) if _name(pid) == "tailrace-forker"]
        assert [_name(pid) for pid in descendants(forker)] == ["tailrace-read0", "tailrace-read1"]
        os.kill(forker, signal.SIGKILL)
        eventually(lambda: _finished(kafka_broker, prefix), "snapshot complete")
        eventually(lambda: _position_reached(kafka_broker, prefix, database), "binlog read to its end")
        assert producer.stop() == 0

    assert "restarting from the stored state" in producer.log.read_text()
    _equal(kafka_broker, prefix, database)


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip()


def test_repeated_kills_while_changes_stream(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database, tmp_path: Path
) -> None:
    """SIGKILL five times while changes stream; every change is in the topic once."""
    _fill(database)
    topic = f"{prefix}.{database.name}.t"
    with CaptureProcess(properties(mysql_server, kafka_broker, prefix, database.name), tmp_path) as producer:
        eventually(lambda: _topics_exist(kafka_broker, prefix), "the first start")
        eventually(lambda: _finished(kafka_broker, prefix), "snapshot complete")
        with _writer(database):
            for _ in range(5):
                before = len(read_topic(kafka_broker.bootstrap, topic))
                eventually(lambda: len(read_topic(kafka_broker.bootstrap, topic)) > before + 200, "changes")  # noqa: B023
                producer.kill()
                producer.start()
        eventually(lambda: _position_reached(kafka_broker, prefix, database), "binlog read to its end")
        assert producer.stop() == 0

    _equal(kafka_broker, prefix, database)


def test_source_closes_every_connection(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """KILL of the producer's sessions, including dump thread and readers: the capture restarts."""
    _fill(database)
    with CaptureThread(properties(mysql_server, kafka_broker, prefix, database.name)) as capture, _writer(database):
        for splits in (5, 40):
            eventually(lambda: capture.status.snapshot()["snapshot"]["splits_done"] >= splits, "splits")  # noqa: B023
            database.kill_sessions("(DB IS NULL OR DB <> %s)", (database.name,))
        capture.wait_snapshot()
    with CaptureThread(properties(mysql_server, kafka_broker, prefix, database.name)) as capture:
        capture.wait_position(mysql_server)

    _equal(kafka_broker, prefix, database)


def test_broker_restarts_while_changes_stream(mysql_server: MySqlServer, prefix: str, database: Database) -> None:
    """Kafka is killed and restarted: the producer waits and continues, nothing is lost or duplicated."""
    from tests.embedded.kafka import KafkaBroker  # noqa: PLC0415

    _fill(database)
    with KafkaBroker() as broker:
        with CaptureThread(properties(mysql_server, broker, prefix, database.name)) as capture:
            with _writer(database):
                eventually(lambda: capture.status.snapshot()["snapshot"]["splits_done"] >= 10, "splits")
                broker.kill()
                broker.start()
                capture.wait_snapshot()
            capture.wait_position(mysql_server)
        _equal(broker, prefix, database)


def _topics_exist(broker: KafkaBroker, prefix: str) -> bool:
    try:
        return bool(read_topic(broker.bootstrap, watermarks_topic(prefix)))
    except KeyError:
        return False


def _finished(broker: KafkaBroker, prefix: str) -> bool:
    tables = [
        r.value for r in read_topic(broker.bootstrap, state_topic(prefix)) if (r.key or b"").startswith(b"table/")
    ]
    return bool(tables) and tables[-1] is not None and orjson.loads(tables[-1])["mode"] == "streaming"


def test_binlog_purged_during_the_snapshot(
    own_server: MySqlServer, own_database: Database, kafka_broker: KafkaBroker, prefix: str
) -> None:
    """What the stream has read may be purged while splits are read, also if the session then starts again."""
    database, purged = own_database, threading.Event()
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(200))")
    database.executemany("INSERT INTO t VALUES (%s, %s)", [(n, f"v{n}") for n in range(1, 41)])

    def purge(split: Split) -> None:
        if split.number != 1 or purged.is_set():
            return
        with own_server.connect(database=database.name) as session, session.cursor() as cursor:
            cursor.execute("UPDATE t SET v = 'changed' WHERE id IN (3, 33)")
            cursor.execute("FLUSH BINARY LOGS")
            cursor.execute("SHOW MASTER STATUS")
            file = (cursor.fetchone() or [""])[0]
            eventually(lambda: capture.status.snapshot()["stream"]["file"] == file, "the stream reads the new file", 60)
            cursor.execute("PURGE BINARY LOGS TO %s", (file,))
            cursor.execute("SHOW BINARY LOGS")
            assert [name for name, *_ in cursor.fetchall()] == [file]
        purged.set()
        raise SourceUnavailableError("the reader of the split is lost")

    changes = {"incremental.snapshot.chunk.size": 10, "snapshot.max.threads": 1}
    settings = properties(own_server, kafka_broker, prefix, database.name, changes)
    with CaptureThread(settings, SnapshotHooks(before_low=purge)) as capture:
        assert purged.wait(300)
        capture.wait_snapshot()
        capture.wait_position(own_server)

    _equal(kafka_broker, prefix, database)
