"""Brings a table of the target database up to date with the columns of its captured table.

Statements change the columns, an UPDATE fills those whose values in existing rows are known, and the ledger notes up to
which statement the table is done: in one transaction where the database has transactions for DDL. Elsewhere the UPDATE
and the ledger are one. The steps that an interrupted attempt made are found in the columns, or in the ledger where the
columns do not tell (evolution/attempt.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog
from pyspark.sql import types as tp

from tailrace.schemas.alteration import Alteration
from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.spark_consumer.changelog.flatten import check_names
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.evolution.attempt import Attempt, is_made
from tailrace.spark_consumer.evolution.marks import pending, position_text
from tailrace.spark_consumer.evolution.outcome import Evolved, captured_name, report_unknown
from tailrace.spark_consumer.evolution.plan import (
    Fill,
    Plan,
    Step,
    TypeChange,
    make_plan,
)
from tailrace.spark_consumer.evolution.policy import ChangeKind, EvolutionPolicy
from tailrace.spark_consumer.evolution.stored_text import SourceNames
from tailrace.spark_consumer.sink.jdbc_columns import TargetColumn, TargetForm, as_text
from tailrace.spark_consumer.sink.jdbc_dialect import Role
from tailrace.spark_consumer.sink.jdbc_table import JdbcTable, require_table
from tailrace.spark_consumer.source.common_type import common_type
from tailrace.spark_consumer.source.conversion import added_value
from tailrace.spark_consumer.source.kafka import load_remedy, reload_remedy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.spark_consumer.sink.jdbc_session import Session

log = structlog.get_logger(__name__)


def evolve(
    table: JdbcTable,
    session: Session,
    form: TargetForm,
    alterations: Sequence[Alteration],
    policy: EvolutionPolicy,
) -> Evolved:
    """Change the columns of a table as the policy says (evolution/plan.py).

    Raises SinkError for a change that the policy or the database does not allow.
    """
    assert table.entry is not None
    stored, wanted = stored_kinds(table, form.source), {each.name: each.kind for each in form.source}
    state = table.entry.state
    names, mark = SourceNames.from_json(state.names), state.made
    since = pending(alterations, state.last_alteration)
    if state.altering:
        attempt = Attempt.from_json(state.altering)
        made_for = attempt.alterations(since)
        if made_for:
            plan, left = attempt.plan(names, made_for, stored, can_widen=can_widen, mark=mark)
            _Evolution(table, form, plan, made_for).apply(session, attempt, left)
            return evolve(table, session, form, alterations, policy)
    plan = make_plan(stored, wanted, names, since, policy=policy, can_widen=can_widen, mark=mark)
    evolution = _Evolution(table, form, plan, since)
    evolution.check(policy)
    evolution.apply(session, Attempt.of(plan, since, stored, wanted, policy))
    return Evolved.by(plan)


def stored_kinds(table: JdbcTable, columns: Sequence[TargetColumn]) -> dict[str, tp.DataType]:
    """Return the Spark types of the columns that the source gives; ``void`` for one that no Spark type describes."""
    wanted = {each.name.lower(): each for each in columns}
    others = {SEQUENCE_COLUMN, *(name.lower() for name in (table.entry.state.added if table.entry else ()))}
    found: dict[str, tp.DataType] = {}
    for column in require_table(table).columns:
        if column.name.lower() in others:
            continue
        target = wanted.get(column.name.lower())
        kind = column.kind if target is None else column.kind_for(target.kind)
        plain_text = target is not None and column.json and target.role is not Role.JSON
        found[column.name] = tp.NullType() if kind is None or plain_text else kind
    return found


def can_widen(stored: tp.DataType, wider: tp.DataType) -> bool:
    """Return whether a statement can change a type: it must convert values as ``common_type`` supposes."""
    return not isinstance(stored, tp.NullType) and not isinstance(wider, tp.NullType)


class _Evolution:
    """One plan for one table."""

    def __init__(self, table: JdbcTable, form: TargetForm, plan: Plan, alterations: Sequence[Alteration]) -> None:
        schema = form.schema
        self._table = table
        self._form = form
        self._schema = schema
        self._plan = plan
        self._alterations = alterations
        self._columns = {each.name.lower(): each for each in form.source}
        self._name = f"{schema.database}.{schema.table}"

    def check(self, policy: EvolutionPolicy) -> None:
        """Raise SinkError for what the plan cannot do; warn of rows that it cannot know."""
        plan, source = self._plan, [alteration.statement for alteration in self._alterations]
        for reason in plan.conflicts:
            raise SinkError(
                f"{self._name} was altered in a way that its target table cannot follow: {reason}",
                hint=load_remedy("drop the target table"),
                source=source,
            )
        for step in plan.refused:
            raise SinkError(
                f"{self._name} was altered, and schema.change.behavior=exception allows no change of the target table",
                hint="run the statement, and start again; or set another schema.change.behavior, or "
                "exclude.schema.changes",
                change=step.kind.value,
                column=step.column,
                source=source,
                statement="; ".join(self._statements()),
            )
        for change in plan.unsupported:
            raise SinkError(
                f"the type of column {change.column} of {self._name} has changed, and the type that the target has "
                "does not represent its values",
                hint=reload_remedy(self._schema.topic, "drop the target table")
                if change.needs_reload
                else "run the statement in the target, after a check of what it does to the rows there; or "
                + load_remedy("drop the target table")
                + "; or set schema.change.behavior=try_evolve to convert the values that fit",
                stored=self._declared(change.column),
                now=change.now.simpleString(),
                statement=self._widening(replace(change, wider=change.now)),
            )
        if plan.unknown:
            name = captured_name(self._schema, self._alterations)
            report_unknown(name, plan, source, self._done_statement() if policy.needs_exact_rows else None)

    def apply(self, session: Session, attempt: Attempt | None, first: int = 0) -> None:
        """Carry out the plan, from the step ``first`` on, and store how far the table is.

        ``attempt`` is what to store before each step, if the columns do not tell which of them were made.
        """
        plan, table = self._plan, self._table
        assert table.entry is not None
        before = table.entry
        done = position_text(self._alterations) or before.state.last_alteration
        after = replace(before.state, names=plan.names.to_json(), last_alteration=done, altering="")
        if not plan.changes_target and after == before.state:
            return
        changes, fills = self._changes()[first:], self._fills()
        if plan.changes_target:
            check_names(self._schema, self._form.added_names)
            for step in plan.steps:
                table.dialect.check_name(step.column, f"column {step.column} of {self._name}")
        with session.transaction():
            for number, statement in enumerate(changes, first):
                if self._is_made_by_others(number):
                    continue
                table.lock(session)  # again: a database without transactions for DDL commits with the statement
                if attempt is not None and attempt.step < number < len(plan.steps):
                    begun = replace(before.state, altering=attempt.to_json(number))
                    table.write_entry(session, replace(before, state=begun))
                session.execute(statement)
            table.lock(session)
            for statement, parameters in fills:
                session.execute(statement, *parameters)
            table.write_entry(session, replace(before, state=after))
        if plan.changes_target:
            log.info("columns changed", table=self._name, changes=changes, filled=sorted(plan.fills))
        table.read(session)

    def _is_made_by_others(self, number: int) -> bool:
        """Return whether another shard has made a step since the attempt was stored."""
        if self._table.shard is None or number >= len(self._plan.steps):
            return False
        return is_made(self._plan.steps[number], (each.name for each in require_table(self._table).columns))

    def _done_statement(self) -> str:
        """Return the statement after which the alterations count as done."""
        return self._note("last_alteration", position_text(self._alterations))

    def _note(self, column: str, text: str) -> str:
        """Return the statement that changes the row of the ledger."""
        quote, literal = self._table.dialect.quote, self._table.dialect.literal
        return (
            f"UPDATE {self._table.ledger_name} SET {quote(column)} = {literal(text)} "
            f"WHERE {quote('target')} = {literal(self._table.row_name)}"
        )

    def _statements(self) -> list[str]:
        """Return everything that is to be done, if the policy leaves it to somebody."""
        mark = [self._note("made", self._plan.mark)] if self._plan.mark else []
        return [*self._changes(), *map(self._widening, self._plan.unsupported), *mark]

    def _changes(self) -> list[str]:
        return [self._step(step) for step in self._plan.steps] + [self._widening(each) for each in self._plan.widened]

    def _step(self, step: Step) -> str:
        quote, alter = self._table.dialect.quote, f"ALTER TABLE {self._table.sql_name}"
        if step.kind is ChangeKind.DROP:
            return f"{alter} DROP COLUMN {quote(step.column)}"
        if step.kind is ChangeKind.RENAME:
            return f"{alter} RENAME COLUMN {quote(step.old)} TO {quote(step.column)}"
        column = self._columns.get(step.column.lower())
        kind = self._plan.types[step.column.lower()]
        role = Role.VALUE if column is None or column.kind != kind else column.role
        return f"{alter} ADD COLUMN {quote(step.column)} {self._table.dialect.column_type(kind, role)} NULL"

    def _widening(self, change: TypeChange) -> str:
        column = self._columns.get(change.column.lower())  # None: a later statement drops or renames it
        kind = change.wider or change.now
        role = Role.VALUE
        if column is not None and (column.role is Role.KEY or column.kind == kind):
            role = column.role
        declared = self._table.dialect.column_type(kind, role, self._form.keys)
        stored = require_table(self._table).column(change.column)
        name = self._table.dialect.quote(change.column if stored is None else stored.name)
        nullable = role is not Role.KEY and (stored is None or stored.nullable)
        return self._table.dialect.change_type(self._table.sql_name, name, declared, nullable=nullable)

    def _declared(self, column: str) -> str:
        stored = require_table(self._table).column(column)
        return "" if stored is None else stored.declared

    def _fills(self) -> list[tuple[str, tuple[str | None, ...]]]:
        """Return the UPDATE statements: a value is read before it is replaced, whatever the database's rule is.

        Columns that exchange their names through a third one replace each other; the third one has a copy.
        """
        left = dict(self._plan.fills)
        found, copies = [], dict[str, str]()
        while left:
            read = {fill.copied.lower() for fill in left.values() if fill.copied}
            ready = [name for name in left if name not in read or left[name].copied.lower() == name]
            copied = [name for name, fill in left.items() if fill.copied.lower() in copies]
            if not ready and copied:
                left |= {name: replace(left[name], copied=copies[left[name].copied.lower()]) for name in copied}
                continue
            if not ready:
                raise SinkError(
                    f"{self._name} was altered in a way that its target table cannot follow: columns exchanged names",
                    hint=load_remedy("drop the target table"),
                )
            copies |= {left[name].copied.lower(): left[name].column for name in ready if left[name].copied}
            found += [self._fill(left.pop(name)) for name in ready]
        own, more = self._table.rows_of_shard()
        return [(f"{text} WHERE {own}", (*given, *more)) if own else (text, given) for text, given in found]

    def _fill(self, fill: Fill) -> tuple[str, tuple[str | None, ...]]:
        dialect, kinds = self._table.dialect, self._kinds()
        start = f"UPDATE {self._table.sql_name} SET {dialect.quote(fill.column)} = "
        kind = kinds[fill.column.lower()]
        if fill.copied:
            source = kinds[fill.copied.lower()]
            if common_type(source, kind) != kind:
                raise SinkError(
                    f"values of {self._name}, column {fill.copied}, do not fit the type of {fill.column}",
                    hint=load_remedy("drop the target table"),
                    source=source.simpleString(),
                    target=kind.simpleString(),
                )
            return f"{start}{dialect.quote(fill.copied)}", ()
        text = None if fill.added is None else self._text(fill, kind)
        if text is None:
            return f"{start}NULL", ()
        return f"{start}{dialect.text_value(kind)}", (text,)

    def _text(self, fill: Fill, kind: tp.DataType) -> str | None:
        """Let Spark convert the value that ADD COLUMN gave to rows, as it converts records."""
        from pyspark.sql import SparkSession  # noqa: PLC0415 - the session of the batch

        assert fill.added is not None
        value = added_value(fill.added, kind, self._schema.topic)
        if value is None:
            return None
        spark: SparkSession = SparkSession.active()
        text = as_text(value, kind, self._table.dialect.zone).alias("text")
        found: str | None = spark.range(1).select(text).collect()[0]["text"]
        return found

    def _kinds(self) -> dict[str, tp.DataType]:
        """Return the types after the steps, by lower-case name."""
        stored = stored_kinds(self._table, list(self._columns.values()))
        kinds = {name.lower(): kind for name, kind in stored.items()} | self._plan.types
        for change in self._plan.widened:
            kinds[change.column.lower()] = change.wider or change.now
        for step in self._plan.steps:
            if step.kind is ChangeKind.RENAME:
                kinds.setdefault(step.column.lower(), kinds.get(step.old.lower(), tp.NullType()))
        return kinds
