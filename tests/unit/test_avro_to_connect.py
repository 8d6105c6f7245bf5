"""The Connect schemas that are read back from the Avro schemas of a registry, and the columns of a configuration."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import types as tp

from tailrace.producer.serialization.avro_schema import avro_schema
from tailrace.runtime.errors import ConfigError, SchemaError
from tailrace.schemas.connect import ConnectField, ConnectSchema
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer import config
from tailrace.spark_consumer.source.formats.avro_sides import connect_schema, physical
from tailrace.spark_consumer.source.formats.json_sides import (
    JsonValues,
    Sample,
    connect_fields,
    parse_columns,
    row_fields,
)
from tests.debezium_parity import golden
from tests.debezium_parity.payload import has_schema, split_schema

DECIMAL = "org.apache.kafka.connect.data.Decimal"
AVRO = "io.confluent.connect.avro.AvroConverter"


def test_every_recorded_schema_survives_avro_and_back() -> None:
    """The schemas that Debezium recorded in JSON, in the Avro form of the producer, give the same Connect schemas."""
    texts = {
        split_schema(raw.decode())[0]
        for record in golden.read("ahead", prefix="p")
        for raw in (record.key, record.value)
        if raw is not None and has_schema(raw)
    }
    schemas = [ConnectSchema.from_json(json.loads(text)) for text in texts]

    assert len(schemas) > 100
    for schema in schemas:
        found = connect_schema(avro_schema(schema))
        assert shape(found) == shape(schema)


def shape(schema: ConnectSchema) -> object:
    """Return what a decoder needs of a schema."""
    members = [(field.name, shape(field.schema)) for field in schema.fields]
    inner = None if schema.items is None else shape(schema.items)
    return schema.type, schema.optional, schema.name, dict(schema.parameters), members, inner


def test_avro_without_connect_properties_has_its_logical_types() -> None:
    schema = {
        "type": "record",
        "name": "Value",
        "fields": [
            {"name": "d", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
            {"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        ],
    }

    found = connect_schema(schema)

    assert [field.schema.name for field in found.fields] == [
        DECIMAL,
        "org.apache.kafka.connect.data.Timestamp",
        "org.apache.kafka.connect.data.Date",
    ]
    assert dict(found.fields[0].schema.parameters) == {"scale": "2", "connect.decimal.precision": "9"}
    assert "logicalType" not in str(physical(schema))


def test_union_of_several_types_is_an_error() -> None:
    with pytest.raises(SchemaError, match=r"union of several types(?s:.*)or leave it out with table\.exclude\.list"):
        connect_schema(["null", "int", "string"])


def test_flattened_record_is_an_error() -> None:
    flat = ConnectSchema("struct", name="x.Value", fields=(ConnectField("id", ConnectSchema("int32")),))

    remedy = r"remove transforms such as ExtractNewRecordState .*, or leave the topic out with table\.exclude\.list"
    with pytest.raises(SchemaError, match=rf"topic p\.shop\.t has a schema that is not a change event(?s:.*){remedy}"):
        row_fields(flat, "p.shop.t")


def test_json_without_its_schema_is_an_error() -> None:
    values, table = JsonValues({}), TableSchema("p.shop.t", "shop", "t", (), ())
    with pytest.raises(
        SchemaError, match=r"records of topic p\.shop\.t name a table schema that is not published"
    ) as caught:
        values.named("p.shop.t", "published:x", [])
    assert (
        "the present schemas again, and let it alone write to the topics of its prefix; if records" in caught.value.hint
    )
    assert "run tailrace reload --topic p.shop.t --from latest --config FILE" in caught.value.hint
    with pytest.raises(
        SchemaError, match=r"record of topic p\.shop\.t has a schema that is not Kafka Connect's"
    ) as caught:
        values.columns(table, "md5:x", Sample("{}", None), [])
    assert caught.value.hint == "write the topic with org.apache.kafka.connect.json.JsonConverter"


def test_datetime_needs_the_name_of_its_schema() -> None:
    """Milliseconds and microseconds look alike: a guess would be wrong by a factor of a thousand."""
    columns = tp.StructType([tp.StructField("at", tp.TimestampNTZType())])
    micros = tp.StructField("at", tp.TimestampNTZType(), metadata={"comment": "io.debezium.time.MicroTimestamp"})

    with pytest.raises(ConfigError, match=r"shop\.t: column at is TIMESTAMP_NTZ; add COMMENT"):
        connect_fields(columns, table="shop.t")
    [found] = connect_fields(tp.StructType([micros]), table="shop.t")
    assert (found.schema.type, found.schema.name) == ("int64", "io.debezium.time.MicroTimestamp")


def test_types_that_no_connector_writes_are_an_error() -> None:
    with pytest.raises(ConfigError, match=r"shop\.t: column m has the type map<string,int>"):
        connect_fields(
            tp.StructType([tp.StructField("m", tp.MapType(tp.StringType(), tp.IntegerType()))]), table="shop.t"
        )


def test_columns_that_are_no_struct_are_an_error() -> None:
    with pytest.raises(ConfigError, match=r"neither DDL nor a StructType"):
        parse_columns('{"type":"nonsense"}')


def test_avro_needs_its_registry() -> None:
    base = {"bootstrap.servers": "b:1", "topic.prefix": "p", "checkpointLocation": "/c", "sink": "console"}
    url = {"value.converter.schema.registry.url": "http://user:secret@registry:8081"}

    with pytest.raises(ConfigError, match=r"value\.converter\.schema\.registry\.url is required"):
        config.parse({**base, "value.converter": AVRO})
    with pytest.raises(ConfigError, match=r"value\.converter"):
        config.parse({**base, "value.converter": "org.example.Other"})
    parsed = config.parse({**base, "value.converter": AVRO, **url})
    assert parsed.format_settings is not None
    assert parsed.format_settings.key is None
    assert "secret" not in repr(parsed) + str(config.describe(parsed)) + repr(parsed.format_settings)
    assert config.parse(base).format_settings is None
