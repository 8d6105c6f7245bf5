"""Keys and values in Avro with Confluent's wire format: a zero byte, the id of the schema in four bytes, the data.

Spark's ``from_avro`` reads each record with the schema of its own id; no Python runs per row.

An Avro converter of Kafka Connect stores in ``connect.*`` properties what Avro cannot express. Where they are missing,
Avro's logical types count.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as fn
from pyspark.sql import types as tp
from pyspark.sql.avro.functions import from_avro

from tailrace.runtime.errors import SchemaError
from tailrace.schemas.connect import ConnectField, ConnectSchema
from tailrace.spark_consumer.source.formats.json_sides import VALUE_ID, Sample, row_fields
from tailrace.spark_consumer.source.formats.registry import SchemaRegistry
from tailrace.spark_consumer.source.json_decoder import Read
from tailrace.spark_consumer.source.types import DECIMAL

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tailrace.schemas.connect import ConnectField
    from tailrace.schemas.table import TableSchema

_HEADER_BYTES: Final = 5
_MAX_LENGTH: Final = 2**31 - 1
# A record that does not fit its schema becomes a struct of NULLs; the decoder reports it with its offset.
_OPTIONS: Final = {"mode": "PERMISSIVE"}


def _schema_id(data: Column) -> Column:
    """Return the schema id as text; NULL without the zero byte."""
    is_avro = (fn.octet_length(data) > _HEADER_BYTES - 1) & (fn.hex(fn.substring(data, 1, 1)) == "00")
    return fn.when(is_avro, fn.conv(fn.hex(fn.substring(data, 2, 4)), 16, 10))


def _parsed(data: Column, schema: Any) -> Column:
    body = fn.substring(data, _HEADER_BYTES + 1, _MAX_LENGTH)
    return from_avro(body, json.dumps(physical(schema)), _OPTIONS)


class AvroKeys:
    """Keys are Avro records."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry

    def identity(self) -> Column:
        """Return the schema id."""
        return _schema_id(fn.col("key"))

    def columns(self, key_id: str) -> tuple[str, ...]:
        """Return the fields of the key's schema."""
        return tuple(field.name for field in connect_schema(self._registry.schema(int(key_id))).fields)

    def normalized(self, key_ids: Sequence[str]) -> Column:
        """Return keys as JSON: two schemas of a key can write the same key with different ids."""
        key = fn.col("key")
        result = fn.lit(None).cast("string")
        for key_id in key_ids:
            own = fn.to_json(_parsed(key, self._registry.schema(int(key_id))), {"ignoreNullFields": "false"})
            result = fn.when(_schema_id(key) == key_id, own).otherwise(result)
        return result.cast("binary")


class AvroValues:
    """Values are Avro envelopes."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry

    def identity(self) -> Column:
        """Return the schema id."""
        return _schema_id(fn.col("value"))

    def sample(self) -> Column:
        """Return nothing: the registry has the schema."""
        return fn.lit(None).cast("string")

    def reader(self, records: DataFrame, value_ids: Sequence[str]) -> tuple[DataFrame, Read]:
        """Return the records, and a reader for these schema ids."""
        schemas = {value_id: self._registry.schema(int(value_id)) for value_id in value_ids}

        def read(rows: DataFrame, envelope: tp.StructType) -> DataFrame:
            names = {value_id: f"_avro_{value_id}" for value_id in schemas}
            parsed = rows.select(
                "*",
                *(
                    fn.when(fn.col(VALUE_ID) == value_id, _parsed(fn.col("value"), schema)).alias(names[value_id])
                    for value_id, schema in schemas.items()
                ),
            )
            structs = (
                fn.when(fn.col(VALUE_ID) == value_id, _projected(fn.col(names[value_id]), found, envelope))
                for value_id, found in ((each, parsed.schema[names[each]].dataType) for each in schemas)
            )
            return parsed.withColumn("e", reduce(_first, structs, fn.lit(None).cast(envelope))).drop(*names.values())

        return records, read

    def named(self, topic: str, value_id: str, published: Sequence[TableSchema]) -> TableSchema | None:  # noqa: ARG002
        """Return None: the registry has the schema of each record, with or without a header."""
        return None

    def columns(
        self,
        table: TableSchema,
        value_id: str,
        sample: Sample,  # noqa: ARG002 - as for JSON
        published: Sequence[TableSchema],  # noqa: ARG002
    ) -> tuple[ConnectField, ...]:
        """Return the columns of the registered schema."""
        return row_fields(connect_schema(self._registry.schema(int(value_id))), table.topic)


def _first(found: Column, other: Column) -> Column:
    return fn.coalesce(found, other)


def _projected(value: Column, found: tp.DataType, wanted: tp.DataType) -> Column:
    """Return a value that was read as ``found`` in the type ``wanted``; a field that is not there is NULL."""
    if found == wanted:
        return value
    if isinstance(wanted, tp.StructType) and isinstance(found, tp.StructType):
        members = [
            (
                _projected(value.getField(field.name), found[field.name].dataType, field.dataType)
                if field.name in found.names
                else fn.lit(None).cast(field.dataType)
            ).alias(field.name)
            for field in wanted
        ]
        return fn.when(value.isNotNull(), fn.struct(*members)) if members else fn.lit(None).cast(wanted)
    return value.cast(wanted)


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
                "an Avro schema has a union of several types",
                hint="write the topic with a Debezium connector, or leave it out with table.exclude.list",
                union=schema,
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
