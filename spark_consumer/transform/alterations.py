"""What ALTER TABLE statements of the source mean for a transformed table.

A column that ``*`` stands for follows the source. A column that a projection names keeps its name: a rename of its
source means nothing for the target, because the projection was changed with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tailrace.schemas.alteration import Alteration, AlterationKind, ColumnChange
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.transform.columns import Columns


def target_alterations(
    alterations: Sequence[Alteration], columns: Columns, source: TableSchema
) -> tuple[Alteration, ...]:
    """Return the alterations of the target, in order; those that do not concern it are left out."""
    now: dict[str, str] = {column.name.lower(): column.name for column in source.columns}
    found: list[Alteration] = []
    # Backwards: a column that a projection names has the name that it has at the end.
    for alteration in reversed(alterations):
        changes = tuple(_Changes(columns, now).of(alteration))
        if changes:
            found.append(replace(alteration, changes=changes))
        now = _before(now, alteration)
    return tuple(reversed(found))


def _before(now: Mapping[str, str], alteration: Alteration) -> dict[str, str]:
    """Return the columns before an alteration, by their names then, to their names at the end."""
    result = dict(now)
    for change in alteration.changes:
        if change.kind in {AlterationKind.ADD, AlterationKind.RENAME}:
            result.pop(change.column.lower(), None)
    for change in alteration.changes:
        if change.kind is AlterationKind.RENAME and change.column.lower() in now:
            result[change.old.lower()] = now[change.column.lower()]
    return result


class _Changes:
    """The changes of one alteration; ``now`` has the names after it, to the names at the end."""

    def __init__(self, columns: Columns, now: Mapping[str, str]) -> None:
        self._columns = columns
        self._now = now
        explicit = {column.field.name.lower() for column in columns.columns if not column.by_star}
        self._hidden = explicit | columns.left_out

    def of(self, alteration: Alteration) -> Iterator[ColumnChange]:
        for change in alteration.changes:
            if change.kind is AlterationKind.ADD:
                yield from self._add(change)
            elif change.kind is AlterationKind.DROP:
                if self._follows(change.column):
                    yield change
            elif change.kind is AlterationKind.RENAME:
                yield from self._rename(change)
            else:
                yield from self._convert(change)

    def _follows(self, name: str) -> bool:
        return self._columns.has_star and name.lower() not in self._hidden

    def _named(self, name: str) -> Iterator[str]:
        """Yield the columns that a projection makes by name of the source column with this name after the statement."""
        at_end = self._now.get(name.lower())
        yield from (
            (column.field.name for column in self._columns.columns if not column.by_star and column.source == at_end)
            if at_end is not None
            else ()
        )

    def _add(self, change: ColumnChange) -> Iterator[ColumnChange]:
        if self._follows(change.column):
            yield change
        for name in self._named(change.column):
            yield replace(change, column=name)

    def _rename(self, change: ColumnChange) -> Iterator[ColumnChange]:
        before, after = self._follows(change.old), self._follows(change.column)
        if before and after:
            yield change
        elif before:
            yield ColumnChange(AlterationKind.DROP, change.old)
        elif after:
            yield ColumnChange(AlterationKind.ADD, change.column)

    def _convert(self, change: ColumnChange) -> Iterator[ColumnChange]:
        if not change.column:
            yield change
            return
        at_end = self._now.get(change.column.lower())
        if at_end in self._columns.condition_references:
            # Rows can have crossed the filter: every column can have another value.
            yield replace(change, column="")
            return
        if self._follows(change.column):
            yield change
        for column in self._columns.columns:
            if not column.by_star and at_end in column.references:
                yield replace(change, column=column.field.name)
