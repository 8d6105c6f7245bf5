"""BIT(1) is a boolean; BIT(n) is Debezium's Bits: the bytes little-endian, though MySQL sends them big-endian."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar

from tailrace.producer.model.table import Column
from tailrace.producer.mysql.types.base import (
    BinlogColumn,
    BinlogType,
    CatalogRow,
    ColumnType,
    Fast,
    Layout,
    Value,
    ValueKind,
)
from tailrace.schemas.connect import ConnectSchema


class BitType(ColumnType):
    """BIT of 1 to 64 bits."""

    data_types = ("bit",)
    binlog_types = (BinlogType(16, "bit", 2),)
    jdbc_types: ClassVar = {"bit": -7}

    @classmethod
    def from_catalog(cls, row: CatalogRow) -> Column:
        return Column(row.name, "bit", row.nullable, length=row.precision)

    @classmethod
    def from_binlog(cls, column: BinlogColumn) -> Column:
        bits, whole_bytes = column.metadata
        return Column(column.name, "bit", column.nullable, length=bits + 8 * whole_bytes)

    @classmethod
    def known_length(cls, column: Column) -> int | None:
        return column.length

    @classmethod
    def default_bytes(cls, column: Column, text: str) -> bytes:
        bits = re.fullmatch(r"b'([01]+)'", text)
        number = int(bits[1], 2) if bits else int(text)
        return number.to_bytes((column.length + 7) // 8, "big")

    def connect(self) -> ConnectSchema:
        if self.column.length == 1:
            return ConnectSchema("boolean")
        return ConnectSchema(
            "bytes", name="io.debezium.data.Bits", version=1, parameters=(("length", str(self.column.length)),)
        )

    @property
    def layout(self) -> Layout:
        return Layout((self.column.length + 7) // 8)

    def from_text(self) -> Value:
        if self.column.length == 1:
            return Value(ValueKind.BOOLEAN, lambda data: data == b"\1")
        return Value(ValueKind.BYTES, lambda data: data[::-1])

    def from_image(self) -> Value:
        return self.from_text()

    def raw_key(self) -> Callable[[bytes], int]:
        return lambda data: int.from_bytes(data, "big")

    def fast_text(self) -> Fast:
        return Fast("boolean" if self.column.length == 1 else "bits")

    def fast_image(self) -> Fast:
        return self.fast_text()
