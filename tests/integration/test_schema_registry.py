"""Avro with a real schema registry: what consumers read, and what a rejected schema causes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import fastavro
import pytest

from tailrace.producer.serialization.schema_registry import SchemaRegistryClient
from tailrace.runtime.errors import KafkaRequestError, SchemaError, TailraceError
from tailrace.schemas.names import SCHEMA_HEADER
from tests.embedded import supervised
from tests.embedded.kafka import KafkaBroker
from tests.embedded.registry import SchemaRegistry
from tests.support.avro import Avro
from tests.support.capture import CaptureThread, eventually, properties
from tests.support.database import Database
from tests.support.topics import Read, read_topic
from tests.support.values import registry_settings

AVRO: Final = "io.confluent.connect.avro.AvroConverter"


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    """One registry for this module."""
    with SchemaRegistry() as server:
        yield server


def _settings(database: Database, broker: KafkaBroker, prefix: str, url: str, **more: str) -> dict[str, str]:
    avro = {
        f"{side}.converter{name}": value
        for side in ("key", "value")
        for name, value in (("", AVRO), (".schema.registry.url", url))
    }
    return properties(database.server, broker, prefix, database.name, {**avro, **more})


class _Reader:
    """Reads records like a consumer with Confluent's deserializer: by the schema id in each of them."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._schemas: dict[int, Avro] = {}

    def schema_id(self, data: bytes) -> int:
        assert data[0] == 0
        return int.from_bytes(data[1:5], "big")

    def value(self, data: bytes | None) -> Any:
        if data is None:
            return None
        schema_id = self.schema_id(data)
        if schema_id not in self._schemas:
            self._schemas[schema_id] = Avro(self._registry.schema(schema_id))
        return self._schemas[schema_id].read(data[5:])


def _rows(records: list[Read], reader: _Reader) -> list[tuple[Any, Any]]:
    return [(reader.value(record.key), reader.value(record.value)) for record in records]


def test_avro_topic_is_readable_through_the_registry(
    database: Database, kafka_broker: KafkaBroker, prefix: str, registry: SchemaRegistry
) -> None:
    """Snapshot, changes, tombstones, a new version after ALTER; subjects, names and defaults as in Connect."""
    database.execute(
        "CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(20) DEFAULT 'x', price DECIMAL(9,2) NOT NULL)"
    )
    database.execute("INSERT INTO item VALUES (1, 'é😀', 1.50), (2, NULL, -3)")
    topic = f"{prefix}.{database.name}.item"
    with CaptureThread(_settings(database, kafka_broker, prefix, registry.url)) as capture:
        capture.wait_snapshot()
        database.execute("UPDATE item SET id = 20, name = NULL WHERE id = 2")
        database.execute("DELETE FROM item WHERE id = 1")
        database.execute("ALTER TABLE item ADD COLUMN note TEXT")
        database.execute("INSERT INTO item VALUES (3, 'n', 4, 'new')")
        capture.wait_position(database.server)
    reader = _Reader(registry)
    records = read_topic(kafka_broker.bootstrap, topic)

    assert all(SCHEMA_HEADER in record.headers for record in records)
    found = _rows(records, reader)
    by_op = {(value["op"], key["id"]): value for key, value in found if value is not None}
    assert sorted(by_op) == [("c", 3), ("c", 20), ("d", 1), ("d", 2), ("r", 1), ("r", 2)]
    assert sum(value is None for _, value in found) == 2
    assert by_op["r", 1]["after"] == {"id": 1, "name": "é😀", "price": b"\x00\x96"}
    assert by_op["r", 2]["after"]["name"] is None
    assert by_op["c", 20]["source"]["snapshot"] == "false"
    assert by_op["c", 3]["after"] == {"id": 3, "name": "n", "price": b"\x01\x90", "note": "new"}

    subjects = {each for each in registry.request("/subjects") if each.startswith(f"{prefix}.")}
    assert subjects == {f"{topic}-key", f"{topic}-value"}
    assert registry.request(f"/subjects/{topic}-value/versions") == [1, 2]
    latest = json.loads(registry.request(f"/subjects/{topic}-value/versions/latest")["schema"])
    assert (latest["namespace"], latest["name"], latest["connect.version"]) == (topic, "Envelope", 2)
    row = next(each for each in latest["fields"] if each["name"] == "before")["type"][1]
    assert row["connect.name"] == f"{topic}.Value"
    assert row["fields"][1:3] == [
        {"name": "name", "type": [{"type": "string", "connect.default": "x"}, "null"], "default": "x"},
        {
            "name": "price",
            "type": {
                "type": "bytes",
                "scale": 2,
                "precision": 9,
                "connect.version": 1,
                "connect.parameters": {"scale": "2", "connect.decimal.precision": "9"},
                "connect.name": "org.apache.kafka.connect.data.Decimal",
                "logicalType": "decimal",
            },
        },
    ]
    fastavro.parse_schema(latest)


def test_auxiliary_records_are_avro(
    database: Database, kafka_broker: KafkaBroker, prefix: str, registry: SchemaRegistry
) -> None:
    """Heartbeats, schema changes, transactions, truncates and transaction blocks; schema names of Debezium."""
    database.execute("CREATE TABLE item (id INT PRIMARY KEY COMMENT 'the \\'id\\'') COMMENT 'things'")
    more = {
        "heartbeat.interval.ms": "200",
        "include.schema.changes": "true",
        "include.schema.comments": "true",
        "provide.transaction.metadata": "true",
        "skipped.operations": "none",
    }
    name, topic, beats = database.name, f"{prefix}.{database.name}.item", f"__debezium-heartbeat.{prefix}"
    with CaptureThread(_settings(database, kafka_broker, prefix, registry.url, **more)) as capture:
        capture.wait_snapshot()
        database.execute("INSERT INTO item VALUES (1), (2)")
        database.execute("TRUNCATE TABLE item")
        database.execute("CREATE TABLE gone (id INT PRIMARY KEY)")
        capture.wait_position(database.server)
        eventually(lambda: read_topic(kafka_broker.bootstrap, beats), "a heartbeat")
    reader = _Reader(registry)

    def read(topic: str) -> list[tuple[Any, Any]]:
        return _rows(read_topic(kafka_broker.bootstrap, topic), reader)

    rows = read(topic)
    assert [(key, value["op"], value["after"]) for key, value in rows] == [
        ({"id": 1}, "c", {"id": 1}),
        ({"id": 2}, "c", {"id": 2}),
        (None, "t", None),
    ]
    gtid = rows[0][1]["source"]["gtid"]
    blocks = [{"id": gtid, "total_order": n, "data_collection_order": n} for n in (1, 2)]
    assert [value["transaction"] for _, value in rows] == [*blocks, None]
    (_, begun), (_, ended) = (each for each in read(f"{prefix}.transaction") if each[0] == {"id": gtid})
    assert (begun["status"], begun["event_count"], begun["data_collections"]) == ("BEGIN", None, None)
    assert ended["data_collections"] == [{"data_collection": f"{name}.item", "event_count": 2}]
    assert {key["serverName"] for key, _ in read(beats)} == {prefix}
    changes = read(prefix)
    assert {key["databaseName"] for key, _ in changes} == {"", name}
    described = {
        change["id"]: (
            value["source"]["snapshot"],
            change["table"]["comment"],
            change["table"]["columns"][0]["comment"],
        )
        for _, value in changes
        for change in value["tableChanges"]
        if change["table"] is not None
    }
    assert described == {
        f'"{name}"."item"': ("true", "things", "the ''id''"),
        f'"{name}"."gone"': ("false", None, None),
    }

    def registered(subject: str) -> Any:
        return json.loads(registry.request(f"/subjects/{subject}/versions/latest")["schema"])

    names = {
        subject: registered(subject)["connect.name"].rpartition(".")[2]
        for subject in registry.request("/subjects")
        if prefix in subject and not subject.startswith(topic)
    }
    assert names == {
        f"{prefix}-key": "SchemaChangeKey",
        f"{prefix}-value": "SchemaChangeValue",
        f"{prefix}.transaction-key": "TransactionMetadataKey",
        f"{prefix}.transaction-value": "TransactionMetadataValue",
        f"{beats}-key": "ServerNameKey",
        f"{beats}-value": "Heartbeat",
    }
    for subject in names:
        fastavro.parse_schema(registered(subject))
    [column] = registered(f"{topic}-key")["fields"]
    assert column == {"name": "id", "type": {"type": "int", "connect.doc": "the 'id'"}, "doc": "the 'id'"}


def test_truncate_of_a_dropped_table_uses_its_last_schema(
    database: Database, kafka_broker: KafkaBroker, prefix: str, registry: SchemaRegistry
) -> None:
    """The catalog no longer has the table, so the schema is that of the rows before."""
    database.execute("CREATE TABLE item (id INT PRIMARY KEY)")
    settings = _settings(database, kafka_broker, prefix, registry.url, **{"skipped.operations": "none"})
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        database.execute("INSERT INTO item VALUES (1)")
        capture.wait_position(database.server)
    database.execute("INSERT INTO item VALUES (2)")
    database.execute("TRUNCATE TABLE item")
    database.execute("DROP TABLE item")
    with CaptureThread(settings) as capture:
        capture.wait_position(database.server)

    rows = _rows(read_topic(kafka_broker.bootstrap, f"{prefix}.{database.name}.item"), _Reader(registry))
    assert [(key, value["op"]) for key, value in rows] == [({"id": 1}, "c"), ({"id": 2}, "c"), (None, "t")]


def test_incompatible_schema_stops_the_capture(
    database: Database, kafka_broker: KafkaBroker, prefix: str, registry: SchemaRegistry
) -> None:
    """The error has subject, difference and hint; rows before the change are written, rows after it are not."""
    database.execute("CREATE TABLE item (id INT PRIMARY KEY, size INT)")
    database.execute("INSERT INTO item VALUES (1, 1)")
    topic = f"{prefix}.{database.name}.item"
    settings = _settings(database, kafka_broker, prefix, registry.url)
    settings["event.processing.failure.handling.mode"] = "fail"
    capture = CaptureThread(settings)
    with pytest.raises(SchemaError) as caught, capture:  # noqa: PT012 - the capture stops by itself
        capture.wait_snapshot()
        registry.request(f"/config/{topic}-value", {"compatibility": "BACKWARD"}, method="PUT")
        database.execute("INSERT INTO item VALUES (2, 2)")
        capture.wait_position(database.server)
        database.execute("ALTER TABLE item MODIFY size VARCHAR(10)")
        database.execute("INSERT INTO item VALUES (3, 'three')")
        eventually(lambda: capture._failure, "the capture stops")

    text = str(caught.value)
    assert f"{topic}-value" in text
    assert "Value.size: null or int -> null or string" in text
    assert f"to NONE (PUT /config/{topic}-value) if its readers accept" in caught.value.hint, "it is done below"
    reader = _Reader(registry)
    assert [key["id"] for key, _ in _rows(read_topic(kafka_broker.bootstrap, topic), reader)] == [1, 2]

    registry.request(f"/config/{topic}-value", {"compatibility": "NONE"}, method="PUT")
    with CaptureThread(settings) as incremental:
        incremental.wait_position(database.server)
    rows = _rows(read_topic(kafka_broker.bootstrap, topic), reader)
    assert [(key["id"], value["after"]["size"]) for key, value in rows] == [(1, 1), (2, 2), (3, "three")]


def test_unavailable_registry_stops_the_capture(database: Database, kafka_broker: KafkaBroker, prefix: str) -> None:
    """No record is written to the table's topic."""
    database.execute("CREATE TABLE item (id INT PRIMARY KEY)")
    database.execute("INSERT INTO item VALUES (1)")
    url = f"http://127.0.0.1:{supervised.free_port()}"
    capture = CaptureThread(_settings(database, kafka_broker, prefix, url))
    with pytest.raises(TailraceError) as caught, capture:
        eventually(lambda: capture._failure, "the capture stops")

    topic = f"{prefix}.{database.name}.item"
    assert f"schema registry did not respond to the request for the schema of {prefix}" in str(caught.value)
    assert url in str(caught.value)
    assert "start the registry, or check schema.registry.url" in f"{caught.value} {caught.value.hint}"
    assert read_topic(kafka_broker.bootstrap, topic) == []


def test_errors_of_the_registry(registry: SchemaRegistry) -> None:
    """One id per schema; no registration if auto.register.schemas is false; an error for a wrong URL."""
    client = SchemaRegistryClient(registry_settings(f"http://nobody.invalid:1,{registry.url}"))
    record = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}

    schema_id = client.schema_id("client-value", record)
    assert client.schema_id("client-value", record) == schema_id
    assert registry.schema(schema_id)["name"] == "R"
    lookup_only = SchemaRegistryClient(registry_settings(registry.url, auto_register=False))
    assert lookup_only.schema_id("client-value", record) == schema_id
    with pytest.raises(SchemaError, match=r"(?s)does not know.*hint: register it, or set auto.register.schemas to"):
        lookup_only.schema_id("client-value", {**record, "name": "S"})
    with pytest.raises(SchemaError, match=r"(?s)as invalid.*hint: read its message; if a name is invalid, set"):
        client.schema_id("client-value", {"type": "record", "name": "a-b", "fields": []})
    with pytest.raises(KafkaRequestError, match=r"(?s)returned no id.*hint: check schema.registry.url: it must be"):
        SchemaRegistryClient(registry_settings(f"{registry.url}/wrong")).schema_id("client-value", record)
