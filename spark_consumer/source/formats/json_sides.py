"""Keys and values in JSON, with or without schemas; each record shows which form it has.

The JSON converter of Kafka Connect writes ``{"schema":S,"payload":P}`` without blanks. A quote within S is escaped, so
the first ``,"payload":`` separates S from P: the text is cut without a parser.

The configuration can give the columns of a table whose records have no schemas, as Spark types. JSON has fewer types
than Connect: the Spark type of a column tells how the connector has written it. For DATETIME it does not (milliseconds,
microseconds or text), so the comment of the column names the Connect schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.runtime.errors import ConfigError, SchemaError
from tailrace.schemas.connect import ConnectField, ConnectSchema
from tailrace.spark_consumer.source.json_decoder import Read, read_json
from tailrace.spark_consumer.source.schema_tracker import not_published
from tailrace.spark_consumer.source.types import PLAIN_TYPES, VARIANT, decimal_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tailrace.schemas.table import TableSchema

_HEAD: Final = '{"schema":'
_MIDDLE: Final = ',"payload":'
_INCREMENTAL: Final = '"snapshot":"incremental"'
_EMBEDDED: Final = "md5:"
_PUBLISHED: Final = "published:"


def _has_schema(text: Column) -> Column:
    return text.startswith(_HEAD)


def _schema_text(text: Column) -> Column:
    head = fn.substring_index(text, _MIDDLE, 1)
    return fn.substr(head, fn.lit(len(_HEAD) + 1), fn.length(head))


def _payload(text: Column) -> Column:
    start = fn.length(fn.substring_index(text, _MIDDLE, 1)) + len(_MIDDLE) + 1
    cut = fn.substr(text, start, fn.length(text) - start)  # without the last brace
    return fn.when(_has_schema(text), cut).otherwise(text)


VALUE_ID: Final = "_value_id"
KEY_ID: Final = "_key_id"
"""Columns with the identities of the schemas of a record."""


class Sample(NamedTuple):
    """One record of an identity."""

    text: str | None
    """What ``sample`` of the values returns."""
    key: str | None
    """The normalized key as text."""


class JsonKeys:
    """Keys are JSON objects."""

    def identity(self) -> Column:
        """Return the names of the key columns as JSON; NULL if a record has no key."""
        return fn.to_json(fn.json_object_keys(_payload(fn.col("key").cast("string"))))

    def columns(self, key_id: str) -> tuple[str, ...]:
        """Return the names of the key columns."""
        return tuple(json.loads(key_id))

    def normalized(self, key_ids: Sequence[str]) -> Column:  # noqa: ARG002 - as for Avro
        """Return keys without schemas (bytes), for keys of these identities."""
        return _payload(fn.col("key").cast("string")).cast("binary")


class JsonValues:
    """Values are JSON envelopes."""

    def __init__(self, given: Mapping[str, str]) -> None:
        """``given``: the columns of records without schemas (``parse_columns``), by ``database.table``."""
        self._given = given
        self._parsed: dict[str, tuple[ConnectField, ...]] = {}
        """At first use: the parser needs a session."""

    def identity(self) -> Column:
        """Return a hash of the schema; without one, the published schema that a header names, or the column names."""
        text = fn.col("value").cast("string")
        names = fn.json_object_keys(
            fn.coalesce(fn.get_json_object(text, "$.after"), fn.get_json_object(text, "$.before"))
        )
        return (
            fn.when(_has_schema(text), fn.concat(fn.lit(_EMBEDDED), fn.md5(_schema_text(text).cast("binary"))))
            .when(fn.col("schema").isNotNull(), fn.concat(fn.lit(_PUBLISHED), fn.col("schema")))
            .otherwise(fn.to_json(names))
        )

    def sample(self) -> Column:
        """Return what ``columns`` needs to see: the schema of a value as text; NULL if it has none."""
        text = fn.col("value").cast("string")
        return fn.when(_has_schema(text), _schema_text(text))

    def reader(self, records: DataFrame, value_ids: Sequence[str]) -> tuple[DataFrame, Read]:  # noqa: ARG002
        """Return the records with values without schemas, and what reads their envelopes."""
        text = fn.col("value").cast("string")
        # A quote in a value is escaped, so this text occurs in the source block only.
        marked = fn.when(text.contains(_INCREMENTAL), fn.lit("connector"))
        complete = {"value": _payload(text).cast("binary"), "incremental": fn.coalesce(fn.col("incremental"), marked)}
        return records.withColumns(complete), read_json

    def named(self, topic: str, value_id: str, published: Sequence[TableSchema]) -> TableSchema | None:
        """Return the schema if the identity names a published one, else None. Raises SchemaError if it is missing."""
        if not value_id.startswith(_PUBLISHED):
            return None
        fingerprint = value_id.removeprefix(_PUBLISHED)
        for schema in published:
            if schema.fingerprint == fingerprint:
                return schema
        raise not_published(topic, fingerprint)

    def columns(
        self, table: TableSchema, value_id: str, sample: Sample, published: Sequence[TableSchema]
    ) -> tuple[ConnectField, ...]:
        """Return the columns of the rows of an identity. ``table`` has topic, names and key, and no columns yet."""
        if value_id.startswith(_EMBEDDED):
            return row_fields(_embedded(table, sample), table.topic)
        names = json.loads(value_id)
        name = f"{table.database}.{table.table}"
        if name in self._given:
            if name not in self._parsed:
                self._parsed[name] = connect_fields(parse_columns(self._given[name]), table=name)
            return _subset(table, names, self._parsed[name])
        if published:
            return _like_published(names, published)
        return tuple(ConnectField(name, _unknown(name, table, sample)) for name in names)


def _embedded(table: TableSchema, sample: Sample) -> ConnectSchema:
    try:
        return ConnectSchema.from_json(json.loads(sample.text or ""))
    except (KeyError, TypeError, ValueError) as error:
        raise SchemaError(
            f"a record of topic {table.topic} has a schema that is not Kafka Connect's",
            hint="write the topic with org.apache.kafka.connect.json.JsonConverter",
            schema=(sample.text or "")[:200],
        ) from error


def _subset(table: TableSchema, names: Sequence[str], given: Sequence[ConnectField]) -> tuple[ConnectField, ...]:
    """Return the given columns that a record has: an older record can lack some."""
    unknown = [name for name in names if name not in {field.name for field in given}]
    if unknown:
        raise SchemaError(
            f"records of topic {table.topic} have columns that table.schema does not name",
            hint=f"add them to table.schema.{table.database}.{table.table}",
            columns=", ".join(unknown),
        )
    return tuple(field for field in given if field.name in names)


def _like_published(names: Sequence[str], published: Sequence[TableSchema]) -> tuple[ConnectField, ...]:
    """Return the columns of records from before a takeover, as the versions that Tailrace published define them.

    The type of a column that was dropped before the takeover is not known; the latest schema does not have it.
    """
    for schema in reversed(published):
        if {column.name for column in schema.columns} == set(names):
            return schema.columns
    newest_last = {column.name: column for schema in published for column in schema.columns}
    unknown = ConnectSchema(VARIANT, optional=True)
    return tuple(newest_last.get(name, ConnectField(name, unknown)) for name in names)


_KEY_TYPES: Final[dict[type[Any], str]] = {bool: "boolean", int: "int64", float: "double", str: "string"}
"""A key must be comparable, which a VARIANT is not."""


def _unknown(name: str, table: TableSchema, sample: Sample) -> ConnectSchema:
    if name not in table.key or sample.key is None:
        return ConnectSchema(VARIANT, optional=True)
    value = json.loads(sample.key).get(name)
    return ConnectSchema(_KEY_TYPES.get(type(value), "string"))


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


def row_fields(envelope: ConnectSchema, topic: str) -> tuple[ConnectField, ...]:
    """Return the columns of the rows in an envelope. Raises SchemaError for another schema."""
    for image in ("after", "before"):
        for field in envelope.fields:
            if field.name == image and field.schema.type == "struct":
                return field.schema.fields
    raise SchemaError(
        f"a record of topic {topic} has a schema that is not a change event",
        hint="remove transforms such as ExtractNewRecordState from the connector, or leave the topic out with "
        "table.exclude.list",
        schema=envelope.name,
        fields=", ".join(field.name for field in envelope.fields),
    )
