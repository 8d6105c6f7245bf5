"""MySQL's binary JSON, as the log carries it, to text.

A value is a type byte and a body. Objects and arrays start with their element count and size, then come entries whose
offsets count from the start of the container; small containers use 2-byte numbers, large ones 4. Literals and integers
that fit stand in their entry instead of an offset. All numbers are little-endian.
"""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from tailrace.producer.mysql.types.decimal import plain_text, unpack
from tailrace.producer.mysql.types.text import escape_ascii
from tailrace.runtime.errors import SchemaError

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = range(5)
_DOUBLE, _STRING, _OPAQUE = 0x0B, 0x0C, 0x0F
_CONTAINERS: Final = frozenset({_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY})
_LITERALS: Final = ("null", "true", "false")
_INTEGERS: Final = {
    0x05: struct.Struct("<h"),
    0x06: struct.Struct("<H"),
    0x07: struct.Struct("<i"),
    0x08: struct.Struct("<I"),
    0x09: struct.Struct("<q"),
    0x0A: struct.Struct("<Q"),
}
_INLINE_SMALL: Final = frozenset({_LITERAL, 0x05, 0x06})
_INLINE_LARGE: Final = _INLINE_SMALL | {0x07, 0x08}
_TIMESTAMP, _DATE, _TIME, _DATETIME, _DECIMAL = 7, 10, 11, 12, 246
_U16, _U32 = struct.Struct("<H"), struct.Struct("<I")
_FLOAT64: Final = struct.Struct("<d")
_DEEPEST: Final = 100
"""Containers within one another that the server accepts."""
_DAMAGED: Final = "correct the row, or exclude the table: the binlog is damaged here, or of a later server"
_LONGEST_LENGTH: Final = 5
"""Bytes of a length, which has 32 bits."""


def json_text(data: bytes, double: Callable[[float], str]) -> str:
    """Return compact JSON, one character per byte of UTF-8; ``double`` prints doubles.

    No bytes at all (the server stores them where it could not convert) are the literal null, as in the server's text.
    Raises SchemaError on a type that is not known.
    """
    return _Document(data, double).value(data[0], 1) if data else "null"


class _Document:
    """One binary document; offsets count from its type byte."""

    __slots__ = ("_data", "_depth", "_double", "_left", "_text")

    def __init__(self, data: bytes, double: Callable[[float], str]) -> None:
        self._data = data
        self._text = str(data, "latin-1")
        self._double = double
        self._left = len(data)
        """Bytes that may follow: each value has some of its own, unless values point to one another."""
        self._depth = 0

    def value(self, kind: int, at: int) -> str:
        data = self._data
        if kind == _STRING:
            start, length = _length(data, at)
            return self._string(start, length)
        if kind in _INTEGERS:
            return str(_INTEGERS[kind].unpack_from(data, at)[0])
        if kind == _LITERAL:
            return _LITERALS[data[at]]
        if kind == _DOUBLE:
            return self._double(_FLOAT64.unpack_from(data, at)[0])
        if kind in _CONTAINERS:
            self._depth += 1
            if self._depth > _DEEPEST:
                raise SchemaError("a JSON document has too many levels", hint=_DAMAGED, most=_DEEPEST)
            read = self._object if kind in {_SMALL_OBJECT, _LARGE_OBJECT} else self._array
            text = read(at, _U32 if kind in {_LARGE_OBJECT, _LARGE_ARRAY} else _U16)
            self._depth -= 1
            return text
        if kind == _OPAQUE:
            start, length = _length(data, at + 1)
            self._take(length)
            return _opaque(data[at], data[start : start + length])
        raise SchemaError("a JSON value has a type that is not known", hint=_DAMAGED, type=f"{kind:#04x}")

    def _object(self, at: int, number: struct.Struct) -> str:
        data, width = self._data, number.size
        count = number.unpack_from(data, at)[0]
        key_entry = at + 2 * width
        entry = key_entry + count * (width + 2)
        members = []
        for _ in range(count):
            key = self._string(
                at + number.unpack_from(data, key_entry)[0], _U16.unpack_from(data, key_entry + width)[0]
            )
            members.append(f"{key}:{self._entry(at, entry, number)}")
            key_entry += width + 2
            entry += width + 1
        return "{" + ",".join(members) + "}"

    def _array(self, at: int, number: struct.Struct) -> str:
        width = number.size
        first = at + 2 * width
        entries = range(first, first + number.unpack_from(self._data, at)[0] * (width + 1), width + 1)
        return "[" + ",".join([self._entry(at, entry, number) for entry in entries]) + "]"

    def _entry(self, container: int, entry: int, number: struct.Struct) -> str:
        self._take(1)
        kind = self._data[entry]
        if kind in (_INLINE_LARGE if number is _U32 else _INLINE_SMALL):
            return self.value(kind, entry + 1)
        return self.value(kind, container + number.unpack_from(self._data, entry + 1)[0])

    def _take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise SchemaError("a JSON document has more values than bytes", hint=_DAMAGED)

    def _string(self, start: int, length: int) -> str:
        self._take(length)
        if start + length > len(self._text):
            raise IndexError("a JSON string ends beyond its document")
        return f'"{escape_ascii(self._text[start : start + length])}"'


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Read a length in groups of seven bits; return the offset after it and the length."""
    length = 0
    for group in range(_LONGEST_LENGTH):
        byte = data[at + group]
        length |= (byte & 0x7F) << 7 * group
        if byte < 0x80:
            return at + group + 1, length
    raise SchemaError("a JSON value has a length of more than 32 bits", hint=_DAMAGED)


def _opaque(kind: int, body: bytes) -> str:
    if kind == _DECIMAL:
        precision, scale = body[0], body[1]
        to_int, to_text = _decimal(precision, scale)
        return to_text(to_int(body[2:]))
    if kind in {_DATE, _TIME, _DATETIME, _TIMESTAMP}:
        return f'"{_temporal(kind, int.from_bytes(body, "little", signed=True))}"'
    return f'"base64:type{kind}:{b64encode(body).decode("ascii")}"'


@lru_cache(maxsize=256)
def _decimal(precision: int, scale: int) -> tuple[Callable[[bytes], int], Callable[[int], str]]:
    return unpack(precision, scale), plain_text(scale)


def _temporal(kind: int, packed: int) -> str:
    sign = "-" if packed < 0 else ""
    whole, micros = divmod(abs(packed), 1 << 24)
    clock = f"{whole >> 12 & (0x3FF if kind == _TIME else 31):02d}:{whole >> 6 & 63:02d}:{whole & 63:02d}.{micros:06d}"
    if kind == _TIME:
        return sign + clock
    day = whole >> 17
    year, month = divmod(day >> 5, 13)
    date = f"{year:04d}-{month:02d}-{day & 31:02d}"
    return date if kind == _DATE else f"{date} {clock}"
