"""The fields of a stored record that this program knows: a later program may have written more.

Within a format version fields may be added, and who does not know them ignores them (``runtime/stored_format.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any


def known_fields(record: type[Any], body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of ``body`` that a dataclass or named tuple has a field for."""
    names = record._fields if hasattr(record, "_fields") else [field.name for field in fields(record)]
    return {name: body[name] for name in names if name in body}
