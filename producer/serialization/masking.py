"""Column transforms: masks, hashes and truncations, around the functions that decode values."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import partial
from typing import Final

from tailrace.producer.config.column_transforms import Hash, Mask, Transform, Truncate
from tailrace.producer.mysql.types.base import ColumnType, Value, ValueKind
from tailrace.producer.mysql.types.binary import BinaryType
from tailrace.producer.mysql.types.text import escape
from tailrace.runtime.errors import SchemaError

_STREAM_HEADER: Final = b"\xac\xed\x00\x05"
_MAX_SHORT_LENGTH: Final = 0xFFFF
_NOT_STANDARD_UTF8: Final = re.compile(rb"[\x00\xf0-\xf7]").search
"""Finds characters that Java's modified UTF-8 encodes differently."""


def transform(value: Value, change: Transform, column: ColumnType, *, avro: bool) -> Value:
    """Return the transformed value; ``avro`` decides how half a surrogate pair is written."""
    if isinstance(change, Mask):
        text = mask(change)
        return Value(ValueKind.PLAIN, lambda _: text)
    decode = partial(_hidden, value.decode)
    length = column.known_length(column.column)
    if isinstance(change, Hash):
        digest = hasher(change, length)
        return Value(ValueKind.PLAIN, lambda data: digest(decode(data)))
    if length is not None and length <= change.length:
        return value
    kind = column.connect().type
    if kind == "bytes" and isinstance(column, BinaryType):
        return Value(value.kind, lambda data: decode(data)[: change.length])
    return _truncated(value._replace(decode=decode), change, avro=avro) if kind == "string" else value


def _hidden(decode: Callable[[bytes], bytes], data: bytes) -> bytes:
    """Return a value. The error of one that cannot be decoded does not show it: the log is read by others."""
    try:
        return decode(data)
    except SchemaError as error:
        raise SchemaError(
            error.message, hint=error.hint, **{**error.context, "bytes": "of a hashed or truncated column"}
        ) from None


def mask(change: Mask) -> bytes:
    """Return the mask, which replaces every value, also NULL."""
    return b"*" * change.length


def hasher(change: Hash, length: int | None) -> Callable[[bytes], bytes]:
    """Return the function from UTF-8 to its hex digest; ``length`` limits the digits, None or 0 does not."""
    salted = hashlib.new(change.algorithm, change.salt, usedforsecurity=False)
    digits = length or None

    def digest(text: bytes) -> bytes:
        hashed = salted.copy()
        hashed.update(text if change.plain else java_serialized(text))
        return hashed.hexdigest()[:digits].encode()

    return digest


def java_serialized(text: bytes) -> bytes:
    """Return the bytes that Java's ObjectOutputStream writes for a string, given as UTF-8."""
    data = text
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


def _truncated(value: Value, change: Truncate, *, avro: bool) -> Value:
    """Return the first UTF-16 units of a text.

    Java truncates between the halves of a pair: JSON then contains the escape of the first half, and Avro's UTF-8 a
    question mark.
    """
    decode, limit = value.decode, change.length

    def truncate(data: bytes) -> bytes | None:
        text: bytes | None = decode(data)
        if text is None:
            return None
        half = ""
        if len(text) > limit:
            if text.isascii():
                text = text[:limit]
            else:
                text, half = _first_units(text, limit)
        if avro:
            return text + b"?" if half else text
        return f'"{escape(str(text, "latin-1"))}{half}"'.encode("latin-1")

    return Value(ValueKind.TEXT if avro else ValueKind.JSON, truncate)


def _first_units(text: bytes, limit: int) -> tuple[bytes, str]:
    """Return the whole characters within ``limit`` UTF-16 units, and the JSON escape of half a pair after them."""
    units = text.decode().encode("utf-16-be")[: 2 * limit]
    half = ""
    if units and 0xD8 <= units[-2] <= 0xDB:
        half = f"\\u{units[-2:].hex().upper()}"
        units = units[:-2]
    return units.decode("utf-16-be").encode(), half
