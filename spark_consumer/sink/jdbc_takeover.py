"""Checks of a table of the target database: one that exists already is taken over if it can take every row.

Nothing is changed before all checks have passed. What does not fit is reported with the statements that fix it. Rows
from elsewhere have no sequence, and the source does not tell which of them it has: only rows with one may be there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.normalize.rowkind import check_names
from tailrace.spark_consumer.sink.jdbc_columns import TargetColumn, TargetForm, can_widen
from tailrace.spark_consumer.sink.jdbc_dialect import Role, StoredColumn
from tailrace.spark_consumer.sink.jdbc_table import JdbcTable, require_table
from tailrace.spark_consumer.source.common_type import common_type
from tailrace.spark_consumer.source.kafka import load_remedy

if TYPE_CHECKING:
    from tailrace.spark_consumer.sink.jdbc_session import Session

log = structlog.get_logger(__name__)


class TableCheck:
    """What does not fit in one table, and the statements that fix it."""

    def __init__(self, table: JdbcTable, form: TargetForm) -> None:
        self._table, self._form, self._schema = table, form, form.schema
        self._stored = require_table(table)
        self._columns = form.source
        self.problems: list[str] = []
        self.statements: list[str] = []

    def require(self) -> None:
        """Raise SinkError if something does not fit."""
        if self.problems:
            raise SinkError(
                f"the table {self._table.sql_name} exists and cannot take the rows of "
                f"{self._schema.database}.{self._schema.table}: " + "; ".join(self.problems),
                hint="run the statement, or set another sink.table; the table is then tried again",
                statement="; ".join(self.statements),
            )

    def check_keys(self) -> None:
        """Look for the unique index that finds rows by their key, and for others that could refuse rows."""
        if not self._stored.is_table:
            self._note("it is not a table")
            return
        key = frozenset(self._stored_key())
        quote = self._table.dialect.quote
        if not any(index.columns == key and not index.deferrable for index in self._stored.unique):
            kind = "UNIQUE" if any(index.primary for index in self._stored.unique) else "PRIMARY KEY"
            listed = ", ".join(quote(name) for name in self._stored_key())
            self._note(f"it has no unique index on the key ({listed})", self._alter(f"ADD {kind} ({listed})"))
        for index in self._stored.unique:
            if not index.deferrable and not (index.columns and index.columns >= key):
                self._note(
                    f"its unique index {index.name} is checked for each row, and refuses rows in between",
                    self._table.dialect.drop_unique(self._table.schema, self._table.name, index),
                )
        for column in self._columns:
            stored = self._stored.column(column.name)
            if column.role is Role.KEY and stored is not None and not stored.exact:
                self._note(
                    f"its key column {stored.name} takes different texts for equal",
                    self._change_type(column, stored, nullable=False),
                )

    def check_columns(self) -> None:
        """Compare the columns."""
        dialect, quote = self._table.dialect, self._table.dialect.quote
        # A changelog needs the columns of its shape for the rows that are there; others are added later.
        needed = self._form.own if self._form.layout.takes_changelog else []
        for column in [*self._columns, *needed]:
            stored = self._stored.column(column.name)
            if stored is None:
                definition = self._table.definition(column, self._form.keys)
                self._note(
                    f"it lacks the column {column.name}", self._alter(f"ADD COLUMN {quote(column.name)} {definition}")
                )
            elif stored.generated:
                self._note(f"its column {stored.name} is generated", self._alter(f"DROP COLUMN {quote(stored.name)}"))
            else:
                self._check_type(column, stored)
        if needed and self._stored.column(SEQUENCE_COLUMN) is None:
            added = f"ADD COLUMN {quote(SEQUENCE_COLUMN)} {dialect.sequence_type} NOT NULL"
            self._note(f"it lacks the column {SEQUENCE_COLUMN}", self._alter(added))
        own = {name.lower() for name in (*(column.name for column in self._columns), *self._form.added_names)}
        own.add(SEQUENCE_COLUMN)
        for other in self._stored.columns:
            if other.name.lower() not in own and other.required:
                self._note(
                    f"its column {other.name}, which the source does not have, is NOT NULL without a default",
                    dialect.change_type(self._table.sql_name, quote(other.name), other.declared, nullable=True),
                )

    def check_rows(self, session: Session) -> None:
        """Look for rows that Tailrace did not write, and for the sequence column."""
        quote, sequence = self._table.dialect.quote, self._stored.column(SEQUENCE_COLUMN)
        where = "" if sequence is None else f" WHERE {quote(SEQUENCE_COLUMN)} IS NULL"
        if session.query(f"SELECT 1 FROM {self._table.sql_name}{where} LIMIT 1"):
            self.problems.append("it has rows that Tailrace did not write")
            self.statements.insert(0, f"DELETE FROM {self._table.sql_name}")
        declared = self._table.dialect.sequence_type
        if sequence is not None and (sequence.nullable or sequence.declared.lower() != declared.lower()):
            self._note(
                f"its column {SEQUENCE_COLUMN} is not {declared} NOT NULL",
                self._table.dialect.change_type(self._table.sql_name, quote(SEQUENCE_COLUMN), declared, nullable=False),
            )

    def _check_type(self, column: TargetColumn, stored: StoredColumn) -> None:
        kind = stored.kind_for(column.kind)
        fits = kind is not None and common_type(column.kind, kind) == kind
        if not fits or (stored.json and column.role is not Role.JSON):
            self._note(
                f"its column {stored.name} is {stored.declared}, which does not represent all values of "
                f"{column.kind.simpleString()}",
                *self._remedy(column, stored),
            )
        elif column.optional and not stored.nullable:
            self._note(
                f"its column {stored.name} is NOT NULL",
                self._table.dialect.change_type(
                    self._table.sql_name, self._table.dialect.quote(stored.name), stored.declared, nullable=True
                ),
            )

    def _remedy(self, column: TargetColumn, stored: StoredColumn) -> list[str]:
        kind = stored.kind_for(column.kind)
        wider = None if kind is None else common_type(column.kind, kind)
        if kind is not None and wider is not None and can_widen(kind, wider):
            role = column.role if column.role is Role.KEY or wider == column.kind else Role.VALUE
            declared = self._table.dialect.column_type(wider, role, self._form.keys)
            return [self._change_to(declared, stored, nullable=column.optional)]
        quote = self._table.dialect.quote
        added = f"{quote(column.name)} {self._table.definition(column, self._form.keys)}"
        return [self._alter(f"DROP COLUMN {quote(stored.name)}"), self._alter(f"ADD COLUMN {added}")]

    def _change_type(self, column: TargetColumn, stored: StoredColumn, *, nullable: bool) -> str:
        declared = self._table.dialect.column_type(column.kind, column.role, self._form.keys)
        return self._change_to(declared, stored, nullable=nullable)

    def _change_to(self, declared: str, stored: StoredColumn, *, nullable: bool) -> str:
        name = self._table.dialect.quote(stored.name)
        return self._table.dialect.change_type(self._table.sql_name, name, declared, nullable=nullable)

    def _stored_key(self) -> list[str]:
        found = [self._stored.column(name) for name in self._form.key]
        return [name if each is None else each.name for name, each in zip(self._form.key, found, strict=True)]

    def _alter(self, change: str) -> str:
        return f"ALTER TABLE {self._table.sql_name} {change}"

    def _note(self, problem: str, *statements: str) -> None:
        self.problems.append(problem)
        self.statements += statements


def take_over(table: JdbcTable, session: Session, form: TargetForm) -> None:
    """Check a table that exists and is not in the ledger, and add the sequence column where it is missing."""
    check_names(form.schema, form.added_names)
    check = TableCheck(table, form)
    check.check_columns()
    check.check_keys()
    if not check.problems or require_table(table).is_table:
        check.check_rows(session)
    check.require()
    if require_table(table).column(SEQUENCE_COLUMN) is None:
        column = f"{table.dialect.quote(SEQUENCE_COLUMN)} {table.dialect.sequence_type} NOT NULL"
        session.execute(f"ALTER TABLE {table.sql_name} ADD COLUMN {column}")
        table.read(session)
    log.info("existing table taken over", table=table.sql_name)


def check_owned(table: JdbcTable, form: TargetForm) -> None:
    """Check what must hold in a table that Tailrace writes to and that somebody may have changed."""
    stored = require_table(table)
    if stored.column(SEQUENCE_COLUMN) is None:
        raise SinkError(
            f"the table {table.sql_name} has lost its column {SEQUENCE_COLUMN}",
            hint=load_remedy("drop the table"),
        )
    check = TableCheck(table, form)
    check.check_keys()
    check.require()
