"""Avro schemas of Connect schemas, as Confluent's AvroConverter derives them.

Structs become records with a namespace; ``connect.*`` properties carry what Avro cannot express. An optional type is a
union with null first, or with null last if it has a default, since a default must be of the first type.
"""

from __future__ import annotations

import re
from base64 import b64decode
from typing import Any, Final

from tailrace.runtime.errors import SchemaError
from tailrace.schemas.connect import ConnectSchema

_TYPES: Final = {
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "string": "string",
    "bytes": "bytes",
}
_LOGICAL: Final = {
    "org.apache.kafka.connect.data.Date": "date",
    "org.apache.kafka.connect.data.Time": "time-millis",
    "org.apache.kafka.connect.data.Timestamp": "timestamp-millis",
}
_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*").fullmatch


def avro_schema(schema: ConnectSchema) -> Any:
    """Return the Avro schema as parsed JSON. Raises SchemaError for names that Avro does not allow."""
    return _schema(schema, {}, "")


def _schema(schema: ConnectSchema, known: dict[str, ConnectSchema], namespace: str) -> Any:
    base = _struct(schema, known, namespace) if schema.type == "struct" else _simple(schema, known, namespace)
    if not schema.optional:
        return base
    return [base, "null"] if schema.default is not None else ["null", base]


def _simple(schema: ConnectSchema, known: dict[str, ConnectSchema], namespace: str) -> Any:
    if schema.type == "array":
        assert schema.items is not None
        body: dict[str, Any] = {"type": "array", "items": _schema(schema.items, known, namespace)}
    elif schema.type == "map":  # Debezium's maps have string keys
        assert schema.values is not None
        body = {"type": "map", "values": _schema(schema.values, known, namespace)}
    else:
        body = {"type": _TYPES[schema.type]}
    if schema.name == _DECIMAL:
        parameters = dict(schema.parameters)
        body["scale"] = int(parameters["scale"])
        body["precision"] = int(parameters["connect.decimal.precision"])
    body |= _properties(schema)
    if schema.type in {"int8", "int16"}:
        body["connect.type"] = schema.type
    if schema.name == _DECIMAL:
        body["logicalType"] = "decimal"
    elif schema.name in _LOGICAL:
        body["logicalType"] = _LOGICAL[schema.name]
    return body["type"] if len(body) == 1 else body


def _struct(schema: ConnectSchema, known: dict[str, ConnectSchema], outer: str) -> Any:
    namespace, _, name = (schema.name or "io.confluent.connect.avro.ConnectDefault").rpartition(".")
    full = f"{namespace}.{name}" if namespace else name
    _check("schema", full, full.split("."))
    if f"{namespace}.{name}" in known:
        return name if namespace == outer else f"{namespace}.{name}"
    known[f"{namespace}.{name}"] = schema
    fields = []
    for field in schema.fields:
        _check("column", field.name, [field.name])
        body: dict[str, Any] = {"name": field.name, "type": _schema(field.schema, known, namespace)}
        if field.schema.doc is not None:
            body["doc"] = field.schema.doc
        if field.schema.default is not None:
            body["default"] = avro_default(field.schema)
        elif field.schema.optional:
            body["default"] = None
        fields.append(body)
    record: dict[str, Any] = {"type": "record", "name": name}
    if namespace != outer:  # Avro omits the namespace of the enclosing record
        record["namespace"] = namespace
    return {**record, "fields": fields, **_properties(schema)}


def _properties(schema: ConnectSchema) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if schema.doc is not None:
        found["connect.doc"] = schema.doc
    if schema.version is not None:
        found["connect.version"] = schema.version
    if schema.parameters:
        found["connect.parameters"] = dict(schema.parameters)
    if schema.default is not None:
        found["connect.default"] = avro_default(schema)
    if schema.name is not None:
        found["connect.name"] = schema.name
    return found


def avro_default(schema: ConnectSchema) -> Any:
    """Return a default in Avro's JSON encoding: bytes are text of one character per byte."""
    return b64decode(schema.default).decode("latin-1") if schema.type == "bytes" else schema.default


def _check(what: str, name: str, parts: list[str]) -> None:
    if not all(map(_NAME, parts)):
        raise SchemaError(
            f"Avro does not allow the name of a {what}",
            hint=f"set {'field' if what == 'column' else what}.name.adjustment.mode to avro or avro_unicode",
            name=name,
        )
