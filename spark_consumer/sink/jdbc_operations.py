"""What schema changes do to a table of the target database, as statements; and its truncation by shape.

All statements, and the row of the ledger, are one transaction where the database has transactions for DDL. Elsewhere
each change of a column commits, with what was noted before it, and the UPDATE and the last row of the ledger are one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, ClassVar, Final

import structlog
from pyspark.sql import types as tp

from tailrace.schemas.rowkind import RowKind
from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.schemas.sequence import Sequence as Position
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.evolution.plan import Fill, TypeChange
from tailrace.spark_consumer.sink.jdbc_columns import TargetColumn, as_text, sequence_bytes
from tailrace.spark_consumer.sink.jdbc_dialect import Role
from tailrace.spark_consumer.sink.jdbc_table import JdbcTable, row_of
from tailrace.spark_consumer.sink.shape import IS_DELETED, KIND, PART, RECORD, TIME, Layout
from tailrace.spark_consumer.sink.target import (
    Add,
    Change,
    Drop,
    FillColumns,
    MarkExisting,
    Note,
    Rename,
    Retype,
    Widen,
    Wording,
)
from tailrace.spark_consumer.source.common_type import common_type
from tailrace.spark_consumer.source.kafka import load_remedy
from tailrace.spark_consumer.source.version_decoder import added_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.spark_consumer.sink.jdbc_session import Session
    from tailrace.spark_consumer.sink.state import Shard, Stored, TargetState

log = structlog.get_logger(__name__)

Statement = tuple[str, Sequence[str | None]]
"""Its text and its parameters."""

_REMOVE: Final = "drop or rename the target table"
_RANK: Final = "tailrace_rank"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def wording(table: JdbcTable) -> Wording:
    """Return how messages speak of a table."""
    return Wording(
        f"the table {table.name}",
        "target table",
        _REMOVE,
        "the type that the target has does not represent its values",
        "run the statement in the target, after a check of what it does to the rows there; or ",
    )


@dataclass(frozen=True, slots=True)
class JdbcOperations:
    """What evolution does to a table that is in the ledger."""

    table: JdbcTable
    session: Session

    follows_case: ClassVar[bool] = True

    @property
    def wording(self) -> Wording:
        """How messages speak of the table."""
        return wording(self.table)

    @property
    def shard(self) -> Shard | None:
        """The shard that uses the table."""
        return self.table.shard

    @property
    def state(self) -> TargetState:
        """What the ledger has of the topic."""
        return self._entry.state

    @property
    def _entry(self) -> Stored:
        assert self.table.entry is not None
        return self.table.entry

    @property
    def column_names(self) -> Sequence[str]:
        """The names of all columns."""
        return [each.name for each in self.table.present.columns]

    @staticmethod
    def can_widen(stored: tp.DataType, wider: tp.DataType) -> bool:
        """Return whether a statement can change a type: it must convert values as ``common_type`` supposes."""
        return not isinstance(stored, tp.NullType) and not isinstance(wider, tp.NullType)

    def kinds(self, schema: TableSchema) -> tuple[Mapping[str, tp.DataType], Mapping[str, tp.DataType]]:  # noqa: ARG002
        """Return the Spark types of the columns of the source; ``void`` for one that no Spark type describes."""
        wanted = self._columns
        others = {SEQUENCE_COLUMN, *(name.lower() for name in self.state.added)}
        found: dict[str, tp.DataType] = {}
        for column in self.table.present.columns:
            if column.name.lower() in others:
                continue
            target = wanted.get(column.name.lower())
            kind = column.kind if target is None else column.kind_for(target.kind)
            plain_text = target is not None and column.json and target.role is not Role.JSON
            found[column.name] = tp.NullType() if kind is None or plain_text else kind
        return found, {each.name: each.kind for each in self.table.form.source}

    @property
    def _columns(self) -> dict[str, TargetColumn]:
        return {each.name.lower(): each for each in self.table.form.source}

    @property
    def has_rows(self) -> bool:
        """Whether the table has rows."""
        return bool(self.session.query(f"SELECT 1 FROM {self.table.name} LIMIT 1"))

    def added(self, layout: Layout) -> Sequence[tp.StructField]:  # noqa: ARG002 - that of the form
        """Return the columns of the layout; a struct is several."""
        return [tp.StructField(each.name, each.kind) for each in self.table.form.added]

    def mismatch(self, column: tp.StructField) -> tuple[str, str] | None:
        """Return the types of a column of the layout that is stored with another one."""
        [wanted] = [each for each in self.table.form.added if each.name == column.name]
        stored = self.table.present.column(column.name)
        declared = self.table.dialect.column_type(wanted.kind, wanted.role, self.table.form.keys)
        if stored is None:
            return None
        kind = stored.kind_for(wanted.kind)
        fits = kind is not None and common_type(wanted.kind, kind) == kind
        if wanted.role is Role.SEQUENCE:
            fits = stored.declared.lower() == declared.lower()
        return None if fits else (stored.declared, declared)

    def declared(self, change: TypeChange) -> str:
        """Return the type that a column of the table has."""
        stored = self.table.present.column(change.column)
        return "" if stored is None else stored.declared

    def change(self, operations: Sequence[Change]) -> None:
        """Carry out operations in one transaction, as far as the database can."""
        for operation in operations:
            if isinstance(operation, Rename):
                self.table.check_names([operation.new])
            elif isinstance(operation, Add):
                self.table.check_names(each.name for each in operation.columns)
        # What cannot be stated is an error before anything is done.
        steps = [(each, [] if isinstance(each, Note) else self._statements(each, operations)) for each in operations]
        before = self._entry
        with self.session.transaction():
            for operation, statements in steps:
                if isinstance(operation, Note):
                    self.table.write_entry(self.session, replace(before, state=operation.state))
                else:
                    # Again: a database without transactions for DDL commits with the statement.
                    self.table.lock(self.session)
                for text, parameters in statements:
                    self.session.execute(text, *parameters)
        self.table.read(self.session)

    def explain(self, operations: Sequence[Change | Retype]) -> str:
        """Return the statements that a person runs."""
        texts = ([self._noted(each.state)] if isinstance(each, Note) else self._texts(each) for each in operations)
        return "; ".join(chain.from_iterable(texts))

    def _noted(self, state: TargetState) -> str:
        """Return the statement that changes the row of the ledger."""
        quote, literal = self.table.dialect.quote, self.table.dialect.literal
        before, after = row_of(self._entry), row_of(replace(self._entry, state=state))
        sets = (f"{quote(name)} = {literal(text)}" for name, text in after.items() if text != before[name])
        return (
            f"UPDATE {self.table.ledger_name} SET {', '.join(sets)} "
            f"WHERE {quote('target')} = {literal(self.table.row_name)}"
        )

    def _statements(self, operation: Change, operations: Sequence[Change]) -> list[Statement]:
        if isinstance(operation, FillColumns):
            return self._fills(operation, self._kinds_after(operations))
        if isinstance(operation, Add) and self.shard is not None:
            operation = operation.left(self.column_names)
        return [(text, ()) for text in self._texts(operation)]

    def _texts(self, operation: Change | Retype) -> list[str]:
        quote, alter = self.table.dialect.quote, f"ALTER TABLE {self.table.name}"
        match operation:
            case Add():
                columns = ((quote(each.name), self._definition(each)) for each in operation.columns)
                return [f"{alter} ADD COLUMN {name} {definition}" for name, definition in columns]
            case Drop():
                return [f"{alter} DROP COLUMN {quote(operation.column)}"]
            case Rename():
                return [f"{alter} RENAME COLUMN {quote(operation.old)} TO {quote(operation.new)}"]
            case Widen() | Retype():
                return [self._retyped(operation.column, operation.kind)]
            case MarkExisting():
                deleted = quote(IS_DELETED)
                return [f"UPDATE {self.table.name} SET {deleted} = FALSE WHERE {deleted} IS NULL"]
            case _:
                raise TypeError(operation)

    def _definition(self, column: tp.StructField) -> str:
        for own in self.table.form.added:
            if own.name == column.name:
                return self.table.definition(own)
        target, kind = self._columns.get(column.name.lower()), column.dataType
        role = Role.VALUE if target is None or target.kind != kind else target.role
        # Also of a key: the rows that the table has get no value.
        return f"{self.table.dialect.column_type(kind, role)} NULL"

    def _retyped(self, name: str, kind: tp.DataType) -> str:
        column = self._columns.get(name.lower())  # None: a later statement drops or renames it
        role = Role.VALUE
        if column is not None and (column.role is Role.KEY or column.kind == kind):
            role = column.role
        declared = self.table.dialect.column_type(kind, role, self.table.form.keys)
        stored = self.table.present.column(name)
        quoted = self.table.dialect.quote(self.table.present.spelled(name))
        nullable = role is not Role.KEY and (stored is None or stored.nullable)
        return self.table.dialect.change_type(self.table.name, quoted, declared, nullable=nullable)

    def _fills(self, operation: FillColumns, kinds: Mapping[str, tp.DataType]) -> list[Statement]:
        """Return the UPDATE statements: a value is read before it is replaced, whatever the database's rule is.

        Columns that exchange their names through a third one replace each other; the third one has a copy.
        """
        left = dict(operation.fills)
        found: list[Statement] = []
        copies: dict[str, str] = {}
        while left:
            read = {fill.copied.lower() for fill in left.values() if fill.copied}
            ready = [name for name in left if name not in read or left[name].copied.lower() == name]
            copied = [name for name, fill in left.items() if fill.copied.lower() in copies]
            if not ready and copied:
                left |= {name: replace(left[name], copied=copies[left[name].copied.lower()]) for name in copied}
                continue
            if not ready:
                raise SinkError(
                    f"{_name(operation.schema)} was altered in a way that its target table cannot follow: columns "
                    "exchanged names",
                    hint=load_remedy(_REMOVE),
                )
            copies |= {left[name].copied.lower(): left[name].column for name in ready if left[name].copied}
            found += [self._fill(left.pop(name), kinds, operation.schema) for name in ready]
        own, more = self.table.rows_of_shard()
        return [(f"{text} WHERE {own}", (*given, *more)) if own else (text, given) for text, given in found]

    def _fill(self, fill: Fill, kinds: Mapping[str, tp.DataType], schema: TableSchema) -> Statement:
        dialect, kind = self.table.dialect, kinds[fill.column.lower()]
        start = f"UPDATE {self.table.name} SET {dialect.quote(fill.column)} = "
        if fill.copied:
            source = kinds[fill.copied.lower()]
            if common_type(source, kind) != kind:
                raise SinkError(
                    f"values of {_name(schema)}, column {fill.copied}, do not fit the type of {fill.column}",
                    hint=load_remedy(_REMOVE),
                    source=source.simpleString(),
                    target=kind.simpleString(),
                )
            return f"{start}{dialect.quote(fill.copied)}", ()
        text = None if fill.added is None else self._added(fill, kind, schema)
        return (f"{start}NULL", ()) if text is None else (f"{start}{dialect.text_value(kind)}", (text,))

    def _added(self, fill: Fill, kind: tp.DataType, schema: TableSchema) -> str | None:
        """Let Spark convert the value that ADD COLUMN gave to rows, as it converts records."""
        from pyspark.sql import SparkSession  # noqa: PLC0415 - the session of the batch

        assert fill.added is not None
        value = added_value(fill.added, kind, schema.topic)
        if value is None:
            return None
        spark: SparkSession = SparkSession.active()
        text = as_text(value, kind, self.table.dialect.zone).alias("text")
        found: str | None = spark.range(1).select(text).collect()[0]["text"]
        return found

    def _kinds_after(self, operations: Sequence[Change]) -> dict[str, tp.DataType]:
        """Return the types of the columns after operations, by lower-case name."""
        kinds = {name.lower(): kind for name, kind in self.kinds(self.table.form.schema)[0].items()}
        for operation in operations:
            match operation:
                case Add():
                    kinds |= {column.name.lower(): column.dataType for column in operation.columns}
                case Drop():
                    kinds.pop(operation.column.lower(), None)
                case Rename():
                    kinds[operation.new.lower()] = kinds.pop(operation.old.lower(), tp.NullType())
                case Widen():
                    kinds[operation.column.lower()] = operation.kind
        return kinds


def _name(schema: TableSchema) -> str:
    return f"{schema.database}.{schema.table}"


def truncate(table: JdbcTable, session: Session, truncated: Position, milliseconds: int | None = None) -> None:
    """Remove the rows before a truncate event, mark them as deleted, or add a ``-D`` for each of their keys.

    ``milliseconds``: the time of the event.
    """
    bound = table.dialect.binary(sequence_bytes(truncated))
    own, parameters = table.rows_of_shard()
    before = " AND ".join(filter(None, (f"{table.dialect.quote(SEQUENCE_COLUMN)} < {bound}", own)))
    if table.layout.shape == "history":
        _add_deletes(table, session, bound, milliseconds)
    elif table.layout.keeps_deleted:
        deleted = table.dialect.quote(IS_DELETED)
        session.execute(f"UPDATE {table.name} SET {deleted} = TRUE WHERE NOT {deleted} AND {before}", *parameters)
    else:
        session.execute(f"DELETE FROM {table.name} WHERE {before}", *parameters)
    log.info("table truncated", table=table.name, sequence=truncated)


def _add_deletes(table: JdbcTable, session: Session, bound: str, milliseconds: int | None) -> None:
    """Add a ``-D`` for each key whose last row is before the event and no ``-D``, as in other histories (versions.py).

    It has the place of the row that it removes, one part later. Without a known time it has that of the row.
    """
    dialect, stored = table.dialect, table.present
    quote = dialect.quote
    kind, part, sequence = quote(KIND), quote(PART), quote(SEQUENCE_COLUMN)
    changed, parameters = {SEQUENCE_COLUMN: bound, KIND: f"'{RowKind.DELETE.value}'", PART: f"{part} + 1"}, []
    if milliseconds is not None:
        time = _EPOCH + timedelta(milliseconds=milliseconds)
        changed[TIME] = dialect.text_value(tp.TimestampType())
        parameters.append(f"{time:%Y-%m-%d %H:%M:%S.%f}{dialect.zone}")
    names = [column.name for column in stored.columns if not column.generated]
    key = ", ".join(quote(stored.spelled(name)) for name in table.form.schema.key)
    newest_first = ", ".join(f"{quote(name)} DESC" for name in (SEQUENCE_COLUMN, *RECORD))
    session.execute(
        f"INSERT INTO {table.name} ({', '.join(map(quote, names))}) "
        f"SELECT {', '.join(changed.get(name, quote(name)) for name in names)} FROM (SELECT t.*, ROW_NUMBER() OVER "
        f"(PARTITION BY {key} ORDER BY {newest_first}) AS {_RANK} FROM {table.name} AS t) AS ranked "
        f"WHERE {_RANK} = 1 AND {kind} <> '{RowKind.DELETE.value}' AND {sequence} < {bound}",
        *parameters,
    )
