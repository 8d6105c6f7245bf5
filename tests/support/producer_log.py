"""What a producer complained about: the lines of its JSON log that explain a failure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

_QUIET: Final = frozenset({"debug", "info"})
_LONGEST: Final = 600


def complaints(log: Path, *, last: int = 20) -> str:
    """Return the last lines above the level info, and those that are no JSON, such as a traceback."""
    if not log.exists():
        return f"no log: {log.name}"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(line[:_LONGEST] for line in [line for line in lines if _complains(line)][-last:])


def _complains(line: str) -> bool:
    try:
        return json.loads(line)["level"] not in _QUIET
    except (ValueError, TypeError, KeyError):
        return bool(line.strip())
