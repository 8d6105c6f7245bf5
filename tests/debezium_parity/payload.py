"""The form of the JSON converter with schemas: ``{"schema":S,"payload":P}``. The texts of S and P do not change."""

from __future__ import annotations

import json
from typing import Final

_HEAD: Final = '{"schema":'
_MIDDLE: Final = ',"payload":'


def has_schema(raw: bytes | None) -> bool:
    """Whether a key or value carries its schema."""
    return raw is not None and raw.startswith(_HEAD.encode())


def split_schema(text: str) -> tuple[str, str]:
    """Return the texts S and P of ``{"schema":S,"payload":P}``."""
    _, end = json.JSONDecoder().raw_decode(text, len(_HEAD))
    if not text.startswith(_MIDDLE, end) or not text.endswith("}"):
        raise ValueError(f"no schema and payload: {text[:80]}...")
    return text[len(_HEAD) : end], text[end + len(_MIDDLE) : -1]


def join_schema(schema: str, payload: str) -> str:
    """Return the text of a payload with its schema."""
    return f"{_HEAD}{schema}{_MIDDLE}{payload}}}"
