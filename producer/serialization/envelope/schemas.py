"""Connect schemas of keys and envelopes, and their text as Connect's JsonConverter writes it before each payload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tailrace.producer.mysql.types.floating import java_double, java_float
from tailrace.producer.mysql.types.text import json_string
from tailrace.schemas.connect import ConnectField, ConnectSchema


def _field(name: str, kind: str, *, optional: bool = False) -> ConnectField:
    return ConnectField(name, ConnectSchema(kind, optional=optional))


SOURCE_SCHEMA: Final = ConnectSchema(
    "struct",
    name="io.debezium.connector.mysql.Source",
    version=1,
    fields=(
        _field("version", "string"),
        _field("connector", "string"),
        _field("name", "string"),
        _field("ts_ms", "int64"),
        ConnectField(
            "snapshot",
            ConnectSchema(
                "string",
                optional=True,
                name="io.debezium.data.Enum",
                version=1,
                parameters=(
                    ("allowed", "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"),
                ),
                default="false",
            ),
        ),
        _field("db", "string"),
        _field("sequence", "string", optional=True),
        _field("ts_us", "int64", optional=True),
        _field("ts_ns", "int64", optional=True),
        _field("table", "string", optional=True),
        _field("server_id", "int64"),
        _field("gtid", "string", optional=True),
        _field("file", "string"),
        _field("pos", "int64"),
        _field("row", "int32"),
        _field("thread", "int64", optional=True),
        _field("query", "string", optional=True),
    ),
)
"""The block ``source`` of every row record."""

TRANSACTION_SCHEMA: Final = ConnectSchema(
    "struct",
    optional=True,
    name="event.block",
    version=1,
    fields=(_field("id", "string"), _field("total_order", "int64"), _field("data_collection_order", "int64")),
)


def key_schema(name: str, columns: Sequence[ConnectField]) -> ConnectSchema:
    """Return the schema of keys; ``name`` is ``prefix.database.table``, made fit already."""
    return ConnectSchema("struct", name=f"{name}.Key", fields=tuple(columns))


def envelope_schema(name: str, columns: Sequence[ConnectField]) -> ConnectSchema:
    """Return the schema of values: rows before and after, and everything else of an envelope."""
    row = ConnectSchema("struct", optional=True, name=f"{name}.Value", fields=tuple(columns))
    return ConnectSchema(
        "struct",
        name=f"{name}.Envelope",
        version=2,
        fields=(
            ConnectField("before", row),
            ConnectField("after", row),
            ConnectField("source", SOURCE_SCHEMA),
            ConnectField("transaction", TRANSACTION_SCHEMA),
            _field("op", "string"),
            _field("ts_ms", "int64", optional=True),
            _field("ts_us", "int64", optional=True),
            _field("ts_ns", "int64", optional=True),
        ),
    )


def schema_json(schema: ConnectSchema, field: str | None = None) -> str:
    """Return a schema as JsonConverter prints it; ``field`` is its name within a struct."""
    parts = [f'"type":{json_string(schema.type)}']
    if schema.type == "struct":
        parts.append(f'"fields":[{",".join(schema_json(member.schema, member.name) for member in schema.fields)}]')
    if schema.items is not None:
        parts.append(f'"items":{schema_json(schema.items)}')
    parts.append(f'"optional":{"true" if schema.optional else "false"}')
    if schema.name is not None:
        parts.append(f'"name":{json_string(schema.name)}')
    if schema.version is not None:
        parts.append(f'"version":{schema.version}')
    if schema.doc is not None:
        parts.append(f'"doc":{json_string(schema.doc)}')
    if schema.parameters:
        members = ",".join(f"{json_string(name)}:{json_string(value)}" for name, value in schema.parameters)
        parts.append(f'"parameters":{{{members}}}')
    if schema.default is not None:
        parts.append(f'"default":{default_text(schema)}')
    if field is not None:
        parts.append(f'"field":{json_string(field)}')
    return f"{{{','.join(parts)}}}"


def default_text(schema: ConnectSchema) -> str:
    """Return a schema's default as JSON text, numbers as Java prints them."""
    default = schema.default
    if isinstance(default, bool):
        return "true" if default else "false"
    if isinstance(default, float):
        return java_float(default) if schema.type == "float" else java_double(default)
    return str(default) if isinstance(default, int) else json_string(default)
