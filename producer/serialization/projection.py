"""Which value of a generated function goes where: rows without the columns left out, keys with their values unchanged.

A table that no rule touches has the plan that changes nothing, and its functions are the same as without rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tailrace.producer.config.column_transforms import ColumnProjection, Mask, Transform
from tailrace.producer.mysql.types.base import ColumnType, Expression, ExpressionKind, Layout, RawBytes
from tailrace.producer.serialization.codegen import CodeBuilder
from tailrace.producer.serialization.masking import mask, transform
from tailrace.producer.serialization.row_writer import RowWriter
from tailrace.schemas.connect import ConnectSchema

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Projection:
    """Slots are what a writer calls columns: those of the table first, then one more for each key column whose value
    rows show changed."""

    columns: tuple[int, ...]
    """Column of each slot."""
    row: tuple[int, ...]
    """Slots of the row."""
    key: tuple[int, ...]
    """Slots of the key, in key order."""
    dropped: frozenset[int]
    """Columns that are read over."""
    changes: Mapping[int, Transform]
    unchanged: Mapping[int, int]
    """Column -> the slot that has its value unchanged, for the key."""

    def of_slots(self, of_columns: Sequence[T]) -> list[T]:
        """Return for each slot what its column has."""
        return [of_columns[i] for i in self.columns]

    def types(self, types: Sequence[ColumnType]) -> list[ColumnType]:
        """Return the types by which a row is read."""
        return [SkippedColumn(each) if i in self.dropped else each for i, each in enumerate(types)]

    def writer(self, inner: RowWriter, types: Sequence[ColumnType], space: CodeBuilder, *, avro: bool) -> RowWriter:
        """Return the writer that generated functions talk to; ``inner`` knows slots."""
        if not self.dropped and not self.changes:
            return inner
        return _ProjectedWriter(self, inner, types, space, avro=avro)


def project(names: Sequence[str], key: Sequence[int], shape: ColumnProjection | None) -> Projection:
    """Return the plan of a function that reads columns of these names."""
    shape = shape or ColumnProjection()
    changes = {i: shape.transforms[name] for i, name in enumerate(names) if name in shape.transforms}
    dropped = frozenset(i for i, name in enumerate(names) if name in shape.dropped)
    twice = [i for i in key if i in changes]
    unchanged = {i: len(names) + at for at, i in enumerate(twice)}
    return Projection(
        columns=(*range(len(names)), *twice),
        row=tuple(i for i in range(len(names)) if i not in dropped),
        key=tuple(unchanged.get(i, i) for i in key),
        dropped=dropped,
        changes=changes,
        unchanged=unchanged,
    )


class SkippedColumn(ColumnType):
    """A column that is read over: only where its value ends is known."""

    kinds = ()

    def __init__(self, inner: ColumnType) -> None:
        super().__init__(inner.column, inner.settings)
        self._inner = inner

    def connect(self) -> ConnectSchema:
        return self._inner.connect()

    @property
    def layout(self) -> Layout:
        return self._inner.layout

    def from_result_set(self, raw: RawBytes) -> Expression:  # noqa: ARG002 - nothing is read of it
        return Expression("0", ExpressionKind.INT)

    def from_row_image(self, raw: RawBytes) -> Expression:  # noqa: ARG002
        return Expression("0", ExpressionKind.INT)

    def key_from_row_image(self, raw: RawBytes) -> str:
        return self._inner.key_from_row_image(raw)


class _ProjectedWriter:
    """Hands each value to the slots that show it."""

    def __init__(
        self, planned: Projection, inner: RowWriter, types: Sequence[ColumnType], space: CodeBuilder, *, avro: bool
    ) -> None:
        self._plan = planned
        self._inner = inner
        self._types = types
        self._space = space
        self._avro = avro
        self._late: list[str] = []

    def null(self, i: int) -> None:
        """See ``RowWriter``."""
        if i in self._plan.dropped:
            return
        change = self._plan.changes.get(i)
        if isinstance(change, Mask):
            self._late += self._inner.value(i, mask(change))
        else:
            self._inner.null(i)
        if i in self._plan.unchanged:
            self._inner.null(self._plan.unchanged[i])

    def value(self, i: int, value: Expression) -> list[str]:
        """See ``RowWriter``."""
        if i in self._plan.dropped:
            return []
        lines = self._inner.value(i, self._shown(i, value))
        if i in self._plan.unchanged:
            lines += self._inner.value(self._plan.unchanged[i], value)
        return lines

    def value_or_null(self, i: int, value: Expression) -> tuple[list[str], list[str]]:
        """See ``RowWriter``."""
        if i in self._plan.dropped:
            return ["pass"], ["pass"]
        change = self._plan.changes.get(i)
        if isinstance(change, Mask):
            present = self._inner.value(i, mask(change))
            absent = list(present)
        else:
            present, absent = self._inner.value_or_null(i, self._shown(i, value))
        if i in self._plan.unchanged:
            more, less = self._inner.value_or_null(self._plan.unchanged[i], value)
            return present + more, absent + less
        return present, absent

    def escapes(self) -> list[str]:
        """See ``RowWriter``."""
        return [*self._late, *self._inner.escapes()]

    def row(self) -> str:
        """See ``RowWriter``."""
        return self._inner.row()

    def key(self) -> str:
        """See ``RowWriter``."""
        return self._inner.key()

    def _shown(self, i: int, value: Expression) -> Expression:
        change = self._plan.changes.get(i)
        if change is None:
            return value
        return transform(value, change, self._types[i], self._space, avro=self._avro)
