"""What holds for every sink with a ledger: how its targets are opened, used by one thread at a time, and forgotten.

After a failure a sink knows nothing of the target: somebody may change it before the next attempt, and a commit may
have been made. The next attempt opens it and reads what it has applied, as a start does.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from tailrace.spark_consumer.errors import NewTopicError
from tailrace.spark_consumer.sink.base import SinkContext, TableBatch

if TYPE_CHECKING:
    from tailrace.schemas.table import TableSchema
    from tailrace.spark_consumer.sink.ledger import Ledger
    from tailrace.spark_consumer.sink.shape import Layout
    from tailrace.spark_consumer.sink.state import Shard


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

    @abstractmethod
    def _refresh(self, opened: Open) -> None:
        """Read what other shards of a target may have changed."""

    @abstractmethod
    def _applied(self, opened: Open, schema: TableSchema) -> Mapping[int, int] | None:
        """Return the offsets that a target has applied; raises NewTopicError if they are those of a former topic."""

    @abstractmethod
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
