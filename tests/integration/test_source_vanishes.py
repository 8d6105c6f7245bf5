"""A source that vanishes without a word: the producer neither hangs nor ends."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tailrace.producer.errors import SourceUnavailableError
from tailrace.producer.mysql.connection import connect, disconnect, query
from tests.embedded.kafka import KafkaBroker
from tests.embedded.mysql import MySqlServer
from tests.support.binlog import account_settings, settings_of
from tests.support.capture import CaptureThread, eventually, properties, verified_rows
from tests.support.database import Database
from tests.support.mysql_proxy import MySqlProxy


def test_session_is_closed_while_another_thread_waits_in_it(mysql_server: MySqlServer) -> None:
    """Without and with TLS: the closing thread does not wait, and the other one gets an error."""
    for mode in ("disabled", "required"):
        session = connect(settings_of(mysql_server, mode))
        failures: list[BaseException] = []

        def wait(session: Any = session, failures: list[BaseException] = failures) -> None:
            try:
                query(session, "SELECT SLEEP(60)")
            except BaseException as error:  # noqa: BLE001 - judged below
                failures.append(error)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        with closing(mysql_server.connect()) as observer, observer.cursor() as cursor:
            sleeping = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO = 'SELECT SLEEP(60)'"
            eventually(partial(_count, cursor, sleeping), "the thread waits")
        began = time.monotonic()
        disconnect(session)
        thread.join(timeout=60)
        assert time.monotonic() - began < 30
        assert not thread.is_alive()
        assert isinstance(failures[0], SourceUnavailableError | AttributeError | ValueError), failures


def _count(cursor: Any, sql: str) -> int:
    cursor.execute(sql)
    return int(cursor.fetchone()[0])


def test_server_that_accepts_and_says_nothing() -> None:
    """The kernel accepts for a stopped server: the timeout of the connection holds for the greeting too."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        settings = replace(account_settings("127.0.0.1", listener.getsockname()[1]), connect_timeout_s=0.5)
        began = time.monotonic()
        with pytest.raises(SourceUnavailableError):
            connect(settings)
    assert time.monotonic() - began < 60


def test_capture_continues_when_a_query_is_never_answered(
    database: Database, kafka_broker: KafkaBroker, prefix: str
) -> None:
    """The snapshot waits in a query when the server vanishes; a new session starts at once, and the old one is over."""
    database.execute("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)")
    database.execute("INSERT INTO t (v) VALUES (1), (2), (3)")
    lock = database.connect()
    with MySqlProxy(database.server) as proxy, closing(lock), lock.cursor() as cursor:
        settings = properties(
            database.server,
            kafka_broker,
            prefix,
            database.name,
            {"database.port": proxy.port, "database.ssl.mode": "disabled"},
        )
        cursor.execute("LOCK TABLES t WRITE")
        with CaptureThread(settings) as capture:
            waiting = (
                "SELECT COUNT(*) FROM information_schema.PROCESSLIST "
                f"WHERE STATE = 'Waiting for table metadata lock' AND INFO LIKE '%{database.name}%'"
            )
            eventually(lambda: database.execute(waiting)[0][0], "the snapshot waits for the lock")
            proxy.vanish()
            began = time.monotonic()
            eventually(lambda: capture.status.snapshot()["stream"]["disconnects"], "the session ends", deadline_s=30)
            cursor.execute("UNLOCK TABLES")
            capture.wait_snapshot()
            assert time.monotonic() - began < 60
            database.execute("UPDATE t SET v = v + 10")
            capture.wait_position(database.server)
    assert len(verified_rows(kafka_broker.bootstrap, prefix, database.name, "t")) == 3
