"""Several sinks in one query: ``sinks`` names them, and ``sinks.<name>.*`` are the properties of each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import create_model

from tailrace.runtime.config.section import Section, SectionSpec, section, supported
from tailrace.runtime.config.value_types import TEXT, InvalidValueError, ValueType
from tailrace.spark_consumer.source.topics import TableFilter, split_expressions

_TABLES: Final = "Tables that this sink writes (empty: all that are read), and does not write."
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
SECTION: Final = "named_sinks"
"""The attribute of the configuration that has a section for each named sink."""


def _read_names(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not found:
        raise ValueError
    for name in found:
        if not _NAME.fullmatch(name):
            raise InvalidValueError(f"{name!r} is no name")
        if [other.lower() for other in found].count(name.lower()) > 1:
            raise InvalidValueError(f"{name!r} is there twice")
    return found


NAMES: Final = ValueType("a list of names of letters, digits and _, separated by commas", _read_names, ",".join)


def names_in(text: str | None) -> tuple[str, ...]:
    """Return the names in the text of ``sinks``; none if it is not valid, which is reported when it is read."""
    try:
        return _read_names(text or "")
    except ValueError:
        return ()


def _read_expressions(text: str) -> tuple[str, ...]:
    found = split_expressions(text)
    for expression in found:
        try:
            re.compile(expression)
        except re.error as error:
            raise InvalidValueError(f"{expression!r}: {error}") from None
    return found


EXPRESSIONS: Final = ValueType(
    "regular expressions separated by commas",
    _read_expressions,
    lambda found: ",".join(expression.replace(",", "\\,") for expression in found),
)


class NamedSinkConfig(Section):
    """One of several sinks. ``options`` are the settings that its plug-in declares."""

    kind: str = supported("sinks.{name}.type", TEXT, required=True, doc="Kind of the sink, as for `sink`.")
    included: tuple[str, ...] | None = supported(
        "sinks.{name}.table.include.list",
        EXPRESSIONS,
        doc=_TABLES,
    )
    excluded: tuple[str, ...] | None = supported(
        "sinks.{name}.table.exclude.list",
        EXPRESSIONS,
        doc=_TABLES,
    )
    options: Section = section(Section)

    @property
    def tables(self) -> TableFilter:
        """The tables that the sink writes."""
        return TableFilter(self.included or (), self.excluded or ())


@dataclass(frozen=True, slots=True)
class ChosenSink:
    """A sink of the query, as the configuration describes it."""

    name: str
    kind: str
    options: Section
    tables: TableFilter = field(default_factory=TableFilter)


def attribute_of(name: str) -> str:
    """Return the attribute of a sink in the section of the named sinks."""
    return f"sink_{name}"


def path_of(name: str) -> str:
    """Return the path of the section of a named sink."""
    return f"{SECTION}.{attribute_of(name)}"


def prefix_of(name: str) -> str:
    """Return what stands before the properties of a named sink."""
    return f"sinks.{name}."


def sections_of_sinks(options: Mapping[str, type[Section] | None]) -> dict[str, type[Section] | SectionSpec]:
    """Return the sections of some named sinks; ``options`` has the section of the plug-in, None if it is not known."""
    fields: dict[str, Any] = {attribute_of(name): (NamedSinkConfig, ...) for name in options}
    found: dict[str, type[Section] | SectionSpec] = {SECTION: create_model("NamedSinks", __base__=Section, **fields)}
    for name, model in options.items():
        found[path_of(name)] = SectionSpec(NamedSinkConfig, {"name": name})
        found[f"{path_of(name)}.options"] = SectionSpec(model or Section, prefix=prefix_of(name))
    return found
