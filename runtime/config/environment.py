"""Settings from environment variables, and placeholders within values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tailrace.runtime.config.files import Setting, Settings, property_pairs, why_unreadable
from tailrace.runtime.config.property import Property

_FILE = "_FILE"
_PROVIDERS = frozenset({"file", "dir", "env"})
_PLACEHOLDER = re.compile(r"\$\{([a-z]+):([^}]*)\}")


def environment_name(name: str) -> str:
    """Return the environment variable of a property.

    ``database.server.id`` has ``DATABASE_SERVER_ID``, ``maxOffsetsPerTrigger`` has ``MAX_OFFSETS_PER_TRIGGER``.
    """
    return re.sub(r"[^A-Z0-9]", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper())


def variables_of(entry: Property) -> Iterator[tuple[str, str]]:
    """Yield the settings of a property that may come from the environment, with their variables."""
    if entry.in_environment and not entry.is_wildcard:
        yield from ((name, environment_name(name)) for name in entry.names)
    for key in entry.environment_keys:
        if key != "*":
            yield entry.name[:-1] + key, environment_name(entry.name[:-1] + key)


def read_environment(environ: Mapping[str, str], properties: Iterable[Property], problems: list[str]) -> Settings:
    """Return the settings of the environment. With ``_FILE`` at its end a variable names the file with the value."""
    properties = tuple(properties)
    found: Settings = {}
    known = {variable: name for entry in properties for name, variable in variables_of(entry)}
    open_prefixes = [entry.name[:-1] for entry in properties if "*" in entry.environment_keys]
    for variable in sorted(environ):
        if variable in known:
            _read_variable(found, known[variable], variable, environ, problems)
            continue
        base = variable.removesuffix(_FILE)
        name = known.get(base) or _open_name(base, open_prefixes)
        if name:
            _read_variable(found, name, variable, environ, problems, is_file=base != variable)
    return found


def _open_name(variable: str, prefixes: Iterable[str]) -> str | None:
    for prefix in prefixes:
        start = environment_name(prefix)
        if variable.startswith(start) and variable != start:
            return prefix + variable.removeprefix(start).lower().replace("_", ".")
    return None


def _read_variable(
    found: Settings, name: str, variable: str, environ: Mapping[str, str], problems: list[str], *, is_file: bool = False
) -> None:
    value = environ[variable]
    if is_file:
        try:
            # Files with secrets end in a line break that is not part of the secret.
            value = Path(value).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = why_unreadable(error)
            problems.append(f"{name}: the file named by the environment variable {variable} cannot be read: {reason}")
            return
    if name in found:
        problems.append(f"{name} is given twice in the environment: {found[name].origin} and {variable}")
        return
    found[name] = Setting(value, f"environment variable {variable}", is_content=is_file)


def resolve_placeholders(name: str, setting: Setting, environ: Mapping[str, str], problems: list[str]) -> Setting:
    """Replace ``${file:PATH:KEY}``, ``${dir:PATH:FILE}`` and ``${env:NAME}``, as Kafka Connect's providers do.

    Other placeholders are an error, except in settings of Spark, which has its own: ``${system:user.home}``.
    The content of a file has none: a password may contain ``${``.
    """
    if setting.is_content:
        return setting

    def replace(found: re.Match[str]) -> str:
        if found[1] not in _PROVIDERS and name.startswith("spark."):
            return found[0]
        try:
            return _resolve(found[1], found[2], environ)
        except LookupError as missing:
            problems.append(f"{name}: the placeholder {found[0]} cannot be resolved: {missing.args[0]}")
            return ""

    return setting._replace(value=_PLACEHOLDER.sub(replace, setting.value))


def _resolve(provider: str, rest: str, environ: Mapping[str, str]) -> str:
    if provider == "env":
        if rest not in environ:
            raise LookupError("there is no such environment variable")
        return environ[rest]
    path, _, key = rest.rpartition(":")
    if provider not in {"file", "dir"} or not path:
        raise LookupError("use ${file:PATH:KEY}, ${dir:PATH:FILE} or ${env:NAME}")
    try:
        if provider == "dir":
            if "/" in key:
                raise LookupError("the last part must be the name of a file, without '/'")
            return (Path(path) / key).read_text(encoding="utf-8").rstrip("\r\n")
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise LookupError(why_unreadable(error)) from None
    pairs = dict(property_pairs(text, Path(path), []))
    if key not in pairs:
        raise LookupError(f"the file has no key {key}")
    return pairs[key]
