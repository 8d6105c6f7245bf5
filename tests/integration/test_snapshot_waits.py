"""What waits for what in a snapshot: readers for the binlog reader, and nothing for a planner whose query is slow."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from prometheus_client import generate_latest

from tailrace.producer.ops.metrics import endpoints
from tailrace.producer.snapshot.hooks import SnapshotHooks
from tailrace.schemas.names import SPLIT_HEADER
from tests.support.capture import CaptureThread, eventually, properties, records_of, verified_rows
from tests.support.mysql_proxy import MySqlProxy

if TYPE_CHECKING:
    import pytest

    from tailrace.producer.model.split import Split
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database

CHUNK = 10


def _fill(database: Database, table: str, rows: int) -> None:
    database.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(20))")
    database.executemany(f"INSERT INTO {table} VALUES (%s, %s)", [(n, f"v{n}") for n in range(1, rows + 1)])


def _rows(broker: KafkaBroker, prefix: str, database: Database, table: str) -> dict[int, str]:
    rows = verified_rows(broker.bootstrap, prefix, database.name, table).values()
    return {row["id"]: row["v"] for row in rows}


_GREATEST_KEY_OF_B = b"`b` ORDER BY"
"""In the query of the planner that reads the greatest key of a table."""


def _through(
    proxy: MySqlProxy, server: MySqlServer, broker: KafkaBroker, prefix: str, database: Database
) -> dict[str, str]:
    """Return a configuration with small splits, whose connections to the server lead through a proxy."""
    changes = {
        "database.port": proxy.port,
        "database.ssl.mode": "disabled",
        "snapshot.max.threads": 2,
        "incremental.snapshot.chunk.size": CHUNK,
    }
    return properties(server, broker, prefix, database.name, changes)


def _table(capture: CaptureThread, table: str) -> dict[str, Any]:
    found: dict[str, Any] = capture.status.snapshot()["tables"].get(table, {"put_off": ""})
    return found


def _splits_of(broker: KafkaBroker, prefix: str, database: Database, key: int) -> list[str]:
    """Return the numbers of the splits that the records of a key of table b belong to; empty: of none."""
    return [
        record.headers.get(SPLIT_HEADER, b"").decode().rpartition(":")[2]
        for record in records_of(broker.bootstrap, prefix, database.name, "b")
        if record.key is not None and f'"id":{key}' in record.key.decode().replace(" ", "")
    ]


def test_a_held_change_does_not_wait_for_the_planner(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """A split that is done releases its changes although the next table cannot be planned yet.

    The keys above the greatest one that was planned have a window of their own: a row that was deleted while the
    greatest key was read has no change that a reader of the changelog cannot place.
    """
    _fill(database, "a", 2 * CHUNK)
    _fill(database, "b", CHUNK)
    planned = threading.Event()

    def hold(split: Split) -> None:
        if split.table.table == "a" and split.number == 0:
            assert planned.wait(120)

    with MySqlProxy(mysql_server) as proxy:
        proxy.delay(_GREATEST_KEY_OF_B)
        with CaptureThread(
            _through(proxy, mysql_server, kafka_broker, prefix, database), SnapshotHooks(before_high=hold)
        ) as capture:
            assert proxy.reached.wait(120)
            database.execute("UPDATE a SET v = 'held' WHERE id = 3")
            planned.set()
            eventually(
                lambda: any(
                    r.value and b"held" in r.value
                    for r in records_of(kafka_broker.bootstrap, prefix, database.name, "a")
                ),
                "the change of a",
            )
            assert capture.status.snapshot()["tables"][f"{database.name}.b"]["mode"] == "planning"
            database.execute(f"DELETE FROM b WHERE id = {CHUNK}")
            proxy.release()
            capture.wait_snapshot()
            database.execute("UPDATE b SET v = CONCAT(v, '.')")
            capture.wait_position(mysql_server)

    assert _rows(kafka_broker, prefix, database, "a") == dict(database.execute("SELECT id, v FROM a"))
    assert _rows(kafka_broker, prefix, database, "b") == dict(database.execute("SELECT id, v FROM b"))
    gone = _splits_of(kafka_broker, prefix, database, CHUNK)
    assert gone, "the delete was not read in the window"
    assert set(gone) == {"-1"}


def test_a_planner_that_gives_up_leaves_no_change_out(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """The table is locked while its greatest key is read: what was held meanwhile is in the rows of the next plan.

    The next window of the keys above the greatest one begins behind it: a row that was deleted in the window that was
    given up is in no record, and one that was inserted above it is read once.
    """
    _fill(database, "a", CHUNK)
    _fill(database, "b", CHUNK)
    b = f"{database.name}.b"

    with MySqlProxy(mysql_server) as proxy, database.connect() as other, other.cursor() as cursor:
        proxy.delay(_GREATEST_KEY_OF_B)
        with CaptureThread(_through(proxy, mysql_server, kafka_broker, prefix, database)) as capture:
            assert proxy.reached.wait(120)
            cursor.execute("LOCK TABLES b WRITE")
            cursor.execute(f"DELETE FROM b WHERE id = {CHUNK}")
            cursor.execute(f"INSERT INTO b VALUES ({2 * CHUNK}, 'above')")
            other.commit()
            eventually(lambda: capture.status.snapshot()["stream"]["held_by"] == b, "the changes of b are held")
            proxy.release()
            eventually(lambda: "holds SHARED_NO_READ_WRITE" in _table(capture, b)["put_off"], "the planner gives up")
            database.execute("UPDATE a SET v = 'behind' WHERE id = 3")
            capture.wait_position(mysql_server)
            assert _table(capture, b)["mode"] == "waiting"
            cursor.execute("UNLOCK TABLES")
            capture.wait_snapshot()
            database.execute("UPDATE b SET v = CONCAT(v, '.')")
            capture.wait_position(mysql_server)
            assert capture.status.snapshot()["stream"]["disconnects"] == 0

    assert _rows(kafka_broker, prefix, database, "a") == dict(database.execute("SELECT id, v FROM a"))
    assert _rows(kafka_broker, prefix, database, "b") == dict(database.execute("SELECT id, v FROM b"))
    assert _splits_of(kafka_broker, prefix, database, CHUNK) == []
    assert _splits_of(kafka_broker, prefix, database, 2 * CHUNK) == ["0", ""]  # its row, and the update of all


def test_readers_pause_while_the_binlog_reader_is_behind(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """The binlog reader holds a change of a split that is being read, so no other split can end meanwhile."""
    _fill(database, "t", 20 * CHUNK)
    resume, once = threading.Event(), threading.Lock()

    def hold(split: Split) -> None:
        if split.number == 0 and once.acquire(blocking=False):
            database.execute("UPDATE t SET v = 'held' WHERE id = 3")
            assert resume.wait(120)

    settings = properties(
        mysql_server,
        kafka_broker,
        prefix,
        database.name,
        {
            "snapshot.max.threads": 2,
            "incremental.snapshot.chunk.size": CHUNK,
            "tailrace.snapshot.max.waiting.splits": 3,
        },
    )
    with CaptureThread(settings, SnapshotHooks(after_low=hold)) as capture:
        eventually(lambda: capture.status.snapshot()["snapshot"]["waits_for_stream"], "the snapshot waits")
        now = capture.status.snapshot()["snapshot"]
        assert now["splits_waiting"] <= 4  # one more may be read by the other reader
        assert now["splits_planned"] < 20
        resume.set()
        capture.wait_snapshot()
        eventually(lambda: not capture.status.snapshot()["snapshot"]["waits_for_stream"], "the snapshot goes on")
        capture.wait_position(mysql_server)

    assert _rows(kafka_broker, prefix, database, "t") == dict(database.execute("SELECT id, v FROM t"))


def test_a_hold_of_the_stream_is_reported(
    mysql_server: MySqlServer,
    kafka_broker: KafkaBroker,
    prefix: str,
    database: Database,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A change of a table that is one split holds the others: status, metrics and log name the table."""
    _fill(database, "a", CHUNK)
    database.execute("CREATE TABLE k (f FLOAT PRIMARY KEY, v INT)")
    database.execute("INSERT INTO k VALUES (1.5, 1), (2.5, 2)")
    held, warning = f"{database.name}.k", "the stream waits for a table whose snapshot is being read"
    seen: list[str] = []

    def hold(split: Split) -> None:
        if split.table.table != "k":
            return
        eventually(lambda: capture.status.snapshot()["tables"][f"{database.name}.a"]["mode"] == "streaming", "table a")
        database.execute("UPDATE k SET v = 9 WHERE v = 2")
        database.execute("INSERT INTO a VALUES (1000, 'behind')")

        def reported() -> bool:
            seen.append(capsys.readouterr().out)
            return warning in "".join(seen)

        eventually(reported, "the warning", 60)
        stream = capture.status.snapshot()["stream"]
        assert stream["held_by"] == held
        assert stream["held_ms"] >= 5000
        assert stream["lag_ms"] >= 5000
        text = generate_latest(endpoints(capture.status).metrics).decode()
        assert f'tailrace_table_held_milliseconds_total{{server="{prefix}",table="{held}"}}' in text
        assert f'tailrace_stream_held_milliseconds{{server="{prefix}"}} 0.0' not in text

    settings = properties(mysql_server, kafka_broker, prefix, database.name, {"snapshot.max.threads": 2})
    with CaptureThread(settings, SnapshotHooks(before_high=hold)) as capture:
        capture.wait_snapshot()
        capture.wait_position(mysql_server)
        now = capture.status.snapshot()
    [line] = [line for line in "".join(seen).splitlines() if warning in line]
    assert f"table={held}" in line
    assert f"splits={held}:" in line
    assert (now["stream"]["held_by"], now["stream"]["held_ms"]) == ("", 0)
    assert now["tables"][held]["held_ms"] >= 5000
    assert 1000 in _rows(kafka_broker, prefix, database, "a")
