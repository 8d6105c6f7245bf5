"""Avro schemas of a registry as Connect schemas, and as what ``from_avro`` reads.

An Avro converter of Kafka Connect stores in ``connect.*`` properties what Avro cannot express. Where they are missing,
Avro's logical types count.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any, Final

from tailrace.runtime.errors import SchemaError
from tailrace.schemas.connect import ConnectField, ConnectSchema
from tailrace.spark_consumer.source.types import DECIMAL

_TYPES: Final = {
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "string": "string",
    "bytes": "bytes",
    "fixed": "bytes",
    "enum": "string",
}
_LOGICAL: Final = {
    "date": "org.apache.kafka.connect.data.Date",
    "time-millis": "org.apache.kafka.connect.data.Time",
    "timestamp-millis": "org.apache.kafka.connect.data.Timestamp",
    "decimal": DECIMAL,
}


def connect_schema(schema: Any) -> ConnectSchema:
    """Return the Connect schema of an Avro schema (parsed JSON). Raises SchemaError if there is none."""
    return _connect(schema, {}, "")


def physical(schema: Any) -> Any:
    """Return an Avro schema without logical types: values are read as they are written."""
    if isinstance(schema, list):
        return [physical(each) for each in schema]
    if isinstance(schema, dict):
        return {name: physical(part) for name, part in schema.items() if name != "logicalType"}
    return schema


def _connect(schema: Any, named: dict[str, ConnectSchema], space: str) -> ConnectSchema:
    if isinstance(schema, list):
        present = [each for each in schema if each != "null"]
        if len(present) != 1:
            raise SchemaError(
                "an Avro schema has a union of several types", hint="write it with Debezium", union=schema
            )
        found = _connect(present[0], named, space)
        return found.as_optional() if len(schema) > 1 else found
    if isinstance(schema, str):
        if schema in _TYPES:
            return ConnectSchema(_TYPES[schema])
        return named[schema] if schema in named else named[f"{space}.{schema}"]
    kind = schema["type"]
    if isinstance(kind, (dict, list)):
        return _connect(kind, named, space)
    if kind == "record":
        return _record(schema, named, space)
    return ConnectSchema(
        schema.get("connect.type", _TYPES.get(kind, kind)),
        name=schema.get("connect.name", _LOGICAL.get(schema.get("logicalType", ""))),
        version=schema.get("connect.version"),
        doc=schema.get("connect.doc"),
        parameters=_parameters(schema),
        default=_default(schema),
        items=_connect(schema["items"], named, space) if kind == "array" else None,
        keys=ConnectSchema("string") if kind == "map" else None,
        values=_connect(schema["values"], named, space) if kind == "map" else None,
    )


def _record(schema: dict[str, Any], named: dict[str, ConnectSchema], space: str) -> ConnectSchema:
    space = schema.get("namespace", space)
    fields = tuple(ConnectField(each["name"], _connect(each["type"], named, space)) for each in schema["fields"])
    found = ConnectSchema(
        "struct", name=schema.get("connect.name"), version=schema.get("connect.version"), fields=fields
    )
    named[schema["name"]] = named[f"{space}.{schema['name']}"] = found
    return found


def _parameters(schema: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    found = schema.get("connect.parameters")
    if found is None and schema.get("logicalType") == "decimal":
        found = {"scale": str(schema.get("scale", 0)), "connect.decimal.precision": str(schema["precision"])}
    return tuple((found or {}).items())


def _default(schema: dict[str, Any]) -> Any:
    default = schema.get("connect.default")
    if schema["type"] == "bytes" and isinstance(default, str):
        return b64encode(default.encode("latin-1")).decode()
    return default
