"""Column transforms in generated code: mask, hash and truncation of a value's expression."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Final

from tailrace.producer.config.column_transforms import Hash, Mask, Transform, Truncate
from tailrace.producer.mysql.types.base import NULL, ColumnType, Expression, ExpressionKind
from tailrace.producer.mysql.types.binary import BinaryType
from tailrace.producer.mysql.types.text import escape
from tailrace.producer.serialization.avro_encoding import unescaped
from tailrace.producer.serialization.codegen import CodeBuilder

_STREAM_HEADER: Final = b"\xac\xed\x00\x05"
_MAX_SHORT_LENGTH: Final = 0xFFFF
_NOT_STANDARD_UTF8: Final = re.compile(rb"[\x00\xf0-\xf7]").search
"""Finds characters that Java's modified UTF-8 encodes differently."""

Text = Callable[[str], str]
"""Maps text to text, both of one character per byte of UTF-8."""


def transform(
    value: Expression, change: Transform, column: ColumnType, builder: CodeBuilder, *, avro: bool
) -> Expression:
    """Return the transformed value; ``avro`` decides how half a surrogate pair is written."""
    if isinstance(change, Mask):
        return mask(change)
    if isinstance(change, Hash):
        read, digest = _reader(value), hasher(change, column.known_length(column.column))
        return Expression(
            f"{builder.bind('hash', lambda text: digest(read(text)))}({value.expr})", ExpressionKind.PLAIN
        )
    length = column.known_length(column.column)
    if length is not None and length <= change.length:
        return value
    kind = column.connect().type
    if kind == "bytes" and isinstance(column, BinaryType):
        return Expression(f"({value.expr})[:{change.length}]", value.kind)
    if kind != "string":
        return value
    return Expression(
        f"{builder.bind('truncate', _truncater(value, change, avro=avro))}({value.expr})", ExpressionKind.JSON
    )


def mask(change: Mask) -> Expression:
    """Return the mask, which replaces every value, also NULL."""
    return Expression(repr("*" * change.length), ExpressionKind.PLAIN)


def _reader(value: Expression) -> Text:
    """Return the function from the value of a decoding expression to the text."""
    if value.kind is ExpressionKind.PLAIN:
        return unescaped
    if value.kind is ExpressionKind.NON_UTF8_TEXT:
        assert value.transcode is not None
        return value.transcode
    return str


def hasher(change: Hash, length: int | None) -> Text:
    """Return the function from text to its hex digest; ``length`` limits the digits, None or 0 does not."""
    salted = hashlib.new(change.algorithm, change.salt, usedforsecurity=False)
    digits = length or None

    def digest(text: str) -> str:
        hashed = salted.copy()
        hashed.update(text.encode("latin-1") if change.plain else java_serialized(text))
        return hashed.hexdigest()[:digits]

    return digest


def java_serialized(text: str) -> bytes:
    """Return the bytes that Java's ObjectOutputStream writes for a string, given as one character per byte of UTF-8."""
    data = text.encode("latin-1")
    if _NOT_STANDARD_UTF8(data):
        data = b"".join(_modified(char) for char in data.decode())
    if len(data) <= _MAX_SHORT_LENGTH:
        return b"%bt%b%b" % (_STREAM_HEADER, len(data).to_bytes(2, "big"), data)
    return b"%b|%b%b" % (_STREAM_HEADER, len(data).to_bytes(8, "big"), data)


def _modified(char: str) -> bytes:
    """Return a character in Java's modified UTF-8: two bytes for NUL, six for a surrogate pair."""
    if char == "\0":
        return b"\xc0\x80"
    if char <= "\uffff":
        return char.encode()
    units = char.encode("utf-16-be")
    return b"".join(chr(int.from_bytes(units[at : at + 2], "big")).encode("utf-8", "surrogatepass") for at in (0, 2))


def _truncater(value: Expression, change: Truncate, *, avro: bool) -> Text:
    """Return the function from the value of a decoding expression to the JSON string of its first UTF-16 units."""
    read, limit = _reader(value), change.length
    is_json = value.kind is ExpressionKind.JSON

    def truncate(found: str) -> str:
        if is_json:
            if found == NULL:
                return found
            text = unescaped(found[1:-1])
        else:
            text = read(found)
        half = ""
        if len(text) > limit:
            if text.isascii():
                text = text[:limit]
            else:
                text, half = _first_units(text, limit)
        return f'"{escape(text)}{("?" if avro else half) if half else ""}"'

    return truncate


def _first_units(text: str, limit: int) -> tuple[str, str]:
    """Return the whole characters within ``limit`` UTF-16 units, and the JSON escape of half a pair after them.

    Java truncates between the halves: JSON then contains the first half, and Avro's UTF-8 a question mark.
    """
    units = text.encode("latin-1").decode().encode("utf-16-be")[: 2 * limit]
    half = ""
    if units and 0xD8 <= units[-2] <= 0xDB:
        half = f"\\u{units[-2:].hex().upper()}"
        units = units[:-2]
    return units.decode("utf-16-be").encode().decode("latin-1"), half
