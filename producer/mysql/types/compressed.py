"""COMPRESSED columns of MariaDB: the binlog has a value behind a byte that says how it is compressed.

The lower half of the byte is the number of bytes of the length that follows, from the highest on, and 8 for a stream
without zlib's own header; the upper half is 8 for zlib, or 0: the value follows as it is. An empty value has no bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from tailrace.producer.model.table import Column
from tailrace.producer.mysql.types.base import BinlogColumn, BinlogOption, BinlogType, CatalogRow, Value
from tailrace.runtime.errors import SchemaError

_BLOB, _VARCHAR = 140, 141
BINLOG_TYPES: Final = (
    BinlogType(_BLOB, "text", 1, BinlogOption.CHARSET),
    BinlogType(_VARCHAR, "varchar", 2, BinlogOption.CHARSET),
)
_UNCOMPRESSED, _ZLIB, _BARE = 0, 8, 8


def declared(column: Column, row: CatalogRow) -> Column:
    """Return a column of the catalog as compressed if it is."""
    return replace(column, compressed=True) if " COMPRESSED" in row.column_type else column


def logged(column: Column, described: BinlogColumn) -> Column:
    """Return a column of a TABLE_MAP event as compressed if it is: a VARCHAR is longer by the first byte there."""
    if described.type.code not in {_BLOB, _VARCHAR}:
        return column
    return replace(column, compressed=True, length=column.length - (described.type.code == _VARCHAR))


def width(column: Column) -> int:
    """Return the length that decides how many bytes of a row image have the length of a value."""
    return column.length + (column.compressed and column.data_type not in {"text", "blob"})


def of_image(column: Column, value: Value) -> Value:
    """Return how a value of a row image is decoded whose uncompressed bytes ``value`` decodes."""
    decode = value.decode
    return Value(value.kind, of_bytes(column, decode)) if column.compressed else value


def of_bytes(column: Column, decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Return the function of the bytes of a row image, from the one of the uncompressed bytes."""
    return (lambda data: decode(_uncompressed(data, column))) if column.compressed else decode


def _uncompressed(data: bytes, column: Column) -> bytes:
    if not data:
        return b""
    method, size = data[0] >> 4, data[0] & 7
    if method == _UNCOMPRESSED:
        return bytes(data[1:])
    try:
        if method != _ZLIB:
            raise ValueError(f"its method is {method}")
        length = int.from_bytes(data[1 : 1 + size], "big")
        found = zlib.decompressobj(-zlib.MAX_WBITS if data[0] & _BARE else zlib.MAX_WBITS)
        text = found.decompress(data[1 + size :], length + 1)
        if len(text) != length or not found.eof:
            raise ValueError(f"its length is {length}")
    except (ValueError, zlib.error) as error:
        raise SchemaError(
            "a value of a COMPRESSED column cannot be uncompressed",
            hint="correct the row, or exclude the table: the binlog is damaged here",
            column=column.name,
            cause=error,
            bytes=bytes(data[:40]).hex(),
        ) from error
    return text
