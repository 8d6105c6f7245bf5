"""Spatial columns: the server's own bytes, taken apart into Debezium's Geometry, or Point where the column is a POINT.

The server stores, and sends both ways, the SRID in four little-endian bytes and then standard WKB, little-endian too.
An SRID of 0 is none. The axes stay in the order of storage, longitude first, whatever the SRID says of its own axes.
"""

from __future__ import annotations

import struct
from binascii import b2a_base64
from typing import Final

from tailrace.producer.mysql.types.base import NULL, ColumnType, Expression, ExpressionKind, LengthPrefixed, RawBytes
from tailrace.producer.mysql.types.floating import java_double
from tailrace.runtime.errors import SchemaError
from tailrace.schemas.connect import ConnectField, ConnectSchema

_SRID: Final = struct.Struct("<i")
_POINT: Final = struct.Struct("<iBIdd")
_POINT_BYTES: Final = _POINT.size
_LITTLE_ENDIAN, _POINT_TYPE = 1, 1
_NOTHING: Final = bytes.fromhex("00000000010700000000000000")
"""An empty GEOMETRYCOLLECTION without SRID: what Debezium writes where a NOT NULL column has no value."""

_WKB: Final = ConnectField("wkb", ConnectSchema("bytes"))
_NUMBER: Final = ConnectField("srid", ConnectSchema("int32", optional=True))
GEOMETRY: Final = ConnectSchema(
    "struct", name="io.debezium.data.geometry.Geometry", version=1, doc="Geometry", fields=(_WKB, _NUMBER)
)
"""Any shape: its WKB, and its SRID where there is one."""
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
"""The same with both coordinates beside the WKB."""


class SpatialType(ColumnType):
    """GEOMETRY and its kinds; a column that holds nothing but points has a struct of its own."""

    kinds = ("geometry", "point")

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
    """Return the JSON of a stored value. Raises SchemaError where it is too short for one."""
    if len(data) < _SRID.size:
        raise SchemaError("a spatial value is cut short", hint="mend the row", bytes=data.hex())
    return f'{{"wkb":"{_base64(data[4:])}","srid":{_SRID.unpack_from(data)[0] or NULL}}}'


def point_json(data: bytes) -> str:
    """Return the JSON of a stored point. Raises SchemaError for any other shape."""
    if len(data) != _POINT_BYTES:
        raise SchemaError("a value of a POINT column is no point", hint="mend the row", bytes=data[:40].hex())
    srid, order, shape, x, y = _POINT.unpack(data)
    if (order, shape) != (_LITTLE_ENDIAN, _POINT_TYPE):
        raise SchemaError("a value of a POINT column is no point", hint="mend the row", bytes=data.hex())
    return f'{{"x":{java_double(x)},"y":{java_double(y)},"wkb":"{_base64(data[4:])}","srid":{srid or NULL}}}'


def _base64(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode("ascii")
