"""Checks of a table of the target database: one that exists already is taken over if it can take every row.

Nothing is changed before all checks have passed. What does not fit is reported with the statements that fix it. Rows
from elsewhere have no sequence, and the source does not tell which of them it has: only rows with one may be there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.normalize.rowkind import check_names
from tailrace.spark_consumer.sink.jdbc_columns import TargetColumn
from tailrace.spark_consumer.sink.jdbc_dialect import Role, StoredColumn
from tailrace.spark_consumer.sink.jdbc_operations import JdbcOperations
from tailrace.spark_consumer.sink.jdbc_table import JdbcTable
from tailrace.spark_consumer.source.common_type import common_type
from tailrace.spark_consumer.source.kafka import load_remedy

if TYPE_CHECKING:
    from tailrace.spark_consumer.sink.jdbc_session import Session

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _TableCheck:
    """What does not fit in one table, and the statements that fix it."""

    table: JdbcTable
    problems: list[str] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)

    def require(self) -> None:
        """Raise SinkError if something does not fit."""
        schema = self.table.form.schema
        if self.problems:
            raise SinkError(
                f"the table {self.table.name} exists and cannot take the rows of {schema.database}.{schema.table}: "
                + "; ".join(self.problems),
                hint="run the statement, or set another sink.table; the table is then tried again",
                statement="; ".join(self.statements),
            )

    def check_keys(self) -> None:
        """Look for the unique index that finds rows by their key, and for others that could refuse rows."""
        table, stored = self.table, self.table.present
        if not stored.is_table:
            self._note("it is not a table")
            return
        key = [stored.spelled(name) for name in table.form.key]
        if not any(index.columns == frozenset(key) and not index.deferrable for index in stored.unique):
            kind = "UNIQUE" if any(index.primary for index in stored.unique) else "PRIMARY KEY"
            listed = ", ".join(map(table.dialect.quote, key))
            self._note(f"it has no unique index on the key ({listed})", self._alter(f"ADD {kind} ({listed})"))
        for index in stored.unique:
            if not index.deferrable and not (index.columns and index.columns >= frozenset(key)):
                self._note(
                    f"its unique index {index.name} is checked for each row, and refuses rows in between",
                    table.dialect.drop_unique(table.schema, table.table, index),
                )
        for column in table.form.source:
            found = stored.column(column.name)
            if column.role is Role.KEY and found is not None and not found.exact:
                declared = table.dialect.column_type(column.kind, column.role, table.form.keys)
                self._note(
                    f"its key column {found.name} takes different texts for equal",
                    self._change(found, declared, nullable=False),
                )

    def check_columns(self) -> None:
        """Compare the columns."""
        form, stored = self.table.form, self.table.present
        # A changelog needs the columns of its shape for the rows that are there; others are added later.
        needed = form.own if form.layout.takes_changelog else []
        for column in [*form.source, *needed]:
            found = stored.column(column.name)
            if found is None:
                self._note(f"it lacks the column {column.name}", self._add(column))
            elif found.generated:
                self._note(f"its column {found.name} is generated", self._drop(found))
            else:
                self._check_type(column, found)
        if needed and stored.column(SEQUENCE_COLUMN) is None:
            self._note(f"it lacks the column {SEQUENCE_COLUMN}", _sequence_added(self.table))
        own = {name.lower() for name in (*(column.name for column in form.source), *form.added_names, SEQUENCE_COLUMN)}
        for other in stored.columns:
            if other.name.lower() not in own and other.required:
                self._note(
                    f"its column {other.name}, which the source does not have, is NOT NULL without a default",
                    self._change(other, other.declared, nullable=True),
                )

    def check_rows(self, session: Session) -> None:
        """Look for rows that Tailrace did not write, and for the sequence column."""
        table, sequence = self.table, self.table.present.column(SEQUENCE_COLUMN)
        where = "" if sequence is None else f" WHERE {table.dialect.quote(SEQUENCE_COLUMN)} IS NULL"
        if session.query(f"SELECT 1 FROM {table.name}{where} LIMIT 1"):
            self.problems.append("it has rows that Tailrace did not write")
            self.statements.insert(0, f"DELETE FROM {table.name}")
        declared = table.dialect.sequence_type
        if sequence is not None and (sequence.nullable or sequence.declared.lower() != declared.lower()):
            self._note(
                f"its column {SEQUENCE_COLUMN} is not {declared} NOT NULL",
                self._change(sequence, declared, nullable=False),
            )

    def _check_type(self, column: TargetColumn, stored: StoredColumn) -> None:
        kind = stored.kind_for(column.kind)
        wider = None if kind is None else common_type(column.kind, kind)
        if kind is None or wider != kind or (stored.json and column.role is not Role.JSON):
            statements = [self._drop(stored), self._add(column)]
            if kind is not None and wider is not None and JdbcOperations.can_widen(kind, wider):
                role = column.role if column.role is Role.KEY or wider == column.kind else Role.VALUE
                declared = self.table.dialect.column_type(wider, role, self.table.form.keys)
                statements = [self._change(stored, declared, nullable=column.optional)]
            self._note(
                f"its column {stored.name} is {stored.declared}, which does not represent all values of "
                f"{column.kind.simpleString()}",
                *statements,
            )
        elif column.optional and not stored.nullable:
            self._note(f"its column {stored.name} is NOT NULL", self._change(stored, stored.declared, nullable=True))

    def _change(self, stored: StoredColumn, declared: str, *, nullable: bool) -> str:
        name = self.table.dialect.quote(stored.name)
        return self.table.dialect.change_type(self.table.name, name, declared, nullable=nullable)

    def _add(self, column: TargetColumn) -> str:
        return self._alter(f"ADD COLUMN {self.table.dialect.quote(column.name)} {self.table.definition(column)}")

    def _drop(self, stored: StoredColumn) -> str:
        return self._alter(f"DROP COLUMN {self.table.dialect.quote(stored.name)}")

    def _alter(self, change: str) -> str:
        return f"ALTER TABLE {self.table.name} {change}"

    def _note(self, problem: str, *statements: str) -> None:
        self.problems.append(problem)
        self.statements += statements


def _sequence_added(table: JdbcTable) -> str:
    column = f"{table.dialect.quote(SEQUENCE_COLUMN)} {table.dialect.sequence_type} NOT NULL"
    return f"ALTER TABLE {table.name} ADD COLUMN {column}"


def take_over(table: JdbcTable, session: Session) -> None:
    """Check a table that exists and is not in the ledger, and add the sequence column where it is missing."""
    check_names(table.form.schema, table.form.added_names)
    check = _TableCheck(table)
    check.check_columns()
    check.check_keys()
    if not check.problems or table.present.is_table:
        check.check_rows(session)
    check.require()
    if table.present.column(SEQUENCE_COLUMN) is None:
        session.execute(_sequence_added(table))
        table.read(session)
    log.info("existing table taken over", table=table.name)


def check_owned(table: JdbcTable) -> None:
    """Check what must hold in a table that Tailrace writes to and that somebody may have changed."""
    if table.present.column(SEQUENCE_COLUMN) is None:
        raise SinkError(
            f"the table {table.name} has lost its column {SEQUENCE_COLUMN}", hint=load_remedy("drop the table")
        )
    check = _TableCheck(table)
    check.check_keys()
    check.require()
