"""What a target does with a schema change: ``schema.change.behavior`` and its lists, named as in Flink CDC."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

Behavior = Literal["exception", "evolve", "try_evolve", "lenient", "ignore"]


class ChangeKind(Enum):
    """The kinds of changes, by the names that the lists use."""

    ADD = "add.column"
    TYPE = "alter.column.type"
    DROP = "drop.column"
    RENAME = "rename.column"


class Action(Enum):
    """What to do with a change."""

    REFUSE = "refuse"
    """The table stops."""
    APPLY = "apply"
    """The target changes as the source did; the table stops if it cannot."""
    TRY = "try"
    """As APPLY, but if the target cannot change, each value is converted, and only one that does not fit stops."""
    KEEP = "keep"
    """The target gains what the source gained, and nothing is removed from it."""
    IGNORE = "ignore"
    """The target stays as it is; its columns are written as far as the source has them."""


_ACTIONS: Final[dict[Behavior, Action]] = {
    "exception": Action.REFUSE,
    "evolve": Action.APPLY,
    "try_evolve": Action.TRY,
    "lenient": Action.KEEP,
    "ignore": Action.IGNORE,
}


@dataclass(frozen=True, slots=True)
class EvolutionPolicy:
    """The behavior, and the kinds that are included and excluded; a part of a name stands for all that have it."""

    behavior: Behavior = "lenient"
    include: frozenset[str] = frozenset()
    """Empty: all kinds."""
    exclude: frozenset[str] = frozenset()
    keeps_columns: bool = False
    """Whether others use the columns too: none is dropped or renamed, and RENAME COLUMN adds one with the values."""

    def action(self, kind: ChangeKind) -> Action:
        """Return what to do with a change of a kind; a kind that is not included is ignored."""
        included = not self.include or _matches(kind, self.include)
        if not included or _matches(kind, self.exclude):
            return Action.IGNORE
        if self.keeps_columns and kind is ChangeKind.DROP:
            return Action.KEEP
        return _ACTIONS[self.behavior]

    @property
    def needs_exact_rows(self) -> bool:
        """Whether a table stops whose rows the source changed without row events."""
        return self.behavior in {"exception", "evolve"}


CHANGE_NAMES: Final = tuple(
    sorted({name for kind in ChangeKind for name in (kind.value, *kind.value.split("."), "alter.column")})
)
"""What the lists may contain."""


def _matches(kind: ChangeKind, names: frozenset[str]) -> bool:
    return any(name in (kind.value, *kind.value.split(".")) or kind.value.startswith(f"{name}.") for name in names)
