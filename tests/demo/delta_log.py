"""How many rows a Delta table holds, from its log alone: cheap enough for a live screen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class DeltaLog:
    """Follows the log of one table; each look reads only the commits that are new."""

    def __init__(self, table: Path) -> None:
        self._folder = table / "_delta_log"
        self._next = 0
        self._rows: dict[str, int] = {}

    @property
    def commits(self) -> int:
        """Commits seen so far."""
        return self._next

    def rows(self) -> int:
        """Return the rows of the table's newest version, 0 before its first."""
        while (commit := self._folder / f"{self._next:020d}.json").is_file():
            for line in commit.read_text(encoding="utf-8").splitlines():
                self._apply(json.loads(line))
            self._next += 1
        return sum(self._rows.values())

    def _apply(self, action: dict[str, Any]) -> None:
        # One commit may remove a file and add it again with a deletion vector, in either order.
        if add := action.get("add"):
            hidden = (add.get("deletionVector") or {}).get("cardinality", 0)
            self._rows[_identity(add)] = json.loads(add["stats"])["numRecords"] - hidden
        elif remove := action.get("remove"):
            self._rows.pop(_identity(remove), None)


def _identity(action: dict[str, Any]) -> str:
    """Return what tells files of a version apart: the path, and the deletion vector that lies over it."""
    vector = action.get("deletionVector") or {}
    return f"{action['path']} {vector.get('storageType')} {vector.get('pathOrInlineDv')} {vector.get('offset')}"
