"""Each record is decoded with the schema that it was written with; rows of all versions get one lossless type."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.runtime.errors import SchemaError
from tailrace.schemas.connect import ConnectField
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.source.version_decoder import merge_schemas
from tests.embedded.kafka import KafkaBroker
from tests.spark.records import Feed, Row, connect, decimal, table_schema, unscaled
from tests.spark.running import consume, settings, table_rows, topic_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.schemas.connect import ConnectSchema
    from tailrace.schemas.table import TableSchema

TIME = "io.debezium.time."
MILLIS = connect("int64", name=f"{TIME}Timestamp")
MICROS = connect("int64", name=f"{TIME}MicroTimestamp")
NOV_14 = 1_700_000_000_000


class History:
    """The versions of a table, in the order of its ALTER statements, and the records written under each."""

    def __init__(self, broker: KafkaBroker, prefix: str, first: TableSchema) -> None:
        self.prefix = prefix
        self.feed = Feed(broker, prefix)
        self.table = self.feed.table(first)
        self._pos = 100

    def alter(self, schema: TableSchema) -> None:
        """Write the records of the new version under ``schema``."""
        self.table.schema = schema
        self._pos += 10
        self.feed.write([self.table.published(self.prefix, version=self._pos)])

    def insert(self, **row: object) -> None:
        """Write one insert under the current version."""
        self._pos += 10
        self.feed.write(self.table.change("c", None, dict(row), pos=self._pos))

    def update(self, before: Row, after: Row) -> None:
        """Write one update under the current version."""
        self._pos += 10
        self.feed.write(self.table.change("u", before, after, pos=self._pos))


def schema_of(prefix: str, **columns: ConnectSchema) -> TableSchema:
    """Return a version of the table ``t`` with the key ``id``."""
    fields = [ConnectField("id", connect("int64", optional=False))]
    fields += [ConnectField(name, schema) for name, schema in columns.items()]
    return replace(table_schema(prefix, "t"), columns=tuple(fields))


@pytest.mark.timeout(1800)
def test_versions_in_one_batch_keep_their_values(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """The meaning of a number changes with the ALTER: milliseconds or microseconds, and the scale of a decimal."""
    old = schema_of(prefix, at=MILLIS, price=decimal(10, 2), n=connect("int32"))
    new = schema_of(prefix, at=MICROS, price=decimal(12, 4), n=connect("string"))
    history = History(kafka_broker, prefix, old)
    history.insert(id=1, at=NOV_14, price=unscaled(12345), n=7)
    history.alter(new)
    history.insert(id=2, at=NOV_14 * 1000 + 123456, price=unscaled(1234567), n="x")
    history.alter(old)
    history.insert(id=3, at=NOV_14, price=unscaled(-5), n=-1)

    consume(spark, settings(kafka_broker, prefix, tmp_path))
    changelog = settings(kafka_broker, prefix, tmp_path, sink="kafka", checkpointLocation=tmp_path / "other")
    consume(spark, changelog)

    day = dt.datetime(2023, 11, 14, 22, 13, 20)
    assert table_rows(spark, tmp_path, "t") == {
        1: {"id": 1, "at": day, "price": Decimal("123.4500"), "n": "7"},
        2: {"id": 2, "at": day.replace(microsecond=123456), "price": Decimal("123.4567"), "n": "x"},
        3: {"id": 3, "at": day, "price": Decimal("-0.0500"), "n": "-1"},
    }
    [(kind, row)] = topic_records(kafka_broker, f"changelog.{old.topic}")[b'{"id":2}']
    assert (kind, row["at"]) == ("+I", "2023-11-14T22:13:20.123456")


@pytest.mark.timeout(1800)
def test_table_follows_its_source_over_several_batches(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """Columns are widened and added, also of types that the table did not have; a dropped column becomes NULL."""
    given = settings(kafka_broker, prefix, tmp_path)
    history = History(kafka_broker, prefix, schema_of(prefix, n=connect("int32"), gone=connect("string")))
    history.insert(id=1, n=1, gone="a")
    history.insert(id=2, n=2, gone="b")
    consume(spark, given)
    history.alter(schema_of(prefix, n=connect("int64"), at=MILLIS, **{"a b": connect("string")}))
    history.update({"id": 1, "n": 1, "at": None, "a b": None}, {"id": 1, "n": 2**40, "at": NOV_14, "a b": "x"})
    consume(spark, given)

    day = dt.datetime(2023, 11, 14, 22, 13, 20)
    assert table_rows(spark, tmp_path, "t") == {
        1: {"id": 1, "n": 2**40, "gone": None, "at": day, "a b": "x"},
        2: {"id": 2, "n": 2, "gone": "b", "at": None, "a b": None},
    }


@pytest.mark.timeout(1800)
def test_changes_that_cannot_be_stored_stop_with_a_reason(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    given = settings(kafka_broker, prefix, tmp_path)
    history = History(kafka_broker, prefix, schema_of(prefix, n=connect("int32")))
    history.insert(id=1, n=1)
    consume(spark, given)
    history.alter(schema_of(prefix, n=connect("string")))
    history.insert(id=2, n="text")
    with pytest.raises(SinkError, match="Delta cannot change the type of the column") as caught:
        consume(spark, given)
    assert "ALTER COLUMN `n` TYPE string" in str(caught.value.context["statement"])


@pytest.mark.timeout(1800)
def test_another_key_stops_the_query(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """Neither a table nor a batch can match the rows of two keys."""
    given = settings(kafka_broker, prefix, tmp_path)
    schema = schema_of(prefix, n=connect("int32", optional=False))
    history = History(kafka_broker, prefix, schema)
    history.insert(id=1, n=1)
    consume(spark, given)
    history.alter(replace(schema, key=("id", "n")))
    history.insert(id=1, n=2)

    with pytest.raises(SinkError, match=r"the key of shop\.t has changed"):
        consume(spark, given)
    with pytest.raises(SchemaError, match=r"the key of shop\.t changed"):
        consume(spark, settings(kafka_broker, prefix, tmp_path / "fresh"))


@pytest.mark.timeout(1800)
def test_value_without_a_form_in_the_new_type_stops_with_its_offset(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    history = History(kafka_broker, prefix, schema_of(prefix, n=connect("string")))
    history.insert(id=1, n="007")
    history.alter(schema_of(prefix, n=connect("int32")))
    history.insert(id=2, n=2)

    # int fits into string, so the common type of both versions is string.
    consume(spark, settings(kafka_broker, prefix, tmp_path))
    assert {key: row["n"] for key, row in table_rows(spark, tmp_path, "t").items()} == {1: "007", 2: "2"}

    history.alter(schema_of(prefix, n=connect("bytes")))
    history.insert(id=3, n="AP8=")
    fresh = tmp_path / "fresh"
    with pytest.raises(SchemaError, match="no representation in the type after it"):
        consume(spark, settings(kafka_broker, prefix, fresh))


@pytest.mark.timeout(1800)
def test_record_of_an_unpublished_schema_stops_the_query(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    history = History(kafka_broker, prefix, schema_of(prefix, n=connect("int32")))
    history.insert(id=1, n=1)
    history.table.schema = schema_of(prefix, n=connect("int64"))
    history.insert(id=2, n=2)

    with pytest.raises(SinkError, match=r"its header tailrace\.schema is not"):
        consume(spark, settings(kafka_broker, prefix, tmp_path))


@pytest.mark.timeout(1800)
def test_names_are_neither_paths_nor_variables(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """A table name cannot leave sink.path, and a column name is not replaced by a variable of the environment."""
    schema = schema_of(prefix, **{"${env:PATH}": connect("string")})
    schema = replace(schema, topic=f"{prefix}.shop.evil", table="../../evil")
    history = History(kafka_broker, prefix, schema)
    row = {"id": 1, "${env:PATH}": "v"}
    history.insert(**row)
    history.update(row, row | {"${env:PATH}": "w"})

    consume(spark, settings(kafka_broker, prefix, tmp_path))

    [directory] = (tmp_path / "tables" / "shop").iterdir()
    assert directory.name == "%2E.%2F..%2Fevil"
    assert table_rows(spark, tmp_path, directory.name) == {1: row | {"${env:PATH}": "w"}}


def test_added_columns_become_optional_and_the_key_must_stay() -> None:
    old = schema_of("p", n=connect("int32", optional=False))
    new = schema_of("p", n=connect("int32", optional=False), m=connect("int32", optional=False))

    merged = merge_schemas([old, new])

    assert [(c.name, c.schema.optional) for c in merged.columns] == [("id", False), ("n", False), ("m", True)]
    with pytest.raises(SchemaError, match=r"the key of shop\.t changed"):
        merge_schemas([old, replace(new, key=("id", "n"))])
