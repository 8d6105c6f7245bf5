"""Brings a target table up to date with the columns of its captured table.

Statements change the columns; one rewrite of the table fills columns whose values in existing rows are known. An
attempt that was interrupted is repeated: the steps that it made are found in the columns, or in a table property where
the columns do not tell (evolution/attempt.py), and the rewrite has a transaction id. The table properties say up to
which statement the table is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog
from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.schemas.alteration import Alteration
from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.changelog.flatten import check_names
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.evolution.attempt import Attempt, is_made
from tailrace.spark_consumer.evolution.marks import pending, position_text
from tailrace.spark_consumer.evolution.outcome import Evolved, captured_name, report_unknown, warn_of_records_before
from tailrace.spark_consumer.evolution.plan import (
    Plan,
    Step,
    TypeChange,
    make_plan,
)
from tailrace.spark_consumer.evolution.policy import ChangeKind, EvolutionPolicy
from tailrace.spark_consumer.evolution.stored_text import SourceNames
from tailrace.spark_consumer.sink.shape import Layout
from tailrace.spark_consumer.sink.state import TargetState
from tailrace.spark_consumer.sink.table_names import quote
from tailrace.spark_consumer.sink.target_table import PLAIN, ColumnChanges, TargetTable, assignments, key_text
from tailrace.spark_consumer.source.conversion import added_value, convert_value
from tailrace.spark_consumer.source.json_decoder import row_type
from tailrace.spark_consumer.source.kafka import load_remedy, reload_remedy

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

log = structlog.get_logger(__name__)


def evolve(
    table: TargetTable,
    schema: TableSchema,
    alterations: Sequence[Alteration],
    policy: EvolutionPolicy,
    layout: Layout = PLAIN,
) -> Evolved:
    """Change the columns of a table as the policy says (evolution/plan.py), and add those of the layout.

    Raises SinkError for a change that the policy or the format does not allow, and for another key.
    """
    if schema.key:
        # Another key is the first thing to say, also where the format cannot have it.
        _require_same_key(table, schema)
    table.check_schema(schema)
    if SEQUENCE_COLUMN not in table.columns.names:
        raise SinkError(
            f"the {table.format} table {table.name} was not created by Tailrace: it has no column {SEQUENCE_COLUMN}",
            hint="set another target, or move the table away",
        )
    _require_same_shape(table, layout)
    check_names(schema, layout.names)
    table.add_columns(layout)
    others = {SEQUENCE_COLUMN, *(name.lower() for name in table.state.added)}
    stored = {each.name: each.dataType for each in table.columns if each.name.lower() not in others}
    state = table.state
    names = SourceNames.from_json(state.names) if state.names else SourceNames(tuple(stored))
    since = pending(alterations, state.last_alteration)
    wanted = {each.name: each.dataType for each in row_type(schema).fields}
    if state.altering:
        attempt = Attempt.from_json(state.altering)
        made_for = attempt.alterations(since)
        if made_for:
            plan, left = attempt.plan(
                names, made_for, stored, can_widen=table.can_widen, mark=state.made, follows_case=False
            )
            _Evolution(table, schema, plan, made_for).apply(attempt, left)
            return evolve(table, schema, alterations, policy, layout)
    plan = make_plan(
        stored, wanted, names, since, policy=policy, can_widen=table.can_widen, mark=state.made, follows_case=False
    )
    evolution = _Evolution(table, schema, plan, since)
    evolution.check(policy)
    evolution.apply(Attempt.of(plan, since, stored, wanted, policy))
    return Evolved.by(plan)


def caught_up(state: TargetState, schema: TableSchema, alterations: Sequence[Alteration]) -> TargetState:
    """Return the state of a target that is new behind these alterations; it has no rows that they changed."""
    warn_of_records_before(schema, alterations)
    names = SourceNames(tuple(column.name for column in schema.columns)).to_json()
    return replace(state, names=names, last_alteration=position_text(alterations))


class _Evolution:
    """One plan for one table."""

    def __init__(
        self,
        table: TargetTable,
        schema: TableSchema,
        plan: Plan,
        alterations: Sequence[Alteration],
    ) -> None:
        self._table = table
        self._schema = schema
        self._plan = plan
        self._alterations = alterations
        self._name = f"{schema.database}.{schema.table}"

    def check(self, policy: EvolutionPolicy) -> None:
        """Raise SinkError for what the plan cannot do; warn of rows that it cannot know."""
        plan, source = self._plan, [alteration.statement for alteration in self._alterations]
        for reason in plan.conflicts:
            raise SinkError(
                f"{self._name} was altered in a way that its {self._table.format} table cannot follow: {reason}",
                hint=load_remedy(f"move the {self._table.format} table away"),
                source=source,
            )
        for step in plan.refused:
            raise SinkError(
                f"{self._name} was altered, and schema.change.behavior=exception allows no change of the "
                f"{self._table.format} table",
                hint="run the statement, and start again; or set another schema.change.behavior, or "
                "exclude.schema.changes",
                change=step.kind.value,
                column=step.column,
                source=source,
                statement=self._table.statement(*self._needed_changes()),
            )
        for change in plan.unsupported:
            raise SinkError(
                f"the type of column {change.column} of {self._name} has changed, "
                f"and {self._table.format} cannot change the type of the column",
                hint=reload_remedy(self._schema.topic, f"move the {self._table.format} table away")
                if change.needs_reload
                else load_remedy(f"move the {self._table.format} table away")
                + "; or set schema.change.behavior=try_evolve to convert the values that fit",
                stored=change.stored.simpleString(),
                now=change.now.simpleString(),
                statement=self._table.statement(_widening(change)),
            )
        if plan.unknown:
            statement = self._table.statement(self._set(self._progress()))
            name = captured_name(self._schema, self._alterations)
            report_unknown(name, plan, source, statement if policy.needs_exact_rows else None)

    def apply(self, attempt: Attempt | None, first: int = 0) -> None:
        """Carry out the plan, from the step ``first`` on, and store how far the table is.

        ``attempt`` is what to store before each step, if the columns do not tell which of them were made.
        """
        plan, table = self._plan, self._table
        if plan.changes_target:
            check_names(self._schema)
            needed = table.needed_properties(self._kinds_of_changes())
            if needed:
                table.set(needed)
            if attempt is not None and attempt.step < 0 and not plan.steps:
                table.store(replace(table.state, altering=attempt.to_json(0)))
            for number, step in enumerate(plan.steps[first:], first):
                if table.shard is not None and is_made(step, table.columns.names):
                    continue  # another shard has made it since
                if attempt is not None and number > attempt.step:
                    table.store(replace(table.state, altering=attempt.to_json(number)))
                self._carry_out(step)
            for each in plan.widened:
                table.widen(each.column, each.wider or each.now)
            if plan.fills:
                self._fill()
            log.info("columns changed", table=self._name, changes=self._changes(), filled=sorted(plan.fills))
        table.store(self._progress())

    def _carry_out(self, step: Step) -> None:
        if step.kind is ChangeKind.DROP:
            self._table.drop(step.column)
        elif step.kind is ChangeKind.RENAME:
            self._table.rename(step.old, step.column)
        else:
            self._table.add([tp.StructField(step.column, self._plan.types[step.column.lower()])])

    def _progress(self) -> TargetState:
        state = self._table.state
        done = position_text(self._alterations) or state.last_alteration
        return replace(state, names=self._plan.names.to_json(), last_alteration=done, altering="")

    def _kinds_of_changes(self) -> ColumnChanges:
        plan = self._plan
        added = {step.column: plan.types[step.column.lower()] for step in plan.steps if step.kind is ChangeKind.ADD}
        moved = any(step.kind is not ChangeKind.ADD for step in plan.steps)
        return ColumnChanges(added, [change.wider or change.now for change in plan.widened], moved)

    def _changes(self) -> list[str]:
        return [self._change(step) for step in self._plan.steps] + [_widening(each) for each in self._plan.widened]

    def _change(self, step: Step) -> str:
        if step.kind is ChangeKind.DROP:
            return f"DROP COLUMN {quote(step.column)}"
        if step.kind is ChangeKind.RENAME:
            return f"RENAME COLUMN {quote(step.old)} TO {quote(step.column)}"
        return f"ADD COLUMNS ({quote(step.column)} {self._plan.types[step.column.lower()].simpleString()})"

    def _needed_changes(self) -> list[str]:
        """Return everything that is to be done, also what the format cannot do."""
        needed = self._table.needed_properties(self._kinds_of_changes())
        first = [f"SET TBLPROPERTIES ({assignments(needed)})"] if needed else []
        last = [self._set(replace(self._table.state, made=self._plan.mark))] if self._plan.mark else []
        return [*first, *self._changes(), *map(_widening, self._plan.unsupported), *last]

    def _set(self, state: TargetState) -> str:
        changed, _ = state.since(self._table.state)
        return f"SET TBLPROPERTIES ({assignments(self._table.as_stored(changed))})"

    def _fill(self) -> None:
        """Rewrite the table with the values of existing rows."""
        once = None
        if self._alterations:
            position = self._alterations[-1].sequence
            once = f"tailrace/{self._schema.topic}/altered/{position.epoch}", (position.file << 36) + position.pos
        self._table.replace(self._filled_rows, once=once)

    def _filled_rows(self, stored: DataFrame) -> DataFrame:
        types = {each.name.lower(): each.dataType for each in stored.schema}
        shard = self._table.shard
        columns = [self._filled(each.name, types) for each in stored.schema.fields]
        if shard is not None:
            own, old = (
                fn.expr(shard.condition(stored.schema)),
                [fn.col(quote(each.name)) for each in stored.schema.fields],
            )
            columns = [fn.when(own, value).otherwise(other) for value, other in zip(columns, old, strict=True)]
        named = (value.alias(each.name) for value, each in zip(columns, stored.schema.fields, strict=True))
        return stored.select(*named)

    def _filled(self, name: str, types: Mapping[str, tp.DataType]) -> Column:
        fill, kind = self._plan.fills.get(name.lower()), types[name.lower()]
        if fill is None:
            return fn.col(quote(name))
        if fill.copied:
            value, lost = convert_value(fn.col(quote(fill.copied)), types[fill.copied.lower()], kind)
            text = (
                f"a value of {self._name}, column {fill.copied}, does not fit {kind.simpleString()}, the type of {name}"
            )
            return value if lost is None else fn.when(lost, fn.raise_error(fn.lit(text)).cast(kind)).otherwise(value)
        added = None if fill.added is None else added_value(fill.added, kind, self._schema.topic)
        return fn.lit(None).cast(kind) if added is None else added


def _widening(change: TypeChange) -> str:
    return f"ALTER COLUMN {quote(change.column)} TYPE {(change.wider or change.now).simpleString()}"


def _require_same_shape(table: TargetTable, layout: Layout) -> None:
    stored = table.state.shape or "scd1"
    if stored != layout.shape:
        raise SinkError(
            f"the {table.format} table {table.name} has the shape {stored}, and the configuration asks for "
            f"{layout.shape}",
            hint=f"set the shape {stored} for the table in sink.shape.overrides; or "
            + load_remedy(f"move the {table.format} table away"),
        )


def _require_same_key(table: TargetTable, schema: TableSchema) -> None:
    stored = table.state.key
    if stored and stored != key_text(schema):
        raise SinkError(
            f"the key of {schema.database}.{schema.table} has changed: its rows cannot be matched with the table",
            hint=reload_remedy(schema.topic, f"move the {table.format} table away"),
            stored=stored,
            now=key_text(schema),
        )
