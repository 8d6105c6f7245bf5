"""Spatial and vector columns are structs and arrays in a Delta table; updates and deletes apply to them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.schemas.connect import ConnectField, ConnectSchema
from tests.embedded.kafka import KafkaBroker
from tests.spark.records import Feed, connect, table_schema
from tests.spark.running import consume, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GEOMETRY = "io.debezium.data.geometry."


@pytest.mark.timeout(1800)
def test_spatial_and_vector_columns_reach_the_table(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    members = ConnectField("wkb", connect("bytes")), ConnectField("srid", connect("int32"))
    axes = [ConnectField(name, ConnectSchema("double")) for name in "xy"]
    schema = table_schema(
        prefix,
        "places",
        ConnectField("g", ConnectSchema("struct", True, f"{GEOMETRY}Geometry", 1, fields=members)),
        ConnectField("p", ConnectSchema("struct", True, f"{GEOMETRY}Point", 1, fields=(*axes, *members))),
        ConnectField(
            "v", ConnectSchema("array", True, "io.debezium.data.FloatVector", 1, items=ConnectSchema("float"))
        ),
    )
    feed = Feed(kafka_broker, prefix)
    table = feed.table(schema)
    shape = {"wkb": "AQcAAAAAAAAA", "srid": None}
    point = {"x": 1.0, "y": -2.5, "wkb": "AQEAAAAAAAAAAADwPwAAAAAAAATA", "srid": 4326}
    full = {"id": 1, "name": "a", "g": shape, "p": point, "v": [1.5, -0.5]}
    empty = {"id": 2, "name": None, "g": None, "p": None, "v": None}
    moved = {**full, "p": {**point, "x": 3.0}, "v": []}
    given = settings(kafka_broker, prefix, tmp_path)

    feed.write([*table.change("c", None, full, pos=100), *table.change("c", None, empty, pos=110)])
    feed.write(table.change("c", None, {**empty, "id": 3}, pos=120))
    consume(spark, given)
    feed.write([*table.change("u", full, moved, pos=200), *table.change("d", {**empty, "id": 3}, None, pos=210)])
    consume(spark, given)

    rows = spark.read.format("delta").load(str(tmp_path / "tables" / "shop" / "places")).orderBy("id").collect()
    assert [row.id for row in rows] == [1, 2]
    assert (bytes(rows[0].g.wkb), rows[0].g.srid) == (bytes.fromhex("010700000000000000"), None)
    assert (rows[0].p.x, rows[0].p.y, rows[0].p.srid, len(rows[0].p.wkb)) == (3.0, -2.5, 4326, 21)
    assert rows[0].v == []
    assert (rows[1].g, rows[1].p, rows[1].v) == (None, None, None)
