"""Sections: frozen groups of settings whose fields declare the properties that set them.

::

    class DatabaseConfig(Section):
        port: int = supported("database.port", integer(1, 65535), default="3306", doc="Port of the MySQL server.")

The declaration is the only place that states name, type, default and documentation of a property.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from tailrace.runtime.config.files import Part
from tailrace.runtime.config.property import Property
from tailrace.runtime.config.value_types import ValueType

T = TypeVar("T")
S = TypeVar("S", bound="Section")


class Section(BaseModel):
    """Base of the sections: frozen, without fields that are not declared."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class RootConfig(Section):
    """Base of a whole configuration. ``warnings`` has one text for each setting without effect, for the log."""

    part: ClassVar[Part] = "producer"
    """Whose settings a pipeline file gives."""
    warnings: tuple[str, ...] = ()


def supported(name: str, value_type: ValueType[T], *, doc: str, default: str | None = None, **more: Any) -> T:
    """Declare the property that sets a field. Without ``default`` the field is None, or required if ``required``."""
    entry = Property(name, doc, value_type, default, **more)
    if entry.required:
        return cast("T", _field(entry))
    return cast("T", _field(entry, default=None if default is None else value_type.read(default)))


def prefixed(name: str, value_type: ValueType[T], *, doc: str, **more: Any) -> Mapping[str, T]:
    """Declare a property ``name.*``: the field maps the rest of each name to its value."""
    return cast("Mapping[str, T]", _field(Property(name, doc, value_type, **more), default_factory=dict))


def patterns(*entries: Property) -> tuple[tuple[SecretStr, str], ...]:
    """Declare properties whose names have variable parts: the field has pairs of name and value, in the given order."""
    return cast("tuple[tuple[SecretStr, str], ...]", _field(*entries, default=()))


def section(model: type[S], **words: str) -> S:
    """Declare a section within a section. ``words`` replace ``{word}`` in the names and texts of its properties."""
    info: Any = Field(default_factory=model)
    info.metadata.append(_Words(words))
    return cast("S", info)


class _Words(dict[str, str]):
    """Texts by the word that they replace."""


def _field(*entries: Property, **default: Any) -> Any:
    info = Field(**default)
    info.metadata.extend(entries)
    return info


def fill_in(entry: Property, words: Mapping[str, str]) -> Property:
    """Return a property with the words of its texts replaced."""

    def fill(text: str) -> str:
        for word, value in words.items():
            text = text.replace(f"{{{word}}}", value)
        return text

    aliases = tuple(map(fill, entry.aliases))
    note = fill(entry.default_note)
    return replace(entry, name=fill(entry.name), doc=fill(entry.doc), aliases=aliases, default_note=note)


def _with_prefix(entry: Property, prefix: str) -> Property:
    aliases = tuple(prefix + alias for alias in entry.aliases)
    fallback = prefix + entry.fallback if entry.fallback else ""
    return replace(entry, name=prefix + entry.name, aliases=aliases, fallback=fallback)


@dataclass(frozen=True, slots=True)
class SectionSpec:
    """One section of a configuration, and the words that its properties contain."""

    model: type[Section]
    words: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""
    """Stands before the names of its properties, for a section that is there several times."""


def properties_of(spec: SectionSpec, path: str = "") -> Iterator[Property]:
    """Yield the properties that a section declares, in order. ``path`` leads to the section, with dots."""
    for attribute, info in spec.model.model_fields.items():
        for entry in info.metadata:
            if isinstance(entry, Property):
                target = f"{path}.{attribute}" if path else attribute
                yield replace(_with_prefix(fill_in(entry, spec.words), spec.prefix), target=target)


def sections_of(model: type[Section], path: str = "", words: Mapping[str, str] | None = None) -> dict[str, SectionSpec]:
    """Return a section and those within it by path; the outermost has the path ''."""
    found = {path: SectionSpec(model, words or {})}
    for attribute, info in model.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, Section):
            own = next((entry for entry in info.metadata if isinstance(entry, _Words)), _Words())
            found |= sections_of(info.annotation, f"{path}.{attribute}" if path else attribute, own)
    return found
