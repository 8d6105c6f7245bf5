"""The recorded topics of real Debezium as Kafka records, and the rows that a table must have after them."""

from __future__ import annotations

import datetime as dt
import json
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from confluent_kafka import Producer

from tests.debezium_parity import golden
from tests.debezium_parity.debezium import PARTITIONS
from tests.debezium_parity.payload import has_schema, split_schema
from tests.debezium_parity.topics import KafkaRecord
from tests.embedded.kafka import KafkaBroker
from tests.embedded.registry import SchemaRegistry
from tests.support.avro import Avro

FILE: Final = b"binlog.000003"
_EPOCH: Final = dt.datetime(1970, 1, 1)


def recorded(variant: str, *, prefix: str) -> dict[str, list[KafkaRecord]]:
    """Return the recorded records of a variant by topic, in JSON, with a binlog file that has a number."""
    found: dict[str, list[KafkaRecord]] = {}
    for record in golden.read(variant, prefix=prefix):
        value = None if record.value is None else record.value.replace(b'"<binlog>"', b'"' + FILE + b'"')
        found.setdefault(record.topic, []).append(record._replace(value=value))
    return found


def write(broker: KafkaBroker, topics: Mapping[str, Iterable[KafkaRecord]]) -> None:
    """Create topics and write their records, each to its partition."""
    # As a connector's producer, which keeps the order of records also if it sends some of them twice.
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 20, "log_level": 0}
    )
    for topic, records in topics.items():
        broker.create_topic(topic, partitions=PARTITIONS)
        for each in records:
            producer.produce(topic, each.value, each.key, each.partition, headers=list(each.headers))
    producer.flush(60)


def in_avro(records: Iterable[KafkaRecord], registry: SchemaRegistry) -> Iterator[KafkaRecord]:
    """Yield records whose texts are ``{"schema":<Avro>,"payload":…}`` in Confluent's wire format."""
    known: dict[str, tuple[int, Avro, Any]] = {}

    def write(topic: str, side: str, raw: bytes | None) -> bytes | None:
        if raw is None:
            return None
        text, payload = split_schema(raw.decode())
        if text not in known:
            answer = registry.request(f"/subjects/{topic}-{side}/versions", {"schema": text})
            known[text] = answer["id"], Avro(json.loads(text)), json.loads(text)
        number, avro, schema = known[text]
        return (
            b"\0"
            + number.to_bytes(4, "big")
            + avro.write(_avro_value(json.loads(payload), schema, dict(_named(schema))))
        )

    for record in records:
        key = write(record.topic, "key", record.key)
        yield record._replace(key=key, value=write(record.topic, "value", record.value))


def _named(schema: Any, space: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the records within a schema by their short and their full names."""
    if isinstance(schema, list):
        for each in schema:
            yield from _named(each, space)
    elif isinstance(schema, dict) and schema["type"] == "record":
        space = schema.get("namespace", space)
        yield schema["name"], schema
        yield f"{space}.{schema['name']}", schema
        for field in schema["fields"]:
            yield from _named(field["type"], space)


def _avro_value(value: Any, schema: Any, named: dict[str, Any]) -> Any:
    """Return what fastavro writes for a value in JSON: bytes are base64 there."""
    if isinstance(schema, list):
        return None if value is None else _avro_value(value, next(each for each in schema if each != "null"), named)
    if isinstance(schema, str):
        if schema in named:
            return _avro_value(value, named[schema], named)
        return b64decode(value) if schema == "bytes" else value
    if schema["type"] == "record":
        return {each["name"]: _avro_value(value[each["name"]], each["type"], named) for each in schema["fields"]}
    if schema["type"] == "array":
        return [_avro_value(each, schema["items"], named) for each in value]
    return b64decode(value) if schema["type"] == "bytes" else value


def final_rows(records: Iterable[KafkaRecord]) -> dict[str, dict[str, Any]]:
    """Return the last row of each key, by the key's payload as text, with Spark's values.

    Needs records with Connect schemas; their order per key is the order of the table.
    """
    rows: dict[str, dict[str, Any]] = {}
    for record in records:
        if record.value is None or record.key is None:
            continue
        schema, text = split_schema(record.value.decode())
        payload = json.loads(text, parse_float=str)
        key = split_schema(record.key.decode())[1] if has_schema(record.key) else record.key.decode()
        after = payload["after"]
        if after is None:
            rows.pop(key, None)
            continue
        fields = next(each for each in json.loads(schema)["fields"] if each["field"] == "after")["fields"]
        rows[key] = {each["field"]: value(after[each["field"]], each) for each in fields}
    return rows


def value(printed: Any, schema: Mapping[str, Any]) -> Any:
    """Return the Python value of Spark's for what the JSON converter prints."""
    if printed is None:
        return None
    kind, name = schema["type"], schema.get("name", "")
    if name.endswith("connect.data.Decimal"):
        unscaled = int.from_bytes(b64decode(printed), "big", signed=True)
        return Decimal(unscaled).scaleb(-int(schema["parameters"]["scale"]))
    if name.endswith("Timestamp") and not name.endswith(("ZonedTimestamp", "IsoTimestamp")):
        micros = {"MicroTimestamp": 1, "NanoTimestamp": 1000}.get(name.rpartition(".")[2], 0)
        return _EPOCH + dt.timedelta(microseconds=printed * 1000 if not micros else printed // micros)
    if name.endswith(("ZonedTimestamp", "IsoTimestamp")):
        found = dt.datetime.fromisoformat(printed)
        return found.replace(tzinfo=None)
    if name.endswith("IsoDate"):
        return dt.date.fromisoformat(printed.removesuffix("Z"))
    if name.endswith(".Date"):
        return dt.date(1970, 1, 1) + dt.timedelta(days=printed)
    if kind == "struct":
        return {each["field"]: value(printed[each["field"]], each) for each in schema["fields"]}
    if kind in {"float", "double"}:
        return float(printed)
    return b64decode(printed) if kind == "bytes" else printed
