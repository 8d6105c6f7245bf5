"""What is done to a target besides writing rows, as values: each target carries them out, or says how a person does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import types as tp

if TYPE_CHECKING:
    from tailrace.schemas.sequence import Sequence
    from tailrace.schemas.table import TableSchema
    from tailrace.spark_consumer.evolution.plan import Fill
    from tailrace.spark_consumer.sink.state import TargetState


@dataclass(frozen=True, slots=True)
class Add:
    """Add columns."""

    columns: tuple[tp.StructField, ...]

    @classmethod
    def one(cls, name: str, kind: tp.DataType) -> Add:
        """Return the operation for one column."""
        return cls((tp.StructField(name, kind),))


@dataclass(frozen=True, slots=True)
class Drop:
    """Drop a column."""

    column: str


@dataclass(frozen=True, slots=True)
class Rename:
    """Rename a column."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Widen:
    """Give a column a type that represents all values of its own."""

    column: str
    kind: tp.DataType


@dataclass(frozen=True, slots=True)
class FillColumns:
    """Give columns other values in all rows of a topic; all values are those before the first fill."""

    fills: Mapping[str, Fill]
    """By lower-case name."""
    schema: TableSchema
    position: Sequence | None
    """That of the ALTER TABLE which asks for it; the same one is carried out once."""


@dataclass(frozen=True, slots=True)
class MarkExisting:
    """Mark the rows as not deleted that have no mark."""


@dataclass(frozen=True, slots=True)
class Note:
    """Store a state."""

    state: TargetState


@dataclass(frozen=True, slots=True)
class Retype:
    """Give a column another type, where the target cannot do it, or not without a look at the rows."""

    column: str
    kind: tp.DataType


@dataclass(frozen=True, slots=True)
class AllowNull:
    """Let a column be NULL."""

    column: str


@dataclass(frozen=True, slots=True)
class SetProperties:
    """Set table properties."""

    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RemoveRows:
    """Remove all rows."""


Change = Add | Drop | Rename | Widen | FillColumns | MarkExisting | Note
"""What a target carries out."""
Operation = Change | Retype | AllowNull | SetProperties | RemoveRows
"""What a person may have to do as well."""
