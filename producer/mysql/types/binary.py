"""BINARY, VARBINARY, BLOB: bytes, or text by ``binary.handling.mode``.

The binlog drops the zero bytes at the end of BINARY(n); they are put back.
"""

from __future__ import annotations

import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from tailrace.producer.model.table import Column, SourceType, declared_type
from tailrace.producer.mysql.types import compressed
from tailrace.producer.mysql.types.base import (
    BinlogColumn,
    CatalogRow,
    ColumnType,
    Fast,
    KeyKind,
    Layout,
    Value,
    ValueKind,
)
from tailrace.producer.mysql.types.text import prefix_width, sized_name, stored_length
from tailrace.schemas.connect import ConnectSchema

_PRINTERS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "hex": lambda data: data.hex().encode(),
    "base64": b64encode,
    "base64-url-safe": urlsafe_b64encode,
}


class BinaryType(ColumnType):
    """Binary strings of any size."""

    data_types = ("binary", "varbinary", "blob")
    catalog_names: ClassVar = dict.fromkeys(("tinyblob", "mediumblob", "longblob"), "blob")
    jdbc_types: ClassVar = {"binary": -2, "varbinary": -3, "blob": 2004}
    key_kinds: ClassVar = dict.fromkeys(("binary", "varbinary"), KeyKind.BINARY)

    @classmethod
    def from_catalog(cls, row: CatalogRow) -> Column:
        column = Column(row.name, row.data_type, row.nullable, length=row.octets, charset="binary")
        return compressed.declared(column, row)

    @classmethod
    def from_binlog(cls, column: BinlogColumn) -> Column:
        data_type = {"char": "binary", "varchar": "varbinary", "text": "blob"}[column.type.data_type]
        found = Column(column.name, data_type, column.nullable, length=stored_length(column), charset="binary")
        return compressed.logged(found, column)

    @classmethod
    def known_length(cls, column: Column) -> int | None:
        return None if column.data_type == "blob" else column.length

    @classmethod
    def source_type(cls, column: Column) -> SourceType:
        return declared_type(column) or SourceType(sized_name(column), cls.known_length(column), None)

    @classmethod
    def default_bytes(cls, column: Column, text: str) -> bytes:
        stored = bytes.fromhex(text[2:]) if re.fullmatch(r"0x(?:[0-9A-Fa-f]{2})*", text) else text.encode()
        return stored.ljust(column.length, b"\0") if column.data_type == "binary" else stored

    def connect(self) -> ConnectSchema:
        return ConnectSchema("bytes" if self.settings.binary_handling_mode == "bytes" else "string")

    @property
    def layout(self) -> Layout:
        return Layout(0, prefix_width(self.column.name, self.column.data_type, compressed.width(self.column)))

    def from_text(self) -> Value:
        mode = self.settings.binary_handling_mode
        return Value(ValueKind.BYTES) if mode == "bytes" else Value(ValueKind.PLAIN, _PRINTERS[mode])

    def from_image(self) -> Value:
        value = self.from_text()
        if self.column.data_type != "binary":
            return compressed.of_image(self.column, value)
        length, decode = self.column.length, value.decode
        return Value(value.kind, lambda data: decode(data.ljust(length, b"\0")))

    def raw_key(self) -> Callable[[bytes], bytes]:
        length = self.column.length if self.column.data_type == "binary" else 0
        return compressed.of_bytes(self.column, lambda data: data.ljust(length, b"\0"))

    def fast_text(self) -> Fast:
        return Fast(self.settings.binary_handling_mode)

    def fast_image(self) -> Fast | None:
        if self.column.compressed:
            return None
        least = self.column.length if self.column.data_type == "binary" else 0
        return Fast(self.settings.binary_handling_mode, least=least)
