"""Where the values of a column come from in rows that were written before ALTER TABLE statements.

Without an alteration that says otherwise, columns of one name are the same column.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tailrace.schemas.alteration import Alteration, AlterationKind, ColumnChange
from tailrace.schemas.sequence import Sequence as Position


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of a column: a column of the older row, or the value that ADD COLUMN gave to existing rows."""

    column: str = ""
    added: ColumnChange | None = None


Lineage = Mapping[str, Origin]
"""Origins by the lower-case name of the later column: MySQL compares names without case."""

Lineages = Sequence[tuple[Position, Lineage]]
"""The lineages of rows with the same columns by the position of the row: each holds from its position on."""

START: Final = Position(-1, -1, -1, -1, -1)
"""Before every record."""


def is_applicable(columns: Iterable[str], alteration: Alteration) -> bool:
    """Return whether a table with these columns (lower case) is before the alteration rather than after it."""
    present = set(columns)
    gone = {_gone(change) for change in alteration.changes} - {""}
    new = {_new(change) for change in alteration.changes} - {""}
    return bool(gone or new) and gone <= present and not (new & (present - gone))


def after_alteration(lineage: Lineage, alteration: Alteration) -> dict[str, Origin]:
    """Return the lineage after an alteration; the same if the columns are not those before it."""
    if not is_applicable(lineage, alteration):
        return dict(lineage)
    gone = {_gone(change) for change in alteration.changes}
    result = {name: origin for name, origin in lineage.items() if name not in gone}
    for change in alteration.changes:
        if change.kind is AlterationKind.ADD:
            result[change.column.lower()] = Origin(added=change)
        elif change.kind is AlterationKind.RENAME:
            result[change.column.lower()] = lineage[change.old.lower()]
    return result


def names_after(names: Iterable[str], alteration: Alteration) -> list[str]:
    """Return the names that columns have after an alteration, once each, without those that it drops."""
    new = {_gone(change): _new(change) and change.column for change in alteration.changes if _gone(change)}
    return list(dict.fromkeys(found for name in names if (found := new.get(name.lower(), name))))


def lineages(columns: Sequence[str], alterations: Sequence[Alteration]) -> Lineages:
    """Return the lineages of rows with these columns, of which a batch may have those of some only.

    A row is before the alterations whose position is greater than its own. ``alterations`` are in order.
    """
    found: list[tuple[Position, dict[str, Origin]]] = []
    for start in range(len(alterations) + 1):
        lineage = {name.lower(): Origin(name) for name in columns}
        for alteration in alterations[start:]:
            lineage = after_alteration(lineage, alteration)
        if not found or found[-1][1] != lineage:
            found.append((alterations[start - 1].sequence if start else START, lineage))
    return found


def until(alterations: Sequence[Alteration], columns: Iterable[str], position: Position) -> list[Alteration]:
    """Return the alterations, in order, that a table with these columns has behind it.

    The table was seen with the columns at the position, or read with them soon after it.
    """
    names = {name.lower() for name in columns}
    found = []
    for alteration in alterations:
        if alteration.sequence > position and (is_applicable(names, alteration) or not _moves(alteration)):
            break
        found.append(alteration)
    return found


def _moves(alteration: Alteration) -> bool:
    return any(change.kind is not AlterationKind.CONVERT for change in alteration.changes)


def _gone(change: ColumnChange) -> str:
    if change.kind is AlterationKind.RENAME:
        return change.old.lower()
    return change.column.lower() if change.kind is AlterationKind.DROP else ""


def _new(change: ColumnChange) -> str:
    return change.column.lower() if change.kind in {AlterationKind.ADD, AlterationKind.RENAME} else ""
