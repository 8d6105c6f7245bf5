"""Values that rules of columns change: source of a mask, a hash or a cut, made of the source of the value."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Final

from tailrace.producer.config.column_transforms import Hash, Mask, Transform, Truncate
from tailrace.producer.model.source_type import known_length
from tailrace.producer.mysql.types.base import NULL, ColumnType, Expression, ExpressionKind
from tailrace.producer.mysql.types.text import escape
from tailrace.producer.serialization.avro_encoding import unescaped
from tailrace.producer.serialization.codegen import CodeBuilder

_STREAM: Final = b"\xac\xed\x00\x05"
_LONGEST_SHORT: Final = 0xFFFF
_ODD: Final = re.compile(rb"[\x00\xf0-\xf7]").search
"""Finds what Java's own UTF-8 has other bytes for."""
_BINARY: Final = frozenset({"binary", "varbinary", "blob"})

Text = Callable[[str], str]
"""From text of one character per byte of UTF-8 to such text."""


def transform(
    value: Expression, change: Transform, column: ColumnType, space: CodeBuilder, *, avro: bool
) -> Expression:
    """Return a value as the change leaves it; ``avro`` decides what becomes of half a surrogate pair."""
    if isinstance(change, Mask):
        return mask(change)
    if isinstance(change, Hash):
        read, digest = _reader(value), hasher(change, known_length(column.column))
        return Expression(f"{space.bind('hash', lambda text: digest(read(text)))}({value.expr})", ExpressionKind.PLAIN)
    length = known_length(column.column)
    if length is not None and length <= change.length:
        return value
    kind = column.connect().type
    if kind == "bytes" and column.column.data_type in _BINARY:
        return Expression(f"({value.expr})[:{change.length}]", value.kind)
    if kind != "string":
        return value
    return Expression(f"{space.bind('cut', _truncater(value, change, avro=avro))}({value.expr})", ExpressionKind.JSON)


def mask(change: Mask) -> Expression:
    """Return the value that stands in place of every other, NULL included."""
    return Expression(repr("*" * change.length), ExpressionKind.PLAIN)


def _reader(value: Expression) -> Text:
    """Return the function from what a decoding expression yields to the text itself."""
    if value.kind is ExpressionKind.PLAIN:
        return unescaped
    if value.kind is ExpressionKind.NON_UTF8_TEXT:
        assert value.transcode is not None
        return value.transcode
    return str


def hasher(change: Hash, length: int | None) -> Text:
    """Return the function from text to its digest in hex; ``length`` are the digits at most, None or 0 for all."""
    started = hashlib.new(change.algorithm, change.salt, usedforsecurity=False)
    keep = length or None

    def digest(text: str) -> str:
        found = started.copy()
        found.update(text.encode("latin-1") if change.plain else java_serialized(text))
        return found.hexdigest()[:keep]

    return digest


def java_serialized(text: str) -> bytes:
    """Return what Java's ObjectOutputStream writes for a String, given in one character per byte of UTF-8."""
    data = text.encode("latin-1")
    if _ODD(data):
        data = b"".join(_modified(char) for char in data.decode())
    if len(data) <= _LONGEST_SHORT:
        return b"%bt%b%b" % (_STREAM, len(data).to_bytes(2, "big"), data)
    return b"%b|%b%b" % (_STREAM, len(data).to_bytes(8, "big"), data)


def _modified(char: str) -> bytes:
    """Return a character in Java's own UTF-8: two bytes for NUL, six for what UTF-16 has two units for."""
    if char == "\0":
        return b"\xc0\x80"
    if char <= "\uffff":
        return char.encode()
    units = char.encode("utf-16-be")
    return b"".join(chr(int.from_bytes(units[at : at + 2], "big")).encode("utf-8", "surrogatepass") for at in (0, 2))


def _truncater(value: Expression, change: Truncate, *, avro: bool) -> Text:
    """Return the function from what a decoding expression yields to the JSON string of its first UTF-16 units."""
    read, most = _reader(value), change.length
    is_json = value.kind is ExpressionKind.JSON

    def cut(found: str) -> str:
        if is_json:
            if found == NULL:
                return found
            text = unescaped(found[1:-1])
        else:
            text = read(found)
        half = ""
        if len(text) > most:
            if text.isascii():
                text = text[:most]
            else:
                text, half = _first_units(text, most)
        return f'"{escape(text)}{("?" if avro else half) if half else ""}"'

    return cut


def _first_units(text: str, most: int) -> tuple[str, str]:
    """Return the whole characters within so many UTF-16 units, and the JSON escape of half a pair that is left over.

    Java cuts between the halves: JSON then has the lone one, and Avro's UTF-8 a question mark.
    """
    units = text.encode("latin-1").decode().encode("utf-16-be")[: 2 * most]
    half = ""
    if units and 0xD8 <= units[-2] <= 0xDB:
        half = f"\\u{units[-2:].hex().upper()}"
        units = units[:-2]
    return units.decode("utf-16-be").encode().decode("latin-1"), half
