"""CHAR, VARCHAR, TEXT in any character set, and JSON's escapes.

UTF-8 passes through untouched. Of latin1 and ascii the SELECT gives what the server makes of them, and the log's side
does the same by a table. For every other character set both paths read the column's own bytes (the SELECT casts to
binary) by one reader, so that no difference can show between the paths; it reads as the server does.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from tailrace.producer.model.table import quote
from tailrace.producer.mysql.charset import DECODABLE, agreeing_codec, text_decoder
from tailrace.producer.mysql.types.base import ColumnType, Expression, ExpressionKind, LengthPrefixed, RawBytes
from tailrace.runtime.errors import SchemaError
from tailrace.schemas.connect import ConnectSchema

UTF8: Final = frozenset({"utf8mb4", "utf8mb3"})
"""Character sets whose bytes are UTF-8."""


class TextType(ColumnType):
    """Text of any size."""

    kinds = ("char", "varchar", "text")

    def connect(self) -> ConnectSchema:
        return ConnectSchema("string")

    @property
    def _as_stored(self) -> bool:
        """Both paths give the column's own bytes."""
        return self.column.charset not in UTF8 and self.column.charset not in _TRANSCODERS

    @property
    def select(self) -> str:
        name = quote(self.column.name)
        return f"CAST({name} AS BINARY)" if self._as_stored else name

    @property
    def layout(self) -> LengthPrefixed:
        return LengthPrefixed(prefix_width(self.column.name, self.column.data_type, self.column.length))

    def from_result_set(self, raw: RawBytes) -> Expression:
        if self._as_stored:
            return self._decoded(raw)
        return Expression(raw.text, ExpressionKind.TEXT)

    def from_row_image(self, raw: RawBytes) -> Expression:
        if self._as_stored:
            return self._decoded(raw)
        if self.column.charset in _TRANSCODERS:
            return Expression(raw.text, ExpressionKind.NON_UTF8_TEXT, transcode=_TRANSCODERS[self.column.charset])
        return Expression(raw.text, ExpressionKind.TEXT)

    def _decoded(self, raw: RawBytes) -> Expression:
        return Expression(
            f"{raw.bind('decoded', decoder(self.column.charset, self.column.name))}({raw.data})", ExpressionKind.TEXT
        )

    def key_from_row_image(self, raw: RawBytes) -> str:
        return raw.data


def prefix_width(name: str, kind: str, length: int) -> int:
    """Return how many bytes hold a value's length in a row image."""
    if kind not in {"text", "blob"}:
        return 1 if length < 256 else 2
    sizes = {0xFF: 1, 0xFFFF: 2, 0xFF_FFFF: 3, 0xFFFF_FFFF: 4}
    if length not in sizes:
        raise SchemaError(
            "a TEXT or BLOB column does not say its size",
            hint="set Column.length to 255, 65535, 16777215 or 4294967295",
            column=name,
            length=length,
        )
    return sizes[length]


def decoder(charset: str, column: str) -> Callable[[bytes], str]:
    """Return the function from bytes in a character set to UTF-8 with one character per byte."""
    if charset not in DECODABLE:
        raise SchemaError(
            f"character set {charset} has no decoder",
            hint="convert the column to utf8mb4, or exclude the table with table.exclude.list",
            column=column,
        )
    read = text_decoder(charset)
    codec = agreeing_codec(charset)

    def decoded(data: bytes) -> str:
        try:
            return read(data).encode().decode("latin-1")
        except UnicodeError as error:
            raise SchemaError(
                f"text is not valid {charset}",
                hint="convert the column to utf8mb4, or exclude the table with table.exclude.list",
                column=column,
                bytes=data[:40].hex(),
            ) from error

    def decoded_at_once(data: bytes) -> str:
        try:
            return data.decode(codec).encode().decode("latin-1")  # type: ignore[arg-type]
        except UnicodeError:
            return decoded(data)

    return decoded if codec is None else decoded_at_once


def _transcoder(charset: str) -> Callable[[str], str]:
    """Return the function to UTF-8, one character per byte, from the bytes of a set that ASCII is the lower half of."""
    table = {
        byte: char.encode().decode("latin-1")
        for byte, char in enumerate(text_decoder(charset)(bytes(range(256))))
        if byte > 127
    }
    return lambda text: text.translate(table)


_TRANSCODERS: Final = {charset: _transcoder(charset) for charset in ("ascii", "latin1")}


NEEDS_ESCAPE: Final = re.compile(r'[\x00-\x1f"\\\xf0-\xff]').search
"""Finds what ``escape`` changes, in text of one character per byte of UTF-8."""

_FOUR_BYTES: Final = re.compile(r"[\xf0-\xf7][\x80-\xbf]{3}")

_ESCAPES: Final = {
    **{code: f"\\u{code:04X}" for code in range(0x20)},
    **{ord(char): f"\\{name}" for char, name in {"\b": "b", "\t": "t", "\n": "n", "\f": "f", "\r": "r"}.items()},
    ord('"'): '\\"',
    ord("\\"): "\\\\",
}


def escape_ascii(text: str) -> str:
    r"""Return the inside of a JSON string: \b \t \n \f \r \" \\, and \u00XX in upper-case hex; all else stays."""
    return text.translate(_ESCAPES) if NEEDS_ESCAPE(text) else text


def escape(text: str) -> str:
    """Return the inside of a JSON string as Jackson writes it, for text of one character per byte of UTF-8.

    Characters of four bytes are two escapes, the surrogates that UTF-16 has for them.
    """
    return escape_beyond_bmp(text.translate(_ESCAPES)) if NEEDS_ESCAPE(text) else text


def escape_beyond_bmp(text: str) -> str:
    """Return text with every character of four bytes as two escapes."""
    return text if text.isascii() else _FOUR_BYTES.sub(_surrogates, text)


def json_string(text: str) -> str:
    """Return a whole JSON string, quotes included, for text outside of rows."""
    return f'"{escape(text.encode().decode("latin-1")).encode("latin-1").decode()}"'


def _surrogates(found: re.Match[str]) -> str:
    pair = found[0].encode("latin-1").decode().encode("utf-16-be").hex().upper()
    return f"\\u{pair[:4]}\\u{pair[4:]}"
