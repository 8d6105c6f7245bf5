"""What a table reports after its part of a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

SnapshotState = Literal["none", "loading", "complete"]


@dataclass(frozen=True, slots=True)
class SnapshotStatus:
    """How far the snapshot of a table has been read."""

    state: SnapshotState = "none"
    """none: no split of the table was read."""
    done: int = 0
    """Splits that are complete."""
    expected: int = 0
    """Splits that are known: complete, read in part, or with an END certificate. The producer plans a few ahead."""
    incomplete: int = 0
    """Splits of which records are missing so far; a changelog holds them."""


@dataclass(frozen=True, slots=True)
class TableResult:
    """What a table wrote in a batch."""

    records: int
    newest_ms: int | None
    """Greatest ``source.ts_ms``, if there are records."""
    snapshot: SnapshotStatus | None = None
    """None: not known."""
    rows: Mapping[str, int] = field(default_factory=dict)
    """Rows by kind (ROW_KINDS)."""
    way: str = ""
    """How the sink has written the last batch; '' if it does not tell."""

    def plus(self, later: TableResult) -> TableResult:
        """Return the result of two parts of a batch."""
        newest = max((each for each in (self.newest_ms, later.newest_ms) if each is not None), default=None)
        rows = Counter(self.rows) + Counter(later.rows)
        return TableResult(self.records + later.records, newest, later.snapshot or self.snapshot, rows, later.way)


ROW_KINDS = ("insert", "update_before", "update_after", "delete")
