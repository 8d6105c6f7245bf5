"""A target: how a sink with a ledger opens and uses it, how schema changes see it, and what is done to it.

After a failure a sink knows nothing of the target: somebody may change it before the next attempt, and a commit may
have been made. The next attempt opens it and reads what it has applied, as a start does.

Operations are values: each target carries them out, or says how a person does.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from pyspark.sql import types as tp

from tailrace.spark_consumer.errors import NewTopicError, SinkError
from tailrace.spark_consumer.sink.state import key_text
from tailrace.spark_consumer.source.kafka import reload_remedy

if TYPE_CHECKING:
    from tailrace.schemas.sequence import Sequence as Position
    from tailrace.schemas.table import TableSchema
    from tailrace.spark_consumer.evolution.plan import Fill, TypeChange
    from tailrace.spark_consumer.sink.base import SinkContext, TableBatch
    from tailrace.spark_consumer.sink.ledger import Ledger
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


class Opened(Protocol):
    """The target of a topic as this process knows it."""

    @property
    def name(self) -> str:
        """The name of the target; several topics can have one."""

    @property
    def shard(self) -> Shard | None:
        """The shard that uses the target; None if it has one topic."""

    @property
    def layout(self) -> Layout:
        """The layout of the target."""

    @property
    def known(self) -> Ledger:
        """What is known to be applied; nothing if that is not known."""


Open = TypeVar("Open", bound=Opened)


class TargetSink(ABC, Generic[Open]):
    """Opens targets and lets one thread use each."""

    def __init__(self, context: SinkContext) -> None:
        self._context = context
        self._open: dict[str, Open] = {}
        """By topic."""
        self._locks: dict[str, threading.RLock] = {}
        """By the name of a target."""

    @abstractmethod
    def _target(self, schema: TableSchema) -> Open:
        """Open the target of a captured table, which need not exist."""

    def _refresh(self, opened: Open) -> None:
        """Read what other shards of a target may have changed."""

    @abstractmethod
    def _applied(self, opened: Open, schema: TableSchema) -> Mapping[int, int] | None:
        """Return the offsets that a target has applied; raises NewTopicError if they are those of a former topic."""

    def _prepare(self, opened: Open, schema: TableSchema) -> None:
        """Create the target, take it over, or change its columns as the source did."""

    @abstractmethod
    def _write(self, opened: Open, batch: TableBatch, batch_id: int) -> None:
        """Apply the records of one table that the target has not applied."""

    def _write_changelog(self, batch: TableBatch) -> None:
        """Write the rows of a changelog in one commit with the ledger; for layouts that take one."""
        raise NotImplementedError(batch.schema.topic)

    def applied(self, schema: TableSchema) -> Mapping[int, int] | None:
        """Return the offsets that the target has applied; none if it does not tell, None if it is another topic's."""
        known = schema.topic in self._open
        try:
            with self._alone(schema) as opened:
                return self._applied(opened, schema)
        except NewTopicError:
            self._forget(schema.topic)
            if not known:
                raise
        # Somebody may have removed the target since it was read.
        return self.applied(schema)

    def prepare_table(self, schema: TableSchema) -> None:
        """Create the target, or add the columns that the schema has gained."""
        try:
            with self._alone(schema) as opened:
                self._prepare(opened, schema)
        except BaseException:
            self._forget(schema.topic)
            raise

    def write_batch(self, batch: TableBatch, batch_id: int) -> None:
        """Apply the records of one table that it has not applied; a truncate event deletes rows first."""
        try:
            with self._alone(batch.schema) as opened:
                if opened.layout.takes_changelog:
                    self._write_changelog(batch)
                else:
                    self._write(opened, batch, batch_id)
        except BaseException:
            self._forget(batch.schema.topic)
            raise

    def close(self) -> None:
        """Do nothing: no resources are held."""

    def _reached(self, batch: TableBatch) -> Open:
        """Return the target of a changelog, prepared; raises TargetBehindError if it lacks rows before a batch."""
        assert batch.write is not None
        topic = batch.schema.topic
        if self.applied(batch.schema) is not None:
            self._open[topic].known.require_reached(self._context.query_id, batch.write)
        self.prepare_table(batch.schema)
        return self._open[topic]

    def _forget(self, topic: str) -> None:
        """Forget what is known of the target of a topic."""
        self._open.pop(topic, None)

    @contextmanager
    def _alone(self, schema: TableSchema) -> Iterator[Open]:
        """Return the target of a topic; no other topic, and no upkeep, uses it during the block."""
        if schema.topic not in self._open:
            self._open[schema.topic] = self._target(schema)
        opened = self._open[schema.topic]
        with self._lock(opened.name):
            if opened.shard is not None:
                self._refresh(opened)
            yield opened

    def _lock(self, name: str) -> threading.RLock:
        return self._locks.setdefault(name, threading.RLock())
