"""VECTOR (MySQL 9): Debezium's FloatVector, an array of 32-bit floats, little-endian both ways."""

from __future__ import annotations

import math
from array import array
from sys import byteorder

from tailrace.producer.mysql.types.base import (
    BinlogOption,
    BinlogType,
    ColumnType,
    Expression,
    ExpressionKind,
    LengthPrefixed,
    RawBytes,
)
from tailrace.producer.mysql.types.floating import java_float
from tailrace.runtime.errors import SchemaError
from tailrace.schemas.connect import ConnectSchema


class VectorType(ColumnType):
    """VECTOR(n), of up to n numbers."""

    data_types = ("vector",)
    binlog_types = (BinlogType(242, "vector", 1, BinlogOption.BINARY_CHARSET),)

    def connect(self) -> ConnectSchema:
        return ConnectSchema("array", name="io.debezium.data.FloatVector", version=1, items=ConnectSchema("float"))

    @property
    def layout(self) -> LengthPrefixed:
        return LengthPrefixed(4)

    def from_result_set(self, raw: RawBytes) -> Expression:
        return Expression(f"{raw.bind('vector', vector_json)}({raw.data})", ExpressionKind.JSON)

    def from_row_image(self, raw: RawBytes) -> Expression:
        return self.from_result_set(raw)

    def key_from_row_image(self, raw: RawBytes) -> str:
        return raw.data


def vector_json(data: bytes) -> str:
    """Return the JSON of a stored vector, numbers as Java prints them.

    Raises SchemaError for bytes that are no whole numbers, and for what JSON has no number for.
    """
    numbers = array("f")
    if len(data) % numbers.itemsize:
        raise SchemaError("a vector does not consist of whole numbers", hint="correct the row", length=len(data))
    numbers.frombytes(data)
    if byteorder == "big":
        numbers.byteswap()
    if not all(map(math.isfinite, numbers)):
        raise SchemaError("a vector contains NaN or an infinity", hint="correct the row", bytes=data[:40].hex())
    return f"[{','.join(map(java_float, numbers))}]"
