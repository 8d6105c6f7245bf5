"""The settings of shapes and metadata columns: what is read, and all faults at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from tailrace.runtime.config.value_types import InvalidValueError
from tailrace.runtime.errors import ConfigError
from tailrace.spark_consumer import config
from tailrace.spark_consumer.errors import SinkError, TransformError
from tailrace.spark_consumer.images import Images, MetadataField, read_fields
from tailrace.spark_consumer.sink.shape import Layout, ShapeOptions, TableShapes
from tailrace.spark_consumer.transform.columns import Columns
from tailrace.spark_consumer.transform.table_transform import TableTransform
from tests.spark.records import table_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GIVEN = {"bootstrap.servers": "b:1", "topic.prefix": "p", "checkpointLocation": "/c"}
DELTA = {**GIVEN, "sink": "delta", "sink.path": "/t"}


def options(**changes: str) -> ShapeOptions:
    """Return the settings of a Delta sink."""
    found = config.parse({**DELTA, **{name.replace("_", "."): value for name, value in changes.items()}}).sink_options
    assert isinstance(found, ShapeOptions)
    return found


def test_fields_are_found_where_debezium_finds_them() -> None:
    assert read_fields("op, table,source.ts_ms ,ts_ms,id,transaction.total_order,source.pos:position,op:change") == (
        MetadataField("op", "", "op"),
        MetadataField("table", "source", "table"),
        MetadataField("source_ts_ms", "source", "ts_ms"),
        MetadataField("ts_ms", "", "ts_ms"),
        MetadataField("id", "transaction", "id"),
        MetadataField("transaction_total_order", "transaction", "total_order"),
        MetadataField("position", "source", "pos"),
        MetadataField("change", "", "op"),
    )


def test_all_faults_of_the_fields_are_reported_at_once() -> None:
    with pytest.raises(InvalidValueError) as caught:
        read_fields("op,lsn,source.nothing,before.id,a b,OP,op:x-y")

    assert str(caught.value).startswith("unknown fields: lsn, source.nothing, before.id, a b, OP, op:x-y")


def test_two_fields_cannot_have_one_column() -> None:
    with pytest.raises(InvalidValueError, match="several fields have one column: op; rename one"):
        read_fields("op,source.pos:OP")


def test_columns_have_a_prefix() -> None:
    assert [field.column for field in options(add_fields="op,source.ts_ms").fields] == ["__op", "__source_ts_ms"]
    assert [field.column for field in options(add_fields="op", add_fields_prefix="cdc_").fields] == ["cdc_op"]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"add.fields": "op:deleted"}, "add.fields: the sinks use __deleted themselves"),
        ({"add.fields": "op:seq", "add.fields.prefix": "_"}, "add.fields: the sinks use _seq themselves"),
        ({"add.fields": "lsn"}, "unknown fields: lsn"),
        ({"sink.shape": "scd9"}, "is not one of scd1, soft-delete, history, scd2"),
        (
            {"sink.shape.overrides": r"a\.b:scd0;a\.(:scd1;scd1"},
            r"'scd0' is not a shape of the sink: .*'a\\\\.\(' is not a regular expression: .*'scd1' is not of the form",
        ),
    ],
)
def test_faults_are_found_at_the_start(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        config.parse({**DELTA, **settings})


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"sink.shape": "scd2"}, "sink.shape: 'scd2' .* files are only added, so the sink parquet has no other shape"),
        (
            {"sink.shape.overrides": "a:scd2"},
            "sink.shape.overrides: .* only the sinks delta, hudi, iceberg, jdbc have it",
        ),
        ({"add.fields": "op:ts", "add.fields.prefix": "_"}, "add.fields: the sinks use _ts themselves"),
    ],
)
def test_files_are_a_history_only(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        config.parse({**GIVEN, "sink": "parquet", "sink.path": "/t", **settings})


def test_shape_of_a_table() -> None:
    shapes = options(sink_shape_overrides=r"shop\.orders_\d+:soft-delete; crm\..*:scd1").shapes

    assert shapes.of("shop", "orders_12") == "soft-delete"
    assert shapes.of("SHOP", "Orders_1") == "soft-delete"
    assert shapes.of("shop", "orders_") == "scd1"
    assert shapes.images("shop", "orders_1") is Images.UPSERT_WITH_BEFORE
    assert shapes.images("crm", "t") is Images.UPSERT


def test_several_expressions_for_one_table_are_an_error_of_the_table() -> None:
    shapes = TableShapes("scd1", ((r"a\..*", "soft-delete"), (r".*\.b", "scd1")))

    assert shapes.of("a", "c") == "soft-delete"
    with pytest.raises(SinkError, match=r"several expressions of sink\.shape\.overrides match a\.b") as caught:
        shapes.of("a", "b")
    assert caught.value.hint == "change the expressions, so that one of them matches the table"
    assert caught.value.context["expressions"] == [r"a\..*:soft-delete", r".*\.b:scd1"]
    assert TableShapes("scd1", ((r"a\..*", "soft-delete"), (r"[^a]\.b", "scd1"))).of("a", "b") == "soft-delete"


def test_rows_of_a_history_are_not_compared() -> None:
    with pytest.raises(SinkError, match=r"^t has the shape history, whose rows are not those of the source") as caught:
        Layout("history").rows_of_source(cast("DataFrame", None), "t")
    assert caught.value.hint == "leave the table out with --tables"


@pytest.mark.parametrize(
    ("name", "value", "sinks"),
    [
        ("sink.shape", "soft-delete", "delta, hudi, iceberg, jdbc"),
        ("sink.shape.overrides", "a:scd1", "delta, hudi, iceberg, jdbc"),
        ("add.fields", "op", "delta, hudi, iceberg, jdbc, parquet"),
    ],
)
def test_a_sink_without_shapes_is_an_error_that_names_the_others(name: str, value: str, sinks: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: .* is not supported: only the sinks {sinks} have it"):
        config.parse({**GIVEN, "sink": "console", name: value})


def test_a_sink_without_shapes_has_the_default() -> None:
    parsed = config.parse({**GIVEN, "sink": "console", "sink.shape": "scd1"})

    assert parsed.sink == "console"


def test_a_filter_does_not_go_with_deleted_rows_that_stay() -> None:
    source = table_schema("p", "t")
    transform = TableTransform(source, source, Columns((), ("id",), "id > 0"))

    with pytest.raises(TransformError, match=r"shop\.t has a filter, and its target keeps deleted rows") as caught:
        transform.apply(cast("DataFrame", None), Images.UPSERT_WITH_BEFORE)
    assert caught.value.hint == "remove the filter, or set another shape for the table in sink.shape.overrides"
