"""The two ways of a table version's rows, by SELECT and through the log: what each reads, and what each writes of it.

A SELECT does not ask for columns that are left out; a row image has them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from producer.codec.json_writer import JsonWriter
from producer.codec.plan import Plan, plan
from producer.codec.source import Namespace
from producer.codec.writer import Writer, WriterFactory
from producer.column_rules import Shape
from producer.database.table import Column, Table
from producer.types.base import ColumnType
from producer.types.registry import column_type
from producer.types.settings import ValueSettings

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Way:
    """One way: the columns that it reads, in order."""

    types: list[ColumnType]
    key: list[int]
    """The key's columns, for raw keys."""
    plan: Plan
    names: list[str]
    """As the source spells them."""

    def of_slots(self, of_kept: Sequence[T]) -> list[T]:
        """Return for each slot what its column has; ``of_kept`` is of the columns that rows have."""
        kept = iter(of_kept)
        # A slot that nothing is written to has what the first column has: nobody looks at it.
        spread = [of_kept[0] if i in self.plan.dropped else next(kept) for i in range(len(self.types))]
        return self.plan.of_slots(spread)

    def planned(self, inner: Writer, space: Namespace, *, avro: bool = False) -> Writer:
        """Return the writer that this way's functions talk to."""
        return self.plan.writer(inner, self.types, space, avro=avro)

    def json(self, names: Sequence[str] | None = None) -> WriterFactory:
        """Return what makes writers of JSON without schema; ``names`` are of the columns that rows have."""
        shown = self.plan.of_slots(self.names) if names is None else self.of_slots(names)

        def writer(space: Namespace) -> Writer:
            return self.planned(JsonWriter(shown, self.plan.key, space, row=self.plan.row), space)

        return writer


@dataclass(frozen=True, slots=True)
class Ways:
    """Both, and the key that readers of the topic find in rows."""

    selected: Way
    logged: Way
    published_key: tuple[str, ...]
    """The key columns' names; empty where rows show a key column changed: by its values rows cannot be told apart."""


def ways_of(table: Table, settings: ValueSettings, shape: Shape | None) -> Ways:
    """Return the ways of a table version. Raises SchemaError where a column has no type."""
    changed = shape is not None and any(name in shape.changes for name in table.key)
    kept = table.columns if shape is None else shape.kept(table.columns)
    return Ways(
        _way(kept, table.key, settings, shape),
        _way(table.columns, table.key, settings, shape),
        () if changed else tuple(table.key),
    )


def _way(columns: Sequence[Column], key: Sequence[str], settings: ValueSettings, shape: Shape | None) -> Way:
    names = [column.name for column in columns]
    at = [names.index(name) for name in key]
    planned = plan(names, at, shape)
    return Way(planned.types([column_type(column, settings) for column in columns]), at, planned, names)
