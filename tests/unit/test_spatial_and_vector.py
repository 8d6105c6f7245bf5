"""Spatial values and vectors from their stored bytes: no server is asked.

Most servers of the tests have no VECTOR (MySQL 9): its rows and its TABLE_MAP are made here by hand.
"""

from __future__ import annotations

import json
import struct

import pytest

from tailrace.producer.model.binlog_events import RowsEvent
from tailrace.producer.model.codec import EventEnvelope, SnapshotEnvelope
from tailrace.producer.model.table import Column, Table, TableId
from tailrace.producer.mysql.binlog.table_map import MapFormat, read_table_map
from tailrace.producer.mysql.types.registry import column_type
from tailrace.producer.mysql.types.spatial import GEOMETRY, POINT, geometry_json, point_json
from tailrace.producer.mysql.types.vector import vector_json
from tailrace.producer.serialization.avro_encoding import json_encoder
from tailrace.producer.serialization.avro_schema import avro_schema
from tailrace.producer.serialization.envelope.schemas import schema_json
from tailrace.producer.serialization.table_codec import TableCodec
from tailrace.runtime.errors import SchemaError
from tests.support.avro import Avro, value_of
from tests.support.binlog_bytes import LogBytes, names_option, parse, table_map_body
from tests.support.values import DEFAULT_CODEC, value_options

POINT_BYTES = struct.pack("<IBIdd", 0, 1, 1, 1.0, -2.5)
NUMBERS = (1.0, -0.0, 5.6, 3.4028234663852886e38, 1.401298464324817e-45, 16777216.0)
VECTOR_BYTES = struct.pack("<6f", *NUMBERS)
VECTOR_JSON = "[1.0,-0.0,5.6,3.4028235E38,1.4E-45,1.6777216E7]"
EMBEDDING = Column("embedding", "vector")


def test_a_point_has_its_coordinates_and_its_wkb() -> None:
    """An SRID of 0 is none; one beyond 31 bits is negative, as in Java."""
    wkb = "AQEAAAAAAAAAAADwPwAAAAAAAATA"

    assert point_json(POINT_BYTES) == f'{{"x":1.0,"y":-2.5,"wkb":"{wkb}","srid":null}}'
    assert point_json(b"\xe6\x10\0\0" + POINT_BYTES[4:]) == f'{{"x":1.0,"y":-2.5,"wkb":"{wkb}","srid":4326}}'
    assert geometry_json(b"\xff\xff\xff\xff" + POINT_BYTES[4:]) == f'{{"wkb":"{wkb}","srid":-1}}'


@pytest.mark.parametrize(
    "data",
    [b"", POINT_BYTES[:-1], POINT_BYTES + b"\0", b"\0\0\0\0\0" + POINT_BYTES[5:], b"\0\0\0\0\1\2" + POINT_BYTES[6:]],
)
def test_bytes_that_are_not_a_point_are_rejected(data: bytes) -> None:
    """Nothing, too little, too much, big-endian, another shape."""
    with pytest.raises(SchemaError, match=r"(?s)not a point.*hint: correct the row"):
        point_json(data)


def test_a_spatial_value_without_bytes_is_nothing() -> None:
    """NULL where that may be; else the empty collection that Debezium writes. One that is cut short is an error."""
    table = Table(
        TableId("d", "t"),
        (Column("id", "int", nullable=False), Column("a", "geometry"), Column("b", "geometry", nullable=False)),
        ("id",),
    )
    codec = TableCodec(table, "t", DEFAULT_CODEC)
    event = b"\0" + struct.pack("<iII", 1, 0, 0)

    [record] = codec.inserts(event, 0, len(event), EventEnvelope(b"", b"", b"")).records

    assert isinstance(record, tuple)
    assert b'{"id":1,"a":null,"b":{"wkb":"AQcAAAAAAAAA","srid":null}}' in (record[1] or b"")
    with pytest.raises(SchemaError, match=r"(?s)too short.*hint: correct the row"):
        geometry_json(b"\0\0\0")


def test_the_schemas_are_debeziums() -> None:
    """As JsonConverter prints them; a POINT column has coordinates, all others only WKB."""
    wkb = '{"type":"bytes","optional":%s,"field":"wkb"},{"type":"int32","optional":true,"field":"srid"}'
    double = '{"type":"double","optional":false,"field":"%s"},'

    assert schema_json(GEOMETRY) == (
        f'{{"type":"struct","fields":[{wkb % "false"}],"optional":false,'
        '"name":"io.debezium.data.geometry.Geometry","version":1,"doc":"Geometry"}'
    )
    assert schema_json(POINT) == (
        f'{{"type":"struct","fields":[{double % "x"}{double % "y"}{wkb % "true"}],"optional":false,'
        '"name":"io.debezium.data.geometry.Point","version":1,"doc":"Geometry (POINT)"}'
    )
    assert schema_json(column_type(EMBEDDING, value_options()).connect()) == (
        '{"type":"array","items":{"type":"float","optional":false},"optional":false,'
        '"name":"io.debezium.data.FloatVector","version":1}'
    )


def test_a_vector_is_an_array_of_floats() -> None:
    """Numbers as Java prints a 32-bit float."""
    assert vector_json(VECTOR_BYTES) == VECTOR_JSON
    assert vector_json(b"") == "[]"


@pytest.mark.parametrize(
    "data", [b"\0", b"\0" * 7, struct.pack("<2f", 1, float("nan")), struct.pack("<f", float("-inf"))]
)
def test_what_is_no_vector_is_refused(data: bytes) -> None:
    """Bytes that are no whole numbers; numbers that JSON cannot have."""
    with pytest.raises(SchemaError, match=r"(?s)a vector.*hint: correct the row"):
        vector_json(data)


def test_select_and_log_give_the_same_vector() -> None:
    """The text protocol carries the stored bytes; a row image has them behind a length of four bytes. NULL as well."""
    table = Table(TableId("d", "t"), (Column("id", "int", nullable=False), EMBEDDING), ("id",))
    codec = TableCodec(table, "t", DEFAULT_CODEC)
    images = b"\0" + struct.pack("<iI", 7, len(VECTOR_BYTES)) + VECTOR_BYTES + b"\2" + struct.pack("<i", 8)
    packet = b"\x017" + bytes((len(VECTOR_BYTES),)) + VECTOR_BYTES, b"\x018\xfb"
    packets = b"".join(len(each).to_bytes(3, "little") + b"\0" + each for each in packet)

    logged = codec.inserts(images, 0, len(images), EventEnvelope(b",", b"", b"")).records
    selected = codec.snapshot(packets, 0, len(packets), SnapshotEnvelope(b",0c")).records

    assert codec.select_list == "`id`, `embedding`"
    assert selected[0][1] == f'{{"before":null,"after":{{"id":7,"embedding":{VECTOR_JSON}}},0c'.encode()
    assert [each[1].replace(b",1c", b",0c") for each in logged] == [each[1] for each in selected]  # type: ignore[union-attr]


def test_avro_holds_the_same() -> None:
    """fastavro reads what the encoder writes, and writes the same bytes."""
    for schema, text in (
        (column_type(EMBEDDING, value_options()).connect(), VECTOR_JSON),
        (POINT, point_json(POINT_BYTES)),
    ):
        avro, value = Avro(avro_schema(schema)), value_of(schema, json.loads(text))
        data = json_encoder(schema)(json.loads(text))

        assert avro.read(data) == value
        assert avro.write(value) == data


def test_the_log_describes_a_vector_and_tells_points_from_shapes() -> None:
    """A vector has a place among the character sets (63, binary); shapes are numbered, 1 is a point."""
    types, metadata = bytes((3, 242, 255, 255, 15)), b"\4\4\4" + struct.pack("<H", 40)
    charsets, shapes = b"\3\2\x3f\xff", b"\7\2\1\3"
    dimensions = b"\x0d\1\3"
    options = (
        b"\1\1\0" + charsets.replace(b"\xff", b"\x2d") + shapes + names_option("id", "v", "p", "g", "t") + dimensions
    )
    body = table_map_body("shop", "orders", (types, metadata, b"\x1e", options))

    found = read_table_map(body, MapFormat(year_has_sign=True))

    assert found.columns == (
        Column("id", "int", nullable=False),
        Column("v", "vector"),
        Column("p", "point"),
        Column("g", "geometry"),
        Column("t", "varchar", length=40, charset="utf8mb4"),
    )


@pytest.mark.parametrize("charsets", [b"\3\3\x3f\x2d\x08", b"\2\5\x2d\0\x3f\2\x08"])
def test_the_log_of_mariadb_gives_shapes_a_character_set(charsets: bytes) -> None:
    """A shape has a place among them, whether all are listed or the exceptions of a default."""
    options = b"\1\1\0" + charsets + b"\7\1\1" + names_option("id", "p", "t", "l")
    metadata = b"\4" + struct.pack("<HH", 40, 9)
    body = table_map_body("shop", "orders", (b"\3\xff\x0f\x0f", metadata, b"\x0e", options))

    found = read_table_map(body, MapFormat(year_has_sign=True, shape_has_charset=True))

    assert [column.charset for column in found.columns[2:]] == ["utf8mb4", "latin1"]
    assert [column.data_type for column in found.columns[1:]] == ["point", "varchar", "varchar"]


def test_a_vector_goes_through_the_log() -> None:
    """TABLE_MAP, row image and codec together."""
    image = b"\0" + struct.pack("<iI", 5, len(VECTOR_BYTES)) + VECTOR_BYTES
    columns = (b"\3\xf2", b"\4", b"\2", b"\1\1\0\2\1\x3f" + names_option("id", "v") + b"\x0d\1\6")
    log = LogBytes()
    log.gtid().query("BEGIN").table_map(columns=columns).rows(image).xid()

    [rows] = [event for event in parse(log) if isinstance(event, RowsEvent)]
    codec = TableCodec(Table(rows.table.id, rows.table.columns, ("id",)), "t", DEFAULT_CODEC)
    [record] = codec.inserts(rows.data, rows.start, rows.stop, EventEnvelope(b"", b"", b"")).records

    assert isinstance(record, tuple)
    assert f'"v":{VECTOR_JSON}'.encode() in (record[1] or b"")
