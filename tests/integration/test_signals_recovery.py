"""Signals taken once across crashes, from brokers of their own, and notifications as a registry's readers see them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tailrace.schemas.names import state_topic, watermarks_topic
from tailrace.schemas.watermark import Watermark, WatermarkKind
from tests.support.avro import Avro
from tests.support.capture import CaptureProcess, CaptureThread, eventually, properties
from tests.support.incremental_checks import ends_again, rows_again, settled, signal, state_of, verified_again
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


def _equal(broker: KafkaBroker, prefix: str, database: Database) -> None:
    rows = verified_again(broker, prefix, database.name)
    assert {row["id"]: row["v"] for row in rows.values()} == dict(database.execute("SELECT id, v FROM t"))


def _splits_read(broker: KafkaBroker, prefix: str) -> int:
    marks = [Watermark.from_json(r.value) for r in read_topic(broker.bootstrap, watermarks_topic(prefix)) if r.value]
    return sum(mark.incremental and mark.kind is WatermarkKind.HIGH for mark in marks)


def _in_log(broker: KafkaBroker, prefix: str, database: Database) -> bool:
    if state_topic(prefix) not in broker.admin().list_topics(timeout=10).topics:
        return False
    return (state_of(broker, prefix, f"table/{database.name}.t") or {}).get("mode") == "streaming"


def _log(broker: KafkaBroker, prefix: str) -> dict[str, Any]:
    found = state_of(broker, prefix, "offset")
    assert found is not None
    return found


def test_a_signal_of_the_table_counts_once_wherever_the_producer_is_killed(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database, tmp_path: Path
) -> None:
    """Right after it was taken, between splits, and behind the last; its transaction goes on behind it."""
    _fill(database, ROWS)
    database.execute("CREATE TABLE sig (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))")
    wanted = {
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
        position = _log(kafka_broker, prefix)["position"]["gtids"]
        return bool(database.execute("SELECT GTID_SUBSET(%s, %s)", (executed, position))[0][0])

    with CaptureProcess(properties(mysql_server, kafka_broker, prefix, database.name, wanted), tmp_path) as producer:
        eventually(lambda: _in_log(kafka_broker, prefix, database), "snapshot finished")
        with database.connect() as session, session.cursor() as cursor:
            cursor.execute("START TRANSACTION")
            for n in range(1, 1_001):
                cursor.execute("UPDATE t SET v = CONCAT(v, ' before') WHERE id = %s", (n,))
            cursor.execute("INSERT INTO sig VALUES ('once', 'execute-snapshot', %s)", (data,))
            for n in range(501, ROWS + 1):
                cursor.execute("UPDATE t SET v = CONCAT(v, ' behind') WHERE id = %s", (n,))
            cursor.execute("COMMIT")
        eventually(lambda: (state_of(kafka_broker, prefix, "signals") or {}).get("queue"), "the signal is taken")
        producer.kill()
        asked = state_of(kafka_broker, prefix, "signals")
        assert asked is not None
        assert asked["source"][0]
        for splits in (1, 8, 20):
            producer.start()
            eventually(lambda: _splits_read(kafka_broker, prefix) >= splits, "splits")  # noqa: B023
            producer.kill()
        producer.start()
        eventually(lambda: settled(kafka_broker, prefix), "read again")
        executed = str(database.execute("SELECT @@global.gtid_executed")[0][0])
        eventually(reached, "log read to its end")
        producer.kill()
        producer.start()
        database.execute("UPDATE t SET v = CONCAT(v, '.') WHERE id < 5")
        executed = str(database.execute("SELECT @@global.gtid_executed")[0][0])
        eventually(reached, "log read to its end")
        assert producer.stop() == 0

    _equal(kafka_broker, prefix, database)
    assert len({end.snapshot for end in ends_again(kafka_broker, prefix)}) == 1, "the signal was followed twice"
    keys = [record.key for record in rows_again(kafka_broker, prefix, database.name)]
    assert (len(keys), len(set(keys))) == (ROWS, ROWS), "a split was read twice, or not at all"
    notes = [r.json for r in read_topic(kafka_broker.bootstrap, f"{prefix}.notes")]
    kinds = [note["type"] for note in notes if note["id"] == "once" and note["type"] != "IN_PROGRESS"]
    assert kinds == ["STARTED", "TABLE_SCAN_COMPLETED", "COMPLETED"]


@pytest.mark.parametrize("name", ["signal.kafka.bootstrap.servers", "signal.consumer.bootstrap.servers"])
def test_signals_from_brokers_of_their_own(
    name: str, mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """The topic is made there, what comes in there is followed, and the same topic at home is none of its business."""
    from tests.embedded.kafka import KafkaBroker as Broker  # noqa: PLC0415

    _fill(database, 60)
    data = {"data-collections": [f"{database.name}.t"]}
    with Broker(heap_mb=256) as other:
        wanted = {**SMALL, "signal.enabled.channels": "kafka", name: other.bootstrap}
        with CaptureThread(properties(mysql_server, kafka_broker, prefix, database.name, wanted)) as capture:
            capture.wait_snapshot()
            assert f"{prefix}-signal" not in kafka_broker.admin().list_topics(timeout=10).topics
            signal(other, prefix, "execute-snapshot", data)
            eventually(lambda: len(rows_again(kafka_broker, prefix, database.name)) == 60, "read again")
            eventually(lambda: settled(kafka_broker, prefix), "ended")
    _equal(kafka_broker, prefix, database)


def test_notifications_in_avro(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """By the schemas of the registry, read by fastavro: Debezium's names and what happened."""
    from tests.embedded.registry import SchemaRegistry  # noqa: PLC0415

    _fill(database, 60)
    topic = f"{prefix}.notes"
    with SchemaRegistry() as registry:
        wanted = {
            **SMALL,
            "signal.enabled.channels": "kafka",
            "notification.enabled.channels": "sink",
            "notification.sink.topic.name": topic,
            "key.converter": "io.confluent.connect.avro.AvroConverter",
            "key.converter.schema.registry.url": registry.url,
            "value.converter": "io.confluent.connect.avro.AvroConverter",
            "value.converter.schema.registry.url": registry.url,
        }
        with CaptureThread(properties(mysql_server, kafka_broker, prefix, database.name, wanted)) as capture:
            capture.wait_snapshot()
            signal(kafka_broker, prefix, "execute-snapshot", {"data-collections": [f"{database.name}.t"]}, "ä")
            eventually(lambda: settled(kafka_broker, prefix), "read again")
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
        subjects = set(registry.ask("/subjects"))
    assert names == ["NotificationKey", "Notification"]
    assert {f"{topic}-key", f"{topic}-value"} <= subjects
    asked = [note for note in notes if note["aggregate_type"] == "Incremental Snapshot"]
    assert {note["id"] for note in asked} == {"ä"}
    table = f"{database.name}.t"
    assert [(note["type"], note["additional_data"]) for note in asked if note["type"] != "IN_PROGRESS"] == [
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
    found: dict[str, Any] = Avro(registry.schema(int.from_bytes(data[1:5], "big"))).read(data[5:])
    return found
