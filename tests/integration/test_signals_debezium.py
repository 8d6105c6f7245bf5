"""The same signals sent to a real Debezium connector and to Tailrace give the same notifications and events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest
from confluent_kafka import Producer

from tests.debezium_parity.connect import CONNECTOR_CLASS, ConnectWorker
from tests.support.capture import CaptureThread, eventually, properties
from tests.support.incremental_checks import notifications
from tests.support.topics import Read, read_topic

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database

pytestmark = pytest.mark.long

ROWS = 50
VARYING = {"connector_name", "maximum_key", "last_processed_key"}
"""Debezium's last key is the key of the last row; Tailrace's is the bound of the split."""


def _signals(database: Database) -> list[tuple[str, str, dict[str, Any]]]:
    tables = [f"{database.name}.t", f"{database.name}.no_rows"]
    return [
        ("one", "execute-snapshot", {"data-collections": tables[:1], "type": "INCREMENTAL"}),
        ("two", "execute-snapshot", {"data-collections": tables[1:], "type": "INCREMENTAL"}),
    ]


def _comparable(notes: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (
            note["id"] if note["aggregate_type"].startswith("Inc") else "",
            note["aggregate_type"],
            note["type"],
            sorted(note["additional_data"]),
            sorted((k, sorted(v.split(","))) for k, v in note["additional_data"].items() if k not in VARYING),
        )
        for note in notes
    ]


def _record(records: list[Read], prefix: str) -> tuple[list[str], list[str], dict[str, Any]]:
    """Return what all rows of incremental snapshots share: fields of the value and of source, and source values."""
    value = next(r.json for r in records if r.value and r.json["source"]["snapshot"] == "incremental")
    source = value["source"]
    fixed = {name: source[name] for name in ("connector", "snapshot", "db", "sequence", "table", "thread", "query")}
    assert source["name"] == prefix
    return list(value), list(source), fixed | {"op": value["op"]}


def test_notifications_equal_debezium(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """An initial snapshot and two incremental ones, one of them of an empty table, with one chunk each."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(200))")
    database.executemany("INSERT INTO t VALUES (%s, %s)", [(n, f"v{n}") for n in range(1, ROWS + 1)])
    database.execute("CREATE TABLE no_rows (id INT PRIMARY KEY)")
    theirs = f"dbz{prefix}"
    common = {
        "signal.enabled.channels": "kafka",
        "signal.kafka.bootstrap.servers": kafka_broker.bootstrap,
        "signal.poll.interval.ms": 100,
        "notification.enabled.channels": "sink",
        "incremental.snapshot.chunk.size": 1000,
        "snapshot.max.threads": 1,
        "read.only": "true",
    }

    def settings(name: str) -> dict[str, str]:
        more = {**common, "notification.sink.topic.name": f"{name}.notes", "signal.kafka.topic": f"{name}-signal"}
        return properties(mysql_server, kafka_broker, name, database.name, more)

    def ended(name: str, signal_id: str) -> bool:
        return any(
            n["id"] == signal_id and n["type"] == "COMPLETED" for n in notifications(kafka_broker, f"{name}.notes")
        )

    for name in (prefix, theirs):
        kafka_broker.create_topic(f"{name}-signal")
        kafka_broker.create_topic(f"{name}.notes")
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap})
    with ConnectWorker(kafka_broker.bootstrap) as worker, CaptureThread(settings(prefix)) as capture:
        capture.wait_snapshot()
        config = {name: value for name, value in settings(theirs).items() if not name.startswith("tailrace.")}
        del config["bootstrap.servers"]
        config["database.server.id"] = str(int(config["database.server.id"]) + 1)
        worker.put(
            theirs,
            config
            | {
                "connector.class": CONNECTOR_CLASS,
                "database.allowPublicKeyRetrieval": "true",
                "include.schema.changes": "false",
                "topic.creation.default.replication.factor": "1",
                "topic.creation.default.partitions": "1",
                **{f"{side}.converter": "org.apache.kafka.connect.json.JsonConverter" for side in ("key", "value")},
                **{f"{side}.converter.schemas.enable": "false" for side in ("key", "value")},
                "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
                "schema.history.internal.file.filename": str(worker.directory / "history"),
            },
        )

        def first_done() -> bool:
            worker.check(theirs)
            notes = notifications(kafka_broker, f"{theirs}.notes", "Initial Snapshot")
            return any(note["type"] == "COMPLETED" for note in notes)

        eventually(first_done, "Debezium's snapshot", 180)
        for ident, signal_type, data in _signals(database):
            for name in (prefix, theirs):
                body = orjson.dumps({"id": ident, "type": signal_type, "data": data})
                producer.produce(f"{name}-signal", body, name.encode())
            assert producer.flush(30) == 0

            def done(signal_id: str = ident) -> bool:
                database.execute("UPDATE t SET v = v WHERE id = 1")
                database.execute("UPDATE t SET v = CONCAT(v, '.') WHERE id = 1")  # a window closes with an event
                return ended(prefix, signal_id) and ended(theirs, signal_id)

            eventually(done, f"snapshot {ident}")
        worker.check(theirs)

    for aggregate in ("Initial Snapshot", "Incremental Snapshot"):
        ours = _comparable(notifications(kafka_broker, f"{prefix}.notes", aggregate))
        assert sorted(ours) == sorted(_comparable(notifications(kafka_broker, f"{theirs}.notes", aggregate)))
    raw = [read_topic(kafka_broker.bootstrap, f"{name}.notes") for name in (prefix, theirs)]
    assert [list(record.json) for record in raw[0][:1]] == [list(record.json) for record in raw[1][:1]]
    assert all(orjson.loads(record.key or b"") == {"id": record.json["id"]} for records in raw for record in records)
    records = [
        _record(read_topic(kafka_broker.bootstrap, f"{name}.{database.name}.t"), name) for name in (prefix, theirs)
    ]
    assert records[0] == records[1]
