"""Every type decodes exactly; a value that cannot be represented fails the batch with topic, partition and offset."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from pyspark.errors import PySparkException

from tailrace.schemas.connect import ConnectField, ConnectSchema
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.source.json_decoder import decode, row_type
from tests.spark.records import connect, decimal, table_schema, unscaled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIME = "io.debezium.time."
SCHEMA = table_schema(
    "p",
    "t",
    ConnectField("small", decimal(10, 2)),
    ConnectField("wide", decimal(38, 10)),
    ConnectField("unsigned", decimal(20, 0)),
    ConnectField("day", connect("int32", name=f"{TIME}Date")),
    ConnectField("ms", connect("int64", name=f"{TIME}Timestamp")),
    ConnectField("us", connect("int64", name=f"{TIME}MicroTimestamp")),
    ConnectField("zoned", connect("string", name=f"{TIME}ZonedTimestamp")),
    ConnectField("span", connect("int64", name=f"{TIME}MicroTime")),
    ConnectField("raw", connect("bytes")),
    ConnectField("tiny", connect("int16")),
    ConnectField("single", connect("float")),
    ConnectField("flag", connect("boolean")),
)


def envelope(**row: Any) -> bytes:
    """Return the envelope of an insert; other columns are NULL."""
    after = {column.name: None for column in SCHEMA.columns} | {"id": 1} | row
    source = {"file": "binlog.000012", "pos": 5, "row": 0, "ts_ms": 1}
    return orjson.dumps({"before": None, "after": after, "source": source, "op": "c"})


def decoded(spark: SparkSession, values: list[bytes | None], schema: TableSchema = SCHEMA) -> list[Any]:
    """Decode values at the offsets 0, 1, … of partition 3."""
    columns = "topic string, partition int, offset bigint, key binary, value binary"
    headers = "split string, event string, schema string, incremental string"
    rows = [
        (schema.topic, 3, number, b"k", value, None, "1.0", schema.fingerprint, None)
        for number, value in enumerate(values)
    ]
    return (
        decode(spark.createDataFrame(rows, f"{columns}, {headers}"), schema, Images.UPSERT)
        .select("op", "seq", "after.*")
        .collect()
    )


def test_decimals_are_exact_to_the_last_digit(spark: SparkSession) -> None:
    cases = [
        0,
        -1,
        127,
        128,
        -128,
        -129,
        2**63,
        -(2**63),
        2**64,
        -(2**64) - 1,
        10**38 - 1,
        -(10**38 - 1),
        3 * 10**34 + 7,
    ]
    small = [value % 10**10 for value in cases]
    unsigned = [value % 10**20 for value in cases]

    rows = decoded(
        spark,
        [
            envelope(small=unscaled(s), wide=unscaled(w), unsigned=unscaled(u))
            for s, w, u in zip(small, cases, unsigned, strict=True)
        ],
    )

    assert [row.small for row in rows] == [Decimal(f"{value}E-2") for value in small]
    assert [row.wide for row in rows] == [Decimal(f"{value}E-10") for value in cases]
    assert [row.unsigned for row in rows] == [Decimal(value) for value in unsigned]


def test_times_bytes_and_numbers(spark: SparkSession) -> None:
    [row] = decoded(
        spark,
        [
            envelope(
                day=-1000,
                ms=-1,
                us=-62_135_596_800_000_000 + 5,
                zoned="2014-09-09T04:51:04.780000Z",
                span=-3_020_399_999_999,
                raw="AP8=",
                tiny=-128,
                single=5.6,
                flag=False,
            )
        ],
    )

    assert row.day == dt.date(1967, 4, 7)
    assert row.ms == dt.datetime(1969, 12, 31, 23, 59, 59, 999000)
    assert row.us == dt.datetime(1, 1, 1, 0, 0, 0, 5)
    assert row.zoned.timestamp() == dt.datetime(2014, 9, 9, 4, 51, 4, 780000, tzinfo=dt.UTC).timestamp()
    assert (row.span, bytes(row.raw), row.tiny, row.flag) == (-3_020_399_999_999, b"\x00\xff", -128, False)
    assert tuple(row.seq) == (1, 12, 5, 0, 0)


def test_spatial_columns_are_structs_and_vectors_are_arrays(spark: SparkSession) -> None:
    """Spatial columns as struct of binary WKB and int SRID, points with coordinates; vectors as array of float."""
    srid = ConnectField("srid", connect("int32"))
    wkb = ConnectField("wkb", connect("bytes"))
    axes = [ConnectField(name, ConnectSchema("double")) for name in "xy"]
    schema = table_schema(
        "p",
        "t",
        ConnectField("g", ConnectSchema("struct", True, "io.debezium.data.geometry.Geometry", 1, fields=(wkb, srid))),
        ConnectField(
            "p", ConnectSchema("struct", True, "io.debezium.data.geometry.Point", 1, fields=(*axes, wkb, srid))
        ),
        ConnectField(
            "v", ConnectSchema("array", True, "io.debezium.data.FloatVector", 1, items=ConnectSchema("float"))
        ),
    )
    shape = {"wkb": "AQcAAAAAAAAA", "srid": None}
    point = {"x": -0.5, "y": 1e300, "wkb": "AQE=", "srid": 4326}

    rows = decoded(spark, [envelope(), envelope(g=shape, p=point, v=[1.5, -2.0])], schema)

    assert (rows[0].g, rows[0].p, rows[0].v) == (None, None, None)
    assert (bytes(rows[1].g.wkb), rows[1].g.srid) == (bytes.fromhex("010700000000000000"), None)
    assert (rows[1].p.x, rows[1].p.y, bytes(rows[1].p.wkb), rows[1].p.srid) == (-0.5, 1e300, b"\x01\x01", 4326)
    assert rows[1].v == [1.5, -2.0]
    assert (
        row_type(schema)
        .simpleString()
        .endswith("g:struct<wkb:binary,srid:int>,p:struct<x:double,y:double,wkb:binary,srid:int>,v:array<float>>")
    )


def test_tombstones_are_dropped_and_nulls_are_kept(spark: SparkSession) -> None:
    [row] = decoded(spark, [None, envelope()])

    assert row.asDict().items() >= {"id": 1, "name": None, "wide": None, "zoned": None, "raw": None}.items()


@pytest.mark.parametrize(
    "bad",
    [
        envelope(small=unscaled(10**10)),
        envelope(wide=unscaled(10**38)),
        envelope(wide=unscaled(2**140)),
        envelope(small=""),
        envelope(zoned="nonsense"),
        envelope(raw="%%%"),
        envelope(tiny=70_000),
        envelope(id="12"),
        envelope(day=1.5),
        b'{"before":null,"aft',
        b"{}",
        b"[]",
        b'{"schema":{},"payload":{"op":"c"}}',
        b'{"before":null,"after":null,"source":{"file":"b.1","pos":1,"row":1},"op":"c"}',
        b'{"before":null,"after":{"id":1},"source":{"file":"b","pos":1,"row":1},"op":"c"}',
        b'{"before":null,"after":{"id":1},"source":{"file":"b.1","pos":1,"row":1},"op":"x"}',
    ],
)
def test_invalid_record_fails_the_batch_with_its_offset(spark: SparkSession, bad: bytes) -> None:
    with pytest.raises(PySparkException, match=r"topic p\.shop\.t, partition 3, offset 1: "):
        decoded(spark, [envelope(), bad])


def test_truncate_event_has_a_sequence_and_no_row(spark: SparkSession) -> None:
    truncate = b'{"before":null,"after":null,"source":{"file":"b.1","pos":1,"row":0},"op":"t"}'
    [row] = decoded(spark, [truncate])

    assert (row["op"], tuple(row["seq"]), row["id"]) == ("t", (1, 1, 1, 0, 0), None)
    with pytest.raises(PySparkException, match=r"offset 0: .*sequence is incomplete"):
        decoded(spark, [truncate.replace(b'"pos":1,', b"")])
