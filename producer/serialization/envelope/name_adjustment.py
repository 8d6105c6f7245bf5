"""Adjusts names for Avro: ``schema.name.adjustment.mode`` and ``field.name.adjustment.mode``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from tailrace.producer.model.value_options import NameAdjustment
from tailrace.runtime.errors import SchemaError

_NOT_IN_NAME: Final = re.compile(r"[^A-Za-z0-9_.]")
_NOT_FIRST: Final = re.compile(r"^[^A-Za-z_]")
_NOT_IN_FIELD: Final = re.compile(r"[^A-Za-z0-9_]")


def _underscores(found: re.Match[str]) -> str:
    # Java replaces UTF-16 units: a character above U+FFFF is two.
    return "_" * (len(found[0].encode("utf-16-be")) // 2)


def _unicode(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be").hex()
    return "".join(f"_u{units[i : i + 4]}" for i in range(0, len(units), 4))


def schema_name(name: str, mode: NameAdjustment) -> str:
    """Return the adjusted name of a schema: ``-`` becomes ``_`` (avro) or ``_u002d`` (avro_unicode)."""
    if mode == "none":
        return name
    if mode == "avro":
        return _NOT_IN_NAME.sub(_underscores, _NOT_FIRST.sub(_underscores, name))
    first = re.sub(r"^[^A-Za-z]", _unicode, name[:1])
    return first + re.sub(r"[^A-Za-z0-9.]", _unicode, name[1:])


def field_name(name: str, mode: NameAdjustment) -> str:
    """Return the adjusted name of a column; a leading digit gets an underscore before it."""
    if mode == "none":
        return name
    replacement: Callable[[re.Match[str]], str] = _underscores if mode == "avro" else _unicode
    adjusted = (
        re.sub(r"[^A-Za-z0-9]", replacement, name) if mode == "avro_unicode" else _NOT_IN_FIELD.sub(replacement, name)
    )
    return f"_{adjusted}" if name[:1].isdigit() else adjusted


def field_names(names: Sequence[str], mode: NameAdjustment) -> tuple[str, ...]:
    """Return the adjusted names of a table's columns. Raises SchemaError if two columns get the same name."""
    found: dict[str, str] = {}
    for name in names:
        adjusted = field_name(name, mode)
        if adjusted in found:
            raise SchemaError(
                f"columns {found[adjusted]} and {name} have the same name after adjustment for Avro",
                hint="set field.name.adjustment.mode to avro_unicode, or rename one of the columns",
                name=adjusted,
            )
        found[adjusted] = name
    return tuple(found)
