"""The table of a topic as this process knows it: the target, its ledger, what it was prepared for, and its columns.

A commit with a ledger follows the ledger that is known. A table format tells in its own way that another process has
committed in between: Delta counts the commits with a ledger, and of two with one number it refuses the later one or
leaves it out. So a commit is done when its ledger is the newest one.

After a failure nothing of it is known: the next attempt opens the table again, as a start does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import structlog
from pyspark.sql import functions as fn

from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.evolution.attempt import Evolved
from tailrace.spark_consumer.java_errors import SPARK_ERRORS
from tailrace.spark_consumer.normalize.latest import later
from tailrace.spark_consumer.normalize.rowkind import upsert_columns
from tailrace.spark_consumer.sink.ledger import Ledger, changed_meanwhile
from tailrace.spark_consumer.sink.state import OF_A_SHARD, SEVERAL, TargetState
from tailrace.spark_consumer.sink.target_table import Table
from tailrace.spark_consumer.small_data import ColumnCache
from tailrace.spark_consumer.source.common_type import convert_value, failing
from tailrace.spark_consumer.source.json_decoder import row_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tailrace.schemas.alteration import Alteration
    from tailrace.schemas.sequence import Sequence
    from tailrace.schemas.table import TableSchema
    from tailrace.spark_consumer.sink.shape import Layout
    from tailrace.spark_consumer.sink.state import Shard

After = Callable[[Ledger], Ledger]
"""From the ledger of the newest version to that of the commit which follows it."""

Result = TypeVar("Result")

_ATTEMPTS: Final = 5
_STORED: Final = ColumnCache["list[Column]"]()

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Committer:
    """How a sink commits to its tables."""

    topic_id: Callable[[str], str]
    """Kafka's id of a topic, '' if not known."""
    is_conflict: Callable[[BaseException], bool]
    """Whether an error says that somebody else has changed the same files meanwhile."""
    writer: str
    """Tells the commits of this process from those of others."""


@dataclass(slots=True)
class OpenTable(Generic[Table]):
    """For one thread at a time."""

    table: Table
    topic: str
    layout: Layout
    committer: Committer
    is_read: bool = False
    """Whether ``ledger`` is known: the table exists, and was read, or was created by this process."""
    ledger: Ledger | None = None
    """None also if the history of the table does not tell what it has applied."""
    evolved: Evolved = field(default_factory=Evolved)
    prepared_for: tuple[TableSchema, tuple[Alteration, ...]] | None = None
    is_empty: bool = False
    """Whether this process has created the table and not written it yet."""
    way: str = ""
    """How the last batch was written."""
    fits_driver: bool = False
    """Whether the driver would probably write the next batch."""

    @property
    def name(self) -> str:
        """The name of the table."""
        return self.table.name

    @property
    def shard(self) -> Shard | None:
        """The shard that uses the table."""
        return self.table.shard

    @property
    def known(self) -> Ledger:
        """What is known to be applied; nothing if that is not known."""
        return self.ledger or Ledger(self.topic)

    def claim_shard(self, state: TargetState | None = None) -> None:
        """Store the values of the shard, and what is its own of a state. Raises SinkError if another topic has them."""
        table, shard = self.table, self.table.shard
        assert shard is not None
        properties = replace(state or TargetState(), shard=shard.text).properties
        wanted = {name: value for name, value in properties.items() if name in OF_A_SHARD}
        shard.require_own(shard.owners(table.properties), table.name)
        if all(table.properties.get(name) == value for name, value in wanted.items()):
            return
        table.set(wanted)
        table.refresh()
        try:
            shard.require_own(shard.owners(table.properties), table.name)
        except SinkError:
            table.unset(*wanted)  # another query has stored the same meanwhile
            raise

    def has_rows_of_shard(self) -> bool:
        """Return whether the table has rows of the shard."""
        assert self.table.shard is not None
        condition = self.table.shard.condition(self.table.columns)
        return bool(condition) and not self.table.rows().where(condition).limit(1).isEmpty()

    def stored_columns(self, schema: TableSchema) -> list[Column]:
        """Return the columns of an upsert batch that the table has: of the source, the sequence, those of the layout.

        The columns of the source have the types of the table: they represent the values, or the values are checked.
        """
        key = self.table.format, self.table.columns, schema.fingerprint, self.evolved, self.layout

        def stored() -> list[Column]:
            values = upsert_columns(schema, keeps_deleted=self.layout.keeps_deleted)
            return self.layout.upsert_row(self._converted(schema, values))

        return _STORED.get(key, stored)

    def changelog_columns(self, schema: TableSchema) -> list[Column]:
        """Return the columns of changelog rows that every table has: of the source, the sequence, the metadata."""
        return self.layout.changelog_row(
            self._converted(schema, (fn.col("row").getField(column.name) for column in schema.columns))
        )

    def _converted(self, schema: TableSchema, values: Iterable[Column]) -> list[Column]:
        """Return the columns of the source that the table has, in its types; ``values`` are those of the schema."""
        types = {each.name.lower(): each.dataType for each in self.table.columns}
        columns = []
        for given, column, own in zip(values, schema.columns, row_type(schema).fields, strict=True):
            name = column.name.lower()
            if name in self.evolved.ignored:
                continue
            source = f"{schema.database}.{schema.table}, column {column.name}"
            text = f"a value of {source}, does not fit the {self.table.format} table: "
            value = failing(*convert_value(given, own.dataType, types[name]), types[name], text, given)
            columns.append(value.alias(column.name))
        return columns

    def own_columns(self, schema: TableSchema) -> list[str]:
        """Return the columns that a batch writes, without the sequence."""
        return [*self.evolved.source_columns(schema), *self.layout.names]

    @property
    def former_columns(self) -> list[str]:
        """The columns of the table that the source, or the layout, had earlier."""
        former = {name.lower() for name in self.table.state.added} - {name.lower() for name in self.layout.names}
        return [name for name in self.table.columns.names if name.lower() in self.evolved.kept | former]

    def read(self) -> None:
        """Read what the table, which exists, has applied."""
        self.is_read, self.ledger = True, self._stored_ledger()

    def _stored_ledger(self) -> Ledger | None:
        """Return what an existing table has applied; None if that is not known."""
        table = self.table
        if table.shard is None:
            return table.ledger(self.topic)
        found = None if table.state.topic == SEVERAL else table.ledger(self.topic)
        if found is not None and not found.is_same(Ledger(self.topic)):
            return found  # also a truncation alone is one that the next commit follows
        # No commit names the shard. In a copy of a table it can have rows, and what they come from is not known.
        return None if self.has_rows_of_shard() else Ledger(self.topic)

    def truncations(self, truncated: Sequence | None) -> tuple[Sequence | None, Sequence | None]:
        """Return the truncation that the table has had, and the last one; the same if nothing is to do.

        Earlier releases have set a property. A rollback of Iceberg or Hudi does not undo it.
        """
        done = self.known.truncated
        return done, later(later(done, self.table.state.last_truncation), truncated)

    def begin(self) -> None:
        """Note that the table has no rows of the topic."""
        self.is_read, self.ledger = True, Ledger(self.topic)

    def advance(self, after: After, commit: Callable[[Ledger], None]) -> None:
        """Make the commit with the ledger ``after(the one of the newest version)``.

        Raises SinkError if another process has made one since this one read or wrote the ledger: its batch is not the
        one that follows. Of a shared table, the commits of other topics are none of another process, and their ledgers
        go on as they are in the newest version.
        """

        def attempt() -> bool:
            ledger = after(self.followed(self.table.newest_ledger(self.topic)))
            commit(ledger)
            stored = self.table.newest_ledger(self.topic) or Ledger(self.topic)
            if not stored.is_same(ledger):
                # It was left out, because another commit was made before.
                stored.require_known(self.ledger, self.table.name)
                return False
            self.ledger = ledger
            return True

        for _ in range(_ATTEMPTS):
            if self.retried(attempt):
                return
        raise changed_meanwhile(self.table.name, attempts=_ATTEMPTS)

    def append(self, after: After, rows: DataFrame | None = None) -> None:
        """Append rows in the commit with the ledger; without rows it says how far the table is."""
        added = self.table.rows().limit(0) if rows is None else rows
        self.advance(after, lambda ledger: self.table.append(added, ledger.metadata))

    def retried(self, commit: Callable[[], Result]) -> Result:
        """Run a command that commits, again if one of somebody else, such as a compaction, changed the same files."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return commit()
            except SPARK_ERRORS as error:
                if not self.committer.is_conflict(error):
                    raise
                log.warning("a concurrent command changed the table: the batch is written again", table=self.name)
        return commit()

    def followed(self, newest: Ledger | None) -> Ledger:
        """Return the ledger of the newest version, for the commit that follows it. Raises SinkError as ``advance``."""
        found, topic_id = newest or Ledger(self.topic), self.committer.topic_id(self.topic)
        if found.is_of_another_topic(topic_id):
            found = Ledger(self.topic, others=found.others)  # none of its rows is left: the sink has looked
        found.require_known(self.ledger, self.table.name)
        if self.table.shard is not None:
            found = replace(found, others=found.others or {})
        return replace(found, id=topic_id or found.id, writer=self.committer.writer)
