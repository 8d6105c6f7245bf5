"""What a target does with a schema change, and what is stored of it where the users of the target can damage it.

``schema.change.behavior`` and its lists are named as in Flink CDC.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from tailrace.schemas.alteration import Alteration
from tailrace.schemas.sequence import Sequence as Position
from tailrace.spark_consumer.errors import SinkError

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


_SHOWN: Final = 200
"""Characters of a text in an error."""


@contextmanager
def reading(what: str, text: str) -> Iterator[None]:
    """Name what cannot be read. Raises SinkError for a text that is not JSON, or not of the form that was stored."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SinkError(
            f"{what} cannot be read from what is stored with the target",
            hint="restore the stored text from the history of the target, or move the target away: it is created again "
            "from the topic",
            value=text[:_SHOWN],
        ) from error


@dataclass(frozen=True, slots=True)
class SourceNames:
    """What is remembered of the source after a plan; stored with the target."""

    columns: tuple[str, ...] = ()
    """The columns of the source."""
    ignored: tuple[str, ...] = ()
    """Those of them that the target does not get."""
    kept: tuple[str, ...] = ()
    """Columns of the target that the source had earlier."""

    def to_json(self) -> str:
        """Return the text that is stored."""
        return json.dumps({"columns": self.columns, "ignored": self.ignored, "kept": self.kept})

    @classmethod
    def from_json(cls, text: str) -> SourceNames:
        """Return what is stored. Raises SinkError if it is damaged."""
        with reading("the columns of the source", text):
            return cls(**{name: tuple(names) for name, names in json.loads(text).items()})


def read_mark(text: str) -> str:
    """Return the position that a mark has, '' if there is none. Raises SinkError if it is damaged.

    Earlier versions stored an array of [position, columns of the target, columns of the source], one for each round.
    """
    with reading("the mark of schema changes", text):
        if text.startswith("["):
            marks = json.loads(text)
            position, *_ = marks[-1] if marks else [()]
            text = ".".join(map(str, position))
        return Position.from_text(text).text if text else ""


def pending(alterations: Sequence[Alteration], done: str) -> list[Alteration]:
    """Return the alterations behind the one that is ``done`` (``position_text``)."""
    position = tuple(int(number) for number in done.split(".")) if done else ()
    return [alteration for alteration in alterations if tuple(alteration.sequence) > position]


def position_text(alterations: Sequence[Alteration]) -> str:
    """Return the position of the last alteration; '' if there is none."""
    return alterations[-1].sequence.text if alterations else ""
