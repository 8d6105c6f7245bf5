"""The JSON schema (draft 2020-12) of pipeline files, from the properties of the installed programs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tailrace.runtime.config.pipeline_file import REQUIRED
from tailrace.runtime.config.property import Property, Support

_TEXT: Final = {"$ref": "#/$defs/text"}
_TRANSFORM: Final = ("source-table", "projection", "filter", "primary-keys")
_ROUTE: Final = ("source-table", "sink-table")


def pipeline_schema(producer: Iterable[Property], consumer: Iterable[Property]) -> dict[str, Any]:
    """Return the schema; what a value may be is in the description of a property, and the loaders check it."""
    known = {"producer": _properties(producer), "consumer": _properties(consumer)}
    sink = _section("consumer", {"type": _TEXT}, ["type"])
    several = _section("consumer", {"name": _TEXT, "type": _TEXT}, ["name", "type"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Tailrace pipeline",
        "type": "object",
        "required": list(REQUIRED),
        "additionalProperties": False,
        "properties": {
            "source": _section("producer", {"type": {"enum": ["mysql", "mariadb"]}, "tables": _TEXT}, []),
            "transform": _rules(_TRANSFORM, ["source-table"]),
            "route": _rules(_ROUTE, list(_ROUTE)),
            "sink": {"if": {"type": "array"}, "then": {"items": several}, "else": sink},
            "consumer": _section("consumer", {}, []),
            "pipeline": {"allOf": [_section(part, {}, []) for part in known]},
        },
        "$defs": {"text": {"type": ["string", "number", "boolean"]}, **known},
    }


def _properties(properties: Iterable[Property]) -> dict[str, Any]:
    exact: dict[str, Any] = {}
    patterns: dict[str, Any] = {}
    for entry in properties:
        doc = entry.doc if entry.support is Support.SUPPORTED else f"{entry.support}: {entry.reason}"
        described = {"description": doc, **_TEXT} | ({"default": entry.default} if entry.default else {})
        for name in entry.names:
            if "*" in name:
                patterns.setdefault(f"^{'.+'.join(map(re.escape, name.split('*')))}$", described)
            else:
                exact.setdefault(name, described)
    return {"properties": dict(sorted(exact.items())), "patternProperties": dict(sorted(patterns.items()))}


def _section(part: str, own: Mapping[str, Any], required: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "$ref": f"#/$defs/{part}",
        "properties": own,
        "required": required,
        "unevaluatedProperties": False,
    }


def _rules(words: Iterable[str], required: list[str]) -> dict[str, Any]:
    item = {
        "type": "object",
        "properties": dict.fromkeys(words, _TEXT),
        "required": required,
        "additionalProperties": False,
    }
    return {"type": "array", "items": item}
