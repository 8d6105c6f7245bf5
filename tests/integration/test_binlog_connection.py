"""The dump connection to a real server: wake-ups and disconnects."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from tailrace.producer.errors import BinlogError, SourceError, SourceUnavailableError
from tailrace.producer.model.binlog_events import PositionAdvanced
from tailrace.producer.mysql.authentication import Tls
from tailrace.producer.mysql.binlog.stream import BinlogStream
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.password import Password
from tests.embedded.mysql import MySqlServer
from tests.support.binlog import (
    executed,
    follow,
    open_stream,
    poll_until_it_fails,
    settings_of,
)
from tests.support.database import Database


def test_wake_ends_a_waiting_poll(database: Database) -> None:
    """Another thread interrupts a long poll."""
    stream = open_stream(database.server, executed(database.server))
    try:
        while stream.poll(0.0):
            pass
        began = time.monotonic()
        timer = threading.Timer(0.3, stream.wake)
        timer.start()
        while time.monotonic() - began < 0.3 and stream.poll(120.0):
            pass
        timer.join()
        assert time.monotonic() - began < 60
        stream.wake()
        # A slow machine may have a heartbeat waiting: then the poll returns it, also at once.
        assert all(isinstance(event, PositionAdvanced) for event in stream.poll(120.0))
        assert time.monotonic() - began < 60
    finally:
        stream.close()
        stream.wake()


def test_killed_connection_is_retryable(database: Database) -> None:
    """KILL of the dump thread: the caller restarts from its GTID set."""
    stream = open_stream(database.server, executed(database.server))
    try:
        stream.poll(1.0)
        database.kill_sessions("command LIKE 'Binlog Dump%'")
        with pytest.raises(SourceUnavailableError):
            poll_until_it_fails(stream)
    finally:
        stream.close()


def test_second_reader_with_the_same_id_disconnects_the_first(database: Database) -> None:
    """The server allows one dump per id: the first reader gets a hint, or only loses its connection."""
    now = executed(database.server)
    first = open_stream(database.server, now)
    first.poll(1.0)
    second = open_stream(database.server, now)
    try:
        with pytest.raises((BinlogError, SourceUnavailableError)):
            poll_until_it_fails(first)
    finally:
        first.close()
        second.close()


def test_stopped_server_is_silent() -> None:
    """The server hangs without closing the connection: silence is an error."""
    with MySqlServer() as server:
        stream = open_stream(server, executed(server), silence_timeout_s=5.0)
        try:
            stream.poll(1.0)
            with server.paused(), pytest.raises(SourceUnavailableError, match="silent"):
                poll_until_it_fails(stream)
        finally:
            stream.close()


def test_server_shutdown_is_retryable() -> None:
    """A normal shutdown while the stream is open."""
    with MySqlServer() as server:
        stream = open_stream(server, executed(server))
        try:
            stream.poll(1.0)
            server.kill()
            with pytest.raises(SourceUnavailableError):
                poll_until_it_fails(stream)
            with pytest.raises(SourceUnavailableError):
                open_stream(server, GtidSet({}))
        finally:
            stream.close()


def test_purged_position_is_reported_with_a_hint(own_database: Database) -> None:
    """The stream starts before the oldest binlog file."""
    start = executed(own_database.server)
    own_database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    own_database.execute("INSERT INTO t VALUES (1)")
    own_database.execute("FLUSH BINARY LOGS")
    file = str(own_database.execute("SHOW MASTER STATUS")[0][0])
    own_database.execute(f"PURGE BINARY LOGS TO '{file}'")

    with pytest.raises(BinlogError) as caught:
        follow(own_database.server, start)

    assert caught.value.context["code"] == 1236
    assert "new snapshot" in caught.value.hint


def test_missing_grant_is_reported(own_database: Database) -> None:
    """REPLICATION SLAVE is missing."""
    own_database.execute("CREATE USER IF NOT EXISTS poor IDENTIFIED BY 'p'")
    server = own_database.server
    poor = replace(
        settings_of(server), user="poor", password=Password("p"), tls=Tls("preferred", insecure_authentication=True)
    )
    stream = BinlogStream(poor, start=executed(server), server_id=9, captures=lambda _: True)
    try:
        stream.open()
        with pytest.raises(SourceError) as caught:
            poll_until_it_fails(stream)
    finally:
        stream.close()

    assert "REPLICATION SLAVE" in caught.value.hint
    assert not isinstance(caught.value, SourceUnavailableError)
