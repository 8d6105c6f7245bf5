"""A configuration while it is built: the settings found, the values read from them, the problems so far."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr

from tailrace.runtime.config.environment import read_environment, resolve_placeholders
from tailrace.runtime.config.files import Part, Setting, Settings, read_file
from tailrace.runtime.config.property import Property, Support
from tailrace.runtime.config.property_table import PropertyTable
from tailrace.runtime.config.value_types import InvalidValueError

_REGISTRY: Final = "schema.registry.url"


@dataclass(slots=True)
class Draft:
    """Settings by name, and values by ``section.field``."""

    table: PropertyTable
    settings: Settings = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    file_unread: bool = False
    """No setting of the file could be read: that some are missing then says nothing."""

    def is_set(self, name: str) -> bool:
        """Return whether a setting is given and not blank."""
        return name in self.settings and bool(self.settings[name].value.strip())

    def gather(self, path: Path | None, part: Part, environ: Mapping[str, str], overrides: Mapping[str, str]) -> None:
        """Collect the settings: the file, over it the environment, over it ``overrides``; resolve placeholders."""
        settings = read_file(path, part, self.problems) if path else {}
        self.file_unread = bool(self.problems) and not settings
        self._overlay(settings, read_environment(environ, self.table.properties, self.problems))
        self._overlay(settings, {name: Setting(value, "flag") for name, value in overrides.items()})
        self.settings = {
            name: resolve_placeholders(name, setting, environ, self.problems) for name, setting in settings.items()
        }

    def with_key_path(self, text: str) -> str:
        """Begin a text that begins with the name of a setting of a pipeline file with its key path."""
        name = re.match(r"[^\s:,=]*", text)
        setting = self.settings.get(name[0]) if name else None
        return f"{setting.key_path}: {text}" if setting is not None and setting.key_path else text

    def _overlay(self, settings: Settings, upper: Settings) -> None:
        """Put ``upper`` over ``settings``: a property replaces its aliases of the layer below."""
        for name, setting in upper.items():
            entry = self.table.find(name)
            for other in entry.names if entry is not None and not entry.is_wildcard else ():
                if other not in upper:
                    settings.pop(other, None)
            settings[name] = setting

    def read(self) -> None:
        """Read every setting, then fill in fallbacks and defaults."""
        for name, setting in self.settings.items():
            entry = self.table.find(name)
            if entry is None:
                self.problems.append(f"{name} is not a known property{self.table.suggestion(name)}")
            elif entry.support is Support.SUPPORTED:
                self._read_supported(entry, name, setting)
            elif setting.value.strip().lower() not in entry.no_op_values:
                if entry.support is Support.REJECTED:
                    self.problems.append(self._rejection(entry, name, setting))
                else:
                    self.warnings.append(f"{name} has no effect: {entry.reason}")
        for entry in self.table.properties:
            if entry.support is Support.SUPPORTED and not entry.is_wildcard and entry.target not in self.values:
                self._fill_in(entry)

    def warn_of_clear_text(self) -> None:
        """Warn of every client of Kafka or of a schema registry whose password goes over a connection in clear."""
        self.warnings += [
            f"{name}=SASL_PLAINTEXT: the connection to Kafka is not encrypted: records, and with sasl.mechanism=PLAIN "
            "the password, can be read on the way; set SASL_SSL"
            for name, setting in self.settings.items()
            if name.endswith("security.protocol") and setting.value.strip().upper() == "SASL_PLAINTEXT"
        ]
        self.warnings += [
            f"{name}: the connection to the schema registry is not encrypted: its user and password can be read on the "
            "way; use a URL that begins with https://"
            for name, setting in self.settings.items()
            if name.endswith(_REGISTRY) and "http://" in setting.value and self._has_user(name.removesuffix(_REGISTRY))
        ]

    def _has_user(self, converter: str) -> bool:
        """Return whether the requests to the registry of a converter have a user and a password."""
        source = self.settings.get(f"{converter}basic.auth.credentials.source")
        if source is not None and source.value.strip().lower() == "user_info":
            names = (f"{converter}basic.auth.user.info", f"{converter}schema.registry.basic.auth.user.info")
            if any(map(self.is_set, names)):
                return True
        return "@" in self.settings[f"{converter}{_REGISTRY}"].value

    def _rejection(self, entry: Property, name: str, setting: Setting) -> str:
        words = " or ".join(word or "(empty)" for word in entry.no_op_values)
        allowed = f"; the only allowed value is {words}" if words else ""
        similar = self.table.suggestion(name, cutoff=0.85) if entry.is_wildcard else ""
        return f"{self._seen(name, setting)} is not supported: {entry.reason}{allowed}{similar}"

    def _seen(self, name: str, setting: Setting) -> str:
        return f"{name}: {self.table.redact(name, setting.value)} ({setting.origin})"

    def _read_supported(self, entry: Property, name: str, setting: Setting) -> None:
        if entry.is_prefix:
            self._read_prefixed(entry, name, setting)
        elif entry.is_wildcard:
            self._read_pattern(entry, name, setting)
        elif entry.target in self.values:
            self.problems.append(f"{name} is also given under another name ({', '.join(entry.names)}); keep one")
        elif setting.value.strip() or entry.default is not None or entry.required:
            self._read_value(entry, name, setting)

    def _parse(self, entry: Property, name: str, setting: Setting) -> Any | None:
        """Return the value of a setting, or None and add a problem."""
        try:
            return entry.value_type.read(setting.value)
        except (ValueError, LookupError, OverflowError) as error:
            reason = f": {error}" if isinstance(error, InvalidValueError) else ""
            self.problems.append(f"{self._seen(name, setting)} is not {entry.value_type.expects}{reason}")
            return None

    def _read_value(self, entry: Property, name: str, setting: Setting) -> None:
        value = self._parse(entry, name, setting)
        if value is None:
            return
        self.values[entry.target] = value
        rejected = entry.rejected_values.get(setting.value.strip().lower()) or entry.rejected_values.get(str(value))
        if rejected:
            self.problems.append(f"{self._seen(name, setting)} is not supported: {rejected}")

    def _read_prefixed(self, entry: Property, name: str, setting: Setting) -> None:
        value = self._parse(entry, name, setting)
        if value is None:
            return
        values, key = self.values.setdefault(entry.target, {}), entry.suffix(name)
        if values.setdefault(key, value) != value:
            spellings = " and ".join(own[:-1] + key for own in entry.names)
            self.problems.append(f"{name} is given twice with different values, as {spellings}")

    def _read_pattern(self, entry: Property, name: str, setting: Setting) -> None:
        try:
            if entry.check is not None:
                entry.check(name, setting.value)
        except InvalidValueError as error:
            self.problems.append(f"{self._seen(name, setting)} cannot be used: {error}")
            return
        if setting.value.strip(" ,"):
            self.values[entry.target] = (*self.values.get(entry.target, ()), (SecretStr(name), setting.value))

    def _fill_in(self, entry: Property) -> None:
        if entry.fallback and self.is_set(entry.fallback):
            self._read_value(entry, entry.fallback, self.settings[entry.fallback])
        elif entry.required and not any(name in self.settings for name in entry.names):
            if self.file_unread:
                return
            expected = entry.value_type.expects or "any text"
            self.problems.append(f"{entry.name} is missing: {entry.doc} Expected: {expected}")
        elif entry.default is not None:
            self.values[entry.target] = entry.value_type.read(entry.default)
