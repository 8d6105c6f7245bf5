"""The number of rows in a Delta table, computed from its transaction log: cheap enough for a live screen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class DeltaLog:
    """The transaction log of one table. Each call reads only new commits."""

    def __init__(self, table: Path) -> None:
        self._folder = table / "_delta_log"
        self._next = 0
        self._rows: dict[str, int] = {}

    @property
    def commits(self) -> int:
        """Commits read so far."""
        return self._next

    def rows(self) -> int:
        """Return the rows of the newest version, 0 before the first one."""
        while (commit := self._folder / f"{self._next:020d}.json").is_file():
            for line in commit.read_text(encoding="utf-8").splitlines():
                self._apply(json.loads(line))
            self._next += 1
        return sum(self._rows.values())

    def _apply(self, action: dict[str, Any]) -> None:
        # One commit may remove a file and add it with a deletion vector, in either order.
        if add := action.get("add"):
            deleted = (add.get("deletionVector") or {}).get("cardinality", 0)
            self._rows[_identity(add)] = json.loads(add["stats"])["numRecords"] - deleted
        elif remove := action.get("remove"):
            self._rows.pop(_identity(remove), None)


def _identity(action: dict[str, Any]) -> str:
    """Return what identifies a file of one version: its path and its deletion vector."""
    vector = action.get("deletionVector") or {}
    return f"{action['path']} {vector.get('storageType')} {vector.get('pathOrInlineDv')} {vector.get('offset')}"
