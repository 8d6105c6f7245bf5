"""The table swaps of online schema change tools, recognized by the names that they give.

gh-ost and pt-online-schema-change copy a table to a table of another definition, apply its changes there, and swap the
names. The copy has the same rows, so the topic of the table stays right, as after a direct ALTER.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tailrace.producer.model.ddl import Change, DdlEffect
from tailrace.producer.model.table import TableId

_MAX_REMEMBERED = 1000


class OnlineSwaps:
    """Remembers which tables were renamed away: some tools rename in two statements."""

    def __init__(self) -> None:
        self._renamed_to: dict[TableId, TableId] = {}

    def targets(self, effects: Sequence[DdlEffect]) -> set[TableId]:
        """Return the names that a tool's swap gives: to the copy, and to the former table."""
        if len(self._renamed_to) > _MAX_REMEMBERED:
            self._renamed_to.clear()
        found: set[TableId] = set()
        for effect in effects:
            if effect.change is not Change.RENAME or effect.renamed_from is None:
                continue
            self._renamed_to[effect.renamed_from] = effect.table
            if _has_name(effect.table, effect.renamed_from, "del|old"):
                found.add(effect.table)
            former = self._renamed_to.pop(effect.table, None)
            if former is not None and _has_name(effect.renamed_from, effect.table, "gho|new"):
                found |= {effect.table} if _has_name(former, effect.table, "del|old") else set()
        return found


def _has_name(table: TableId, of: TableId, suffixes: str) -> bool:
    """Return whether a tool has named a table after ``of``: ``_t_gho``, ``_t_20260101000000_del``, ``__t_new``."""
    if table.database != of.database:
        return False
    return re.fullmatch(rf"_+{re.escape(of.table)}(?:_\d{{14}})?_(?:{suffixes})", table.table) is not None
