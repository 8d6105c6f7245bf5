r"""JSON columns: one canonical text, made of the server's text and of the log's binary form alike.

Compact (no blank after ``,`` and ``:``), members in stored order, strings escaped as in ``text.escape_ascii``. This is
Debezium's streaming form but for what the server's text cannot tell apart or does not keep:

- a double is printed as the server prints it, unless that has an exponent: then exactly and plainly, as Debezium does
  (Debezium prints every double below 10**-3 or from 10**7 on exactly; the server's text of a double may equal that of a
  DECIMAL, which Debezium prints as it is). MySQL 5.7 prints ``1.0`` as ``1`` (Debezium: in its snapshot only);
- DATE, TIME, DATETIME and TIMESTAMP within JSON keep six fraction digits (Debezium drops zeros at the end);
- other binary values are ``"base64:type<n>:…"`` as the server writes them (Debezium: the base64 alone);
- an empty value, left by a failed conversion, is the literal ``null`` (Debezium: SQL NULL, or ``{}`` where NOT NULL).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Final

from tailrace.producer.model.table import Column
from tailrace.producer.mysql.types.base import BinlogColumn, BinlogType, ColumnType, Fast, Layout, Value, ValueKind
from tailrace.producer.mysql.types.json_binary import json_text
from tailrace.producer.mysql.types.text import escape_beyond_bmp
from tailrace.schemas.connect import ConnectSchema

_STRINGS: Final = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_EXPONENT: Final = re.compile(r"-?[0-9.]+e[+-]?[0-9]+")
_UNICODE_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-f]{4})|.)", re.DOTALL)
_PLAIN_POINTS: Final = range(-14, 16)
"""Positions of the decimal point among a double's digits where the server prints it without exponent."""


class JsonType(ColumnType):
    """JSON."""

    data_types = ("json",)
    binlog_types = (BinlogType(245, "json", 1),)

    def connect(self) -> ConnectSchema:
        return ConnectSchema("string", name="io.debezium.data.Json", version=1)

    @property
    def layout(self) -> Layout:
        return Layout(0, 4)

    def from_text(self) -> Value:
        return _value(lambda data: compact(str(data, "latin-1")))

    @classmethod
    def from_binlog(cls, column: BinlogColumn) -> Column:
        return Column(column.name, "json", column.nullable, bare_doubles=column.bare_doubles)

    def from_image(self) -> Value:
        double = bare_double_text if self.column.bare_doubles else double_text
        return _value(lambda data: json_text(data, double))

    def raw_key(self) -> Callable[[bytes], bytes]:
        return bytes

    def fast_text(self) -> Fast:
        return Fast("json")

    def fast_image(self) -> Fast:
        return Fast("json", exact=self.column.bare_doubles)


def _value(document: Callable[[bytes], str]) -> Value:
    """Return how a document is decoded, given the function to its text with one character per byte of UTF-8."""

    def printed(data: bytes) -> bytes:
        # The text has no raw control characters.
        inside = document(data).replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escape_beyond_bmp(inside)}"'.encode("latin-1")

    return Value(ValueKind.TEXT, lambda data: document(data).encode("latin-1"), printed)


def compact(text: str) -> str:
    """Return the server's JSON text in canonical form."""
    simple = "\\" not in text
    # Every second part is the inside of a string.
    parts = text.split('"') if simple else _STRINGS.split(text)
    parts[::2] = [_outside(part) for part in parts[::2]]
    if not simple:
        parts[1::2] = [_UNICODE_ESCAPE.sub(_upper_hex, part) if "\\u" in part else part for part in parts[1::2]]
    return '"'.join(parts)


def _outside(part: str) -> str:
    part = part.replace(" ", "")
    return _EXPONENT.sub(lambda number: _exact(float(number[0])), part) if "e" in part else part


def _upper_hex(escaped: re.Match[str]) -> str:
    return f"\\u{escaped[1].upper()}" if escaped[1] else escaped[0]


def _exact(value: float) -> str:
    """Return all digits of a double, plainly."""
    return f"{Decimal(value):f}"


def double_text(value: float) -> str:
    """Return a double in canonical form: what the server prints, or exactly where that has an exponent."""
    if not value:
        return "-0.0" if str(value)[0] == "-" else "0.0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    point = len(digits) + exponent
    # The one exception is a number of seventeen digits with one of them after the point.
    if point not in _PLAIN_POINTS and not (point == 16 and len(digits) == 17):
        return _exact(value)
    figures = "".join(map(str, digits))
    if point <= 0:
        figures = f"0.{'0' * -point}{figures}"
    else:
        figures = figures.ljust(point, "0")
        figures = f"{figures[:point]}.{figures[point:] or '0'}"
    return f"-{figures}" if sign else figures


def bare_double_text(value: float) -> str:
    """Return a double in the canonical form of MySQL 5.7."""
    return double_text(value).removesuffix(".0")
