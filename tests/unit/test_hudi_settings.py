"""What the Hudi sink refuses at the start: shapes with several rows per key, names and keys that Hudi cannot hold."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from pyspark.sql import types as tp

from tailrace.runtime.errors import ConfigError, SchemaError
from tailrace.schemas.connect import ConnectField
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer import config
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.sink.hudi_keys import check_key, check_names
from tailrace.spark_consumer.sink.hudi_sink import HudiOptions
from tailrace.spark_consumer.source.json_decoder import row_type
from tailrace.spark_consumer.verify.command import VerifyOptions, verify
from tests.spark.records import connect, table_schema

GIVEN = {
    "bootstrap.servers": "localhost:9092",
    "topic.prefix": "shop",
    "checkpointLocation": "/c",
    "sink": "hudi",
    "sink.path": "/t",
}


def test_tables_can_have_soft_deletes_and_options_of_hudi() -> None:
    given = {"sink.shape.overrides": "shop\\.a:soft-delete", "sink.properties.hoodie.metadata.enable": "false"}

    options = config.parse({**GIVEN, **given}).sink_options

    assert isinstance(options, HudiOptions)
    assert options.layout("shop", "a").keeps_deleted
    assert not options.layout("shop", "b").keeps_deleted
    assert options.table_properties == {"hoodie.metadata.enable": "false"}


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"sink.shape": "history"}, "sink.shape"),
        (
            {"sink.shape.overrides": "shop\\.a:soft-delete;shop\\.b:scd2"},
            "'scd2' is not a shape of the sink: scd1, soft-delete",
        ),
        ({"sink.path": ""}, "sink.path"),
    ],
)
def test_other_shapes_are_refused(changed: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        config.parse({**GIVEN, **changed})


@pytest.mark.parametrize("name", ["order no", "größe", "_hoodie_file_name", "1st", "a.b"])
def test_names_that_hudi_cannot_hold_are_refused(name: str) -> None:
    schema = table_schema("shop", "t", ConnectField(name, connect("string")))

    with pytest.raises(SchemaError, match=rf"column '{re.escape(name)}' of shop\.t has a name that Hudi") as caught:
        check_names(schema)
    assert caught.value.hint.startswith("give it another name with transforms.<name>.projection, or exclude it with ")


@pytest.mark.parametrize(("kind", "optional"), [("bytes", False), ("double", False), ("int64", True), ("string", True)])
def test_keys_without_one_text_for_each_value_are_refused(kind: str, *, optional: bool) -> None:
    column = ConnectField("k", connect(kind, optional=optional))
    schema = table_schema("shop", "t", column, key=("id", "k"))

    with pytest.raises(SinkError, match=r"the key column k of shop\.t .*, and Hudi identifies rows by") as caught:
        check_key(schema, _types(schema))
    assert caught.value.hint == "set other key columns with message.key.columns in the producer, or use another sink"
    check_key(replace(schema, key=("id",)), _types(schema))


def _types(schema: TableSchema) -> dict[str, tp.DataType]:
    return {field.name: field.dataType for field in row_type(schema)}


def test_keys_of_integers_texts_and_dates_are_taken() -> None:
    columns = (
        ConnectField("t", connect("string", optional=False)),
        ConnectField("d", connect("int32", optional=False, name="io.debezium.time.Date")),
    )
    schema = table_schema("shop", "t", *columns, key=("id", "t", "d"))

    check_names(schema)
    check_key(schema, _types(schema))


def test_a_repair_of_hudi_tables_is_refused_before_anything_is_read() -> None:
    with pytest.raises(ConfigError, match="not repaired yet; compare without it, and load the table again"):
        verify(config.parse(GIVEN), VerifyOptions(["false"], repair=True))
