"""Spatial columns: Debezium's Geometry, or Point for a POINT column, from the bytes that the server stores.

A value is the SRID in four little-endian bytes, then WKB, little-endian too, in result sets and in row images. An SRID
of 0 means none. The axes stay in the order of storage, longitude first, whatever the SRID defines.
"""

from __future__ import annotations

import struct
from binascii import b2a_base64
from typing import ClassVar, Final

from tailrace.producer.model.table import Column
from tailrace.producer.mysql.types.base import (
    NULL,
    BinlogColumn,
    BinlogOption,
    BinlogType,
    ColumnType,
    Expression,
    ExpressionKind,
    LengthPrefixed,
    RawBytes,
)
from tailrace.producer.mysql.types.floating import java_double
from tailrace.runtime.errors import SchemaError
from tailrace.schemas.connect import ConnectField, ConnectSchema

_SRID: Final = struct.Struct("<i")
_POINT: Final = struct.Struct("<iBIdd")
_POINT_BYTES: Final = _POINT.size
_LITTLE_ENDIAN, _POINT_TYPE = 1, 1
_NOTHING: Final = bytes.fromhex("00000000010700000000000000")
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
    def layout(self) -> LengthPrefixed:
        return LengthPrefixed(4)

    def from_result_set(self, raw: RawBytes) -> Expression:
        return self._value(raw)

    def from_row_image(self, raw: RawBytes) -> Expression:
        return self._value(raw)

    def _value(self, raw: RawBytes) -> Expression:
        if self.column.data_type == "point":
            return Expression(f"{raw.bind('point', point_json)}({raw.data})", ExpressionKind.JSON)
        nullable = self.column.nullable

        def geometry(data: bytes) -> str:
            return geometry_json(data) if data else NULL if nullable else geometry_json(_NOTHING)

        return Expression(f"{raw.bind('geometry', geometry)}({raw.data})", ExpressionKind.JSON)

    def key_from_row_image(self, raw: RawBytes) -> str:
        return raw.data


def geometry_json(data: bytes) -> str:
    """Return the JSON of a stored value. Raises SchemaError if it is too short."""
    if len(data) < _SRID.size:
        raise SchemaError("a spatial value is too short", hint="correct the row", bytes=data.hex())
    return f'{{"wkb":"{_base64(data[4:])}","srid":{_SRID.unpack_from(data)[0] or NULL}}}'


def point_json(data: bytes) -> str:
    """Return the JSON of a stored point. Raises SchemaError for any other shape."""
    if len(data) != _POINT_BYTES:
        raise SchemaError("a value of a POINT column is not a point", hint="correct the row", bytes=data[:40].hex())
    srid, order, shape, x, y = _POINT.unpack(data)
    if (order, shape) != (_LITTLE_ENDIAN, _POINT_TYPE):
        raise SchemaError("a value of a POINT column is not a point", hint="correct the row", bytes=data.hex())
    return f'{{"x":{java_double(x)},"y":{java_double(y)},"wkb":"{_base64(data[4:])}","srid":{srid or NULL}}}'


def _base64(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode("ascii")
