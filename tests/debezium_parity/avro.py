"""Converts Avro records to JSON with their Avro schemas: ``{"schema":<from the registry>,"payload":…}``.

The form is that of the JSON converter: bytes are base64, numbers are printed as in Java.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tailrace.producer.mysql.types.floating import java_double, java_float
from tailrace.producer.mysql.types.text import json_string
from tests.debezium_parity.topics import KafkaRecord
from tests.support.avro import Avro

_MAGIC = b"\0"


def in_json(records: Iterable[KafkaRecord], schema_of: Callable[[int], Any]) -> Iterator[KafkaRecord]:
    """Yield the records as JSON; ``schema_of`` returns the schema of an id."""
    known: dict[int, Callable[[bytes], bytes]] = {}

    def read(raw: bytes | None) -> bytes | None:
        if raw is None or not raw.startswith(_MAGIC):
            return raw
        schema_id = int.from_bytes(raw[1:5], "big")
        if schema_id not in known:
            known[schema_id] = _reader(schema_of(schema_id))
        return known[schema_id](raw[5:])

    for record in records:
        yield record._replace(key=read(record.key), value=read(record.value))


def _reader(schema: Any) -> Callable[[bytes], bytes]:
    avro, names = Avro(schema), dict(_records(schema, ""))
    text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))

    def read(data: bytes) -> bytes:
        return f'{{"schema":{text},"payload":{_printed(avro.read(data), schema, names)}}}'.encode()

    return read


def _records(schema: Any, space: str) -> Iterator[tuple[str, Any]]:
    """Yield the record schemas within a schema by their short and their full names."""
    if isinstance(schema, list):
        for each in schema:
            yield from _records(each, space)
    elif isinstance(schema, dict):
        space = schema.get("namespace", space)
        if schema["type"] == "record":
            yield schema["name"], schema
            yield f"{space}.{schema['name']}", schema
        for field in schema.get("fields", ()):
            yield from _records(field["type"], space)
        if "items" in schema:
            yield from _records(schema["items"], space)


def _printed(value: Any, schema: Any, names: dict[str, Any]) -> str:
    if value is None:
        return "null"
    if isinstance(schema, list):
        [schema] = [each for each in schema if each != "null"]
    if isinstance(schema, str) and schema in names:
        schema = names[schema]
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        members = (
            f"{json_string(each['name'])}:{_printed(value[each['name']], each['type'], names)}"
            for each in schema["fields"]
        )
        return f"{{{','.join(members)}}}"
    if kind == "array":
        return f"[{','.join(_printed(each, schema['items'], names) for each in value)}]"
    if kind == "bytes":
        return f'"{b64encode(value).decode()}"'
    if kind == "string":
        return json_string(value)
    if kind == "boolean":
        return str(value).lower()
    if kind in {"float", "double"}:
        return java_float(value) if kind == "float" else java_double(value)
    return str(value)
