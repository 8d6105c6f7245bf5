"""A column's type as the source names it, with length and scale: what Debezium tells in schemas, and cuts text by."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tailrace.producer.model.table import Column

_TYPE: Final = re.compile(r"([\w ]+?)(?:\((\d+)(?:,(\d+))?\))?((?: unsigned)?(?: zerofill)?)", re.IGNORECASE)
_BYTES_OF_CHAR: Final = {
    **dict.fromkeys(("utf8mb4", "utf16", "utf16le", "utf32", "gb18030"), 4),
    **dict.fromkeys(("utf8mb3", "ujis", "eucjpms"), 3),
    **dict.fromkeys(("ucs2", "big5", "cp932", "euckr", "gb2312", "gbk", "sjis"), 2),
}
"""The most bytes of one character; 1 for every other character set."""
_SIZES: Final = {0xFF: "TINY", 0xFF_FFFF: "MEDIUM", 0xFFFF_FFFF: "LONG"}

_NAME, _LENGTH, _SCALE = (f"__debezium.source.column.{part}" for part in ("type", "length", "scale"))
_COMMENT, _OWN_NAME = (f"__debezium.source.column.{part}" for part in ("comment", "name"))


class SourceType(NamedTuple):
    """``length`` and ``scale`` are None where the definition has none."""

    name: str
    """In capitals, with UNSIGNED and ZEROFILL."""
    length: int | None
    scale: int | None


def source_type(column: Column) -> SourceType:
    """Return a column's type as SHOW CREATE TABLE has it; as near to it as the log tells, without the catalog."""
    length = known_length(column)
    if column.data_type in {"enum", "set"}:
        return SourceType(column.data_type.upper(), length, None)
    if column.catalog is not None:
        found = _TYPE.fullmatch(column.catalog.column_type)
        if found:
            name = f"{found[1]}{found[4]}".upper()
            return SourceType(name, *(None if each is None else int(each) for each in found.group(2, 3)))
    name = column.data_type.upper() + (" UNSIGNED" if column.unsigned else "")
    if column.data_type in {"text", "blob"}:
        name = _SIZES.get(column.length, "") + name
    return SourceType(name, length, column.scale if column.data_type == "decimal" else None)


def known_length(column: Column) -> int | None:
    """Return the length that both catalog and log tell, None for none; right for all that is written as text or bytes.

    An ENUM has 1, a SET room for all its labels as if each were one letter: Debezium's numbers.
    """
    if column.data_type == "enum":
        return 1
    if column.data_type == "set":
        return max(0, 2 * len(column.enum_values) - 1)
    if column.data_type in {"char", "varchar"}:
        return column.length // _BYTES_OF_CHAR.get(column.charset, 1)
    if column.data_type in {"binary", "varbinary", "bit"}:
        return column.length
    if column.data_type == "decimal":
        return column.precision
    return column.fsp or None


def source_parameters(column: Column, *, comments: bool) -> tuple[tuple[str, str], ...]:
    """Return the parameters that tell a column's source type in its Connect schema."""
    name, length, scale = source_type(column)
    found = [(_NAME, name)]
    if length is not None:
        found.append((_LENGTH, str(length)))
    if scale is not None:
        found.append((_SCALE, str(scale)))
    if comments and column.catalog is not None and column.catalog.comment:
        found.append((_COMMENT, column.catalog.comment))
    return (*found, (_OWN_NAME, column.name))
