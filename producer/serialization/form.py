"""How a value becomes the piece of a row or a key: JSON as Connect's converter writes it, or Avro."""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Callable
from typing import Any, NamedTuple

import orjson

from tailrace.producer.mysql.types.base import Value, ValueKind
from tailrace.producer.mysql.types.floating import java_double, java_float
from tailrace.producer.mysql.types.text import escape, needs_escape
from tailrace.producer.serialization.avro_encoding import (
    double_bytes,
    float_bytes,
    json_encoder,
    required_encoder,
    union,
    with_length,
    zigzag,
)
from tailrace.producer.serialization.envelope.schemas import default_json
from tailrace.schemas.connect import ConnectSchema

Piece = Callable[[bytes], bytes]
"""From the bytes of a value to what a row or a key contains of it."""


class Form(NamedTuple):
    """The form of rows or keys."""

    avro: bool
    exact_nulls: bool
    """Write a column's default instead of NULL, as Connect's converters do."""

    def null(self, schema: ConnectSchema) -> bytes:
        if self.avro:
            has_default = self.exact_nulls and schema.default is not None
            return json_encoder(schema)(schema.default) if has_default else union(schema)[1]
        if self.exact_nulls and schema.optional and schema.default is not None:
            return default_json(schema).encode()
        return b"null"

    def tag(self, schema: ConnectSchema) -> bytes:
        """Return what precedes a value: in Avro the branch of its union."""
        return union(schema)[0] if self.avro else b""

    def head(self, name: str, before: str) -> bytes:
        """Return what precedes the value of a column: in JSON ``before`` and the name of the member."""
        if self.avro:
            return b""
        return f'{before}"{escape(name.encode().decode("latin-1"))}":'.encode("latin-1")

    def piece(self, value: Value, schema: ConnectSchema, null: bytes) -> Piece:
        """Return the function from the bytes of a value to its piece; ``null`` is that of NULL."""
        return _avro(value, schema, null) if self.avro else _json(value, null)


def json_text(data: bytes) -> bytes:
    return b'"%b"' % inside_string(data)


def inside_string(data: bytes) -> bytes:
    return escape(str(data, "latin-1")).encode("latin-1") if needs_escape(data) else data


_JSON: dict[ValueKind, Callable[[Any], bytes]] = {
    ValueKind.INT: lambda number: b"%d" % number,
    ValueKind.FLOAT32: lambda number: java_float(number).encode(),
    ValueKind.FLOAT64: lambda number: java_double(number).encode(),
    ValueKind.BOOLEAN: lambda word: b"true" if word else b"false",
    ValueKind.PLAIN: lambda text: b'"%b"' % text,
    ValueKind.TEXT: json_text,
    ValueKind.BYTES: lambda data: b'"%b"' % b2a_base64(data, newline=False),
}
_AVRO: dict[ValueKind, Callable[[Any], bytes]] = {
    ValueKind.DIGITS: lambda digits: zigzag(int(digits)),
    ValueKind.INT: zigzag,
    ValueKind.FLOAT32: float_bytes,
    ValueKind.FLOAT64: double_bytes,
    ValueKind.BOOLEAN: lambda word: b"\1" if word else b"\0",
    ValueKind.PLAIN: with_length,
    ValueKind.TEXT: with_length,
    ValueKind.BYTES: with_length,
}


def _json(value: Value, null: bytes) -> Piece:
    kind, decode, printed = value
    if kind is ValueKind.TEXT and decode is bytes:
        return json_text
    if kind is ValueKind.DIGITS:
        return decode
    if printed is not None:
        return printed
    if kind is ValueKind.INT:

        def integer(data: bytes) -> bytes:
            number = decode(data)
            return null if number is None else b"%d" % number

        return integer
    write = _JSON.get(kind, bytes)

    def piece(data: bytes) -> bytes:
        found = decode(data)
        return null if found is None else write(found)

    return piece


def _avro(value: Value, schema: ConnectSchema, null: bytes) -> Piece:
    kind, decode, _ = value
    write, tag = _AVRO.get(kind), union(schema)[0]
    if write is None:
        encode = required_encoder(schema)

        def write(data: bytes) -> bytes:
            return encode(orjson.loads(data))

    def piece(data: bytes) -> bytes:
        found = decode(data)
        return null if found is None else tag + write(found)

    return piece
