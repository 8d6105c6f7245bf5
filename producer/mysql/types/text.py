"""CHAR, VARCHAR, TEXT in any character set, and JSON's escapes.

UTF-8 passes through untouched. Of latin1 and ascii the SELECT gives what the server makes of them, and the log's side
does the same by a table. For every other character set both paths read the column's own bytes (the SELECT casts to
binary) by one reader, so that no difference can show between the paths; it reads as the server does.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar, Final

from tailrace.producer.model.table import Column, SourceType, declared_type, quote
from tailrace.producer.mysql.text.charset import DECODABLE, agreeing_codec, text_decoder
from tailrace.producer.mysql.types import compressed
from tailrace.producer.mysql.types.base import (
    BinlogColumn,
    BinlogOption,
    BinlogType,
    CatalogRow,
    ColumnType,
    Fast,
    KeyKind,
    Layout,
    Value,
    ValueKind,
)
from tailrace.runtime.errors import SchemaError
from tailrace.schemas.connect import ConnectSchema

UTF8: Final = frozenset({"utf8mb4", "utf8mb3"})
"""Character sets whose bytes are UTF-8."""


STRING: Final = 254
"""The code of CHAR and BINARY; it stands for ENUM and SET too, whose own code is then in the metadata."""
_VARCHAR, _BLOB, _VAR_STRING = 15, 252, 253
_TEXT_SIZES: Final = {"tinytext": 2**8 - 1, "text": 2**16 - 1, "mediumtext": 2**24 - 1, "longtext": 2**32 - 1}
_SIZE_NAMES: Final = {0xFF: "TINY", 0xFF_FFFF: "MEDIUM", 0xFFFF_FFFF: "LONG"}
_BYTES_OF_CHAR: Final = {
    **dict.fromkeys(("utf8mb4", "utf16", "utf16le", "utf32", "gb18030"), 4),
    **dict.fromkeys(("utf8mb3", "ujis", "eucjpms"), 3),
    **dict.fromkeys(("ucs2", "big5", "cp932", "euckr", "gb2312", "gbk", "sjis"), 2),
}
"""The maximum of bytes in one character; 1 for every other character set."""


class TextType(ColumnType):
    """Text of any size."""

    data_types = ("char", "varchar", "text")
    catalog_names: ClassVar = dict.fromkeys(("tinytext", "mediumtext", "longtext"), "text")
    binlog_types = (
        BinlogType(_VARCHAR, "varchar", 2, BinlogOption.CHARSET),
        BinlogType(_VAR_STRING, "varchar", 2, BinlogOption.CHARSET),
        BinlogType(STRING, "char", 2, BinlogOption.CHARSET),
        BinlogType(_BLOB, "text", 1, BinlogOption.CHARSET),
        *compressed.BINLOG_TYPES,
    )
    """Shared with binary strings: the character set tells them apart."""
    jdbc_types: ClassVar = {"char": 1, "varchar": 12, "text": 12}
    key_kinds: ClassVar = dict.fromkeys(("char", "varchar"), KeyKind.TEXT)
    is_text = True

    @classmethod
    def from_catalog(cls, row: CatalogRow) -> Column:
        length = _TEXT_SIZES[row.native_type] if row.data_type == "text" else row.octets
        column = Column(row.name, row.data_type, row.nullable, length=length, charset=row.charset or "binary")
        return compressed.declared(column, row)

    @classmethod
    def from_binlog(cls, column: BinlogColumn) -> Column:
        length, charset = stored_length(column), column.charset
        found = Column(column.name, column.type.data_type, column.nullable, length=length, charset=charset)
        return compressed.logged(found, column)

    @classmethod
    def known_length(cls, column: Column) -> int | None:
        return None if column.data_type == "text" else column.length // _BYTES_OF_CHAR.get(column.charset, 1)

    @classmethod
    def source_type(cls, column: Column) -> SourceType:
        return declared_type(column) or SourceType(sized_name(column), cls.known_length(column), None)

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
    def layout(self) -> Layout:
        return Layout(0, prefix_width(self.column.name, self.column.data_type, compressed.width(self.column)))

    def from_text(self) -> Value:
        return self._decoded() if self._as_stored else Value(ValueKind.TEXT)

    def from_image(self) -> Value:
        return compressed.of_image(self.column, self._from_image())

    def _from_image(self) -> Value:
        if self._as_stored:
            return self._decoded()
        transcode = _TRANSCODERS.get(self.column.charset)
        return Value(ValueKind.TEXT) if transcode is None else Value(ValueKind.TEXT, transcode)

    def _decoded(self) -> Value:
        return Value(ValueKind.TEXT, decoder(self.column.charset, self.column.name))

    def raw_key(self) -> Callable[[bytes], bytes]:
        return compressed.of_bytes(self.column, bytes)

    def fast_text(self) -> Fast | None:
        return None if self._as_stored else Fast("text")

    def fast_image(self) -> Fast | None:
        if self._as_stored or self.column.compressed:
            return None
        return Fast("ascii" if self.column.charset in _TRANSCODERS else "text")


def stored_length(column: BinlogColumn) -> int:
    """Return ``Column.length`` of a text or binary column from the metadata of its type."""
    metadata = column.metadata
    if column.type.data_type == "text":
        return (1 << 8 * metadata[0]) - 1
    if column.type.code == STRING:
        # Two bits of lengths above 255 are kept, inverted, in the byte of the type.
        return metadata[1] | ((metadata[0] & 0x30) ^ 0x30) << 4
    return metadata[0] | metadata[1] << 8


def sized_name(column: Column) -> str:
    """Return the name of a text or binary type, with the size of TEXT and BLOB."""
    size = _SIZE_NAMES.get(column.length, "") if column.data_type in {"text", "blob"} else ""
    return size + column.data_type.upper()


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


def decoder(charset: str, column: str) -> Callable[[bytes], bytes]:
    """Return the function from bytes in a character set to UTF-8."""
    if charset not in DECODABLE:
        raise SchemaError(
            f"character set {charset} has no decoder",
            hint="convert the column to utf8mb4, or exclude the table with table.exclude.list",
            column=column,
        )
    read = text_decoder(charset)
    codec = agreeing_codec(charset)

    def decoded(data: bytes) -> bytes:
        try:
            return read(data).encode()
        except UnicodeError as error:
            raise SchemaError(
                f"text is not valid {charset}",
                hint="convert the column to utf8mb4, or exclude the table with table.exclude.list",
                column=column,
                bytes=data[:40].hex(),
            ) from error

    def decoded_at_once(data: bytes) -> bytes:
        try:
            return data.decode(codec).encode()  # type: ignore[arg-type]
        except UnicodeError:
            return decoded(data)

    return decoded if codec is None else decoded_at_once


def _transcoder(charset: str) -> Callable[[bytes], bytes]:
    """Return the function to UTF-8 from the bytes of a set that ASCII is the lower half of."""
    chars = text_decoder(charset)(bytes(range(256)))
    return lambda data: data if data.isascii() else str(data, "latin-1").translate(chars).encode()


_TRANSCODERS: Final = {charset: _transcoder(charset) for charset in ("ascii", "latin1")}


_ESCAPED: Final = r'[\x00-\x1f"\\\xf0-\xff]'
_needs_escape: Final = re.compile(_ESCAPED).search
"""Finds what ``escape`` changes, in text of one character per byte of UTF-8."""
needs_escape: Final = re.compile(_ESCAPED.encode()).search
"""Finds the same in UTF-8."""

_FOUR_BYTES: Final = re.compile(r"[\xf0-\xf7][\x80-\xbf]{3}")

_ESCAPES: Final = {
    **{code: f"\\u{code:04X}" for code in range(0x20)},
    **{ord(char): f"\\{name}" for char, name in {"\b": "b", "\t": "t", "\n": "n", "\f": "f", "\r": "r"}.items()},
    ord('"'): '\\"',
    ord("\\"): "\\\\",
}


def escape_ascii(text: str) -> str:
    r"""Return the inside of a JSON string: \b \t \n \f \r \" \\, and \u00XX in upper-case hex; all else stays."""
    return text.translate(_ESCAPES) if _needs_escape(text) else text


def escape(text: str) -> str:
    """Return the inside of a JSON string as Jackson writes it, for text of one character per byte of UTF-8.

    Characters of four bytes are two escapes, the surrogates that UTF-16 has for them.
    """
    return escape_beyond_bmp(text.translate(_ESCAPES)) if _needs_escape(text) else text


def escape_beyond_bmp(text: str) -> str:
    """Return text with every character of four bytes as two escapes."""
    return text if text.isascii() else _FOUR_BYTES.sub(_surrogates, text)


def json_string(text: str) -> str:
    """Return a whole JSON string, quotes included, for text outside of rows."""
    return f'"{escape(text.encode().decode("latin-1")).encode("latin-1").decode()}"'


def _surrogates(found: re.Match[str]) -> str:
    pair = found[0].encode("latin-1").decode().encode("utf-16-be").hex().upper()
    return f"\\u{pair[:4]}\\u{pair[4:]}"
