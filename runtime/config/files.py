"""Configuration files in UTF-8: JSON, Java's .properties format, and pipeline files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

Part = Literal["producer", "consumer"]
PIPELINE_SUFFIXES: Final = (".yaml", ".yml")


class Setting(NamedTuple):
    """The text of one setting, and where it comes from (``file``, ``environment variable X``, ``flag``)."""

    value: str
    origin: str
    is_content: bool = False
    """The content of a file that a ``_FILE`` variable names: a secret as it is, without placeholders."""
    key_path: str = ""
    """Where it is in a pipeline file, with its line."""


Settings = dict[str, Setting]

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_file(path: Path, part: Part, problems: list[str]) -> Settings:
    """Return the settings of a file, of a pipeline file those of one program.

    What cannot be read is added to ``problems``.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"the file {path} cannot be read: {why_unreadable(error)}")
        return {}
    if path.suffix in PIPELINE_SUFFIXES:
        # The library of YAML need not be installed where only other files are read.
        from tailrace.runtime.config.pipeline_file import read_pipeline  # noqa: PLC0415

        return read_pipeline(text, path, part, problems)
    is_json = path.suffix == ".json" or (path.suffix != ".properties" and text.lstrip().startswith("{"))
    pairs = _json_pairs(text, path, problems) if is_json else property_pairs(text, path, problems)
    found: Settings = {}
    for name, value in pairs:
        if name in found:
            problems.append(f"{name} is given twice in {path}")
        found[name] = Setting(value, "file")
    return found


def why_unreadable(error: OSError | UnicodeDecodeError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "it is not UTF-8"


def _json_pairs(text: str, path: Path, problems: list[str]) -> list[tuple[str, str]]:
    try:
        # Objects as lists of pairs, so that a name that is given twice is seen.
        body = json.loads(text, object_pairs_hook=_Object)
    except json.JSONDecodeError as error:
        problems.append(f"{path} is not JSON: line {error.lineno}, column {error.colno}: {error.msg}")
        return []
    except (ValueError, RecursionError):
        problems.append(f"{path} cannot be read: it is nested too deeply, or has a number of too many digits")
        return []
    if not isinstance(body, _Object):
        problems.append(f"{path} is not a JSON object")
        return []
    return list(_flatten("", _connector_settings(body, path, problems), path, problems))


class _Object(list[tuple[str, Any]]):
    """A JSON object, as pairs."""


def _connector_settings(body: _Object, path: Path, problems: list[str]) -> _Object:
    """Return the settings within ``{"name": …, "config": {…}}``, the form that is posted to Kafka Connect."""
    outer = dict(body)
    inner = outer.get("config")
    if not isinstance(inner, _Object):
        return body
    problems += [f'{name} is next to "config" in {path}; move it into "config"' for name in outer.keys() - _CONNECTOR]
    if "name" in outer and "name" not in dict(inner):
        return _Object([("name", outer["name"]), *inner])
    return inner


_CONNECTOR = {"name", "config"}


def _flatten(prefix: str, body: _Object, path: Path, problems: list[str]) -> Iterator[tuple[str, str]]:
    for name, value in body:
        if isinstance(value, _Object):
            yield from _flatten(f"{prefix}{name}.", value, path, problems)
        elif isinstance(value, list):
            problems.append(f"{prefix}{name} is a list in {path}; write its items as one text, separated by commas")
        elif value is not None:
            yield prefix + name, str(value).lower() if isinstance(value, bool) else str(value)


def property_pairs(text: str, path: Path, problems: list[str]) -> list[tuple[str, str]]:
    """Return names and values of a text in Java's .properties format."""
    pairs = []
    for number, line in _logical_lines(text):
        parts = re.fullmatch(r"((?:\\.|[^\\=:\s])+)(?:[ \t\f]*[=:][ \t\f]*|[ \t\f]+|$)(.*)", line, re.DOTALL)
        if parts is None:
            # The line itself is not shown: it may contain a secret.
            problems.append(f"line {number} of {path} is not of the form name=value")
            continue
        try:
            pairs.append((_unescape(parts[1]), _unescape(parts[2])))
        except ValueError:
            problems.append(f"line {number} of {path}: \\u is not followed by four hexadecimal digits")
    return pairs


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    r"""Yield the lines without comments, those that end in ``\`` joined with the next, with the number of the first."""
    lines = enumerate(re.split(r"\r\n|\r|\n", text), 1)
    for number, first in lines:
        line = first.lstrip(" \t\f")
        if not line or line[0] in "#!":
            continue
        while (len(line) - len(line.rstrip("\\"))) % 2:
            line = line[:-1] + next(lines, (0, ""))[1].lstrip(" \t\f")
        yield number, line


def _unescape(text: str) -> str:
    def replace(found: re.Match[str]) -> str:
        if found[1] is not None:
            return chr(int(found[1], 16))
        if found[2] == "u":
            raise ValueError
        return _ESCAPES.get(found[2], found[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", replace, text, flags=re.DOTALL)
