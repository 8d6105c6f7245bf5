"""Avro's binary encoding of Connect values."""

from __future__ import annotations

import struct
from base64 import b64decode
from collections.abc import Callable
from typing import Any, Final

from tailrace.schemas.connect import ConnectSchema

Encoder = Callable[[Any], bytes]

float_bytes: Final = struct.Struct("<f").pack
double_bytes: Final = struct.Struct("<d").pack


def _varint(z: int) -> bytes:
    data = bytearray()
    while z > 127:
        data.append(z & 127 | 128)
        z >>= 7
    data.append(z)
    return bytes(data)


_SHORT_VARINTS: Final[list[bytes]] = []
"""Numbers of one or two bytes; filled at the first use, since few processes write Avro."""


def zigzag(number: int) -> bytes:
    """Return an Avro int or long."""
    if not _SHORT_VARINTS:
        _SHORT_VARINTS[:] = map(_varint, range(1 << 14))
    z = number << 1 if number >= 0 else ~(number << 1)
    if z < 16384:
        return _SHORT_VARINTS[z]
    return _varint(z)


def with_length(data: bytes) -> bytes:
    return zigzag(len(data)) + data


def _string(text: str) -> bytes:
    return with_length(text.encode())


def union(schema: ConnectSchema) -> tuple[bytes, bytes]:
    """Return the prefix of a value and the encoding of null; both are empty if the schema is not optional."""
    if not schema.optional:
        return b"", b""
    return (b"\x00", b"\x02") if schema.default is not None else (b"\x02", b"\x00")


def json_encoder(schema: ConnectSchema) -> Encoder:
    """Return the function that encodes a parsed value of JsonConverter, also null."""
    encode = required_encoder(schema)
    if not schema.optional:
        return encode
    present, absent = union(schema)
    return lambda value: absent if value is None else present + encode(value)


def required_encoder(schema: ConnectSchema) -> Encoder:
    """Return the function that encodes a parsed value of JsonConverter that is not null."""
    if schema.type == "struct":
        members = [(field.name, json_encoder(field.schema)) for field in schema.fields]
        return lambda value: b"".join([encode(value[name]) for name, encode in members])
    if schema.type == "array":
        assert schema.items is not None
        item = json_encoder(schema.items)
        return lambda value: (zigzag(len(value)) + b"".join(map(item, value)) if value else b"") + b"\x00"
    if schema.type == "map":
        assert schema.values is not None
        entry = json_encoder(schema.values)
        return lambda value: (
            (zigzag(len(value)) + b"".join(_string(k) + entry(v) for k, v in value.items()) if value else b"") + b"\x00"
        )
    simple: dict[str, Encoder] = {
        "boolean": lambda value: b"\x01" if value else b"\x00",
        "string": _string,
        "bytes": lambda value: with_length(b64decode(value)),
        "float": float_bytes,
        "double": double_bytes,
    }
    return simple.get(schema.type, zigzag)
