"""A target as schema changes see it, and what is done to it besides writing rows.

Operations are values: each target carries them out, or says how a person does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from pyspark.sql import types as tp

from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.sink.state import key_text
from tailrace.spark_consumer.source.kafka import reload_remedy

if TYPE_CHECKING:
    from tailrace.schemas.sequence import Sequence as Position
    from tailrace.schemas.table import TableSchema
    from tailrace.spark_consumer.evolution.plan import Fill, TypeChange
    from tailrace.spark_consumer.sink.shape import Layout
    from tailrace.spark_consumer.sink.state import Shard, TargetState


@dataclass(frozen=True, slots=True)
class Add:
    """Add columns."""

    columns: tuple[tp.StructField, ...]

    @classmethod
    def one(cls, name: str, kind: tp.DataType) -> Add:
        """Return the operation for one column."""
        return cls((tp.StructField(name, kind),))

    def left(self, names: Iterable[str]) -> Add:
        """Return the operation in a table with some columns, for a shard: others have added what is there."""
        stored = {name.lower() for name in names}
        return Add(tuple(each for each in self.columns if each.name.lower() not in stored))


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
    position: Position | None
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


class Wording(NamedTuple):
    """How messages speak of a target."""

    name: str
    """Such as ``the Delta table /tables/shop/orders``."""
    target: str
    """Such as ``Delta table``."""
    remove: str
    """What makes room for a new target, such as ``move the Delta table away``."""
    keeps_type: str
    """Why the type of a column stays."""
    by_hand: str = ""
    """What a person can do about it, with ``; or`` at the end."""


class Target(Protocol):
    """What can be evolved."""

    follows_case: ClassVar[bool]
    """Whether a column can get its own name in other letters; if not, it keeps the spelling that it has."""

    @property
    def wording(self) -> Wording:
        """How messages speak of the target."""

    @property
    def shard(self) -> Shard | None:
        """The shard that uses the target; None if it has one topic."""

    @property
    def state(self) -> TargetState:
        """What is stored of the topic."""

    @property
    def column_names(self) -> Sequence[str]:
        """The names of all columns."""

    def kinds(self, schema: TableSchema) -> tuple[Mapping[str, tp.DataType], Mapping[str, tp.DataType]]:
        """Return the types of the columns that the source gives, or gave: those of the target, those of the schema."""

    def declared(self, change: TypeChange) -> str:
        """Return the type that a column of the target has, for a person."""

    @property
    def has_rows(self) -> bool:
        """Whether the target has rows."""

    def added(self, layout: Layout) -> Sequence[tp.StructField]:
        """Return the columns of a layout as the target has them."""

    def mismatch(self, column: tp.StructField) -> tuple[str, str] | None:
        """Return the types of a column of the layout, the stored one and its own; None if it is missing or fits."""

    def can_widen(self, stored: tp.DataType, wider: tp.DataType) -> bool:
        """Return whether the type of a column can change."""

    def change(self, operations: Sequence[Change]) -> None:
        """Carry out operations in their order, as far as possible in one commit."""

    def explain(self, operations: Sequence[Change | Retype]) -> str:
        """Return what a person runs to carry out operations."""


def require_key(schema: TableSchema) -> None:
    """Raise SinkError for a table without a key."""
    if not schema.key:
        raise SinkError(
            f"{schema.database}.{schema.table} has no key, so its rows cannot be identified",
            hint="set key columns with message.key.columns in the producer, and do not mask or truncate key columns "
            "(column.mask, column.truncate)",
        )


def require_same_key(stored: str, schema: TableSchema, wording: Wording) -> None:
    """Raise SinkError if a target has another key (``TargetState.key``)."""
    if stored and stored != key_text(schema):
        raise SinkError(
            f"the key of {schema.database}.{schema.table} has changed: its rows cannot be matched with the table",
            hint=reload_remedy(schema.topic, wording.remove),
            stored=stored,
            now=key_text(schema),
        )
