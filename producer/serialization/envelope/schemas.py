"""Connect schemas of keys and envelopes, and the JSON that Connect's JsonConverter writes before each payload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import orjson

from tailrace.producer.mysql.types.floating import java_double, java_float
from tailrace.producer.mysql.types.text import json_string
from tailrace.producer.serialization.envelope.json import to_json
from tailrace.schemas.connect import ConnectField, ConnectSchema

SOURCE_SCHEMA: Final = ConnectSchema(
    "struct",
    name="io.debezium.connector.mysql.Source",
    version=1,
    fields=(
        ConnectField.of("version", "string"),
        ConnectField.of("connector", "string"),
        ConnectField.of("name", "string"),
        ConnectField.of("ts_ms", "int64"),
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
        ConnectField.of("db", "string"),
        ConnectField.of("sequence", "string", optional=True),
        ConnectField.of("ts_us", "int64", optional=True),
        ConnectField.of("ts_ns", "int64", optional=True),
        ConnectField.of("table", "string", optional=True),
        ConnectField.of("server_id", "int64"),
        ConnectField.of("gtid", "string", optional=True),
        ConnectField.of("file", "string"),
        ConnectField.of("pos", "int64"),
        ConnectField.of("row", "int32"),
        ConnectField.of("thread", "int64", optional=True),
        ConnectField.of("query", "string", optional=True),
    ),
)
"""``source`` of every record: the fields and their order. See ``source_info`` for the values."""

TRANSACTION_SCHEMA: Final = ConnectSchema(
    "struct",
    optional=True,
    name="event.block",
    version=1,
    fields=(
        ConnectField.of("id", "string"),
        ConnectField.of("total_order", "int64"),
        ConnectField.of("data_collection_order", "int64"),
    ),
)


def of_connector(schema: ConnectSchema, connector: str) -> ConnectSchema:
    """Return a schema of the MySQL connector with the name that another connector gives it."""
    return replace(schema, name=(schema.name or "").replace(".mysql.", f".{connector}."))


def key_schema(name: str, columns: Sequence[ConnectField]) -> ConnectSchema:
    """Return the schema of keys; ``name`` is the adjusted ``prefix.database.table``."""
    return ConnectSchema("struct", name=f"{name}.Key", fields=tuple(columns))


def envelope_schema(name: str, columns: Sequence[ConnectField], connector: str = "mysql") -> ConnectSchema:
    """Return the schema of values: an envelope with its rows."""
    row = ConnectSchema("struct", optional=True, name=f"{name}.Value", fields=tuple(columns))
    return ConnectSchema(
        "struct",
        name=f"{name}.Envelope",
        version=2,
        fields=(
            ConnectField("before", row),
            ConnectField("after", row),
            ConnectField("source", of_connector(SOURCE_SCHEMA, connector)),
            ConnectField("transaction", TRANSACTION_SCHEMA),
            ConnectField.of("op", "string"),
            ConnectField.of("ts_ms", "int64", optional=True),
            ConnectField.of("ts_us", "int64", optional=True),
            ConnectField.of("ts_ns", "int64", optional=True),
        ),
    )


def schema_json(schema: ConnectSchema) -> str:
    return to_json(schema.to_json(default=lambda each: orjson.Fragment(default_json(each)))).decode()


def default_json(schema: ConnectSchema) -> str:
    """Return a schema's default as JSON, with numbers as Java prints them."""
    default = schema.default
    if isinstance(default, bool):
        return "true" if default else "false"
    if isinstance(default, float):
        return java_float(default) if schema.type == "float" else java_double(default)
    return str(default) if isinstance(default, int) else json_string(default)
