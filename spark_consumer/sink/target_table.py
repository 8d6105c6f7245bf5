"""A table with one row per key in some table format: what the sinks of table formats need of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, ClassVar, TypeVar

from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.schemas import sequence as seq
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.normalize.rowkind import check_names
from tailrace.spark_consumer.sink.ledger import Ledger
from tailrace.spark_consumer.sink.shape import IS_DELETED, PLAIN, Layout
from tailrace.spark_consumer.sink.state import COMMIT_OF_ALTERATION, PROPERTIES, Shard, TargetState
from tailrace.spark_consumer.sink.statements import RowChanges, alter_clause, assignments, merge_statement
from tailrace.spark_consumer.sink.table_names import Location, literal, quote
from tailrace.spark_consumer.sink.target import (
    Add,
    Change,
    Drop,
    FillColumns,
    MarkExisting,
    Note,
    Operation,
    RemoveRows,
    Rename,
    SetProperties,
    Widen,
    Wording,
    require_key,
    require_same_key,
)
from tailrace.spark_consumer.source.common_type import common_type, convert_value, failing
from tailrace.spark_consumer.source.json_decoder import row_type
from tailrace.spark_consumer.source.kafka import load_remedy
from tailrace.spark_consumer.source.types import SEQUENCE_TYPE
from tailrace.spark_consumer.source.version_decoder import added_value

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from tailrace.spark_consumer.evolution.plan import Fill, TypeChange


class TargetTable(ABC):
    """A table at a path or in a catalog.

    Properties and columns are read once and cached, because this query is the only writer.
    """

    follows_case: ClassVar[bool] = False
    format: ClassVar[str]
    """The name of the table format, for messages."""

    def __init__(self, spark: SparkSession, location: Location) -> None:
        self._spark = spark
        self._location = location
        self.sql_name = location.sql_name
        self.shard: Shard | None = None
        """The shard that uses the table; None if the table has one topic."""
        self._properties: dict[str, str] | None = None
        self._columns: tp.StructType | None = None

    @property
    def name(self) -> str:
        """The path, or the name in the catalog."""
        return self._location.shown

    @property
    @abstractmethod
    def exists(self) -> bool:
        """Whether there is a table of that name, of any format."""

    @abstractmethod
    def require_format(self) -> None:
        """Raise SinkError if the table that exists has another format."""

    @abstractmethod
    def create(self, schema: TableSchema, properties: Mapping[str, str], layout: Layout = PLAIN) -> None:
        """Create the empty table: the columns of the captured table, the sequence column, those of the layout."""

    @property
    @abstractmethod
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""

    @property
    @abstractmethod
    def columns(self) -> tp.StructType:
        """The table's columns."""

    @property
    @abstractmethod
    def has_no_files(self) -> bool:
        """Whether the table is empty: it has no data files."""

    @property
    @abstractmethod
    def is_small(self) -> bool:
        """Whether it takes little time to read all files; False if that cannot be told in little time."""

    @abstractmethod
    def rows(self) -> DataFrame:
        """Return the rows of the table."""

    @abstractmethod
    def append(self, rows: DataFrame, metadata: str) -> None:
        """Append rows in one commit with the metadata of a ledger; columns are matched by name."""

    @abstractmethod
    def replace(self, rows: Callable[[DataFrame], DataFrame], *, once: tuple[str, int] | None) -> None:
        """Replace all rows by ``rows(those of the newest version)``, in one commit that follows this version.

        Not again if a commit with the name and number ``once`` was made.
        """

    @abstractmethod
    def commit_settings(self, metadata: str) -> Mapping[str, str]:
        """Return the settings of a session in which a statement commits with the metadata of a ledger."""

    @abstractmethod
    def newest_ledger(self, topic: str) -> Ledger | None:
        """Return the ledger of the newest version; None if no commit that led to it has one.

        The next commit follows this version: it fails, or is found to be missing, if another one is made before.
        """

    def ledger(self, topic: str) -> Ledger | None:
        """Return what the table has applied; None if its history does not tell."""
        return self.newest_ledger(topic) or (Ledger(topic) if self.is_new else None)

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever written to a table without a ledger."""
        return self.has_no_files

    @staticmethod
    @abstractmethod
    def can_widen(stored: tp.DataType, wider: tp.DataType) -> bool:
        """Return whether the format can change the type of a column."""

    def needed_properties(self, operations: Sequence[Operation]) -> dict[str, str]:  # noqa: ARG002 - for some formats
        """Return the table properties that must be set before operations."""
        return {}

    @property
    def blocking_properties(self) -> Mapping[str, str]:
        """Table properties that must change before rows can be changed, with the values that they need."""
        return {}

    @property
    def wording(self) -> Wording:
        """How messages speak of the table."""
        keeps_type = f"{self.format} cannot change the type of the column"
        name = f"the {self.format} table {self.name}"
        return Wording(name, f"{self.format} table", f"move the {self.format} table away", keeps_type)

    @property
    def column_names(self) -> Sequence[str]:
        """The names of all columns."""
        return [each.name for each in self.columns]

    def kinds(self, schema: TableSchema) -> tuple[Mapping[str, tp.DataType], Mapping[str, tp.DataType]]:
        """Return the types of the columns that the source gives, or gave: those of the table, those of the schema."""
        others = {seq.SEQUENCE_COLUMN, *(name.lower() for name in self.state.added)}
        stored = {each.name: each.dataType for each in self.columns if each.name.lower() not in others}
        return stored, {each.name: each.dataType for each in row_type(schema).fields}

    def declared(self, change: TypeChange) -> str:
        """Return the type that a column of the table has."""
        return change.stored.simpleString()

    @property
    def has_rows(self) -> bool:
        """Whether the table has rows; those whose files are all marked as deleted count."""
        return not self.has_no_files

    def added(self, layout: Layout) -> Sequence[tp.StructField]:
        """Return the columns of a layout."""
        return layout.columns

    def mismatch(self, column: tp.StructField) -> tuple[str, str] | None:
        """Return the types of a column of a layout that is stored with another one."""
        name, wanted = column.name.lower(), column.dataType
        found = next((each.dataType for each in self.columns if each.name.lower() == name), wanted)
        return None if common_type(wanted, found) == found else (found.simpleString(), wanted.simpleString())

    def require_owned(self, schema: TableSchema) -> None:
        """Raise SinkError for a table that is not one of the captured table with its key."""
        if schema.key:
            # Another key is the first thing to say, also where the format cannot have it.
            require_same_key(self.state.key, schema, self.wording)
        self.check_schema(schema)
        if seq.SEQUENCE_COLUMN not in self.columns.names:
            raise SinkError(
                f"{self.wording.name} was not created by Tailrace: it has no column {seq.SEQUENCE_COLUMN}",
                hint="set another target, or move the table away",
            )

    def check_schema(self, schema: TableSchema) -> None:
        """Raise SinkError for a captured table that the format cannot hold."""
        require_key(schema)

    def new_columns(self, schema: TableSchema, layout: Layout) -> list[tp.StructField]:
        """Return the columns of a new table. Raises SinkError or SchemaError for those that it cannot have."""
        self.check_schema(schema)
        check_names(schema, layout.names)
        return [*row_type(schema).fields, tp.StructField(seq.SEQUENCE_COLUMN, SEQUENCE_TYPE), *layout.columns]

    def alter(self, change: str) -> None:
        """Run an ALTER TABLE statement; ``change`` is what follows the name of the table."""
        self._spark.sql(f"ALTER TABLE {self.sql_name} {change}")
        self.refresh()

    def change(self, operations: Sequence[Change]) -> None:
        """Carry out operations, each in a commit of its own.

        A note stores what it changes: meanwhile another process may have stored other things, or added a column of the
        table that the shards share.
        """
        before, needed = self.state, self.needed_properties(operations)
        if needed:
            self.set(needed)
        for operation in operations:
            if isinstance(operation, Note):
                self.store(operation.state, before)
                before = operation.state
            elif isinstance(operation, Add) and self.shard is not None:
                added = operation.left(self.column_names)
                if added.columns:
                    self._carry_out(added)
            elif isinstance(operation, FillColumns):
                self._fill(operation)
            elif isinstance(operation, MarkExisting):
                if self.has_rows:
                    self.mark_existing()
            else:
                self._carry_out(operation)

    def _carry_out(self, operation: Add | Drop | Rename | Widen) -> None:
        self.alter(alter_clause(operation))

    def explain(self, operations: Sequence[Operation]) -> str:
        """Return what a person runs to carry out operations: rows are removed first, and properties set."""
        settings = self.needed_properties(operations)
        for each in operations:
            settings |= each.properties if isinstance(each, SetProperties) else {}
        first: list[Operation] = [each for each in operations if isinstance(each, RemoveRows)]
        if settings:
            first.append(SetProperties(settings))
        for each in operations:
            if isinstance(each, Note):
                each = SetProperties(self.as_stored(each.state.since(self.state)[0]))  # noqa: PLW2901
                first += [each] if each.properties else []
            elif not isinstance(each, RemoveRows | SetProperties):
                first.append(each)
        return self._explained(first)

    def _explained(self, operations: Sequence[Operation]) -> str:
        return "; ".join(
            f"DELETE FROM {self.sql_name}"
            if isinstance(each, RemoveRows)
            else f"ALTER TABLE {self.sql_name} {alter_clause(each)}"
            for each in operations
        )

    def merge(self, changes: RowChanges) -> None:
        """Delete, update and insert rows in one commit. A stored row with the same or a greater sequence stays.

        The rows of the changes are in the view SOURCE, and ``commit_settings`` are set.
        """
        with self.following() as target:
            statement = merge_statement(target, changes.schema, changes.own, changes.others, changes.within)
            changes.rows.sparkSession.sql(statement)

    @contextmanager
    def following(self) -> Iterator[str]:
        """Yield the name of the table for one commit that follows the version of ``newest_ledger``."""
        yield self.sql_name

    def _fill(self, operation: FillColumns) -> None:
        """Write the table again with other values of existing rows."""
        position, once = operation.position, None
        if position is not None:
            once = f"tailrace/{operation.schema.topic}/altered/{position.epoch}", (position.file << 36) + position.pos
        self.replace(partial(self._filled_rows, operation), once=once)

    def _filled_rows(self, operation: FillColumns, stored: DataFrame) -> DataFrame:
        schema, shard = operation.schema, self.shard
        types = {each.name.lower(): each.dataType for each in stored.schema}
        own = None if shard is None else fn.expr(shard.condition(stored.schema))
        columns = []
        for each in stored.schema.fields:
            old, fill = fn.col(quote(each.name)), operation.fills.get(each.name.lower())
            value = old if fill is None else _filled(fill, each, types, schema)
            columns.append((value if own is None else fn.when(own, value).otherwise(old)).alias(each.name))
        return stored.select(*columns)

    def mark_existing(self) -> None:
        """Mark the rows as not deleted that have no mark; not those that another process has marked meanwhile."""
        self._spark.sql(f"UPDATE {self.sql_name} SET {IS_DELETED} = false WHERE {IS_DELETED} IS NULL")

    def truncate_before(self, sequence: seq.Sequence, layout: Layout) -> None:
        """Delete the rows with a smaller sequence, or mark them as deleted."""
        rows = self.before(sequence)
        if self.shard is not None:
            rows = f"({rows}) AND {self.shard.condition(self.columns)}"
        if layout.keeps_deleted:
            self._spark.sql(f"UPDATE {self.sql_name} SET {IS_DELETED} = true WHERE NOT {IS_DELETED} AND ({rows})")
        else:
            self._spark.sql(f"DELETE FROM {self.sql_name} WHERE {rows}")

    def before(self, sequence: seq.Sequence) -> str:
        """Return the SQL condition of the rows with a smaller sequence."""
        fields = ", ".join(f"'{name}', {value}L" for name, value in sequence._asdict().items())
        return f"{seq.SEQUENCE_COLUMN} < named_struct({fields})"

    @property
    def state(self) -> TargetState:
        """What is stored of the topic."""
        return TargetState.from_properties(self.properties)

    def store(self, state: TargetState, before: TargetState | None = None) -> None:
        """Store what has changed, since ``before`` if it is given."""
        changed, gone = state.since(before or self.state)
        if changed:
            self.set(changed)
        if gone:
            self.unset(*gone)

    def set(self, properties: Mapping[str, str]) -> None:
        """Set table properties."""
        self.alter(f"SET TBLPROPERTIES ({assignments(self.as_stored(properties))})")

    def marked(self, properties: Mapping[str, str], newest: Callable[[], str]) -> Mapping[str, str]:
        """Return properties that are to be set, with the ``newest`` commit if they say what ALTER TABLE is done.

        For formats whose rollback keeps properties: it undoes the values that an ALTER TABLE gave to rows, and not what
        says that they are there. So each reading of the properties, and each commit that is noted in them, follows a
        check that the table has the commit that was noted before.
        """
        if PROPERTIES["last_alteration"] not in properties:
            return properties
        self.refresh()
        _ = self.properties  # the check
        commit = newest()
        return {**properties, COMMIT_OF_ALTERATION: commit} if commit else properties

    def require_commit(self, commit: str, *, found: bool) -> None:
        """Raise SinkError if a commit that ``marked`` has noted was not ``found``."""
        if not found:
            raise SinkError(
                f"{self.name} was rolled back to rows from before an ALTER TABLE that its properties have",
                hint="set it to the commit of the ALTER TABLE or a later one, or " + load_remedy("move the table away"),
                commit=commit,
            )

    def unset(self, *names: str) -> None:
        """Remove table properties."""
        listed = ", ".join(literal(name) for name in (names if self.shard is None else self.shard.names(names)))
        self.alter(f"UNSET TBLPROPERTIES IF EXISTS ({listed})")

    def share(self, shard: Shard | None) -> None:
        """Let the table be one of several topics; one that the topic of the shard wrote to alone stays its own."""
        self.shard = None
        if shard is not None and not (self.exists and self.state.topic == shard.topic):
            self.shard = shard
        self.refresh()

    def refresh(self) -> None:
        """Read properties and columns again: another shard may have changed them."""
        self._columns = self._properties = None

    def as_stored(self, properties: Mapping[str, str]) -> Mapping[str, str]:
        """Return properties under the names that the table has them."""
        return properties if self.shard is None else self.shard.stored(properties)

    def _seen(self, properties: Mapping[str, str]) -> dict[str, str]:
        return dict(properties) if self.shard is None else self.shard.seen(properties)

    def _create_schema(self) -> None:
        schema_name = self._location.schema_name
        if schema_name and not self._spark.catalog.databaseExists(schema_name):
            self._spark.sql(f"CREATE SCHEMA IF NOT EXISTS {schema_name}")


Table = TypeVar("Table", bound=TargetTable)


def _filled(fill: Fill, column: tp.StructField, types: Mapping[str, tp.DataType], schema: TableSchema) -> Column:
    """Return the new value of a column."""
    kind = column.dataType
    if fill.copied:
        source = f"{schema.database}.{schema.table}, column {fill.copied}"
        text = f"a value of {source}, does not fit {kind.simpleString()}, the type of {column.name}"
        return failing(*convert_value(fn.col(quote(fill.copied)), types[fill.copied.lower()], kind), kind, text)
    added = None if fill.added is None else added_value(fill.added, kind, schema.topic)
    return fn.lit(None).cast(kind) if added is None else added
