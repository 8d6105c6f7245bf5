"""One table of the target database, and its row in the ledger: what the table has applied and belongs to.

The ledger is the table ``tailrace_ledger`` in the schema of the target tables. Its rows change in the transactions that
change the tables. Each of them has locked the row and found it as this process knows it (``lock``), whatever it
changes: after a transaction of another process, or a restored backup, the offsets would be others than the rows are at.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import structlog
from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.runtime.stored_format import format_in, require_known_format
from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.evolution.attempt import Evolved
from tailrace.spark_consumer.normalize.rowkind import check_names
from tailrace.spark_consumer.sink.jdbc_columns import (
    DELETED,
    StagedColumn,
    TargetColumn,
    TargetForm,
    converted_values,
    layout_value,
    parameter_of,
    staged_value,
)
from tailrace.spark_consumer.sink.jdbc_dialect import Dialect, Merge, Role, Rule, StoredColumn, StoredTable
from tailrace.spark_consumer.sink.ledger import FORMAT, Ledger, changed_meanwhile, changelog_from_json
from tailrace.spark_consumer.sink.state import SEVERAL, Shard, Stored, TargetState
from tailrace.spark_consumer.sink.table_names import quote as quote_for_spark

if TYPE_CHECKING:
    from pyspark.sql import Column

    from tailrace.spark_consumer.sink.jdbc_session import Session
    from tailrace.spark_consumer.sink.shape import Layout

LEDGER_TABLE: Final = "tailrace_ledger"
_FROM: Final = " <- "
"""Between the name of a shared table and a topic, in the rows of its shards."""
_STAGE: Final = "tailrace_stage_"

log = structlog.get_logger(__name__)

_STATE: Final = {
    "key_columns": "key",
    "source_columns": "names",
    "last_alteration": "last_alteration",
    "truncated": "truncated",
    "shape": "shape",
    "added_columns": "added_columns",
    "shard": "shard",
    "made": "made",
    "altering": "altering",
}
"""Columns of the ledger with the fields of TargetState that they have."""
_COLUMNS: Final = ("topic", "topic_id", "offsets", *_STATE, "settled", "changelog", "format")
"""The columns of the ledger besides the name of the target; all of them are texts."""


def row_of(stored: Stored) -> dict[str, str]:
    """Return the row of a target in the ledger."""
    state, ledger = stored.state, stored.ledger
    settled = "" if ledger.merge == ledger.append else json.dumps(ledger.merge)
    offsets = {"topic": state.topic, "topic_id": ledger.id, "offsets": json.dumps(ledger.append), "settled": settled}
    changelog = "" if ledger.changelog is None else json.dumps(asdict(ledger.changelog))
    named = {column: getattr(state, name) for column, name in _STATE.items()}
    return {"format": "", **offsets, **named, "changelog": changelog}


def stored_in(row: Mapping[str, str]) -> Stored:
    """Return what a row of the ledger has; empty ``settled``: the same as ``offsets``."""
    state = TargetState(row["topic"], **{name: row[column] for column, name in _STATE.items()})
    texts = row["offsets"], row["settled"] or row["offsets"]
    offsets, settled = ({int(number): end for number, end in json.loads(text).items()} for text in texts)
    changelog = changelog_from_json(json.loads(row["changelog"] or "null"))
    # Of a table with one row per key only the state has it.
    truncated = None if changelog is None else state.last_truncation
    return Stored(state, Ledger(row["topic"], offsets, settled, row["topic_id"], changelog, truncated=truncated))


@dataclass(slots=True)
class JdbcTable:
    """The table that a captured table is written to, as this process knows it."""

    dialect: Dialect
    schema: str
    table: str
    form: TargetForm
    """What it should have."""
    shard: Shard | None = None
    """The shard that uses the table; None if the table has one topic."""
    stored: StoredTable | None = None
    """What the database has; None if the table does not exist."""
    entry: Stored | None = None
    """None if Tailrace has not written to the table; of a shared table that of the shard."""
    owner: Stored | None = None
    """The row of a shared table itself."""
    evolved: Evolved = field(default_factory=Evolved)
    prepared_for: object = None
    """The schema and the alterations that it was prepared for."""

    @property
    def name(self) -> str:
        """The quoted name, with the schema."""
        return self.dialect.table_name(self.schema, self.table)

    @property
    def layout(self) -> Layout:
        """Its layout."""
        return self.form.layout

    @property
    def known(self) -> Ledger:
        """What is known to be applied."""
        return Ledger(self.form.schema.topic) if self.entry is None else self.entry.ledger

    @property
    def present(self) -> StoredTable:
        """What the database has. Raises SinkError for a table that was dropped meanwhile."""
        if self.stored is None:
            problem = f"the table {self.name} was dropped while its records were processed"
            raise SinkError(problem, hint="start again, or wait for the next attempt: it creates and loads it")
        return self.stored

    @property
    def ledger_name(self) -> str:
        """The quoted name of the ledger."""
        return self.dialect.table_name(self.schema, LEDGER_TABLE)

    def read(self, session: Session) -> None:
        """Read what the database has."""
        self.stored = self.dialect.read_table(session, self.schema, self.table)
        if self.stored is not None:
            self.table = self.stored.name
        ledger = None if self.stored is None else self.dialect.read_table(session, self.schema, LEDGER_TABLE)
        if ledger is not None:
            self._complete(session, ledger)
        self.entry = self.owner = None
        if ledger is None:
            return
        if self.shard is not None:
            self.owner = self._read_row(session, self.table)
            if self.owner is not None and self.owner.state.topic == self.shard.topic:
                self.shard = self.owner = None  # it was written to before tables could share it
        self.entry = self._read_row(session, self.row_name)

    @property
    def row_name(self) -> str:
        """What the row of the ledger has as its target."""
        return self.table if self.shard is None else f"{self._row_start}{self.shard.topic}"

    @property
    def _row_start(self) -> str:
        return f"{self.table}{_FROM}"

    def _read_row(self, session: Session, name: str, *, lock: bool = False) -> Stored | None:
        listed = ", ".join(map(self.dialect.quote, _COLUMNS))
        found = session.query(
            f"SELECT {listed} FROM {self.ledger_name} WHERE {self.dialect.quote('target')} = ?"
            + (" FOR UPDATE" if lock else ""),
            name,
        )
        if not found:
            return None
        row = {name: text or "" for name, text in zip(_COLUMNS, found[0], strict=True)}
        require_known_format(f"the ledger of {self.name}", format_in(row["format"]), FORMAT)
        return stored_in(row)

    def lock(self, session: Session) -> None:
        """Lock the row of the ledger until the transaction ends. Raises SinkError if it is not as it is known."""
        self._lock_row(session, self.row_name, self.entry)

    def write_entry(self, session: Session, entry: Stored) -> None:
        """Write the row of the ledger, in the transaction of the caller. Raises SinkError as ``lock``."""
        self._write_row(session, self.row_name, self.entry, entry)
        self.entry = entry

    def begin(self, session: Session, entry: Stored) -> None:
        """Write the first row of the ledger, in the transaction of the caller; that of a shared table too."""
        if self.shard is not None and self.owner is None:
            owner = Stored(TargetState(SEVERAL, key=entry.state.key), Ledger(SEVERAL))
            self._write_row(session, self.table, None, owner)
        self._write_own(session, entry)

    def claim_shard(self, session: Session) -> None:
        """Store the values of the shard. Raises SinkError if another topic has them."""
        if self.shard is not None and self.entry is not None and self.entry.state.shard != self.shard.text:
            with session.transaction():
                self._write_own(session, self.entry)
            self.read(session)

    def _write_own(self, session: Session, entry: Stored) -> None:
        """Write the row of the ledger; of a shared table with the values of the shard, if no other topic has them."""
        if self.shard is not None:
            self._read_row(session, self.table, lock=True)  # no other query stores its values meanwhile
            self.shard.require_own(self._owners(session), self.name)
            entry = replace(entry, state=replace(entry.state, shard=self.shard.text))
        self.write_entry(session, entry)

    def _owners(self, session: Session) -> dict[str, str]:
        quote, start = self.dialect.quote, self._row_start
        found = session.query(
            f"SELECT {quote('topic')}, {quote('shard')} FROM {self.ledger_name} "
            f"WHERE LEFT({quote('target')}, {len(start)}) = ?",
            start,
        )
        return {str(topic): text or "" for topic, text in found}

    def has_rows_of_shard(self, session: Session) -> bool:
        """Return whether the table has rows of the shard."""
        own, parameters = self.rows_of_shard()
        return bool(session.query(f"SELECT 1 FROM {self.name} WHERE {own} LIMIT 1", *parameters))

    def forget_shard(self, session: Session) -> None:
        """Remove the row of the shard from the ledger: its rows were removed from the table."""
        with session.transaction():
            self.lock(session)
            session.execute(f"DELETE FROM {self.ledger_name} WHERE {self.dialect.quote('target')} = ?", self.row_name)
        self.read(session)

    def _lock_row(self, session: Session, name: str, known: Stored | None) -> None:
        found = self._read_row(session, name, lock=True)
        if found != known:
            offsets = [None if each is None else each.ledger.append for each in (known, found)]
            raise changed_meanwhile(self.name, expected=offsets[0], found=offsets[1])

    def _write_row(self, session: Session, name: str, known: Stored | None, entry: Stored) -> None:
        self._lock_row(session, name, known)
        row, listed = row_of(entry), [self.dialect.quote(column) for column in (*_COLUMNS, "target")]
        statement = f"INSERT INTO {self.ledger_name} ({', '.join(listed)}) VALUES ({', '.join('?' for _ in listed)})"
        if known is not None:
            sets = ", ".join(f"{column} = ?" for column in listed[:-1])
            statement = f"UPDATE {self.ledger_name} SET {sets} WHERE {listed[-1]} = ?"
        session.execute(statement, *(row[column] for column in _COLUMNS), name)

    def create_ledger(self, session: Session) -> None:
        """Create the schema and the ledger where they are missing."""
        if not self.dialect.has_schema(session, self.schema):
            session.execute(f"CREATE SCHEMA {self.dialect.quote(self.schema)}")
            log.info("schema created", schema=self.schema)
        ledger = self.dialect.read_table(session, self.schema, LEDGER_TABLE)
        if ledger is not None:
            self._complete(session, ledger)
        else:
            quote, text = self.dialect.quote, self.dialect.column_type(tp.StringType(), Role.VALUE)
            key = self.dialect.column_type(tp.StringType(), Role.KEY)
            columns = "".join(f", {quote(name)} {text} NOT NULL" for name in _COLUMNS)
            session.execute(f"CREATE TABLE {self.ledger_name} ({quote('target')} {key} NOT NULL PRIMARY KEY{columns})")

    def _complete(self, session: Session, ledger: StoredTable) -> None:
        """Add the columns that a ledger of an earlier release lacks."""
        text = self.dialect.column_type(tp.StringType(), Role.VALUE)
        for name in _COLUMNS:
            if ledger.column(name) is None:
                session.execute(f"ALTER TABLE {self.ledger_name} ADD COLUMN {self.dialect.quote(name)} {text} NULL")

    def create(self, session: Session, entry: Stored) -> None:
        """Create the table. Rows of the ledger that are left of a former one are removed first."""
        form, quote, columns = self.form, self.dialect.quote, [*self.form.source, *self.form.added]
        check_names(form.schema, form.added_names)
        self.check_names(column.name for column in columns)
        definitions = [f"{quote(each.name)} {self.definition(each)}" for each in columns]
        definitions.append(f"{quote(SEQUENCE_COLUMN)} {self.dialect.sequence_type} NOT NULL")
        key = ", ".join(map(quote, form.key))
        target = quote("target")
        left = f"{target} = ? OR LEFT({target}, {len(self._row_start)}) = ?"
        with session.transaction():
            session.execute(f"DELETE FROM {self.ledger_name} WHERE {left}", self.table, self._row_start)
            if self.dialect.read_table(session, self.schema, self.table) is not None:
                raise changed_meanwhile(self.name)  # the rows are those of another process
            session.execute(f"CREATE TABLE {self.name} ({', '.join(definitions)}, PRIMARY KEY ({key}))")
            self.begin(session, entry)
        self.read(session)

    def check_names(self, names: Iterable[str]) -> None:
        """Raise SinkError for a name that no column of the database can have."""
        for name in names:
            self.dialect.check_name(name, f"column {name} of {self.form.schema.database}.{self.form.schema.table}")

    def definition(self, column: TargetColumn) -> str:
        """Return the type of a new column and whether it can be NULL."""
        declared = self.dialect.column_type(column.kind, column.role, self.form.keys)
        return f"{declared} NOT NULL" if column.role is Role.KEY else f"{declared} NULL"

    def rows_of_shard(self) -> tuple[str, tuple[str, ...]]:
        """Return the condition of the rows that are the shard's, with its parameters; '' if all are."""
        if self.shard is None:
            return "", ()
        conditions, values = [], []
        for name, value in self.shard.values:
            column = self.present.column(name)
            assert column is not None
            kind = column.kind_for(tp.DecimalType()) or tp.StringType()  # some columns take any number
            conditions.append(f"{self.dialect.quote(column.name)} = {self.dialect.text_value(kind)}")
            values.append(parameter_of(value, kind, self.dialect.zone))
        return " AND ".join(conditions), tuple(values)

    def delete_statement(self, shard: Shard) -> str:
        """Return the statement that removes the rows of a shard."""
        conditions = (f"{self.dialect.quote(name)} = {self.dialect.literal(value)}" for name, value in shard.values)
        return f"DELETE FROM {self.name} WHERE {' AND '.join(conditions)}"

    def drop_stages(self, session: Session) -> None:
        """Remove the staging tables of earlier processes; a task that still writes to one of them fails."""
        for name in self.dialect.tables_like(session, self.schema, self._stage_start):
            session.execute(f"DROP TABLE IF EXISTS {self.dialect.table_name(self.schema, name)}")
            log.info("staging table removed", table=self.table, stage=name)

    def create_stage(self, session: Session, types: Sequence[str]) -> str:
        """Create an empty staging table with columns c0, c1, … of these types, and return its quoted name.

        Each attempt has another one: a task of an earlier attempt cannot write into it.
        """
        quote = self.dialect.quote
        name = self.dialect.table_name(self.schema, f"{self._stage_start}{secrets.token_hex(4)}")
        columns = [f"{quote(f'c{number}')} {declared} NULL" for number, declared in enumerate(types)]
        columns.append(f"{quote(SEQUENCE_COLUMN)} {self.dialect.sequence_type} NOT NULL")
        columns.append(f"{quote(DELETED)} {self.dialect.column_type(tp.BooleanType(), Role.VALUE)} NOT NULL")
        session.execute(f"CREATE TABLE {name} ({', '.join((*columns, *self.dialect.stage_columns))})")
        return name

    @property
    def _stage_start(self) -> str:
        # Another shard can have a staging table that is in use.
        parts = self.schema, self.table, *(() if self.shard is None else (self.shard.topic,))
        digest = sha256("\0".join(parts).encode()).hexdigest()[:12]
        return f"{_STAGE}{digest}_"

    def converted(self, values: Iterable[Column]) -> list[Column]:
        """Return the values of the columns of the source that the table has, in its types."""
        return converted_values(self.form, self._found, values, holds_nul=self.dialect.holds_nul)

    def columns(self) -> list[StagedColumn]:
        """Return what is staged of rows with the columns of the table."""
        found, stored, zone = self._found, self.present, self.dialect.zone
        source = [column for column in self.form.source if column.name.lower() in found]
        staged = [self._staged(column, found, fn.col(quote_for_spark(column.name))) for column in source]
        for column in self.form.added:
            each = stored.column(column.name)
            assert each is not None
            staged.append(StagedColumn(each.name, layout_value(column, zone), self._declared(column, each)))
        return staged

    def key_columns(self) -> list[StagedColumn]:
        """Return what is staged of rows that have the key of the source in the struct ``key``."""
        found, columns = self._found, {column.name: column for column in self.form.source}
        return [self._staged(columns[name], found, fn.col("key").getField(name)) for name in self.form.schema.key]

    def _staged(self, column: TargetColumn, found: Mapping[str, StoredColumn], value: Column) -> StagedColumn:
        stored = found[column.name.lower()]
        staged = staged_value(value, stored.written_as(column.kind), self.dialect.zone)
        return StagedColumn(stored.name, staged, self._declared(column, stored))

    def merge(self, stage: str, columns: Sequence[StagedColumn], rule: Rule) -> Merge:
        """Return how rows of a staging table change the table."""
        named, stored = self.dialect.quote, self.present
        return Merge(
            target=self.name,
            stage=stage,
            columns={named(each.name): named(f"c{number}") for number, each in enumerate(columns)},
            key=tuple(named(stored.spelled(name)) for name in self.form.key),
            sequence=named(SEQUENCE_COLUMN),
            deleted=named(DELETED),
            # A version that ends keeps what it has in columns that the source has no longer.
            cleared=() if rule is Rule.ALWAYS else tuple(map(named, self._cleared())),
            rule=rule,
        )

    @property
    def _found(self) -> dict[str, StoredColumn]:
        """The stored columns that the source gives, by lower-case name."""
        stored, names = self.present, (column.name for column in self.form.source)
        found = {name.lower(): each for name in names if (each := stored.column(name)) is not None}
        return {name: each for name, each in found.items() if name not in self.evolved.ignored}

    def _declared(self, column: TargetColumn, stored: StoredColumn) -> str:
        """Return the type of a column of a staging table."""
        kind = stored.written_as(column.kind)
        role = column.role if column.role is Role.KEY or column.kind == kind else Role.VALUE
        if isinstance(kind, tp.StringType) and role is Role.VALUE and stored.json:
            role = Role.JSON
        return self.dialect.column_type(kind, role, self.form.keys)

    def _cleared(self) -> list[str]:
        """Return the columns that the source, or the layout, had earlier."""
        assert self.entry is not None
        now = {name.lower() for name in self.form.added_names}
        former = {name.lower() for name in self.entry.state.added} - now
        names = (each.name for each in self.present.columns)
        return [name for name in names if name.lower() in self.evolved.kept | former]
