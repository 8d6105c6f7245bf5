"""Snapshot modes: what is read at the first start, at every start, and after binlog loss; and the notifications."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from structlog.testing import capture_logs

from tailrace.producer.snapshot.hooks import SnapshotHooks
from tests.support.capture import CaptureProcess, CaptureThread, eventually, properties, records_of
from tests.support.incremental_checks import (
    incremental_ends,
    incremental_rows,
    notifications,
    signal,
    signal_completed,
    state_of,
    verified_incremental,
)
from tests.support.topics import read_topic
from tests.support.upsert_reader import consumer_rows

if TYPE_CHECKING:
    from tailrace.producer.model.split import Split
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database

ROWS = 120
BASED = "snapshot.mode.configuration.based."


def _fill(database: Database) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(200))")
    database.executemany("INSERT INTO t VALUES (%s, %s)", [(n, f"v{n}") for n in range(1, ROWS + 1)])


def _ops(broker: KafkaBroker, prefix: str, database: Database, table: str = "t") -> list[str]:
    topic = f"{prefix}.{database.name}.{table}"
    return [record.json["op"] for record in read_topic(broker.bootstrap, topic) if record.value]


@pytest.mark.parametrize(
    "mode",
    [
        {"snapshot.mode": "always"},
        {
            "snapshot.mode": "configuration_based",
            BASED + "snapshot.data": "true",
            BASED + "start.stream": "true",
        },
    ],
)
def test_always_reads_at_each_start(
    mode: dict[str, Any], mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """The stream resumes; the rows are read again by an incremental snapshot."""
    _fill(database)
    settings = properties(mysql_server, kafka_broker, prefix, database.name, mode)
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
    assert incremental_rows(kafka_broker, prefix, database.name) == []
    database.execute("UPDATE t SET v = 'while away' WHERE id < 10")
    with CaptureThread(settings) as capture:
        eventually(
            lambda: sum(end.rows for end in incremental_ends(kafka_broker, prefix)) == ROWS, "incremental snapshot"
        )
        database.execute("UPDATE t SET v = 'later' WHERE id < 5")
        capture.wait_position(mysql_server)

    rows = verified_incremental(kafka_broker, prefix, database.name)
    assert {row["id"]: row["v"] for row in rows.values()} == dict(database.execute("SELECT id, v FROM t"))


@pytest.mark.parametrize(
    "mode",
    [
        {"snapshot.mode": "no_data"},
        {"snapshot.mode": "schema_only"},
        {"snapshot.mode": "recovery"},
        {"snapshot.mode": "configuration_based", BASED + "start.stream": "true"},
    ],
)
def test_only_the_binlog_is_streamed(
    mode: dict[str, Any], mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """No row that existed before the start is written."""
    _fill(database)
    topic = f"{prefix}.notes"
    notify = {"notification.enabled.channels": "sink", "notification.sink.topic.name": topic}
    with CaptureThread(properties(mysql_server, kafka_broker, prefix, database.name, {**mode, **notify})) as capture:
        capture.wait_snapshot()
        database.execute("INSERT INTO t VALUES (1000, 'new')")
        capture.wait_position(mysql_server)

    assert _ops(kafka_broker, prefix, database) == ["c"]
    assert [note["type"] for note in notifications(kafka_broker, topic, "Initial Snapshot")] == ["SKIPPED"]


@pytest.mark.parametrize(
    "mode",
    [
        {"snapshot.mode": "initial_only"},
        {"snapshot.mode": "configuration_based", BASED + "snapshot.data": "true"},
    ],
)
def test_the_capture_ends_after_the_initial_snapshot(
    mode: dict[str, Any], mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """A second start has nothing to do and ends too; a third one, in another mode, streams the binlog."""
    _fill(database)
    settings = properties(mysql_server, kafka_broker, prefix, database.name, mode)
    for _ in range(2):
        with CaptureThread(settings) as capture:
            eventually(lambda: not capture.running, "the capture ends")
        database.execute("UPDATE t SET v = CONCAT(v, '.') WHERE id < 4")
    assert _ops(kafka_broker, prefix, database) == ["r"] * ROWS
    with CaptureThread({**settings, "snapshot.mode": "initial"}) as capture:
        capture.wait_position(mysql_server)
    assert _ops(kafka_broker, prefix, database) == ["r"] * ROWS + ["u"] * 6


def test_the_process_exits_with_0_after_the_initial_snapshot(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database, tmp_path: Path
) -> None:
    """Pending incremental snapshots wait for a start that streams the binlog."""
    _fill(database)
    wanted = {"signal.enabled.channels": "kafka", "signal.poll.interval.ms": 50, "snapshot.max.threads": 1}
    settings = properties(mysql_server, kafka_broker, prefix, database.name, wanted)

    def pause(split: Split) -> None:
        if split.incremental and split.number == 1:
            signal(kafka_broker, prefix, "pause-snapshot")
            eventually(lambda: (state_of(kafka_broker, prefix, "signals") or {}).get("paused"), "paused")

    with CaptureThread(settings, SnapshotHooks(before_low=pause)) as capture:
        capture.wait_snapshot()
        signal(kafka_broker, prefix, "execute-snapshot", {"data-collections": [f"{database.name}.t"]})
        eventually(lambda: len(incremental_ends(kafka_broker, prefix)) == 2, "two splits")
    database.execute("UPDATE t SET v = 'later'")
    with CaptureProcess({**settings, "snapshot.mode": "initial_only"}, tmp_path) as producer:
        assert producer.wait() == 0
    assert _ops(kafka_broker, prefix, database).count("u") == 0

    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        signal(kafka_broker, prefix, "resume-snapshot")
        eventually(lambda: signal_completed(kafka_broker, prefix), "snapshot complete")
        capture.wait_position(mysql_server)
    assert sum(end.rows for end in incremental_ends(kafka_broker, prefix)) == ROWS
    rows = verified_incremental(kafka_broker, prefix, database.name)
    assert {row["id"]: row["v"] for row in rows.values()} == dict(database.execute("SELECT id, v FROM t"))


def test_tables_excluded_from_the_snapshot_are_streamed(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """With snapshot.include.collection.list only the listed tables are read; all of them have notifications."""
    _fill(database)
    database.execute("CREATE TABLE other (id INT PRIMARY KEY)")
    database.execute("INSERT INTO other VALUES (1)")
    topic = f"{prefix}.notes"
    wanted = {
        "snapshot.include.collection.list": rf"{database.name}\.t",
        "notification.enabled.channels": "sink",
        "notification.sink.topic.name": topic,
    }
    with CaptureThread(properties(mysql_server, kafka_broker, prefix, database.name, wanted)) as capture:
        capture.wait_snapshot()
        database.execute("INSERT INTO other VALUES (2)")
        capture.wait_position(mysql_server)

    assert _ops(kafka_broker, prefix, database) == ["r"] * ROWS
    assert _ops(kafka_broker, prefix, database, "other") == ["c"]
    notes = notifications(kafka_broker, topic, "Initial Snapshot")
    table = f"{database.name}.t"
    assert [(note["type"], note["additional_data"]) for note in notes] == [
        ("STARTED", {"connector_name": prefix}),
        (
            "IN_PROGRESS",
            {"current_collection_in_progress": table, "data_collections": table, "connector_name": prefix},
        ),
        (
            "TABLE_SCAN_COMPLETED",
            {
                "data_collections": table,
                "scanned_collection": table,
                "total_rows_scanned": str(ROWS),
                "status": "SUCCEEDED",
                "connector_name": prefix,
            },
        ),
        ("COMPLETED", {"connector_name": prefix}),
    ]


def test_when_needed_no_data_goes_on_after_binlog_loss(
    own_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, own_database: Database
) -> None:
    """No row is read; what is lost is told with both its ends."""
    _fill(own_database)
    own_database.execute("CREATE TABLE u (id INT PRIMARY KEY)")
    own_database.execute("INSERT INTO u VALUES (1)")
    changes = {
        "snapshot.mode": "when_needed_no_data",
        "notification.enabled.channels": "sink",
        "notification.sink.topic.name": f"{prefix}-notes",
    }
    settings = properties(own_server, kafka_broker, prefix, own_database.name, changes)
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        own_database.execute("UPDATE t SET v = 'kept' WHERE id = 1")
        capture.wait_position(own_server)
    own_database.execute("UPDATE t SET v = 'lost' WHERE id = 2")
    own_database.execute("FLUSH BINARY LOGS")
    (file,) = own_database.execute("SHOW BINARY LOGS")[-1][:1]
    own_database.execute("PURGE BINARY LOGS TO %s", (file,))
    with capture_logs() as logs, CaptureThread(settings) as capture:
        capture.wait_snapshot()
        own_database.execute("UPDATE t SET v = 'later' WHERE id = 3")
        capture.wait_position(own_server)
    [lost] = [entry for entry in logs if "cannot be resumed" in entry["event"]]
    assert (lost["log_level"], lost["lost_from"]["epoch"], lost["lost_to"]["epoch"]) == ("error", 1, 2)
    assert (lost["lost_to"]["file"], lost["lost_from"]["gtids"] != lost["lost_to"]["gtids"]) == (file, True)
    [note] = notifications(kafka_broker, f"{prefix}-notes", "Binlog Position")
    data = note["additional_data"]
    assert (note["type"], data["tables_are_read"]) == ("LOST", "false")
    assert [orjson.loads(data[f"position_{end}"]) for end in ("from", "to")] == [lost["lost_from"], lost["lost_to"]]
    assert "purged" in data["reason"]
    assert incremental_ends(kafka_broker, prefix) == []
    rows = [r.json["after"] for r in records_of(kafka_broker.bootstrap, prefix, own_database.name, "t") if r.value]
    assert [(row["id"], row["v"]) for row in rows] == [(1, "kept"), (3, "later")]

    with CaptureThread(settings) as capture:
        own_database.execute("INSERT INTO u VALUES (2)")
        capture.wait_position(own_server)
    assert [r.json["op"] for r in records_of(kafka_broker.bootstrap, prefix, own_database.name, "u")] == ["c"]


def test_when_needed_reads_the_tables_after_binlog_loss(
    own_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, own_database: Database
) -> None:
    """Rows replace the lost changes, also that of a row that is gone; a restart without loss needs no snapshot."""
    _fill(own_database)
    settings = properties(own_server, kafka_broker, prefix, own_database.name, {"snapshot.mode": "when_needed"})
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
    own_database.execute("UPDATE t SET v = 'kept' WHERE id = 1")
    with CaptureThread(settings) as capture:
        capture.wait_position(own_server)
    assert incremental_ends(kafka_broker, prefix) == []

    own_database.execute("UPDATE t SET v = 'lost with the log'")
    own_database.execute("DELETE FROM t WHERE id = 3")
    own_database.execute("FLUSH BINARY LOGS")
    (file,) = own_database.execute("SHOW BINARY LOGS")[-1][:1]
    own_database.execute("PURGE BINARY LOGS TO %s", (file,))
    with CaptureThread(settings) as capture:
        eventually(
            lambda: sum(end.rows for end in incremental_ends(kafka_broker, prefix)) == ROWS - 1, "incremental snapshot"
        )
        own_database.execute("DELETE FROM t WHERE id = 2")
        capture.wait_position(own_server)

    rows = consumer_rows(kafka_broker, prefix, f"{own_database.name}.t")
    assert {row["id"]: row["v"] for row in rows.values()} == dict(own_database.execute("SELECT id, v FROM t"))
