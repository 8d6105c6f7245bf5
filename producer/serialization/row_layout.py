"""The two ways of a table version's rows, by SELECT and through the log: what each reads, and what each writes of it.

A SELECT does not ask for columns that are left out; a row image has them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from tailrace.producer.config.column_transforms import ColumnProjection
from tailrace.producer.model.table import Column, Table
from tailrace.producer.model.value_options import ValueOptions
from tailrace.producer.mysql.types.base import ColumnType
from tailrace.producer.mysql.types.registry import column_type
from tailrace.producer.serialization.codegen import CodeBuilder
from tailrace.producer.serialization.json_writer import JsonWriter
from tailrace.producer.serialization.projection import Projection, project
from tailrace.producer.serialization.row_writer import RowWriter, WriterFactory

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RowLayout:
    """One way: the columns that it reads, in order."""

    types: list[ColumnType]
    key: list[int]
    """The key's columns, for raw keys."""
    projection: Projection
    names: list[str]
    """As the source spells them."""

    def of_slots(self, of_kept: Sequence[T]) -> list[T]:
        """Return for each slot what its column has; ``of_kept`` is of the columns that rows have."""
        kept = iter(of_kept)
        # A slot that nothing is written to has what the first column has: nobody looks at it.
        spread = [of_kept[0] if i in self.projection.dropped else next(kept) for i in range(len(self.types))]
        return self.projection.of_slots(spread)

    def planned(self, inner: RowWriter, space: CodeBuilder, *, avro: bool = False) -> RowWriter:
        """Return the writer that this way's functions talk to."""
        return self.projection.writer(inner, self.types, space, avro=avro)

    def json(self, names: Sequence[str] | None = None) -> WriterFactory:
        """Return what makes writers of JSON without schema; ``names`` are of the columns that rows have."""
        shown = self.projection.of_slots(self.names) if names is None else self.of_slots(names)

        def writer(space: CodeBuilder) -> RowWriter:
            return self.planned(JsonWriter(shown, self.projection.key, space, row=self.projection.row), space)

        return writer


@dataclass(frozen=True, slots=True)
class RowLayouts:
    """Both, and the key that readers of the topic find in rows."""

    selected: RowLayout
    logged: RowLayout
    published_key: tuple[str, ...]
    """The key columns' names; empty where rows show a key column changed: by its values rows cannot be told apart."""


def row_layouts(table: Table, settings: ValueOptions, shape: ColumnProjection | None) -> RowLayouts:
    """Return the ways of a table version. Raises SchemaError where a column has no type."""
    changed = shape is not None and any(name in shape.transforms for name in table.key)
    kept = table.columns if shape is None else shape.visible(table.columns)
    return RowLayouts(
        _row_layout(kept, table.key, settings, shape),
        _row_layout(table.columns, table.key, settings, shape),
        () if changed else tuple(table.key),
    )


def _row_layout(
    columns: Sequence[Column], key: Sequence[str], settings: ValueOptions, shape: ColumnProjection | None
) -> RowLayout:
    names = [column.name for column in columns]
    at = [names.index(name) for name in key]
    planned = project(names, at, shape)
    return RowLayout(planned.types([column_type(column, settings) for column in columns]), at, planned, names)
