"""The type of a column as its source declares it. Debezium puts it into schemas and into the names of type filters."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tailrace.producer.model.table import Column

_TYPE: Final = re.compile(r"([\w ]+?)(?:\((\d+)(?:,(\d+))?\))?((?: unsigned)?(?: zerofill)?)", re.IGNORECASE)
_NAME, _LENGTH, _SCALE = (f"__debezium.source.column.{part}" for part in ("type", "length", "scale"))
_COMMENT, _OWN_NAME = (f"__debezium.source.column.{part}" for part in ("comment", "name"))


class SourceType(NamedTuple):
    """``length`` and ``scale`` are None if the definition has none."""

    name: str
    """In capitals, with UNSIGNED and ZEROFILL."""
    length: int | None
    scale: int | None


def declared_type(column: Column) -> SourceType | None:
    """Read the type that the catalog has, such as ``int(10) unsigned``; None without the catalog."""
    found = _TYPE.fullmatch(column.catalog.column_type) if column.catalog is not None else None
    if found is None:
        return None
    length, scale = (None if each is None else int(each) for each in found.group(2, 3))
    return SourceType(f"{found[1]}{found[4]}".upper(), length, scale)


def source_parameters(column: Column, source_type: SourceType, *, comments: bool) -> tuple[tuple[str, str], ...]:
    """Return the parameters that describe the source type of a column in its Connect schema."""
    name, length, scale = source_type
    found = [(_NAME, name)]
    if length is not None:
        found.append((_LENGTH, str(length)))
    if scale is not None:
        found.append((_SCALE, str(scale)))
    if comments and column.catalog is not None and column.catalog.comment:
        found.append((_COMMENT, column.catalog.comment))
    return (*found, (_OWN_NAME, column.name))
