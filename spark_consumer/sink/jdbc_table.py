"""One table of the target database, and its row in the ledger: what the table has applied and belongs to.

The ledger is the table ``tailrace_ledger`` in the schema of the target tables. Its rows change in the transactions that
change the tables. Each of them has locked the row and found it as this process knows it (``lock``), whatever it
changes: after a transaction of another process, or a restored backup, the offsets would be others than the rows are at.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import structlog
from pyspark.sql import types as tp

from tailrace.runtime.stored_format import require_known_format
from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.normalize.rowkind import check_names
from tailrace.spark_consumer.sink.jdbc_columns import TargetColumn, TargetForm
from tailrace.spark_consumer.sink.jdbc_dialect import Dialect, Role, StoredTable
from tailrace.spark_consumer.sink.ledger import FORMAT, AppliedOffsets, Ledger, changed_meanwhile, changelog_from_json
from tailrace.spark_consumer.sink.state import SEVERAL, Shard, Stored, TargetState

if TYPE_CHECKING:
    from tailrace.spark_consumer.sink.jdbc_session import Session

LEDGER_TABLE: Final = "tailrace_ledger"
_FROM: Final = " <- "
"""Between the name of a shared table and a topic, in the rows of its shards."""
_STAGE: Final = "tailrace_stage_"
DELETED: Final = "deleted"
"""Column of a staging table: whether the row of the key is removed."""

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
_ADDED: Final = ("shape", "added_columns", "shard", "made", "altering", "settled", "changelog", "format")
"""Those that a ledger of an earlier release lacks."""


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
    offsets, settled = _offsets(row["offsets"]), _offsets(row["settled"] or row["offsets"])
    changelog = changelog_from_json(json.loads(row["changelog"] or "null"))
    # Of a table with one row per key only the state has it.
    truncated = None if changelog is None else state.last_truncation
    return Stored(state, Ledger(row["topic"], offsets, settled, row["topic_id"], changelog, truncated=truncated))


def _offsets(text: str) -> AppliedOffsets:
    return {int(number): offset for number, offset in json.loads(text).items()}


@dataclass(slots=True)
class JdbcTable:
    """A table that a captured table is written to."""

    dialect: Dialect
    schema: str
    name: str
    stored: StoredTable | None = None
    """What the database has; None if the table does not exist."""
    entry: Stored | None = None
    """None if Tailrace has not written to the table; of a shared table that of the shard."""
    shard: Shard | None = None
    """The shard that uses the table; None if the table has one topic."""
    owner: Stored | None = None
    """The row of a shared table itself."""

    @property
    def sql_name(self) -> str:
        """The quoted name."""
        return self.dialect.table_name(self.schema, self.name)

    @property
    def ledger_name(self) -> str:
        """The quoted name of the ledger."""
        return self.dialect.table_name(self.schema, LEDGER_TABLE)

    def read(self, session: Session) -> None:
        """Read what the database has."""
        self.stored = self.dialect.read_table(session, self.schema, self.name)
        if self.stored is not None:
            self.name = self.stored.name
        ledger = None if self.stored is None else self.dialect.read_table(session, self.schema, LEDGER_TABLE)
        if ledger is not None:
            self._complete(session, ledger)
        self.entry = self.owner = None
        if ledger is None:
            return
        if self.shard is not None:
            self.owner = self._read_row(session, self.name)
            if self.owner is not None and self.owner.state.topic == self.shard.topic:
                self.shard = self.owner = None  # it was written to before tables could share it
        self.entry = self._read_row(session, self.row_name)

    @property
    def row_name(self) -> str:
        """What the row of the ledger has as its target."""
        return self.name if self.shard is None else f"{self._row_start}{self.shard.topic}"

    @property
    def _row_start(self) -> str:
        return f"{self.name}{_FROM}"

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
        require_known_format(f"the ledger of {self.sql_name}", {"format": int(row["format"] or 1)}, FORMAT)
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
            self._write_row(session, self.name, None, owner)
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
            self._read_row(session, self.name, lock=True)  # no other query stores its values meanwhile
            self.shard.require_own(self._owners(session), self.sql_name)
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
        return bool(session.query(f"SELECT 1 FROM {self.sql_name} WHERE {own} LIMIT 1", *parameters))

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
            raise changed_meanwhile(self.sql_name, expected=offsets[0], found=offsets[1])

    def _write_row(self, session: Session, name: str, known: Stored | None, entry: Stored) -> None:
        self._lock_row(session, name, known)
        quote, row = self.dialect.quote, row_of(entry)
        values = [row[column] for column in _COLUMNS]
        sets = ", ".join(f"{quote(column)} = ?" for column in _COLUMNS)
        target = quote("target")
        if known is not None:
            session.execute(f"UPDATE {self.ledger_name} SET {sets} WHERE {target} = ?", *values, name)
            return
        listed, marks = ", ".join(map(quote, _COLUMNS)), ", ".join("?" for _ in _COLUMNS)
        session.execute(f"INSERT INTO {self.ledger_name} ({target}, {listed}) VALUES (?, {marks})", name, *values)

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
        for name in _ADDED:
            if ledger.column(name) is None:
                session.execute(f"ALTER TABLE {self.ledger_name} ADD COLUMN {self.dialect.quote(name)} {text} NULL")

    def create(self, session: Session, form: TargetForm, entry: Stored) -> None:
        """Create the table. Rows of the ledger that are left of a former one are removed first."""
        check_names(form.schema, form.added_names)
        columns = [*form.source, *form.added]
        for column in columns:
            self.dialect.check_name(column.name, f"column {column.name} of {form.schema.database}.{form.schema.table}")
        quote = self.dialect.quote
        definitions = [f"{quote(each.name)} {self.definition(each, form.keys)}" for each in columns]
        definitions.append(f"{quote(SEQUENCE_COLUMN)} {self.dialect.sequence_type} NOT NULL")
        key = ", ".join(map(quote, form.key))
        target = quote("target")
        left = f"{target} = ? OR LEFT({target}, {len(self._row_start)}) = ?"
        with session.transaction():
            session.execute(f"DELETE FROM {self.ledger_name} WHERE {left}", self.name, self._row_start)
            if self.dialect.read_table(session, self.schema, self.name) is not None:
                raise changed_meanwhile(self.sql_name)  # the rows are those of another process
            session.execute(f"CREATE TABLE {self.sql_name} ({', '.join(definitions)}, PRIMARY KEY ({key}))")
            self.begin(session, entry)
        self.read(session)

    def definition(self, column: TargetColumn, keys: int) -> str:
        """Return the type of a new column and whether it can be NULL."""
        declared = self.dialect.column_type(column.kind, column.role, keys)
        return f"{declared} NOT NULL" if column.role is Role.KEY else f"{declared} NULL"

    def rows_of_shard(self) -> tuple[str, tuple[str, ...]]:
        """Return the condition of the rows that are the shard's, with its parameters; '' if all are."""
        if self.shard is None:
            return "", ()
        conditions, values = [], []
        for name, value in self.shard.values:
            column = require_table(self).column(name)
            assert column is not None
            kind = column.kind_for(tp.DecimalType()) or tp.StringType()  # some columns take any number
            conditions.append(f"{self.dialect.quote(column.name)} = {self.dialect.text_value(kind)}")
            values.append(_parameter(value, kind, self.dialect.zone))
        return " AND ".join(conditions), tuple(values)

    def delete_statement(self, shard: Shard) -> str:
        """Return the statement that removes the rows of a shard."""
        conditions = (f"{self.dialect.quote(name)} = {self.dialect.literal(value)}" for name, value in shard.values)
        return f"DELETE FROM {self.sql_name} WHERE {' AND '.join(conditions)}"

    def drop_stages(self, session: Session) -> None:
        """Remove the staging tables of earlier processes; a task that still writes to one of them fails."""
        for name in self.dialect.tables_like(session, self.schema, self._stage_start):
            session.execute(f"DROP TABLE IF EXISTS {self.dialect.table_name(self.schema, name)}")
            log.info("staging table removed", table=self.name, stage=name)

    def create_stage(self, session: Session, types: Sequence[str]) -> str:
        """Create an empty staging table with columns c0, c1, … of these types, and return its quoted name.

        Each attempt has another one: a task of an earlier attempt cannot write into it.
        """
        quote = self.dialect.quote
        name = self.dialect.table_name(self.schema, f"{self._stage_start}{secrets.token_hex(4)}")
        columns = [f"{quote(f'c{number}')} {declared} NULL" for number, declared in enumerate(types)]
        columns.append(f"{quote(SEQUENCE_COLUMN)} {self.dialect.sequence_type} NOT NULL")
        columns.append(f"{quote(DELETED)} {self.dialect.column_type(tp.BooleanType(), Role.VALUE)} NOT NULL")
        session.execute(f"CREATE TABLE {name} ({', '.join((*columns, *self.dialect.stage_columns()))})")
        return name

    @property
    def _stage_start(self) -> str:
        # Another shard can have a staging table that is in use.
        parts = self.schema, self.name, *(() if self.shard is None else (self.shard.topic,))
        digest = sha256("\0".join(parts).encode()).hexdigest()[:12]
        return f"{_STAGE}{digest}_"


def _parameter(value: str, kind: tp.DataType, zone: str) -> str:
    """Return the text of a value, as Spark shows it, for ``Dialect.text_value``."""
    if isinstance(kind, tp.BooleanType):
        return "1" if value == "true" else "0"
    if isinstance(kind, tp.BinaryType):
        return value.encode().hex()
    return f"{value}{zone}" if isinstance(kind, tp.TimestampType) else value


def require_table(table: JdbcTable) -> StoredTable:
    """Return what the database has; raises SinkError for a table that was dropped meanwhile."""
    if table.stored is None:
        raise SinkError(
            f"the table {table.sql_name} was dropped while its records were processed",
            hint="start again to create it",
        )
    return table.stored
