"""VECTOR (MySQL 9, MariaDB 11.7): Debezium's FloatVector, an array of 32-bit floats, little-endian both ways.

``Column.length`` is that of the VARBINARY that MariaDB logs, and 0 on MySQL, which logs a BLOB.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from sys import byteorder

from tailrace.producer.mysql.types.base import BinlogOption, BinlogType, ColumnType, Layout, Value, ValueKind
from tailrace.producer.mysql.types.floating import java_float
from tailrace.producer.mysql.types.text import prefix_width
from tailrace.runtime.errors import SchemaError
from tailrace.schemas.connect import ConnectSchema


class VectorType(ColumnType):
    """VECTOR(n), of up to n numbers."""

    data_types = ("vector",)
    binlog_types = (BinlogType(242, "vector", 1, BinlogOption.BINARY_CHARSET),)

    def connect(self) -> ConnectSchema:
        return ConnectSchema("array", name="io.debezium.data.FloatVector", version=1, items=ConnectSchema("float"))

    @property
    def layout(self) -> Layout:
        length = self.column.length
        return Layout(0, prefix_width(self.column.name, "varbinary", length) if length else 4)

    def from_text(self) -> Value:
        return Value(ValueKind.JSON, lambda data: vector_json(data).encode())

    def from_image(self) -> Value:
        return self.from_text()

    def raw_key(self) -> Callable[[bytes], bytes]:
        return bytes


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
