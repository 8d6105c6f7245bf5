"""Spatial columns: Debezium's Geometry, or Point for a POINT column, from the bytes that the server stores.

A value is the SRID in four little-endian bytes, then WKB, little-endian too, in result sets and in row images. An SRID
of 0 means none. The axes stay in the order of storage, longitude first, whatever the SRID defines.
"""

from __future__ import annotations

import struct
from binascii import b2a_base64
from collections.abc import Callable
from typing import ClassVar, Final

from tailrace.producer.model.table import Column
from tailrace.producer.mysql.types.base import (
    BinlogColumn,
    BinlogOption,
    BinlogType,
    ColumnType,
    Layout,
    Value,
    ValueKind,
)
from tailrace.producer.mysql.types.floating import java_double
from tailrace.runtime.errors import SchemaError
from tailrace.schemas.connect import ConnectField, ConnectSchema

_SRID: Final = struct.Struct("<i")
_POINT: Final = struct.Struct("<iBIdd")
_POINT_BYTES: Final = _POINT.size
_NULL: Final = "null"
_LITTLE_ENDIAN, _POINT_TYPE = 1, 1
NOTHING: Final = bytes.fromhex("00000000010700000000000000")
"""An empty GEOMETRYCOLLECTION without SRID. Debezium writes it if a NOT NULL column has no value."""

_WKB: Final = ConnectField("wkb", ConnectSchema("bytes"))
_NUMBER: Final = ConnectField("srid", ConnectSchema("int32", optional=True))
GEOMETRY: Final = ConnectSchema(
    "struct", name="io.debezium.data.geometry.Geometry", version=1, doc="Geometry", fields=(_WKB, _NUMBER)
)
"""Any shape: its WKB, and its SRID if it has one."""
POINT: Final = ConnectSchema(
    "struct",
    name="io.debezium.data.geometry.Point",
    version=1,
    doc="Geometry (POINT)",
    fields=(
        ConnectField("x", ConnectSchema("double")),
        ConnectField("y", ConnectSchema("double")),
        ConnectField("wkb", ConnectSchema("bytes", optional=True)),
        _NUMBER,
    ),
)
"""The same with both coordinates in addition to the WKB."""


class SpatialType(ColumnType):
    """GEOMETRY and its subtypes. A POINT column has a struct of its own."""

    data_types = ("geometry", "point")
    catalog_names: ClassVar = dict.fromkeys(
        (
            "linestring",
            "polygon",
            "multipoint",
            "multilinestring",
            "multipolygon",
            "geometrycollection",
            "geomcollection",
        ),
        "geometry",
    )
    binlog_types = (BinlogType(255, "geometry", 1, BinlogOption.SHAPE),)

    @classmethod
    def from_binlog(cls, column: BinlogColumn) -> Column:
        return Column(column.name, "point" if column.shape == _POINT_TYPE else "geometry", column.nullable)

    def connect(self) -> ConnectSchema:
        return POINT if self.column.data_type == "point" else GEOMETRY

    @property
    def layout(self) -> Layout:
        return Layout(0, 4)

    def from_text(self) -> Value:
        if self.column.data_type == "point":
            return Value(ValueKind.JSON, lambda data: point_json(data).encode())
        nothing = None if self.column.nullable else geometry_json(NOTHING).encode()
        return Value(ValueKind.JSON, lambda data: geometry_json(data).encode() if data else nothing)

    def from_image(self) -> Value:
        return self.from_text()

    def raw_key(self) -> Callable[[bytes], bytes]:
        return bytes


def geometry_json(data: bytes) -> str:
    """Return the JSON of a stored value. Raises SchemaError if it is too short."""
    if len(data) < _SRID.size:
        raise SchemaError("a spatial value is too short", hint="correct the row", bytes=data.hex())
    return f'{{"wkb":"{_base64(data[4:])}","srid":{_SRID.unpack_from(data)[0] or _NULL}}}'


def point_json(data: bytes) -> str:
    """Return the JSON of a stored point. Raises SchemaError for any other shape."""
    if len(data) != _POINT_BYTES:
        raise SchemaError("a value of a POINT column is not a point", hint="correct the row", bytes=data[:40].hex())
    srid, order, shape, x, y = _POINT.unpack(data)
    if (order, shape) != (_LITTLE_ENDIAN, _POINT_TYPE):
        raise SchemaError("a value of a POINT column is not a point", hint="correct the row", bytes=data.hex())
    return f'{{"x":{java_double(x)},"y":{java_double(y)},"wkb":"{_base64(data[4:])}","srid":{srid or _NULL}}}'


def _base64(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode("ascii")
