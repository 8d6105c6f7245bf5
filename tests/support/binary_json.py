"""Writes MySQL's binary JSON, as a row image has it."""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from tailrace.producer.mysql.types.decimal import packed_size

_LITERALS = {None: 0, True: 1, False: 2}
_INTEGERS = ((5, "<h"), (6, "<H"), (7, "<i"), (8, "<I"), (9, "<q"), (10, "<Q"))
_INLINE = {False: (4, 5, 6), True: (4, 5, 6, 7, 8)}
MYSQL_DECIMAL, MYSQL_DATE, MYSQL_TIME, MYSQL_DATETIME, MYSQL_TIMESTAMP = 246, 10, 11, 12, 7


class Opaque(NamedTuple):
    """A value of another MySQL type: its code and its bytes."""

    kind: int
    body: bytes


class Large(NamedTuple):
    """A container with numbers of four bytes, whatever its size."""

    value: Mapping[str, Any] | Sequence[Any]


def decimal(text: str) -> Opaque:
    """Return a DECIMAL of as many digits as its text has."""
    whole, _, part = text.removeprefix("-").partition(".")
    groups = [whole[: len(whole) % 9]] + [whole[i : i + 9] for i in range(len(whole) % 9, len(whole), 9)]
    groups += [part[i : i + 9] for i in range(0, len(part), 9)]
    packed = b"".join(int(group).to_bytes(packed_size(len(group), 0), "big") for group in groups if group)
    if text.startswith("-"):
        packed = bytes(255 - byte for byte in packed)
    head = bytes([len(whole) + len(part), len(part)])
    return Opaque(MYSQL_DECIMAL, head + bytes([packed[0] ^ 0x80]) + packed[1:])


def moment(kind: int, *parts: int, negative: bool = False) -> Opaque:
    """Return a DATE, DATETIME or TIMESTAMP of seven parts, or a TIME of hours, minutes, seconds, microseconds."""
    hours, minutes, seconds, micros = parts[-4:]
    packed = hours << 12 | minutes << 6 | seconds
    if kind != MYSQL_TIME:
        year, month, day = parts[:3]
        packed |= ((year * 13 + month) << 5 | day) << 17
    packed = packed << 24 | micros
    return Opaque(kind, (-packed if negative else packed).to_bytes(8, "little", signed=True))


def binary_json(value: Any) -> bytes:
    """Return a document."""
    kind, body = _value(value)
    return bytes([kind]) + body


def _value(value: Any) -> tuple[int, bytes]:
    if value is None or isinstance(value, bool):
        return 4, bytes([_LITERALS[value]])
    if isinstance(value, int):
        return next((kind, struct.pack(code, value)) for kind, code in _INTEGERS if _fits(code, value))
    if isinstance(value, float):
        return 0x0B, struct.pack("<d", value)
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogateescape")
        return 0x0C, _length(len(data)) + data
    if isinstance(value, Opaque):
        return 0x0F, bytes([value.kind]) + _length(len(value.body)) + value.body
    large = isinstance(value, Large)
    if isinstance(value, Large):
        value = value.value
    body = None if large else _container(value, large=False)
    kind = 0 if isinstance(value, Mapping) else 2
    return (kind, body) if body is not None else (kind + 1, _container(value, large=True) or b"")


def _fits(code: str, value: int) -> bool:
    try:
        struct.pack(code, value)
    except struct.error:
        return False
    return True


def _length(size: int) -> bytes:
    out = bytearray()
    while size > 127:
        out.append(size & 127 | 128)
        size >>= 7
    return bytes([*out, size])


def _container(value: Mapping[str, Any] | Sequence[Any], *, large: bool) -> bytes | None:
    """Return the body of an object or an array; None if offsets of two bytes do not reach."""
    code, width = ("<I", 4) if large else ("<H", 2)
    keys = [key.encode("utf-8", "surrogateescape") for key in value] if isinstance(value, Mapping) else []
    items = list(value.values()) if isinstance(value, Mapping) else list(value)
    at = 2 * width + len(keys) * (width + 2) + len(items) * (width + 1)
    names, entries, tail = b"", b"", b""
    limit = 1 << 8 * width
    for key in keys:
        if at + len(tail) >= limit:
            return None
        names += struct.pack(code, at + len(tail)) + struct.pack("<H", len(key))
        tail += key
    for item in items:
        kind, body = _value(item)
        if kind in _INLINE[large]:
            entries += bytes([kind]) + body.ljust(width, b"\0")
            continue
        if at + len(tail) >= limit:
            return None
        entries += bytes([kind]) + struct.pack(code, at + len(tail))
        tail += body
    size = at + len(tail)
    if size >= limit:
        return None
    return struct.pack(code, len(items)) + struct.pack(code, size) + names + entries + tail


_TEXTS = ("", "a", "key", 'q"uo\\te', "tab\t\x01\x1f\x7f", "é", "😀", "x" * 130, "a b, c: d")
_NUMBERS = (0, 1, -1, 32767, -32768, 65535, 65536, -(2**31), 2**32 - 1, 2**32, -(2**63), 2**63 - 1, 2**64 - 1)
_DOUBLES = (0.0, -0.0, 1.5, -2.25, 1e-4, 9.9e-5, 1e15, 999999999999999.9, 1e16, 5e-324, 1.7976931348623157e308, 0.1)
_DECIMALS = ("0", "0.00", "-0.01", "12.34", "-999999999.999999999", "123456789012345678", "1" * 30 + ".5", "0.5")
OPAQUE_VALUES: Final = (
    *map(decimal, _DECIMALS),
    moment(MYSQL_DATE, 2024, 2, 29, 0, 0, 0, 0),
    moment(MYSQL_DATETIME, 9999, 12, 31, 23, 59, 59, 999_999),
    moment(MYSQL_TIMESTAMP, 1970, 1, 1, 0, 0, 1, 0),
    moment(MYSQL_DATETIME, 0, 0, 0, 0, 0, 0, 0),
    moment(MYSQL_TIME, 838, 59, 59, 0),
    moment(MYSQL_TIME, 1, 2, 3, 4, negative=True),
    Opaque(MYSQL_DATE, b"\1\2"),
    Opaque(252, b"\0\1\2\xff"),
    Opaque(15, b""),
)


def random_document(pick: random.Random, depth: int = 3) -> Any:
    """Return a document of values of all types."""
    if depth and pick.random() < 0.6:
        size = pick.choice((0, 1, 2, 3, 8))
        inner = [random_document(pick, depth - 1) for _ in range(size)]
        made: Any = inner
        if pick.random() < 0.6:
            made = {f"{pick.choice(_TEXTS)}{i}": item for i, item in enumerate(inner)}
        return Large(made) if pick.random() < 0.2 else made
    return pick.choice(
        pick.choice((_TEXTS, _NUMBERS, _DOUBLES, OPAQUE_VALUES, (None, True, False), ("plain", 1, 7, "b")))
    )
