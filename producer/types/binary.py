"""BINARY, VARBINARY, BLOB: bytes, or text by ``binary.handling.mode``.

The binlog drops the zero bytes at the end of BINARY(n); they are put back.
"""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode

from producer.types.base import ColumnType, Form, Prefixed, Raw, Value
from producer.types.text import prefix_width
from schemas.connect import ConnectSchema


class BinaryType(ColumnType):
    """Binary strings of any size."""

    kinds = ("binary", "varbinary", "blob")

    def connect(self) -> ConnectSchema:
        return ConnectSchema("bytes" if self.settings.binary_handling_mode == "bytes" else "string")

    @property
    def layout(self) -> Prefixed:
        return Prefixed(prefix_width(self.column.name, self.column.kind, self.column.length))

    def from_text(self, raw: Raw) -> Value:
        return self._value(raw.data, raw)

    def from_log(self, raw: Raw) -> Value:
        return self._value(self._whole(raw), raw)

    def key_from_log(self, raw: Raw) -> str:
        return self._whole(raw)

    def _whole(self, raw: Raw) -> str:
        if self.column.kind == "binary":
            return f"{raw.data}.ljust({self.column.length}, b'\\0')"
        return raw.data

    def _value(self, data: str, raw: Raw) -> Value:
        mode = self.settings.binary_handling_mode
        if mode == "bytes":
            return Value(data, Form.BYTES)
        if mode == "hex":
            return Value(f"{data}.hex()", Form.PLAIN)
        encode = b64encode if mode == "base64" else urlsafe_b64encode
        return Value(f"{raw.bind('encode', encode)}({data}).decode('ascii')", Form.PLAIN)
