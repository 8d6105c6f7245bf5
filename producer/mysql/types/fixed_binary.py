"""UUID, INET4, INET6 (MariaDB): text, as the server writes it.

The binlog has their bytes as those of BINARY(n), without the zero bytes at the end. Addresses are sorted by them. A
UUID of version 1 to 5 is sorted from its last part on, others by their bytes, and 10.11.5 does not find all rows of a
range of version 7. So no ranges of a UUID are cut.
"""

from __future__ import annotations

import ipaddress
import uuid
from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from tailrace.producer.model.table import Column
from tailrace.producer.mysql.types.base import ColumnType, KeyKind, Layout, Value, ValueKind
from tailrace.runtime.errors import SchemaError
from tailrace.schemas.connect import ConnectSchema

WIDTHS: Final[Mapping[str, int]] = {"uuid": 16, "inet6": 16, "inet4": 4}
"""Bytes of a value."""


class FixedBinaryType(ColumnType):
    """A value of a fixed number of bytes that has a text of its own."""

    data_types = tuple(WIDTHS)
    key_kinds: ClassVar = dict.fromkeys(("inet4", "inet6"), KeyKind.BINARY)

    @classmethod
    def default_bytes(cls, column: Column, text: str) -> bytes:
        try:
            return _TEXTS[column.data_type](_PARSERS[column.data_type](text))
        except ValueError:
            return text.encode()

    def connect(self) -> ConnectSchema:
        if self.column.data_type == "uuid":
            return ConnectSchema("string", name="io.debezium.data.Uuid", version=1)
        return ConnectSchema("string")

    @property
    def layout(self) -> Layout:
        return Layout(0, 1)

    def from_text(self) -> Value:
        return Value(ValueKind.PLAIN)

    def from_image(self) -> Value:
        whole, text = self.raw_key(), _TEXTS[self.column.data_type]
        return Value(ValueKind.PLAIN, lambda data: text(whole(data)))

    def raw_key(self) -> Callable[[bytes], bytes]:
        name, data_type, width = self.column.name, self.column.data_type, WIDTHS[self.column.data_type]

        def whole(data: bytes) -> bytes:
            if len(data) > width:
                raise SchemaError(
                    f"the binlog has {len(data)} bytes for a value of {data_type.upper()}",
                    hint="take a new snapshot: the binlog is damaged here, or the column has another type",
                    column=name,
                )
            return bytes(data).ljust(width, b"\0")

        return whole


def uuid_text(data: bytes) -> bytes:
    """Return 16 bytes as ``01234567-89ab-cdef-0123-456789abcdef``."""
    text = data.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}".encode()


def inet4_text(data: bytes) -> bytes:
    """Return 4 bytes as ``127.0.0.1``."""
    return b"%d.%d.%d.%d" % tuple(data)


def inet6_text(data: bytes) -> bytes:
    """Return 16 bytes as ``2001:db8::1``, as the server does: ``::`` is the first longest run of zeros, also of one.

    The last two groups are an IPv4 address behind six groups of zeros, or five and ffff.
    """
    groups = [data[at] << 8 | data[at + 1] for at in range(0, 16, 2)]
    first, length = _zeros(groups)
    if first == 0 and (length == 6 or (length == 5 and groups[5] == 0xFFFF)):
        return b"::" + (b"ffff:" if length == 5 else b"") + inet4_text(data[12:])
    if not length:
        return b":".join(b"%x" % group for group in groups)
    before, after = groups[:first], groups[first + length :]
    return b":".join(b"%x" % group for group in before) + b"::" + b":".join(b"%x" % group for group in after)


def _zeros(groups: list[int]) -> tuple[int, int]:
    """Return where the first longest run of zeros begins, and its length."""
    best = (0, 0)
    at = 0
    while at < len(groups):
        end = at
        while end < len(groups) and not groups[end]:
            end += 1
        if end - at > best[1]:
            best = (at, end - at)
        at = end + 1
    return best


_TEXTS: Final[Mapping[str, Callable[[bytes], bytes]]] = {"uuid": uuid_text, "inet6": inet6_text, "inet4": inet4_text}
_PARSERS: Final[Mapping[str, Callable[[str], bytes]]] = {
    "uuid": lambda text: uuid.UUID(text.replace("-", "")).bytes,
    "inet6": lambda text: ipaddress.IPv6Address(text).packed,
    "inet4": lambda text: ipaddress.IPv4Address(text).packed,
}
