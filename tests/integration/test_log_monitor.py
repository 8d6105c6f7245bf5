"""How far a position is behind, and when the server may purge it: the server that purges is the judge."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from tailrace.producer.mysql.source import MySqlSource
from tests.support.binlog import settings_of
from tests.support.capture import CaptureThread, eventually, properties
from tests.support.database import Database

if TYPE_CHECKING:
    from tailrace.producer.model.protocols import LogDistance
    from tailrace.producer.mysql.log_monitor import MySqlLogMonitor
    from tailrace.producer.mysql.offset import MySqlOffset
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer

KEPT_S = 6


def _source(server: MySqlServer) -> MySqlSource:
    return MySqlSource(settings_of(server), server_id=4721)


def _files(database: Database) -> dict[str, int]:
    return {str(row[0]): int(row[1]) for row in database.execute("SHOW BINARY LOGS")}


def _measure(monitor: MySqlLogMonitor, stored: MySqlOffset) -> LogDistance:
    found = monitor.distance(stored)
    assert found is not None
    return found


@contextmanager
def _retention(database: Database, seconds: int) -> Iterator[None]:
    [[before]] = database.execute("SELECT @@global.binlog_expire_logs_seconds")
    database.execute("SET GLOBAL binlog_expire_logs_seconds = %s", (seconds,))
    try:
        yield
    finally:
        database.execute("SET GLOBAL binlog_expire_logs_seconds = %s", (before,))


def test_distance_and_time_until_the_purge(mysql_server: MySqlServer, database: Database) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with closing(_source(mysql_server).open_log_monitor()) as monitor:
        stored = _source(mysql_server).end_offset(epoch=1)
        with _retention(database, 0):
            assert _measure(monitor, stored)[:5] == (0, 0, 0, None, None)
        with _retention(database, 1000):
            database.execute("INSERT INTO t VALUES (1)")
            here = _measure(monitor, stored)
            assert here.bytes > 0
            assert here[:5] == (0, _files(database)[stored.file] - stored.pos, 1, 1000.0, 1000.0)
            database.execute("FLUSH BINARY LOGS")
            database.execute("INSERT INTO t VALUES (2)")
            files = _files(database)
            behind = _measure(monitor, stored)
            newest = list(files)[-1]
            assert behind[:3] == (1, files[stored.file] - stored.pos + files[newest], 2)
            assert behind.purge_left_s is not None
            assert 900 < behind.purge_left_s <= 1000
        assert monitor.distance(stored._replace(server_uuid="00000000-0000-0000-0000-000000000000")) is None


@pytest.mark.long
def test_server_purges_when_no_time_is_left_and_not_before(own_server: MySqlServer, own_database: Database) -> None:
    """The time runs from the last write of the file, which is the begin of the next."""
    own_database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    stored = _source(own_server).end_offset(epoch=1)
    own_database.execute("INSERT INTO t VALUES (1)")
    with closing(_source(own_server).open_log_monitor()) as monitor, _retention(own_database, KEPT_S):
        own_database.execute("FLUSH BINARY LOGS")
        while (_measure(monitor, stored).purge_left_s or 0) > KEPT_S / 2:
            time.sleep(0.1)
        own_database.execute("FLUSH BINARY LOGS")
        if (_measure(monitor, stored).purge_left_s or 0) > 1:
            assert stored.file in _files(own_database)
        eventually(lambda: _measure(monitor, stored).purge_left_s == 0, "the end of the retention")
        time.sleep(1.1)  # the server compares whole seconds
        own_database.execute("FLUSH BINARY LOGS")
        assert stored.file not in _files(own_database)
        gone = _measure(monitor, stored)
        assert gone.purge_left_s == 0
        assert gone.files == len(_files(own_database))


@pytest.mark.long
def test_time_while_the_server_was_down_does_not_count_as_kept(own_server: MySqlServer, own_database: Database) -> None:
    """The file was written last before the server stopped, which the next file does not say."""
    own_database.execute("FLUSH BINARY LOGS")
    own_database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    stored = _source(own_server).end_offset(epoch=1)
    written = time.time()
    own_server.stop()
    time.sleep(2)
    own_server.start()
    restarted = Database(own_server, own_database.name, create=False)
    with closing(_source(own_server).open_log_monitor()) as monitor, _retention(restarted, 1000):
        left = _measure(monitor, stored).purge_left_s
        assert left is not None
        assert left <= 1000 - int(time.time() - written) + 1
        assert left > 0


@pytest.mark.long
def test_producer_warns_before_the_binlog_is_purged(
    own_server: MySqlServer, own_database: Database, kafka_broker: KafkaBroker, prefix: str
) -> None:
    own_database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    watched = {"tailrace.binlog.watch.interval.ms": 200}
    settings = properties(own_server, kafka_broker, prefix, own_database.name, watched)
    with capture_logs() as logs, CaptureThread(settings) as capture, _retention(own_database, KEPT_S):
        capture.wait_snapshot()
        with kafka_broker.paused():
            own_database.execute("INSERT INTO t VALUES (1)")
            own_database.execute("FLUSH BINARY LOGS")

            def warned() -> bool:
                return any(entry["event"].startswith("the source may purge") for entry in logs)

            eventually(warned, "a warning", deadline_s=60)
        [entry] = [entry for entry in logs if entry["event"].startswith("the source may purge")]
        assert entry["transactions_behind"] == entry["files_behind"] == 1
