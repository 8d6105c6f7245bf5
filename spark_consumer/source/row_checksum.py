"""The checksum of a snapshot row, as the END certificate of its split sums it up: the CRC-32 of its ``after`` JSON.

The producer writes ``{"before":null,"after":A,"source":{"version":…`` without blanks. A is cut out of the bytes of the
value without a parser: the text that begins the source block can also be in a row, but not behind that block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn

if TYPE_CHECKING:
    from pyspark.sql import Column

_HEAD: Final = '{"before":null,"after":'
_SOURCE: Final = ',"source":{"version":'
_WITHOUT: Final = 320
"""Bytes at the end that are searched by a faster function: what begins the source block is usually before them."""


def row_checksum(value: Column) -> Column:
    """Return the CRC-32 of the row in an envelope in JSON; NULL for a value that does not begin like one."""
    text = value.cast("string")
    row = fn.substr(value, fn.lit(len(_HEAD) + 1), fn.octet_length(value) - len(_HEAD) - _tail_length(value))
    return fn.when(text.startswith(_HEAD), fn.crc32(row))


def _tail_length(value: Column) -> Column:
    """Return the bytes from the source block to the end.

    ``substring_index`` compares the whole text that it searches at each byte, from the end. ``contains`` looks at the
    first byte only, but does not tell where the text is. So the end of the value is excluded by it.
    """
    end = fn.substr(value, fn.lit(1 - _WITHOUT - len(_SOURCE))).cast("string")
    before = fn.substr(value, fn.lit(1), fn.octet_length(value) - _WITHOUT).cast("string")
    return (
        fn.when(end.contains(_SOURCE), _after_last(value.cast("string"))).otherwise(_after_last(before) + _WITHOUT)
    ) + len(_SOURCE)


def _after_last(text: Column) -> Column:
    return fn.octet_length(fn.substring_index(text, _SOURCE, -1))
