"""What is stored of schema changes with a target, where its users can damage it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from tailrace.schemas.alteration import Alteration
from tailrace.schemas.sequence import Sequence as Position
from tailrace.spark_consumer.errors import SinkError

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
