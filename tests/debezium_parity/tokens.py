"""Parses JSON and keeps the text of every scalar: 1.0E10 differs from 10000000000.0, and \\u00e9 from é."""

from __future__ import annotations

import json
import re
from typing import Final

Tree = str | list["Tree"] | tuple[tuple[str, "Tree"], ...]
"""The text of a scalar, the items of an array, or the members of an object in order (names with quotes)."""

_SCALAR: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false|null')


def read_tree(text: str) -> Tree:
    """Parse compact JSON; white space between tokens raises ValueError."""
    tree, end = _value(text, 0)
    if end != len(text):
        raise ValueError(f"text after the value, at {end}: {text[end : end + 40]!r}")
    return tree


def member(tree: Tree, *path: str) -> Tree | None:
    """Return the value at ``path`` (names without quotes), None if there is none."""
    for name in path:
        if not isinstance(tree, tuple):
            return None
        found = next((value for key, value in tree if key == f'"{name}"'), None)
        if found is None:
            return None
        tree = found
    return tree


def number(tree: Tree | None, name: str) -> int | None:
    found = member(tree or "", name)
    return int(found) if isinstance(found, str) and found.isdecimal() else None


def text(tree: Tree | None, name: str) -> str:
    """Return a string member, an empty text where there is none."""
    found = member(tree or "", name)
    return str(json.loads(found)) if isinstance(found, str) and found.startswith('"') else ""


def _value(text: str, at: int) -> tuple[Tree, int]:
    start = text[at : at + 1]
    if start == "{":
        return _members(text, at + 1)
    if start == "[":
        return _items(text, at + 1)
    return _scalar(text, at)


def _scalar(text: str, at: int) -> tuple[str, int]:
    match = _SCALAR.match(text, at)
    if match is None:
        raise ValueError(f"no JSON value at {at}: {text[at : at + 40]!r}")
    return match[0], match.end()


def _members(text: str, at: int) -> tuple[Tree, int]:
    members: list[tuple[str, Tree]] = []
    if text.startswith("}", at):
        return (), at + 1
    while True:
        name, at = _scalar(text, at)
        if not text.startswith(":", at):
            raise ValueError(f"no colon at {at}: {text[at : at + 40]!r}")
        value, at = _value(text, at + 1)
        members.append((name, value))
        if text.startswith("}", at):
            return tuple(members), at + 1
        at = _comma(text, at)


def _items(text: str, at: int) -> tuple[Tree, int]:
    items: list[Tree] = []
    if text.startswith("]", at):
        return items, at + 1
    while True:
        value, at = _value(text, at)
        items.append(value)
        if text.startswith("]", at):
            return items, at + 1
        at = _comma(text, at)


def _comma(text: str, at: int) -> int:
    if not text.startswith(",", at):
        raise ValueError(f"no comma at {at}: {text[at : at + 40]!r}")
    return at + 1
