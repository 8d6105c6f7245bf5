"""Signals of every type over every channel: incremental snapshots of tables under load."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from confluent_kafka.admin import AdminClient

from tailrace.producer.snapshot.hooks import SnapshotHooks
from tailrace.schemas.names import state_topic, watermarks_topic
from tests.support.background_writes import writing
from tests.support.capture import CaptureProcess, CaptureThread, eventually, properties
from tests.support.incremental_checks import (
    incremental_ends,
    incremental_rows,
    notifications,
    pending_requests,
    send,
    signal,
    signal_completed,
    state_of,
    verified_incremental,
)
from tests.support.topics import read_topic

if TYPE_CHECKING:
    from tailrace.producer.model.split import Split
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database

ROWS = 400
SMALL = {"incremental.snapshot.chunk.size": 40, "signal.poll.interval.ms": 50}
KAFKA = {**SMALL, "signal.enabled.channels": "kafka"}


def _fill(database: Database, rows: int = ROWS) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(200))")
    database.executemany("INSERT INTO t VALUES (%s, %s)", [(n, f"v{n}") for n in range(1, rows + 1)])


def _source(database: Database) -> dict[int, str]:
    return dict(database.execute("SELECT id, v FROM t"))


def _verify_rows(broker: KafkaBroker, prefix: str, database: Database) -> None:
    rows = verified_incremental(broker, prefix, database.name)
    assert {row["id"]: row["v"] for row in rows.values()} == _source(database)


def _splits_read(broker: KafkaBroker, prefix: str) -> int:
    watermarks = [orjson.loads(r.value) for r in read_topic(broker.bootstrap, watermarks_topic(prefix)) if r.value]
    return sum(mark["kind"] == "HIGH" and mark.get("incremental", False) for mark in watermarks)


def _streaming(broker: KafkaBroker, prefix: str, database: Database) -> bool:
    table = state_of(broker, prefix, f"table/{database.name}.t") if _state_topic_exists(broker, prefix) else None
    return table is not None and table["mode"] == "streaming"


def _state_topic_exists(broker: KafkaBroker, prefix: str) -> bool:
    return state_topic(prefix) in AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=60).topics


def _offset_reached(broker: KafkaBroker, prefix: str, database: Database) -> bool:
    executed = str(database.execute("SELECT @@global.gtid_executed")[0][0])
    stored: Any = state_of(broker, prefix, "offset")
    return bool(database.execute("SELECT GTID_SUBSET(%s, %s)", (executed, stored["position"]["gtids"]))[0][0])


def _change(cursor: Any, n: int) -> None:
    at = n * 7919 % 4_000
    cursor.execute("UPDATE t SET v = %s WHERE id BETWEEN %s AND %s", (f"n{n}", at, at + 3))
    cursor.execute("DELETE FROM t WHERE id = %s", (at + 4,))
    cursor.execute("REPLACE INTO t VALUES (%s, 'back')", (at * 3 % 4_000,))


def _tables(database: Database, *names: str) -> dict[str, object]:
    return {"data-collections": [f"{database.name}.{name}" for name in names or ("t",)]}


@pytest.mark.parametrize("moment", ["before_low", "after_low", "before_high", "after_high"])
def test_no_change_is_lost_during_an_incremental_snapshot(
    moment: str, mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """Updates, deletes, inserts and changed keys in each window of each split."""
    _fill(database)
    lock = threading.Lock()
    incremental = False

    def act(split: Split) -> None:
        if not incremental or split.table.database != database.name:
            return
        with lock:
            n = split.number
            database.execute(f"UPDATE t SET v = CONCAT(v, '{n}') WHERE id % 7 = {n % 7}")
            database.execute(f"DELETE FROM t WHERE id % 41 = {n}")
            database.execute(f"INSERT INTO t VALUES ({1000 + n}, 'above'), ({-n - 1}, 'below')")
            database.execute(f"UPDATE t SET id = id + 5000 WHERE id % 43 = {n} AND id < 1000")

    settings = properties(mysql_server, kafka_broker, prefix, database.name, KAFKA)
    with CaptureThread(settings, SnapshotHooks(**{moment: act})) as capture:
        capture.wait_snapshot()
        incremental = True
        signal(kafka_broker, prefix, "execute-snapshot", _tables(database))
        eventually(lambda: signal_completed(kafka_broker, prefix), "incremental snapshot")
        database.execute("UPDATE t SET v = CONCAT(v, '.')")
        capture.wait_position(mysql_server)

    _verify_rows(kafka_broker, prefix, database)
    assert len(incremental_ends(kafka_broker, prefix)) >= ROWS // 40


def test_only_rows_that_meet_the_condition_are_read(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """A table by expression, rows by additional-conditions; another table is not read."""
    _fill(database)
    database.execute("CREATE TABLE other (id INT PRIMARY KEY)")
    database.execute("INSERT INTO other VALUES (1)")
    with CaptureThread(properties(mysql_server, kafka_broker, prefix, database.name, KAFKA)) as capture:
        capture.wait_snapshot()
        conditions = [{"data-collection": f"{database.name}.t", "filter": "v LIKE 'v1%' AND id < 150"}]
        signal(
            kafka_broker,
            prefix,
            "execute-snapshot",
            {"data-collections": [rf"{database.name}\.t+"], "additional-conditions": conditions},
        )
        eventually(lambda: signal_completed(kafka_broker, prefix), "incremental snapshot")

    found = sorted(record.json["after"]["id"] for record in incremental_rows(kafka_broker, prefix, database.name))
    assert found == [n for n in range(1, 150) if str(n).startswith("1")]
    assert incremental_rows(kafka_broker, prefix, database.name, "other") == []
    _verify_rows(kafka_broker, prefix, database)


def test_killed_during_an_incremental_snapshot(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database, tmp_path: Path
) -> None:
    """SIGKILL between splits under load: completed splits are kept, the rest is read, the signal is applied once."""
    _fill(database, 4_000)
    settings = properties(mysql_server, kafka_broker, prefix, database.name, KAFKA)
    with CaptureProcess(settings, tmp_path) as producer:
        eventually(lambda: _streaming(kafka_broker, prefix, database), "snapshot finished")
        with writing(database, _change, pause_s=0.02):
            signal(kafka_broker, prefix, "execute-snapshot", _tables(database))
            for splits in (5, 30):
                eventually(lambda: _splits_read(kafka_broker, prefix) >= splits, "splits")  # noqa: B023
                producer.kill()
                producer.start()
            eventually(lambda: signal_completed(kafka_broker, prefix), "incremental snapshot")
        eventually(lambda: _offset_reached(kafka_broker, prefix, database), "the binlog read to its end")
        assert producer.stop() == 0

    _verify_rows(kafka_broker, prefix, database)
    ends = incremental_ends(kafka_broker, prefix)
    assert len({end.snapshot for end in ends}) == 1, "the signal was applied twice"
    keys = [record.key for record in incremental_rows(kafka_broker, prefix, database.name)]
    assert len(keys) == len(set(keys)), "a split was read twice"


def test_pause_resume_and_stop(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """Paused: changes are streamed, no split is read. Stopped: completed splits get their END; then another snapshot.

    The stop arrives while a split is being read: its rows are written, without notifications after ABORTED.
    """
    _fill(database)
    database.execute("CREATE TABLE later (id INT PRIMARY KEY)")
    topic = f"{prefix}.notes"
    values = {
        **KAFKA,
        "snapshot.max.threads": 1,
        "notification.enabled.channels": "sink,log",
        "notification.sink.topic.name": topic,
    }
    paused: list[str] = []
    stopping = False

    def act(split: Split) -> None:
        if split.incremental and split.number == 2 and not paused:
            paused.append("pause-snapshot")
            signal(kafka_broker, prefix, "pause-snapshot", {"type": "INCREMENTAL"})
            eventually(lambda: (state_of(kafka_broker, prefix, "signals") or {}).get("paused"), "paused")
            if stopping:
                eventually(stopped, "the stop during the split")

    def stopped() -> bool:
        return any(request["stopped"] for request in pending_requests(kafka_broker, prefix))

    def types() -> list[str]:
        return [note["type"] for note in notifications(kafka_broker, topic)]

    settings = properties(mysql_server, kafka_broker, prefix, database.name, values)
    with CaptureThread(settings, SnapshotHooks(before_low=act)) as capture:
        capture.wait_snapshot()
        signal(kafka_broker, prefix, "execute-snapshot", _tables(database, "t", "later"), "first")
        eventually(lambda: "PAUSED" in types(), "paused")
        eventually(lambda: _splits_read(kafka_broker, prefix) == 3, "the running split")
        database.execute("UPDATE t SET v = 'while paused'")
        capture.wait_position(mysql_server)
        assert _splits_read(kafka_broker, prefix) == 3
        signal(kafka_broker, prefix, "resume-snapshot")
        eventually(lambda: "COMPLETED" in types(), "completed")
        assert _splits_read(kafka_broker, prefix) == ROWS // 40 + 1

        stopping = True
        paused.clear()
        signal(kafka_broker, prefix, "execute-snapshot", _tables(database, "t", "later"), "second")
        eventually(lambda: types().count("PAUSED") == 2, "paused again")
        signal(kafka_broker, prefix, "stop-snapshot", {**_tables(database, "t", "later"), "type": "INCREMENTAL"})
        eventually(lambda: "ABORTED" in types(), "stopped")
        eventually(lambda: signal_completed(kafka_broker, prefix), "an empty queue")
        database.execute("UPDATE t SET v = 'after'")
        capture.wait_position(mysql_server)

        signal(kafka_broker, prefix, "execute-snapshot", _tables(database, "later"), "third")
        eventually(lambda: types().count("COMPLETED") == 2, "another snapshot")

    _verify_rows(kafka_broker, prefix, database)
    sent = notifications(kafka_broker, topic)
    tables = f"{database.name}.t,{database.name}.later"
    first = [note for note in sent if note["id"] == "first"]
    assert first[0]["type"] == "STARTED"
    assert first[0]["additional_data"] == {"data_collections": f"{database.name}.later,{database.name}.t"} | {
        "connector_name": prefix
    } or first[0]["additional_data"] == {"data_collections": tables, "connector_name": prefix}
    scans = [note["additional_data"] for note in first if note["type"] == "TABLE_SCAN_COMPLETED"]
    assert {(s["scanned_collection"], s["total_rows_scanned"], s["status"]) for s in scans} == {
        (f"{database.name}.t", str(ROWS), "SUCCEEDED"),
        (f"{database.name}.later", "0", "EMPTY"),
    }
    progress = [note["additional_data"] for note in first if note["type"] == "IN_PROGRESS"]
    assert {p["maximum_key"] for p in progress if p["current_collection_in_progress"] == f"{database.name}.t"} == {
        str(ROWS)
    }
    assert [note["type"] for note in sent if note["id"] == "second"][-1] == "ABORTED"
    assert set(sent[0]) == {"id", "type", "aggregate_type", "additional_data", "timestamp"}


def test_signal_table_is_read_and_captured_only_if_included(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """Inserts are signals; existing rows, updates and deletes are not. A table that is not included has no topic."""
    _fill(database)
    database.execute("CREATE TABLE sig (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))")
    data = orjson.dumps(_tables(database)).decode()
    database.execute("INSERT INTO sig VALUES ('old', 'execute-snapshot', %s)", (data,))
    source = {**SMALL, "signal.data.collection": f"{database.name}.sig", "table.include.list": f"{database.name}.t"}
    with CaptureThread(properties(mysql_server, kafka_broker, prefix, database.name, source)) as capture:
        capture.wait_snapshot()
        database.execute("UPDATE sig SET data = '{}'")
        database.execute("DELETE FROM sig")
        database.execute("INSERT INTO sig VALUES ('bad', 'execute-snapshot', 'no json'), ('odd', 'unknown', NULL)")
        database.execute("UPDATE t SET v = 'before' WHERE id = 1")
        capture.wait_position(mysql_server)
        assert incremental_ends(kafka_broker, prefix) == []
        with database.connect() as session, session.cursor() as cursor:
            cursor.execute("START TRANSACTION")
            cursor.execute("UPDATE t SET v = 'with it' WHERE id < 100")
            cursor.execute("INSERT INTO sig VALUES ('now', 'execute-snapshot', %s)", (data,))
            cursor.execute("UPDATE t SET v = 'behind it' WHERE id < 50")
            cursor.execute("COMMIT")
        eventually(lambda: len(incremental_rows(kafka_broker, prefix, database.name)) == ROWS, "incremental snapshot")
        eventually(lambda: signal_completed(kafka_broker, prefix), "all splits ended")
        capture.wait_position(mysql_server)

    _verify_rows(kafka_broker, prefix, database)
    assert read_topic(kafka_broker.bootstrap, f"{prefix}.{database.name}.sig") == []

    included = {**source, "table.include.list": f"{database.name}.*"}
    with CaptureThread(properties(mysql_server, kafka_broker, prefix, database.name, included)) as capture:
        capture.wait_snapshot()
        database.execute("INSERT INTO sig VALUES ('more', 'execute-snapshot', %s)", (data,))
        eventually(lambda: len(incremental_rows(kafka_broker, prefix, database.name)) == 2 * ROWS, "another snapshot")
        capture.wait_position(mysql_server)
    records = read_topic(kafka_broker.bootstrap, f"{prefix}.{database.name}.sig")
    assert sorted((record.json["op"], record.json["after"]["id"]) for record in records) == [
        ("c", "more"),
        ("r", "bad"),
        ("r", "now"),
        ("r", "odd"),
    ]


def test_signal_file_is_processed_and_removed(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database, tmp_path: Path
) -> None:
    """Invalid lines are reported and skipped."""
    _fill(database)
    path = tmp_path / "signals.txt"
    line = orjson.dumps({"id": "f", "type": "execute-snapshot", "data": _tables(database)}).decode()
    settings = properties(
        mysql_server,
        kafka_broker,
        prefix,
        database.name,
        {**SMALL, "signal.enabled.channels": "source,file", "signal.file": path},
    )
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        path.write_text(f"no json\n\n{line}\n")
        eventually(lambda: len(incremental_rows(kafka_broker, prefix, database.name)) == ROWS, "incremental snapshot")
        eventually(lambda: list(tmp_path.glob("signals.txt*")) == [], "the file removed")
        eventually(lambda: signal_completed(kafka_broker, prefix), "all splits ended")

    _verify_rows(kafka_broker, prefix, database)


def test_invalid_signals_are_ignored(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """They do not stop the capture; later signals are applied; each is processed once across a restart."""
    _fill(database)
    settings = properties(mysql_server, kafka_broker, prefix, database.name, KAFKA)
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        send(kafka_broker, prefix, b"no json")
        send(kafka_broker, prefix, b"[1]")
        send(kafka_broker, prefix, b'{"id": "x"}')
        send(kafka_broker, prefix, b"")
        signal(kafka_broker, prefix, "unknown")
        signal(kafka_broker, prefix, "execute-snapshot")
        signal(kafka_broker, prefix, "execute-snapshot", {"data-collections": ["(", 7]})
        signal(kafka_broker, prefix, "execute-snapshot", {"data-collections": ["no.such"]})
        signal(kafka_broker, prefix, "execute-snapshot", {**_tables(database), "type": "SIDEWAYS"})
        signal(kafka_broker, prefix, "stop-snapshot")
        signal(kafka_broker, prefix, "pause-snapshot")
        signal(kafka_broker, prefix, "resume-snapshot")
        signal(kafka_broker, prefix, "log", {"message": "hello from a signal"})
        send(kafka_broker, prefix, orjson.dumps({"type": "execute-snapshot", "data": _tables(database)}), key="other")
        eventually(lambda: (state_of(kafka_broker, prefix, "signals") or {}).get("kafka") == 13, "all processed")
        database.execute("UPDATE t SET v = CONCAT(v, '!')")
        capture.wait_position(mysql_server)
    assert incremental_ends(kafka_broker, prefix) == []
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        filters = [{"data-collection": ".*", "filter": "no_such_column = 1"}]
        signal(
            kafka_broker, prefix, "execute-snapshot", {**_tables(database), "additional-conditions": filters}, "wrong"
        )
        eventually(lambda: (state_of(kafka_broker, prefix, "signals") or {}).get("kafka") == 14, "processed")
        eventually(lambda: signal_completed(kafka_broker, prefix), "cancelled")
        signal(kafka_broker, prefix, "execute-snapshot", _tables(database), "right")
        eventually(lambda: len(incremental_rows(kafka_broker, prefix, database.name)) == ROWS, "incremental snapshot")
        eventually(lambda: signal_completed(kafka_broker, prefix), "all splits ended")

    _verify_rows(kafka_broker, prefix, database)
