"""Reads configuration as flat keys: a JSON or .properties file, environment variables over it, secrets from files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tailrace.runtime.errors import ConfigError


def load(path: Path) -> dict[str, str]:
    """Return the keys of a file; JSON may nest its keys, which are joined by dots.

    Raises ConfigError where the file cannot be read as what its name says.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"the configuration file {path} cannot be read: {error}"]) from error
    if path.suffix == ".json":
        return _json(text, path)
    if path.suffix == ".properties":
        return properties(text)
    raise ConfigError([f"the configuration file {path} must end in .json or .properties"])


def _json(text: str, path: Path) -> dict[str, str]:
    try:
        body = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError([f"{path}, line {error.lineno}: not JSON: {error.msg}"]) from error
    if not isinstance(body, dict):
        raise ConfigError([f"{path}: the configuration must be a JSON object"])
    flat: dict[str, str] = {}
    _flatten("", body, flat)
    return flat


def _flatten(lead: str, body: Mapping[str, Any], flat: dict[str, str]) -> None:
    for name, value in body.items():
        if isinstance(value, dict):
            _flatten(f"{lead}{name}.", value, flat)
        elif isinstance(value, bool):
            flat[lead + name] = str(value).lower()
        elif value is not None:
            flat[lead + name] = str(value)


def properties(text: str) -> dict[str, str]:
    """Read Java's .properties format: ``=``, ``:`` or a blank parts key and value, a backslash continues or escapes."""
    found: dict[str, str] = {}
    lines = iter(text.splitlines())
    for first in lines:
        line = first.lstrip()
        if not line or line[0] in "#!":
            continue
        while _continues(line):
            line = line[:-1] + next(lines, "").lstrip()
        match = re.match(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", line, re.DOTALL)
        assert match is not None  # every part may be empty
        found[_unescape(match[1])] = _unescape(match[2].rstrip() if not match[2].endswith("\\ ") else match[2])
    return found


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescape(text: str) -> str:
    named = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

    def one(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else named.get(code, code)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", one, text, flags=re.DOTALL)


def variable(key: str) -> str:
    """Return the environment variable of a key: ``maxOffsetsPerTrigger`` is MAX_OFFSETS_PER_TRIGGER."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).replace(".", "_").upper()


def from_environment(keys: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the keys that environment variables set; ``<NAME>_FILE`` names a file that holds the value."""
    found: dict[str, str] = {}
    faults: list[str] = []
    for key in keys:
        name = variable(key)
        if name in environment:
            found[key] = environment[name]
        elif f"{name}_FILE" in environment:
            try:
                found[key] = Path(environment[f"{name}_FILE"]).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                faults.append(f"{name}_FILE: {error}")
    if faults:
        raise ConfigError(faults)
    return found
