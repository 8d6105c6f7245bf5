"""Which columns the rows of a table version have in a result set and in a row image.

The SELECT omits the columns that are not published; a row image contains all columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from tailrace.producer.config.column_transforms import ColumnProjection
from tailrace.producer.model.table import Column, Table
from tailrace.producer.model.value_options import ValueOptions
from tailrace.producer.mysql.types.base import ColumnType
from tailrace.producer.mysql.types.conversion import Conversion, ConversionFailures
from tailrace.producer.mysql.types.registry import column_type
from tailrace.producer.serialization.projection import Projection, project

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The columns of a row in the order they are read."""

    types: list[ColumnType]
    key: list[int]
    """The columns of the key."""
    projection: Projection

    def by_slot(self, of_published: Sequence[T]) -> list[T]:
        """Return the item of each slot's column; ``of_published`` has one item per published column."""
        published = iter(of_published)
        # Nothing is written to the slot of a dropped column: any item will do.
        spread = [of_published[0] if i in self.projection.dropped else next(published) for i in range(len(self.types))]
        return [spread[i] for i in self.projection.columns]


class RowLayouts(NamedTuple):
    """Both layouts of a table version."""

    result_set: RowLayout
    row_image: RowLayout


def row_layouts(
    table: Table, options: ValueOptions, projection: ColumnProjection | None, failures: ConversionFailures
) -> RowLayouts:
    """Return the layouts of a table version. Raises SchemaError for a column of an unsupported type."""
    published = table.columns if projection is None else projection.visible(table.columns)

    def new_type(column: Column) -> ColumnType:
        handling, in_key = options.conversion_failures, column.name in table.key
        return column_type(column, options, Conversion(table.id, column.name, handling, failures, in_key=in_key))

    return RowLayouts(
        _row_layout(published, table.key, new_type, projection),
        _row_layout(table.columns, table.key, new_type, projection),
    )


def _row_layout(
    columns: Sequence[Column],
    key: Sequence[str],
    new_type: Callable[[Column], ColumnType],
    projection: ColumnProjection | None,
) -> RowLayout:
    names = [column.name for column in columns]
    key_at = [names.index(name) for name in key]
    projected = project(names, key_at, projection)
    return RowLayout(projected.types(list(map(new_type, columns))), key_at, projected)
