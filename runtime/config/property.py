"""The declaration of one property: its names, its type, its default, its documentation, and whether it is supported."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tailrace.runtime.config.value_types import ANY_TEXT, ValueType


class Support(StrEnum):
    """What happens when a property is set."""

    SUPPORTED = "supported"
    """It has the effect that its documentation describes."""
    IGNORED = "ignored"
    """It has no effect; a warning says why."""
    REJECTED = "rejected"
    """It would change the result and is not supported: an error, except for values that change nothing."""


@dataclass(frozen=True, slots=True)
class Property:
    """One property.

    ``name`` may contain ``*``. With one ``*`` at its end it is a prefix: the settings that start with it are collected
    into a mapping. Otherwise it is a pattern: the settings that match it are collected into pairs of name and value.
    """

    name: str
    doc: str = ""
    """Of a supported property; the others have a reason."""
    value_type: ValueType[Any] = ANY_TEXT
    default: str | None = None
    """The default as a user would write it; None if there is no default."""
    support: Support = Support.SUPPORTED
    reason: str = ""
    """Why the property is ignored or rejected."""
    target: str = ""
    """``section.field`` of the configuration; filled in from the section that declares the property."""
    aliases: tuple[str, ...] = ()
    required: bool = False
    fallback: str = ""
    """Another property, whose value is used if this one is not set."""
    default_note: str = ""
    """A remark about the default, such as the default of another system."""
    no_op_values: tuple[str, ...] = ()
    """For ignored and rejected properties: values, in lower case, that ask for what happens anyway."""
    rejected_values: Mapping[str, str] = field(default_factory=dict)
    """For supported properties: known values that are not supported, with the reason."""
    check: Callable[[str, str], object] | None = None
    """For patterns: checks name and value together. Raises InvalidValueError."""
    in_environment: bool = True
    """False for names so short that the environment variable may have another meaning."""
    environment_keys: tuple[str, ...] = ()
    """For prefixes: the settings that may come from the environment; ``*`` for all, with ``.`` for each ``_``."""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)

    @property
    def secret(self) -> bool:
        return self.value_type.secret

    @property
    def is_wildcard(self) -> bool:
        """Whether the name stands for many."""
        return "*" in self.name

    @property
    def is_prefix(self) -> bool:
        """Whether the name stands for all names that start with it."""
        return self.name.find("*") == len(self.name) - 1

    def matches(self, name: str) -> bool:
        """Return whether a name is this property, an alias, or one that it stands for."""
        return any(
            name == own or ("*" in own and re.fullmatch(".+".join(map(re.escape, own.split("*"))), name) is not None)
            for own in self.names
        )

    def suffix(self, name: str) -> str:
        """Return the part of a name after the prefix that it starts with."""
        prefix = next(own[:-1] for own in self.names if own.endswith("*") and name.startswith(own[:-1]))
        return name.removeprefix(prefix)


def ignored(reason: str, *names: str, **more: Any) -> tuple[Property, ...]:
    """Declare properties that are read without effect."""
    return tuple(Property(name, support=Support.IGNORED, reason=reason, **more) for name in names)


def rejected(reason: str, *names: str, **more: Any) -> tuple[Property, ...]:
    """Declare properties that are an error unless the value is one of ``no_op_values``."""
    return tuple(Property(name, support=Support.REJECTED, reason=reason, **more) for name in names)
