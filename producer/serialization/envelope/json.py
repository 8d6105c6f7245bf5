"""Serializes records that are not rows as JSON without schemas, with the bytes of Connect's JsonConverter.

Debezium's lists of tables have the order of a Java HashMap or HashSet.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

Struct = Mapping[str, Any]
"""Field name -> value: str, int, bool, None, Struct, or a list of these; in the order of the fields."""

# Unlike orjson, Jackson writes control characters in upper-case hex, and characters above U+FFFF as two escapes.
_JACKSON_DIFFERS: Final = re.compile(r"\\u00([0-9a-f]{2})|[\U00010000-\U0010ffff]|\\.")


def to_json(struct: Struct) -> bytes:
    data = orjson.dumps(struct)
    if data.isascii() and b"\\u" not in data:
        return data
    return _JACKSON_DIFFERS.sub(_escaped, data.decode()).encode()


def _escaped(found: re.Match[str]) -> str:
    text = found[0]
    if found[1] is not None:
        return f"\\u00{found[1].upper()}"
    if text[0] == "\\":
        return text
    units = text.encode("utf-16-be")
    return f"\\u{units[:2].hex().upper()}\\u{units[2:].hex().upper()}"


def hash_order(names: Sequence[str]) -> list[str]:
    """Return distinct strings, given in insertion order, in the iteration order of ``java.util.HashMap``."""
    buckets = 16
    while len(names) > buckets * 3 // 4:
        buckets *= 2
    return sorted(names, key=lambda name: _spread(name) & (buckets - 1))  # stable: a bucket keeps the insertion order


def _spread(name: str) -> int:
    value = 0
    units = name.encode("utf-16-be")
    for at in range(0, len(units), 2):
        value = (value * 31 + (units[at] << 8 | units[at + 1])) & 0xFFFF_FFFF
    return value ^ value >> 16
