"""Signals across crashes and from separate brokers, and notifications in Avro."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tailrace.schemas.names import state_topic, watermarks_topic
from tailrace.schemas.watermark import Watermark, WatermarkKind
from tests.support.avro import Avro
from tests.support.capture import CaptureProcess, CaptureThread, eventually, properties
from tests.support.incremental_checks import (
    incremental_ends,
    incremental_rows,
    signal,
    signal_completed,
    state_of,
    verified_incremental,
)
from tests.support.topics import read_topic

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database

ROWS = 1_500
SMALL = {"incremental.snapshot.chunk.size": 50, "signal.poll.interval.ms": 50}


def _fill(database: Database, rows: int) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(200))")
    database.executemany("INSERT INTO t VALUES (%s, %s)", [(n, f"v{n}") for n in range(1, rows + 1)])


def _verify_rows(broker: KafkaBroker, prefix: str, database: Database) -> None:
    rows = verified_incremental(broker, prefix, database.name)
    assert {row["id"]: row["v"] for row in rows.values()} == dict(database.execute("SELECT id, v FROM t"))


def _splits_read(broker: KafkaBroker, prefix: str) -> int:
    marks = [Watermark.from_json(r.value) for r in read_topic(broker.bootstrap, watermarks_topic(prefix)) if r.value]
    return sum(mark.incremental and mark.kind is WatermarkKind.HIGH for mark in marks)


def _streaming(broker: KafkaBroker, prefix: str, database: Database) -> bool:
    if state_topic(prefix) not in broker.admin().list_topics(timeout=60).topics:
        return False
    return (state_of(broker, prefix, f"table/{database.name}.t") or {}).get("mode") == "streaming"


def _stored_offset(broker: KafkaBroker, prefix: str) -> dict[str, Any]:
    offset = state_of(broker, prefix, "offset")
    assert offset is not None
    return offset


def test_signal_of_the_table_is_applied_once_across_crashes(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database, tmp_path: Path
) -> None:
    """Killed right after the signal, between splits, and after the last; its transaction continues after the signal."""
    _fill(database, ROWS)
    database.execute("CREATE TABLE sig (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))")
    values = {
        **SMALL,
        "signal.data.collection": f"{database.name}.sig",
        "table.include.list": f"{database.name}.t",
        "max.batch.size": 20,
        "notification.enabled.channels": "sink",
        "notification.sink.topic.name": f"{prefix}.notes",
    }
    data = orjson.dumps({"data-collections": [f"{database.name}.t"]}).decode()
    executed: str = ""

    def reached() -> bool:
        position = _stored_offset(kafka_broker, prefix)["position"]["gtids"]
        return bool(database.execute("SELECT GTID_SUBSET(%s, %s)", (executed, position))[0][0])

    with CaptureProcess(properties(mysql_server, kafka_broker, prefix, database.name, values), tmp_path) as producer:
        eventually(lambda: _streaming(kafka_broker, prefix, database), "snapshot finished")
        with database.connect() as session, session.cursor() as cursor:
            cursor.execute("START TRANSACTION")
            for n in range(1, 1_001):
                cursor.execute("UPDATE t SET v = CONCAT(v, ' before') WHERE id = %s", (n,))
            cursor.execute("INSERT INTO sig VALUES ('once', 'execute-snapshot', %s)", (data,))
            for n in range(501, ROWS + 1):
                cursor.execute("UPDATE t SET v = CONCAT(v, ' behind') WHERE id = %s", (n,))
            cursor.execute("COMMIT")
        eventually(lambda: (state_of(kafka_broker, prefix, "signals") or {}).get("queue"), "the signal processed")
        producer.kill()
        signals = state_of(kafka_broker, prefix, "signals")
        assert signals is not None
        assert signals["source"][0]
        for splits in (1, 8, 20):
            producer.start()
            eventually(lambda: _splits_read(kafka_broker, prefix) >= splits, "splits")  # noqa: B023
            producer.kill()
        producer.start()
        eventually(lambda: signal_completed(kafka_broker, prefix), "incremental snapshot")
        executed = str(database.execute("SELECT @@global.gtid_executed")[0][0])
        eventually(reached, "the binlog read to its end")
        producer.kill()
        producer.start()
        database.execute("UPDATE t SET v = CONCAT(v, '.') WHERE id < 5")
        executed = str(database.execute("SELECT @@global.gtid_executed")[0][0])
        eventually(reached, "the binlog read to its end")
        assert producer.stop() == 0

    _verify_rows(kafka_broker, prefix, database)
    assert len({end.snapshot for end in incremental_ends(kafka_broker, prefix)}) == 1, "the signal was applied twice"
    keys = [record.key for record in incremental_rows(kafka_broker, prefix, database.name)]
    assert (len(keys), len(set(keys))) == (ROWS, ROWS), "a split was read twice, or not at all"
    notes = [r.json for r in read_topic(kafka_broker.bootstrap, f"{prefix}.notes")]
    kinds = [note["type"] for note in notes if note["id"] == "once" and note["type"] != "IN_PROGRESS"]
    assert kinds == ["STARTED", "TABLE_SCAN_COMPLETED", "COMPLETED"]


@pytest.mark.parametrize("name", ["signal.kafka.bootstrap.servers", "signal.consumer.bootstrap.servers"])
def test_signals_from_separate_brokers(
    name: str, mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """The topic is created and read there; no topic is created at the capture's own brokers."""
    from tests.embedded.kafka import KafkaBroker as Broker  # noqa: PLC0415

    _fill(database, 60)
    data = {"data-collections": [f"{database.name}.t"]}
    with Broker(heap_mb=256) as other:
        values = {**SMALL, "signal.enabled.channels": "kafka", name: other.bootstrap}
        with CaptureThread(properties(mysql_server, kafka_broker, prefix, database.name, values)) as capture:
            capture.wait_snapshot()
            assert f"{prefix}-signal" not in kafka_broker.admin().list_topics(timeout=60).topics
            signal(other, prefix, "execute-snapshot", data)
            eventually(lambda: len(incremental_rows(kafka_broker, prefix, database.name)) == 60, "incremental snapshot")
            eventually(lambda: signal_completed(kafka_broker, prefix), "ended")
    _verify_rows(kafka_broker, prefix, database)


def test_notifications_in_avro(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """Read by fastavro with the schemas of the registry: Debezium's schema names, and the notifications."""
    from tests.embedded.registry import SchemaRegistry  # noqa: PLC0415

    _fill(database, 60)
    topic = f"{prefix}.notes"
    with SchemaRegistry() as registry:
        values = {
            **SMALL,
            "signal.enabled.channels": "kafka",
            "notification.enabled.channels": "sink",
            "notification.sink.topic.name": topic,
            "key.converter": "io.confluent.connect.avro.AvroConverter",
            "key.converter.schema.registry.url": registry.url,
            "value.converter": "io.confluent.connect.avro.AvroConverter",
            "value.converter.schema.registry.url": registry.url,
        }
        with CaptureThread(properties(mysql_server, kafka_broker, prefix, database.name, values)) as capture:
            capture.wait_snapshot()
            signal(kafka_broker, prefix, "execute-snapshot", {"data-collections": [f"{database.name}.t"]}, "ä")
            eventually(lambda: signal_completed(kafka_broker, prefix), "incremental snapshot")
        records = read_topic(kafka_broker.bootstrap, topic)
        notes: list[dict[str, Any]] = []
        for record in records:
            assert record.key is not None
            assert record.value is not None
            key, value = (_read(registry, data) for data in (record.key, record.value))
            assert key == {"id": value["id"]}
            notes.append(value)
        names = [
            registry.schema(int.from_bytes(data[1:5], "big"))["name"]
            for data in (records[0].key, records[0].value)
            if data is not None
        ]
        subjects = set(registry.request("/subjects"))
    assert names == ["NotificationKey", "Notification"]
    assert {f"{topic}-key", f"{topic}-value"} <= subjects
    incremental = [note for note in notes if note["aggregate_type"] == "Incremental Snapshot"]
    assert {note["id"] for note in incremental} == {"ä"}
    table = f"{database.name}.t"
    assert [(note["type"], note["additional_data"]) for note in incremental if note["type"] != "IN_PROGRESS"] == [
        ("STARTED", {"data_collections": table, "connector_name": prefix}),
        (
            "TABLE_SCAN_COMPLETED",
            {
                "data_collections": table,
                "scanned_collection": table,
                "total_rows_scanned": "60",
                "status": "SUCCEEDED",
                "connector_name": prefix,
            },
        ),
        ("COMPLETED", {"connector_name": prefix}),
    ]


def _read(registry: Any, data: bytes) -> dict[str, Any]:
    assert data[0] == 0
    value: dict[str, Any] = Avro(registry.schema(int.from_bytes(data[1:5], "big"))).read(data[5:])
    return value
