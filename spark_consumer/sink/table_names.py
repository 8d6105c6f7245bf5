"""Where the Delta table of a captured table is: at a path, or in a catalog under a name. One rule for all tables.

Names of MySQL can have any character. Each name becomes one segment of a path, or one part of a name in a catalog, and
never more. Two captured tables whose names become one in a catalog do not share a table: the first one owns it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tailrace.runtime.config.value_types import ValueType

_PLAIN_PATH: Final = re.compile(r"[^\w\-$ .]|^\.", re.ASCII)
_PLAIN_PART: Final = re.compile(r"\W", re.ASCII)
_PART: Final = re.compile(r"(?:[^.`{}]|\{database\}|\{table\})+")


@dataclass(frozen=True, slots=True)
class Location:
    """The place of one Delta table."""

    sql_name: str
    path: str | None = None
    """The directory; None if a catalog has the table."""
    schema_name: str = ""
    """The schema of a table in a catalog, quoted; empty: the current one."""

    @property
    def shown(self) -> str:
        """The place, for messages."""
        return self.path or self.sql_name

    @classmethod
    def at(cls, path: str) -> Location:
        """Return the place of a table at a path."""
        return cls(f"delta.{quote(path)}", path)


def location(database: str, table: str, *, path: str | None, template: str | None) -> Location:
    """Return the place of a captured table under a path, or by the name that ``template`` makes (``sink.table``)."""
    if template is None:
        return Location.at(f"{(path or '').rstrip('/')}/{path_segment(database)}/{path_segment(table)}")
    words = {"{database}": plain_name(database), "{table}": plain_name(table)}
    parts = []
    for part in template.split("."):
        for word, name in words.items():
            part = part.replace(word, name)  # noqa: PLW2901 - names have no braces
        parts.append(quote(part))
    return Location(".".join(parts), schema_name=".".join(parts[:-1]))


def path_segment(name: str) -> str:
    """Return a database or table name as one segment of a path: other characters than ``A-Za-z0-9_-$ .`` encoded.

    The UTF-8 bytes of each other character, and a dot at the start, are written as %XX. Two names never give the same
    segment, and no name leaves its directory.
    """
    return _PLAIN_PATH.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), name)


def quote(name: str) -> str:
    """Quote an identifier for Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """Quote a string for Spark SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def plain_name(name: str) -> str:
    """Return a name as a part of a name in a catalog: many catalogs allow letters, digits and ``_`` only."""
    return _PLAIN_PART.sub(lambda found: "".join(f"_x{byte:02X}" for byte in found[0].encode()), name)


def _read_template(text: str) -> str:
    template = text.strip()
    parts = template.split(".")
    if "{table}" not in template or not all(_PART.fullmatch(part) for part in parts):
        raise ValueError
    return template


TABLE_NAME: Final = ValueType("a name such as main.shop.{table}, with {table} and perhaps {database}", _read_template)
"""The template of ``sink.table``."""
