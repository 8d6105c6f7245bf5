"""Resuming within a transaction, with other filters and on another server: every change exactly once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

from tailrace.producer.errors import SourceBehindError
from tailrace.producer.snapshot.hooks import SnapshotHooks
from tailrace.schemas.names import watermarks_topic
from tests.support.capture import CaptureThread, eventually, properties, records_of, verified_rows
from tests.support.incremental_checks import state_of
from tests.support.replication import Cluster, replicating_servers, run
from tests.support.tcp_proxy import TcpProxy
from tests.support.topics import read_topic

if TYPE_CHECKING:
    from tailrace.producer.model.split import Split
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database

STATEMENTS = 300
ROWS = 20
"""Rows of each statement, half a kilobyte each: a transaction of several megabytes, which is read in parts."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Two servers of one cluster."""
    with replicating_servers() as found:
        yield found


def _fill(database: Database) -> None:
    """Write one transaction: inserts in turn into a and b."""
    with database.connect(autocommit=False) as session, session.cursor() as cursor:
        for number in range(STATEMENTS):
            ids = range(number * ROWS, (number + 1) * ROWS)
            values = ",".join(f"({key}, REPEAT('x', 500))" for key in ids)
            cursor.execute(f"INSERT INTO {'ab'[number % 2]} VALUES {values}")
        session.commit()


def _stop_within_a_transaction(broker: KafkaBroker, settings: Mapping[str, str], database: Database) -> str:
    """Write a large transaction, and stop the capture when it has written a part of it; return its GTID."""
    for table in "ab":
        database.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(600))")
    with CaptureThread({**settings, "max.batch.size": "40"}) as capture:
        capture.wait_snapshot()
        _fill(database)
        eventually(lambda: capture.status.snapshot()["stream"]["events"] > 20, "a part of the transaction")
    stored = state_of(broker, settings["topic.prefix"], "offset")
    assert stored is not None
    [mark] = stored["transactions"]
    assert mark["number"] > 0
    return str(mark["gtid"])


def _inserted(broker: KafkaBroker, prefix: str, database: Database, table: str) -> Counter[int]:
    return Counter(r.json["after"]["id"] for r in records_of(broker.bootstrap, prefix, database.name, table) if r.value)


def _expected(table: str) -> Counter[int]:
    return Counter(n for n in range(STATEMENTS * ROWS) if "ab"[n // ROWS % 2] == table)


def test_filters_change_within_a_transaction(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """Events of a table that is no longer captured do not count as events of the other table."""
    settings = properties(mysql_server, kafka_broker, prefix, database.name)
    _stop_within_a_transaction(kafka_broker, settings, database)

    with CaptureThread({**settings, "table.include.list": rf"{database.name}\.a"}) as capture:
        capture.wait_position(mysql_server)

    assert _inserted(kafka_broker, prefix, database, "a") == _expected("a")


def test_transaction_continues_on_a_replica_that_applies_it_later(
    cluster: Cluster, kafka_broker: KafkaBroker, prefix: str
) -> None:
    """The replica has other events, and another filter is in force; without the transaction it is an error."""
    from tests.support.database import Database  # noqa: PLC0415

    database = Database(cluster.primary, "d")
    cluster.wait_replicated()
    settings = properties(cluster.primary, kafka_broker, prefix, database.name)
    run(cluster.replica, "STOP SLAVE SQL_THREAD")
    gtid = _stop_within_a_transaction(kafka_broker, settings, database)
    cluster.wait_received()
    cluster.primary.kill()
    changes = {"database.port": str(cluster.replica.port), "table.include.list": r"d\.b"}

    with (
        pytest.raises(SourceBehindError, match="partly written") as caught,
        CaptureThread({**settings, **changes, "tailrace.failover.wait.ms": "0"}) as capture,
    ):
        eventually(lambda: not capture.running, "the end of the capture")
    assert caught.value.context["partly_written"] == gtid

    later = threading.Timer(1.5, run, (cluster.replica, "START SLAVE SQL_THREAD"))
    later.start()
    with CaptureThread({**settings, **changes}) as capture:
        eventually(lambda: capture.status.snapshot()["connected"], "the session after the wait")
        later.join()
        capture.wait_position(cluster.replica)
    assert _inserted(kafka_broker, prefix, database, "b") == _expected("b")


def test_failover_during_a_snapshot(cluster: Cluster, kafka_broker: KafkaBroker, prefix: str) -> None:
    """The primary is killed while splits are committed that the stream has not reached; the capture goes on."""
    from tests.support.database import Database  # noqa: PLC0415

    database = Database(cluster.primary, "d")
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(50))")
    database.executemany("INSERT INTO t VALUES (%s, %s)", [(n, f"v{n}") for n in range(1, 1001)])
    with TcpProxy(cluster.primary.port) as proxy:
        settings = {
            **properties(cluster.primary, kafka_broker, prefix, database.name),
            "database.port": str(proxy.port),
            "snapshot.max.threads": "2",
        }
        failed = threading.Event()

        def fail_over(split: Split) -> None:
            """Hold the stream by a change of this split, let others be committed before it, and kill the primary."""
            if split.number != 3 or failed.is_set():
                return
            database.execute("UPDATE t SET v = 'held' WHERE id BETWEEN 101 AND 200")
            eventually(lambda: _splits_without_end(kafka_broker, prefix) >= 3, "splits that the stream has not reached")
            database.execute("UPDATE t SET v = CONCAT(v, '+') WHERE id BETWEEN 250 AND 600")
            cluster.wait_replicated()
            failed.set()
            cluster.primary.kill()
            proxy.move(cluster.replica.port)

        with CaptureThread(settings, SnapshotHooks(after_low=fail_over)) as capture:
            eventually(failed.is_set, "the failover")
            run(cluster.replica, "STOP SLAVE", "UPDATE d.t SET v = CONCAT(v, '-') WHERE id % 3 = 0")
            capture.wait_snapshot()
            run(cluster.replica, "DELETE FROM d.t WHERE id % 7 = 0")
            capture.wait_position(cluster.replica)

    rows = verified_rows(kafka_broker.bootstrap, prefix, "d", "t")
    assert {row["id"]: row["v"] for row in rows.values()} == dict(run(cluster.replica, "SELECT id, v FROM d.t"))


def _splits_without_end(broker: KafkaBroker, prefix: str) -> int:
    marks = read_topic(broker.bootstrap, watermarks_topic(prefix))
    kinds = Counter(mark.json["kind"] for mark in marks if mark.value is not None)
    return kinds["HIGH"] - kinds["END"]
