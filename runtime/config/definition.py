"""The definition of a configuration: sections, properties and checks. It loads and describes configurations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import SecretStr, ValidationError

from tailrace.runtime.config.draft import Draft
from tailrace.runtime.config.property import Property, Support
from tailrace.runtime.config.property_table import MASK, PropertyTable
from tailrace.runtime.config.section import RootConfig, Section, SectionSpec, properties_of, sections_of
from tailrace.runtime.errors import ConfigError

C = TypeVar("C", bound=RootConfig)
Check = Callable[[Draft], None]
"""Adds the problems and warnings that concern more than one property."""


@dataclass(frozen=True, slots=True)
class Group:
    """One chapter of the reference page: the properties of some sections, and those that have no effect."""

    title: str
    sections: tuple[str, ...] = ()
    """Paths of sections; '' is the configuration itself."""
    unsupported: tuple[Property, ...] = ()


class ConfigDefinition(Generic[C]):
    """One configuration. ``sections`` replaces sections of the model, for those that are composed at run time."""

    def __init__(
        self,
        model: type[C],
        groups: Sequence[Group],
        *,
        sections: Mapping[str, type[Section] | SectionSpec] | None = None,
        checks: Sequence[Check] = (),
        redact_name: Callable[[str], str] = str,
    ) -> None:
        """``redact_name`` masks the secret part of a name that has one."""
        self.model = model
        self.groups = tuple(groups)
        replaced = {
            path: found if isinstance(found, SectionSpec) else SectionSpec(found)
            for path, found in (sections or {}).items()
        }
        self.sections = {**sections_of(model), **replaced}
        self._checks = tuple(checks)
        self._redact_name = redact_name
        self.table = PropertyTable(entry for group in groups for entry in self.properties_of(group))

    def properties_of(self, group: Group) -> tuple[Property, ...]:
        """Return the properties of a group, the supported ones first."""
        supported = (entry for path in group.sections for entry in properties_of(self.sections[path], path))
        return (*supported, *group.unsupported)

    def load(self, path: Path | None, environ: Mapping[str, str], overrides: Mapping[str, str] | None = None) -> C:
        """Return the configuration of a file, the environment and ``overrides``.

        Raises ConfigError with all problems.
        """
        draft = Draft(self.table)
        draft.gather(path, self.model.part, environ, overrides or {})
        draft.read()
        for check in self._checks:
            check(draft)
        draft.warn_of_clear_text()
        if draft.problems:
            raise ConfigError([self._redacted(draft.with_key_path(problem), draft) for problem in draft.problems])
        warnings = tuple(self._redacted(draft.with_key_path(warning), draft) for warning in draft.warnings)
        return self._build(draft.values, warnings)

    def peek(
        self, name: str, path: Path | None, environ: Mapping[str, str], overrides: Mapping[str, str] | None = None
    ) -> str | None:
        """Return the text of one setting, for a definition that depends on it; None if it is not set."""
        draft = Draft(self.table)
        draft.gather(path, self.model.part, environ, overrides or {})
        return draft.settings[name].value.strip() if draft.is_set(name) else None

    def _redacted(self, text: str, draft: Draft) -> str:
        for name in draft.settings:
            text = text.replace(name, self._redact_name(name))
        return text

    def _build(self, values: Mapping[str, Any], warnings: tuple[str, ...]) -> C:
        fields: dict[str, dict[str, Any]] = {path: {} for path in self.sections}
        for target, value in values.items():
            path, _, attribute = target.rpartition(".")
            fields[path][attribute] = value
        try:
            # Inner sections come before the sections that contain them.
            for path in sorted(filter(None, self.sections), key=lambda path: -path.count(".")):
                outer, _, attribute = path.rpartition(".")
                fields[outer][attribute] = self.sections[path].model(**fields[path])
            return self.model(**fields[""], warnings=warnings)
        except ValidationError as error:
            # Never the input: it may be a secret.
            details = error.errors(include_url=False, include_context=False, include_input=False)
            raise ConfigError([_validation_problem(detail) for detail in details]) from None

    def describe(self, config: C) -> dict[str, str]:
        """Return the effective settings by property, secrets masked."""
        found: dict[str, str] = {}
        for entry in self.table.properties:
            if entry.support is not Support.SUPPORTED:
                continue
            value = attrgetter(entry.target)(config)
            if entry.is_prefix:
                found |= self._describe_prefixed(entry, value)
            elif entry.is_wildcard:
                given = [(name.get_secret_value(), text) for name, text in value]
                found |= {self._redact_name(name): text for name, text in given if self.table.find(name) == entry}
            elif value is not None:
                text = entry.value_type.write(value)
                found[entry.name] = MASK if entry.secret and text else text
        return found

    def _describe_prefixed(self, entry: Property, values: Mapping[str, Any]) -> dict[str, str]:
        """Write the settings of a prefix in its shortest spelling."""
        prefix = min((name[:-1] for name in entry.names), key=len)
        return {
            prefix + name: MASK if self.table.is_secret(prefix + name) else _text(value)
            for name, value in sorted(values.items())
        }


def _text(value: Any) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)


def _validation_problem(detail: Any) -> str:
    location = ".".join(map(str, detail["loc"]))
    message = str(detail["msg"]).removeprefix("Value error, ")
    return f"{location}: {message}" if location else message
