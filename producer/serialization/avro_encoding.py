"""Avro's binary encoding as text of one character per byte, as generated functions assemble rows."""

from __future__ import annotations

import struct
from base64 import b64decode
from collections.abc import Callable
from typing import Any, Final

import orjson

from tailrace.producer.mysql.types.base import NULL, Expression, ExpressionKind
from tailrace.schemas.connect import ConnectSchema

Encoder = Callable[[Any], str]

_FLOAT: Final = struct.Struct("<f").pack
_DOUBLE: Final = struct.Struct("<d").pack


def _varint(z: int) -> str:
    text = ""
    while z > 127:
        text += chr(z & 127 | 128)
        z >>= 7
    return text + chr(z)


_SHORT_VARINTS: Final[list[str]] = []
"""Numbers of one or two bytes; filled at the first use, since few processes write Avro."""
_VARINT_PREFIXES: Final[list[str]] = []
"""The first two bytes of longer numbers; filled together with the others."""


def _fill_tables() -> None:
    _VARINT_PREFIXES[:] = [chr(z & 127 | 128) + chr(z >> 7 | 128) for z in range(1 << 14)]
    _SHORT_VARINTS[:] = [_varint(z) for z in range(1 << 14)]


def zigzag(number: int) -> str:
    """Return an Avro int or long."""
    if not _SHORT_VARINTS:
        _fill_tables()
    z = number << 1 if number >= 0 else ~(number << 1)
    if z < 16384:
        return _SHORT_VARINTS[z]
    text = _VARINT_PREFIXES[z & 16383]
    z >>= 14
    while z >= 16384:
        text += _VARINT_PREFIXES[z & 16383]
        z >>= 14
    return text + _SHORT_VARINTS[z]


def _with_length(text: str) -> str:
    return zigzag(len(text)) + text


def _string(text: str) -> str:
    return _with_length(text.encode().decode("latin-1"))


def unescaped(text: str) -> str:
    """Return the text that the inside of a JSON string represents, both of one character per byte of UTF-8."""
    if "\\" not in text:
        return text
    found: str = orjson.loads(f'"{text}"'.encode("latin-1"))
    return found.encode().decode("latin-1")


def union(schema: ConnectSchema) -> tuple[str, str]:
    """Return the prefix of a value and the encoding of null; both are empty if the schema is not optional."""
    if not schema.optional:
        return "", ""
    return ("\x00", "\x02") if schema.default is not None else ("\x02", "\x00")


def json_encoder(schema: ConnectSchema) -> Encoder:
    """Return the function that encodes a parsed value of JsonConverter, also null."""
    encode = _required(schema)
    if not schema.optional:
        return encode
    present, absent = union(schema)
    return lambda value: absent if value is None else present + encode(value)


def _required(schema: ConnectSchema) -> Encoder:
    if schema.type == "struct":
        members = [(field.name, json_encoder(field.schema)) for field in schema.fields]
        return lambda value: "".join([encode(value[name]) for name, encode in members])
    if schema.type == "array":
        assert schema.items is not None
        item = json_encoder(schema.items)
        return lambda value: (zigzag(len(value)) + "".join(map(item, value)) if value else "") + "\x00"
    if schema.type == "map":
        assert schema.values is not None
        entry = json_encoder(schema.values)
        return lambda value: (
            (zigzag(len(value)) + "".join(_string(k) + entry(v) for k, v in value.items()) if value else "") + "\x00"
        )
    simple: dict[str, Encoder] = {
        "boolean": lambda value: "\x01" if value else "\x00",
        "string": _string,
        "bytes": lambda value: _with_length(b64decode(value).decode("latin-1")),
        "float": lambda value: _FLOAT(value).decode("latin-1"),
        "double": lambda value: _DOUBLE(value).decode("latin-1"),
    }
    return simple.get(schema.type, zigzag)


def value_encoder(value: Expression, schema: ConnectSchema, null: str) -> Encoder:
    """Return the function that encodes the value of a decoding expression; ``null`` is the encoding of ``NULL``."""
    before, _ = union(schema)
    kind = value.kind
    if kind is ExpressionKind.DIGITS:
        return lambda digits: before + zigzag(int(digits))
    if kind is ExpressionKind.INT:
        return lambda number: null if number == NULL else before + zigzag(number)
    if kind is ExpressionKind.FLOAT32:
        return lambda number: before + _FLOAT(number).decode("latin-1")
    if kind is ExpressionKind.FLOAT64:
        return lambda number: before + _DOUBLE(number).decode("latin-1")
    if kind is ExpressionKind.TEXT:
        return lambda text: f"{before}{zigzag(len(text))}{text}"
    if kind is ExpressionKind.NON_UTF8_TEXT:
        transcode = value.transcode
        assert transcode is not None
        return lambda text: before + _with_length(text if text.isascii() else transcode(text))
    if kind is ExpressionKind.PLAIN:
        return lambda text: before + _with_length(unescaped(text))
    if kind is ExpressionKind.BYTES:
        return lambda data: f"{before}{zigzag(len(data))}{str(data, 'latin-1')}"
    if schema.type == "boolean":
        return lambda word: null if word == NULL else before + ("\x01" if word == "true" else "\x00")
    if schema.type == "string":
        return lambda text: null if text == NULL else before + _with_length(unescaped(text[1:-1]))
    encode = _required(schema)
    return lambda text: null if text == NULL else before + encode(orjson.loads(text.encode("latin-1")))
