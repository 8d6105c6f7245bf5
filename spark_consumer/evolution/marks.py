"""Marks say that somebody has made the steps of a plan that the policy does not allow.

The columns of a target alone do not tell it if a name is dropped, or renamed, and added again. A mark is stored by the
last of the statements that a reason names; of several rounds each has one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tailrace.schemas.alteration import Alteration
from tailrace.spark_consumer.evolution.stored_text import reading


@dataclass(frozen=True, slots=True)
class Mark:
    """Says that somebody has made the steps for some alterations."""

    position: tuple[int, ...]
    """That of the last alteration."""
    columns: tuple[str, ...]
    """The columns that the target had before."""
    source: tuple[str, ...]
    """The columns that the source has after them."""


def marks_text(marks: Iterable[Mark]) -> str:
    """Return the text that is stored with the target."""
    return json.dumps([[each.position, each.columns, each.source] for each in marks])


def read_marks(text: str, alterations: Sequence[Alteration]) -> list[Mark]:
    """Return what is stored, as far as it concerns the alterations, in order. Raises SinkError if it is damaged."""
    with reading("the marks of schema changes", text):
        found = [Mark(*map(tuple, each)) for each in json.loads(text or "[]")]
    positions = {tuple(each.sequence) for each in alterations}
    return found if all(each.position in positions for each in found) else []


def pending(alterations: Sequence[Alteration], done: str) -> list[Alteration]:
    """Return the alterations behind the one that is ``done`` (``position_text``)."""
    position = tuple(int(number) for number in done.split(".")) if done else ()
    return [alteration for alteration in alterations if tuple(alteration.sequence) > position]


def position_text(alterations: Sequence[Alteration]) -> str:
    """Return the position of the last alteration; '' if there is none."""
    return ".".join(str(number) for number in alterations[-1].sequence) if alterations else ""
