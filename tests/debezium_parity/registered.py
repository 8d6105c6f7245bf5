"""Compares the Avro schemas that both connectors register, as Connect schemas and as Avro.

If two columns have the same Connect schema, their Avro schemas must be the same text, including ``connect.*``. If not,
the exceptions for JSON with schemas apply.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final

from tailrace.producer.serialization.envelope.schemas import schema_json
from tailrace.schemas.connect import ConnectField, ConnectSchema
from tests.debezium_parity.difference import Difference
from tests.debezium_parity.payload import has_schema, join_schema, split_schema
from tests.debezium_parity.records import ParsedRecord
from tests.debezium_parity.tokens import read_tree
from tests.debezium_parity.topics import KafkaRecord

_TYPES: Final = {"int": "int32", "long": "int64"}


def in_connect(records: Iterable[KafkaRecord]) -> list[KafkaRecord]:
    """Return records with Avro schemas as records with Connect schemas."""
    known: dict[str, str] = {}

    def read(raw: bytes | None) -> bytes | None:
        if raw is None or not has_schema(raw):
            return raw
        schema, payload = split_schema(raw.decode())
        if schema not in known:
            known[schema] = schema_json(_connect(json.loads(schema), {}, ""))
        return join_schema(known[schema], payload).encode()

    return [record._replace(key=read(record.key), value=read(record.value)) for record in records]


def registered_differences(
    expected: Iterable[KafkaRecord], actual: Iterable[KafkaRecord], *, prefixes: tuple[str, str]
) -> list[Difference]:
    """Return the differences between the Avro schemas of equal Connect schemas."""
    first, second = (_registered(side, prefix) for side, prefix in zip((expected, actual), prefixes, strict=True))
    differences = []
    for at, schemas in sorted(first.items()):
        topic, *path = at
        for block, avro in sorted(schemas.items()):
            other = second.get(at, {}).get(block, avro)
            if other != avro:
                record = ParsedRecord(topic, ("schema",), KafkaRecord(topic, 0, 0, None, None, ()), None, None)
                differences.append(Difference(record, ("avro", *path), read_tree(avro), read_tree(other)))
    return differences


def _registered(records: Iterable[KafkaRecord], prefix: str) -> dict[tuple[str, ...], dict[str, str]]:
    """Return the Avro schema of each Connect schema by (topic, side, record, field), without the prefix."""
    found: dict[tuple[str, ...], dict[str, str]] = defaultdict(dict)
    seen = set()
    for record in records:
        topic = record.topic.replace(prefix, "", 1)
        for side, raw in (("key", record.key), ("value", record.value)):
            if raw is None or not has_schema(raw):
                continue
            text = split_schema(raw.decode())[0].replace(f'"{prefix}.', '"x.')
            if (topic, side, text) not in seen:
                seen.add((topic, side, text))
                for path, block, avro in _parts(json.loads(text)):
                    found[topic, side, *path][block] = avro
    return found


def _parts(schema: Any) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield path, Connect schema and Avro schema of each field, and of each record without its fields."""
    names: dict[str, ConnectSchema] = {}
    _connect(schema, names, "")
    for record, space in _records(schema, ""):
        bare = {name: part for name, part in record.items() if name != "fields"}
        yield (record["name"],), record["name"], _text(bare)
        for field in record["fields"]:
            inner = _without_fields(field)
            yield (
                (record["name"], field["name"]),
                schema_json(_connect(field["type"], dict(names), space)),
                _text(inner),
            )


def _without_fields(part: Any) -> Any:
    """Return a part of a schema with the names of records instead of the records."""
    if isinstance(part, list):
        return [_without_fields(each) for each in part]
    if isinstance(part, dict):
        if part.get("type") == "record":
            return {"record": part["name"]}
        return {name: _without_fields(each) if name in {"type", "items"} else each for name, each in part.items()}
    return part


def _records(schema: Any, space: str) -> Iterator[tuple[Any, str]]:
    if isinstance(schema, list):
        for each in schema:
            yield from _records(each, space)
    elif isinstance(schema, dict):
        space = schema.get("namespace", space)
        if schema["type"] == "record":
            yield schema, space
            for field in schema["fields"]:
                yield from _records(field["type"], space)
        elif isinstance(schema["type"], (dict, list)):
            yield from _records(schema["type"], space)
        if "items" in schema:
            yield from _records(schema["items"], space)


def _connect(schema: Any, names: dict[str, ConnectSchema], space: str) -> ConnectSchema:
    """Return the Connect schema of an Avro schema."""
    if isinstance(schema, list):
        [present] = [each for each in schema if each != "null"]
        return _connect(present, names, space).as_optional()
    if isinstance(schema, str):
        if schema in names:
            return names[schema]
        return ConnectSchema(_TYPES.get(schema, schema))
    kind = schema["type"]
    if kind == "record":
        space = schema.get("namespace", space)
        fields = tuple(ConnectField(each["name"], _connect(each["type"], names, space)) for each in schema["fields"])
        found = ConnectSchema(
            "struct", name=schema.get("connect.name"), version=schema.get("connect.version"), fields=fields
        )
        names[schema["name"]] = names[f"{space}.{schema['name']}"] = found
        return found
    default = schema.get("connect.default")
    return ConnectSchema(
        schema.get("connect.type", _TYPES.get(kind, kind)),
        name=schema.get("connect.name"),
        version=schema.get("connect.version"),
        doc=schema.get("connect.doc"),
        parameters=tuple(schema.get("connect.parameters", {}).items()),
        default=b64encode(default.encode("latin-1")).decode() if kind == "bytes" and default is not None else default,
        items=_connect(schema["items"], names, space) if kind == "array" else None,
    )


def _text(part: Any) -> str:
    return json.dumps(part, ensure_ascii=False, separators=(",", ":"))
