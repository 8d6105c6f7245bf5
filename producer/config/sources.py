"""Where settings come from: a JSON or .properties file, environment variables, flags; and placeholders within them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tailrace.producer.config.property import Property


class Setting(NamedTuple):
    """One value as text, and where it was found (``file``, ``environment variable X``, ``flag``)."""

    value: str
    origin: str


Settings = dict[str, Setting]


def read_file(path: Path, faults: list[str]) -> Settings:
    """Return the settings of a file; what cannot be read becomes a fault."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        faults.append(f"the file {path} cannot be read: {reason}")
        return {}
    pairs = _json_pairs(text, path, faults) if text.lstrip().startswith("{") else _property_pairs(text, path, faults)
    found: Settings = {}
    for name, value in pairs:
        if name in found:
            faults.append(f"{name} is given twice in {path}")
        found[name] = Setting(value, "file")
    return found


def _json_pairs(text: str, path: Path, faults: list[str]) -> list[tuple[str, str]]:
    try:
        body = json.loads(text, object_pairs_hook=lambda pairs: pairs)
    except ValueError as error:
        faults.append(f"{path} is not JSON: {error}")
        return []
    outer = dict(body)
    if isinstance(outer.get("config"), list):
        # As posted to Kafka Connect: {"name": …, "config": {…}}.
        faults += [f'{name} is beside "config" in {path}, not within it' for name in outer.keys() - {"name", "config"}]
        inner = outer["config"]
        body = (
            inner
            if any(name == "name" for name, _ in inner) or "name" not in outer
            else [("name", outer["name"]), *inner]
        )
    pairs = []
    for name, value in body:
        if value is None:
            continue
        if isinstance(value, list):
            faults.append(f"{name} is an object or a list in {path}; every setting is one text, number, true or false")
            continue
        pairs.append((name, _json_text(value)))
    return pairs


def _json_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _property_pairs(text: str, path: Path, faults: list[str]) -> list[tuple[str, str]]:
    """Read Java's .properties form, but as UTF-8."""
    joined = re.sub(r"(?<!\\)((?:\\\\)*)\\\r?\n[ \t\f]*", r"\1", text)
    pairs = []
    for number, line in enumerate(joined.splitlines(), 1):
        stripped = line.lstrip(" \t\f")
        if not stripped or stripped[0] in "#!":
            continue
        parts = re.fullmatch(r"((?:\\.|[^\\=:\s])+)(?:\s*[=:]\s*|\s+|$)(.*)", stripped, re.DOTALL)
        if parts is None:
            # Not the line itself: it may hold a secret.
            faults.append(f"line {number} of {path} is not of the form name=value")
            continue
        try:
            pairs.append((_unescape(parts[1]), _unescape(parts[2])))
        except ValueError:
            faults.append(f"line {number} of {path}: an escape is not complete")
    return pairs


def _unescape(text: str) -> str:
    def replace(found: re.Match[str]) -> str:
        if found[1] is not None:
            return chr(int(found[1], 16))
        if found[2] == "u":
            raise ValueError
        return _ESCAPES.get(found[2], found[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", replace, text, flags=re.DOTALL)


def environment_name(name: str) -> str:
    """Return the environment variable of a property: ``database.server.id`` -> ``DATABASE_SERVER_ID``."""
    return re.sub(r"[^A-Z0-9]", "_", name.upper())


_CLIENT = "PRODUCER_OVERRIDE_"


def read_environment(environ: Mapping[str, str], properties: Iterable[Property], faults: list[str]) -> Settings:
    """Return the settings of the environment; ``…_FILE`` names a file whose text is the value."""
    found: Settings = {}
    properties = tuple(properties)
    fixed = {environment_name(name) for entry in properties if not entry.open for name in (entry.name, *entry.aliases)}
    for entry in properties:
        if not entry.in_environment or entry.open:
            continue
        for name in (entry.name, *entry.aliases):
            for key in (environment_name(name), environment_name(name) + "_FILE"):
                # SIGNAL_FILE is the property signal.file, not a file that holds "signal".
                if key in environ and (key == environment_name(name) or key not in fixed):
                    _take(found, name, key, environ, faults, mounted=key != environment_name(name))
    for key in sorted(environ):
        # librdkafka's names have dots only, so that the way back from a variable is certain.
        name, mounted = key.removesuffix("_FILE"), key.endswith("_FILE")
        if name.startswith(_CLIENT) and name != _CLIENT and name not in fixed:
            setting = name.removeprefix(_CLIENT).lower().replace("_", ".")
            _take(found, f"producer.override.{setting}", key, environ, faults, mounted=mounted)
    return found


def _take(
    found: Settings, name: str, key: str, environ: Mapping[str, str], faults: list[str], *, mounted: bool
) -> None:
    value = environ[key]
    if mounted:
        try:
            # Secret files end in a line break that is not part of the secret.
            value = Path(value).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            faults.append(f"{name}: the file named by the environment variable {key} cannot be read: {reason}")
            return
    if name in found:
        faults.append(f"{name} is given twice in the environment: {found[name].origin} and {key}")
        return
    found[name] = Setting(value, f"environment variable {key}")


_PLACEHOLDER = re.compile(r"\$\{([a-z]+):([^}]*)\}")


def resolve_placeholders(name: str, setting: Setting, environ: Mapping[str, str], faults: list[str]) -> Setting:
    """Replace ``${file:PATH:KEY}``, ``${dir:PATH:FILE}`` and ``${env:NAME}``, as Kafka Connect's providers do."""

    def replace(found: re.Match[str]) -> str:
        try:
            return _provided(found[1], found[2], environ)
        except LookupError as missing:
            faults.append(f"{name}: the placeholder {found[0]} cannot be filled: {missing.args[0]}")
            return ""

    return Setting(_PLACEHOLDER.sub(replace, setting.value), setting.origin)


def _provided(provider: str, rest: str, environ: Mapping[str, str]) -> str:
    if provider == "env":
        if rest not in environ:
            raise LookupError("there is no such environment variable")
        return environ[rest]
    place, _, key = rest.rpartition(":")
    if provider not in {"file", "dir"} or not place:
        raise LookupError("use ${file:PATH:KEY}, ${dir:PATH:FILE} or ${env:NAME}")
    try:
        if provider == "dir":
            if "/" in key:
                raise LookupError("the last part is the name of a file, without '/'")
            return (Path(place) / key).read_text(encoding="utf-8").rstrip("\r\n")
        text = Path(place).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise LookupError(error.strerror if isinstance(error, OSError) else "the file is not UTF-8") from None
    pairs = dict(_property_pairs(text, Path(place), []))
    if key not in pairs:
        raise LookupError(f"the file has no key {key}")
    return pairs[key]
