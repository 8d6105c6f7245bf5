"""tailrace.stop.at: the capture ends by itself at a boundary, and the next one continues there."""

from __future__ import annotations

import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from tailrace.producer.mysql.source import MySqlSource
from tailrace.runtime.errors import ConfigError
from tests.embedded.mysql import MySqlServer
from tests.support.binlog import settings_of
from tests.support.capture import CaptureProcess, CaptureThread, eventually, properties, records_of
from tests.support.database import Database

if TYPE_CHECKING:
    from pathlib import Path

    from tests.embedded.kafka import KafkaBroker


class Bounded:
    """Captures of one database, each of which ends by itself."""

    def __init__(self, server: MySqlServer, broker: KafkaBroker, prefix: str, database: Database) -> None:
        self.settings = properties(server, broker, prefix, database.name)
        self._broker, self._database = broker, database

    def capture_until(self, stop_at: str) -> list[int]:
        """Return the ids of all records, once a capture has ended."""
        with CaptureThread({**self.settings, "tailrace.stop.at": stop_at}) as capture:
            eventually(lambda: not capture.running, "the capture ends by itself")
        return self.written

    @property
    def written(self) -> list[int]:
        """The ids of all records."""
        prefix = self.settings["topic.prefix"]
        records = records_of(self._broker.bootstrap, prefix, self._database.name, "t")
        return [record.json["after"]["id"] for record in records]

    @property
    def topics(self) -> list[str]:
        """The topics of the captures."""
        found = self._broker.admin().list_topics(timeout=60).topics
        return [topic for topic in found if topic.startswith(self.settings["topic.prefix"])]

    def position(self) -> tuple[str, int]:
        """Return the end of the log."""
        file, pos = self._database.execute("SHOW MASTER STATUS")[0][:2]
        return str(file), int(pos)

    def insert(self, key: int) -> str:
        """Insert a row; return its GTID."""
        self._database.execute("INSERT INTO t VALUES (%s, REPEAT('x', 500))", (key,))
        executed, server = self._database.execute("SELECT @@global.gtid_executed, @@server_uuid")[0]
        own = next((part for part in executed.replace("\n", "").split(",") if part.startswith(server)), "")
        return f"{server}:{own.rpartition(':')[2].rpartition('-')[2]}"


@pytest.fixture
def bounded(mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database) -> Bounded:
    """Captures of a table of one row."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(600))")
    found = Bounded(mysql_server, kafka_broker, prefix, database)
    found.insert(0)
    return found


def test_capture_ends_at_the_end_of_the_log_and_at_a_position(bounded: Bounded) -> None:
    """An initial snapshot is completed first, whatever is wanted; a wrong boundary is found before all is written."""
    with pytest.raises(ConfigError, match="no GTID set"):
        bounded.capture_until("binlog")
    assert not bounded.topics
    assert bounded.capture_until("latest") == [0]
    bounded.insert(1)
    file, pos = bounded.position()
    bounded.insert(2)
    assert bounded.capture_until(f"{file}:{pos}") == [0, 1]
    ahead = datetime.now(UTC) + timedelta(hours=1)
    for wrong, message in ((ahead.isoformat(), "is ahead"), ("binlog", "no GTID set")):
        with pytest.raises(ConfigError, match=message):
            bounded.capture_until(wrong)
    assert bounded.written == [0, 1]


@pytest.mark.long
def test_each_form_of_a_boundary(bounded: Bounded, database: Database) -> None:
    """What is behind is written by the next capture, once; a transaction that begins before a position is whole."""
    bounded.insert(1)
    start = bounded.position()
    bounded.insert(2)
    gtid = bounded.insert(3)
    bounded.insert(4)
    [[now]] = database.execute("SELECT NOW(6)")
    between = now.replace(tzinfo=UTC).isoformat()
    bounded.insert(5)
    file, within = start[0], start[1] + 100
    assert bounded.capture_until("latest") == [0, 1, 2, 3, 4, 5]  # the snapshot

    for key in range(6, 11):
        bounded.insert(key)
        if key == 6:
            file, within = bounded.position()
            within += 100
        if key == 8:
            gtid = bounded.insert(80)
        if key == 9:
            [[now]] = database.execute("SELECT NOW(6)")
            between = now.replace(tzinfo=UTC).isoformat()
    database.execute("FLUSH BINARY LOGS")
    expected = [0, 1, 2, 3, 4, 5]
    for stop_at, more in (
        (f"{file}:4", []),
        (f"{file}:{within}", [6, 7]),
        (f"{file}:{within}", []),
        (gtid, [8, 80]),
        (between, [9]),
        ("latest", [10]),
        ("latest", []),
    ):
        expected += more
        assert bounded.capture_until(stop_at) == expected, stop_at


@pytest.mark.long
def test_capture_ends_under_load_within_batches(bounded: Bounded) -> None:
    """The set is complete in the middle of what is received at once."""
    bounded.capture_until("latest")
    source, _, number = bounded.insert(1).partition(":")
    stop = threading.Event()

    def write() -> None:
        for key in range(2, 3000):
            if stop.is_set():
                return
            bounded.insert(key)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert bounded.capture_until(f"{source}:1-{int(number) + 200}") == list(range(202))
    finally:
        stop.set()
        writer.join()
    assert bounded.capture_until(f"{source}:1-{int(number) + 201}") == list(range(203))


@pytest.mark.long
def test_end_of_the_log_at_the_start_does_not_move_with_a_new_session(
    bounded: Bounded, database: Database, kafka_broker: KafkaBroker
) -> None:
    """A lost connection while the log grows: the process ends where the log ended when it started."""
    database.execute("ALTER TABLE t MODIFY v MEDIUMTEXT")
    bounded.capture_until("latest")
    backlog = range(1, 400)
    for key in backlog:  # far more than the buffers of the connection hold
        database.execute("INSERT INTO t VALUES (%s, REPEAT('x', 100000))", (key,))
    settings = {**bounded.settings, "tailrace.stop.at": "latest", "max.batch.size": "20"}
    with capture_logs() as logs, CaptureThread(settings) as capture:
        eventually(lambda: capture.status.snapshot()["stream"]["events"] > 50, "a part of the backlog")
        with kafka_broker.paused():  # commits wait, so that the capture does not reach the end meanwhile
            bounded.insert(2000)
            database.kill_sessions("command LIKE 'Binlog Dump%'")
            assert capture.running
        eventually(lambda: not capture.running, "the capture ends by itself")
        assert capture.status.snapshot()["stream"]["disconnects"] >= 2
    assert [entry["event"] for entry in logs].count("the capture will end by itself") == 1
    assert bounded.written == [0, *backlog]


@pytest.mark.long
@pytest.mark.parametrize("extension", ["0", "1"])
def test_process_exits_with_0(
    bounded: Bounded, tmp_path: Path, extension: str, monkeypatch: pytest.MonkeyPatch, database: Database
) -> None:
    monkeypatch.setenv("TAILRACE_NATIVE", extension)
    database.execute("INSERT INTO t VALUES (1, ''), (2, '')")
    with CaptureProcess({**bounded.settings, "tailrace.stop.at": "latest"}, tmp_path) as capture:
        assert capture.wait() == 0
    assert bounded.written == [0, 1, 2]


@pytest.mark.long
def test_boundaries_and_distance_without_gtids(kafka_broker: KafkaBroker, prefix: str) -> None:
    """Only file and position, a time and the end of the log are boundaries there."""
    with MySqlServer(settings={"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}) as server:
        database = Database(server, "shop")
        database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(600))")
        bounded = Bounded(server, kafka_broker, prefix, database)
        assert bounded.capture_until("latest") == []
        bounded.insert(1)
        file, pos = bounded.position()
        stored = MySqlSource(settings_of(server), server_id=4722).end_offset(epoch=1)
        bounded.insert(2)
        database.execute("FLUSH BINARY LOGS")
        with closing(MySqlSource(settings_of(server), server_id=4722).open_log_monitor()) as monitor:
            distance = monitor.distance(stored)
        assert distance is not None
        assert (distance.files, distance.transactions) == (1, None)
        assert distance.purge_left_s is not None
        assert distance.purge_left_s > 0
        assert bounded.capture_until(f"{file}:{pos}") == [1]
        with pytest.raises(ConfigError, match="gtid_mode of the source is not ON"):
            bounded.capture_until("00000000-0000-0000-0000-000000000001:1-5")
        assert bounded.capture_until("latest") == [1, 2]
        database.close()
