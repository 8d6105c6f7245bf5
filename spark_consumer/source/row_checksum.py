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


def row_checksum(value: Column) -> Column:
    """Return the CRC-32 of the row in an envelope in JSON; NULL for a value that does not begin like one."""
    text = value.cast("string")
    tail = fn.octet_length(fn.substring_index(text, _SOURCE, -1)) + len(_SOURCE)
    row = fn.substr(value, fn.lit(len(_HEAD) + 1), fn.octet_length(value) - len(_HEAD) - tail)
    return fn.when(text.startswith(_HEAD), fn.crc32(row))
