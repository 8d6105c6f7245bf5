"""BINARY, VARBINARY, BLOB: bytes, or text by ``binary.handling.mode``.

The binlog drops the zero bytes at the end of BINARY(n); they are put back.
"""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode

from tailrace.producer.mysql.types.base import ColumnType, Expression, ExpressionKind, LengthPrefixed, RawBytes
from tailrace.producer.mysql.types.text import prefix_width
from tailrace.schemas.connect import ConnectSchema


class BinaryType(ColumnType):
    """Binary strings of any size."""

    kinds = ("binary", "varbinary", "blob")

    def connect(self) -> ConnectSchema:
        return ConnectSchema("bytes" if self.settings.binary_handling_mode == "bytes" else "string")

    @property
    def layout(self) -> LengthPrefixed:
        return LengthPrefixed(prefix_width(self.column.name, self.column.data_type, self.column.length))

    def from_result_set(self, raw: RawBytes) -> Expression:
        return self._value(raw.data, raw)

    def from_row_image(self, raw: RawBytes) -> Expression:
        return self._value(self._whole(raw), raw)

    def key_from_row_image(self, raw: RawBytes) -> str:
        return self._whole(raw)

    def _whole(self, raw: RawBytes) -> str:
        if self.column.data_type == "binary":
            return f"{raw.data}.ljust({self.column.length}, b'\\0')"
        return raw.data

    def _value(self, data: str, raw: RawBytes) -> Expression:
        mode = self.settings.binary_handling_mode
        if mode == "bytes":
            return Expression(data, ExpressionKind.BYTES)
        if mode == "hex":
            return Expression(f"{data}.hex()", ExpressionKind.PLAIN)
        encode = b64encode if mode == "base64" else urlsafe_b64encode
        return Expression(f"{raw.bind('encode', encode)}({data}).decode('ascii')", ExpressionKind.PLAIN)
