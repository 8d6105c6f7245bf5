"""Which values of a generated function go into the row and the key: rows may omit or transform columns, keys do not.

A table without column rules has the identity projection, and the same functions as without any rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tailrace.producer.config.column_transforms import ColumnProjection, Mask, Transform
from tailrace.producer.mysql.types.base import ColumnType, Expression, ExpressionKind, Layout, RawBytes
from tailrace.producer.serialization.codegen import CodeBuilder
from tailrace.producer.serialization.masking import mask, transform
from tailrace.producer.serialization.row_writer import RowWriter
from tailrace.schemas.connect import ConnectSchema


@dataclass(frozen=True, slots=True)
class Projection:
    """Maps columns to slots. A writer has one slot per column, then one more for each transformed key column."""

    columns: tuple[int, ...]
    """Column of each slot."""
    row: tuple[int, ...]
    """Slots of the row."""
    key: tuple[int, ...]
    """Slots of the key, in key order."""
    dropped: frozenset[int]
    """Columns that are not published."""
    transforms: Mapping[int, Transform]
    """By column."""
    original: Mapping[int, int]
    """Transformed key column -> the slot of its original value."""

    def types(self, types: Sequence[ColumnType]) -> list[ColumnType]:
        """Return the types that decode a row."""
        return [SkippedColumn(each) if i in self.dropped else each for i, each in enumerate(types)]

    def writer(self, inner: RowWriter, types: Sequence[ColumnType], builder: CodeBuilder, *, avro: bool) -> RowWriter:
        """Return the writer for columns; ``inner`` writes slots."""
        if not self.dropped and not self.transforms:
            return inner
        return _ProjectedWriter(self, inner, types, builder, avro=avro)


def project(names: Sequence[str], key: Sequence[int], projection: ColumnProjection | None) -> Projection:
    """Return the projection of a row with columns of these names."""
    projection = projection or ColumnProjection()
    transforms = {i: projection.transforms[name] for i, name in enumerate(names) if name in projection.transforms}
    dropped = frozenset(i for i, name in enumerate(names) if name in projection.dropped)
    transformed_keys = [i for i in key if i in transforms]
    original = {i: len(names) + at for at, i in enumerate(transformed_keys)}
    return Projection(
        columns=(*range(len(names)), *transformed_keys),
        row=tuple(i for i in range(len(names)) if i not in dropped),
        key=tuple(original.get(i, i) for i in key),
        dropped=dropped,
        transforms=transforms,
        original=original,
    )


class SkippedColumn(ColumnType):
    """A column that is not published: only the end of its value is decoded."""

    kinds = ()

    def __init__(self, inner: ColumnType) -> None:
        super().__init__(inner.column, inner.settings)
        self._inner = inner

    def connect(self) -> ConnectSchema:
        return self._inner.connect()

    @property
    def layout(self) -> Layout:
        return self._inner.layout

    def from_result_set(self, raw: RawBytes) -> Expression:  # noqa: ARG002 - the value is not decoded
        return Expression("0", ExpressionKind.INT)

    def from_row_image(self, raw: RawBytes) -> Expression:  # noqa: ARG002
        return Expression("0", ExpressionKind.INT)

    def key_from_row_image(self, raw: RawBytes) -> str:
        return self._inner.key_from_row_image(raw)


class _ProjectedWriter:
    """Passes the value of each column to its slots."""

    def __init__(
        self, projection: Projection, inner: RowWriter, types: Sequence[ColumnType], builder: CodeBuilder, *, avro: bool
    ) -> None:
        self._projection = projection
        self._inner = inner
        self._types = types
        self._builder = builder
        self._avro = avro
        self._masks_of_null: list[str] = []

    def null(self, i: int) -> None:
        """See ``RowWriter``."""
        if i in self._projection.dropped:
            return
        change = self._projection.transforms.get(i)
        if isinstance(change, Mask):
            self._masks_of_null += self._inner.value(i, mask(change))
        else:
            self._inner.null(i)
        if i in self._projection.original:
            self._inner.null(self._projection.original[i])

    def value(self, i: int, value: Expression) -> list[str]:
        """See ``RowWriter``."""
        if i in self._projection.dropped:
            return []
        lines = self._inner.value(i, self._transformed(i, value))
        if i in self._projection.original:
            lines += self._inner.value(self._projection.original[i], value)
        return lines

    def value_or_null(self, i: int, value: Expression) -> tuple[list[str], list[str]]:
        """See ``RowWriter``."""
        if i in self._projection.dropped:
            return ["pass"], ["pass"]
        change = self._projection.transforms.get(i)
        if isinstance(change, Mask):
            present = self._inner.value(i, mask(change))
            absent = list(present)
        else:
            present, absent = self._inner.value_or_null(i, self._transformed(i, value))
        if i in self._projection.original:
            original, original_null = self._inner.value_or_null(self._projection.original[i], value)
            return present + original, absent + original_null
        return present, absent

    def escapes(self) -> list[str]:
        """See ``RowWriter``."""
        return [*self._masks_of_null, *self._inner.escapes()]

    def row(self) -> str:
        """See ``RowWriter``."""
        return self._inner.row()

    def key(self) -> str:
        """See ``RowWriter``."""
        return self._inner.key()

    def _transformed(self, i: int, value: Expression) -> Expression:
        change = self._projection.transforms.get(i)
        if change is None:
            return value
        return transform(value, change, self._types[i], self._builder, avro=self._avro)
