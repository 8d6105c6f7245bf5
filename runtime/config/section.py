"""Sections: frozen groups of settings whose fields declare the properties that set them.

::

    class DatabaseConfig(Section):
        port: int = supported("database.port", integer(1, 65535), default="3306", doc="Port of the MySQL server.")

The declaration is the only place that states name, type, default and documentation of a property.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from tailrace.runtime.config.property import Property
from tailrace.runtime.config.value_types import ValueType

T = TypeVar("T")


class Section(BaseModel):
    """Base of the sections: frozen, without fields that are not declared."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class RootConfig(Section):
    """Base of a whole configuration. ``warnings`` has one text for each setting without effect, for the log."""

    warnings: tuple[str, ...] = ()


def supported(name: str, value_type: ValueType[T], *, doc: str, default: str | None = None, **more: Any) -> T:
    """Declare the property that sets a field. Without ``default`` the field is None, or required (``required=True``)."""
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


def _field(*entries: Property, **default: Any) -> Any:
    field = Field(**default)
    field.metadata.extend(entries)
    return field


def properties_of(section: type[Section], name: str = "") -> Iterator[Property]:
    """Yield the properties that a section declares, in order. ``name`` is the section's field in the configuration."""
    for attribute, field in section.model_fields.items():
        for entry in field.metadata:
            if isinstance(entry, Property):
                yield replace(entry, target=f"{name}.{attribute}" if name else attribute)


def sections_of(model: type[RootConfig]) -> dict[str, type[Section]]:
    """Return the sections of a configuration by field; the configuration itself has the name ''."""
    found: dict[str, type[Section]] = {"": model}
    for attribute, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            found[attribute] = field.annotation
    return found
