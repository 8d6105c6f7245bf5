"""Columns of a table whose records are plain JSON without schemas, as Spark types that the configuration gives.

JSON has fewer types than Connect: the Spark type of a column tells how the connector has written it. For DATETIME it
does not (milliseconds, microseconds or text), so the comment of the column names the Connect schema.
"""

from __future__ import annotations

import json
from typing import Final

from pyspark.sql import types as tp

from tailrace.runtime.errors import ConfigError
from tailrace.schemas.connect import ConnectField, ConnectSchema
from tailrace.spark_consumer.source.types import PLAIN_TYPES, decimal_schema

_TIME: Final = "io.debezium.time."
_NAMED: Final = {
    f"{_TIME}Date": "int32",
    f"{_TIME}Timestamp": "int64",
    f"{_TIME}MicroTimestamp": "int64",
    f"{_TIME}NanoTimestamp": "int64",
    f"{_TIME}ZonedTimestamp": "string",
    f"{_TIME}IsoDate": "string",
    f"{_TIME}IsoTimestamp": "string",
    "org.apache.kafka.connect.data.Date": "int32",
    "org.apache.kafka.connect.data.Timestamp": "int64",
}
_DEFAULT_NAMES: Final[dict[type[tp.DataType], str]] = {
    tp.DateType: f"{_TIME}Date",
    tp.TimestampType: f"{_TIME}ZonedTimestamp",
}
_COMMENTS: Final = f"{_TIME}Timestamp (milliseconds), {_TIME}MicroTimestamp or {_TIME}IsoTimestamp"


def parse_columns(text: str) -> tp.StructType:
    """Return the columns of a setting: Spark's DDL, or the JSON of a StructType. Needs a running session."""
    try:
        found = (
            tp.StructType.fromJson(json.loads(text)) if text.lstrip().startswith("{") else tp.StructType.fromDDL(text)
        )
    except Exception as error:  # Spark's parser, the JSON parser and fromJson raise many types
        raise ConfigError([f"table.schema: {text[:200]!r} is neither DDL nor a StructType in JSON: {error}"]) from error
    if not isinstance(found, tp.StructType):
        raise ConfigError([f"table.schema: {text[:200]!r} is no list of columns"])
    return found


def connect_fields(columns: tp.StructType, *, table: str) -> tuple[ConnectField, ...]:
    """Return columns as Connect fields. Raises ConfigError for a type that does not tell how values are written."""
    return tuple(ConnectField(each.name, _schema(each, table)) for each in columns)


def _schema(field: tp.StructField, table: str) -> ConnectSchema:
    kind = type(field.dataType)
    name = (field.metadata or {}).get("comment") or _DEFAULT_NAMES.get(kind)
    if name in _NAMED:
        return ConnectSchema(_NAMED[name], optional=True, name=name, version=1)
    if kind is tp.TimestampNTZType:
        raise ConfigError(
            [f"table.schema.{table}: column {field.name} is TIMESTAMP_NTZ; add COMMENT '{_COMMENTS}', as written"]
        )
    return _type(field.dataType, f"{table}: column {field.name}")


def _type(kind: tp.DataType, where: str) -> ConnectSchema:
    if isinstance(kind, tp.DecimalType):
        return decimal_schema(kind, optional=True)
    if isinstance(kind, tp.StructType):
        members = tuple(ConnectField(each.name, _type(each.dataType, where)) for each in kind)
        return ConnectSchema("struct", optional=True, fields=members)
    if isinstance(kind, tp.ArrayType):
        return ConnectSchema("array", optional=True, items=_type(kind.elementType, where))
    if type(kind) not in PLAIN_TYPES:
        raise ConfigError(
            [f"table.schema.{where} has the type {kind.simpleString()}, which no connector writes in JSON"]
        )
    return ConnectSchema(PLAIN_TYPES[type(kind)], optional=True)
