"""Brings a target up to date with the columns of its captured table.

Operations change the columns, and fill those whose values in existing rows are known. An attempt that was interrupted
is repeated: the steps that it made are found in the columns, or in the state where the columns do not tell
(evolution/attempt.py), and a fill is made once. The state says up to which statement the target is done.

A table that somebody else has created in a table format is taken over: it must be fit for every row that the source
can write. Nothing is changed before all checks have passed. What does not fit is reported with the statements that fix
it. Rows from elsewhere have no sequence, and the source does not tell which of them it has: only rows with one may be
there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog
from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.schemas.alteration import Alteration
from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.evolution.attempt import (
    Attempt,
    Evolved,
    captured_name,
    report_unknown,
    warn_of_records_before,
)
from tailrace.spark_consumer.evolution.plan import Plan, Step, TypeChange, make_plan
from tailrace.spark_consumer.evolution.policy import ChangeKind, EvolutionPolicy, SourceNames, pending, position_text
from tailrace.spark_consumer.normalize.rowkind import check_names
from tailrace.spark_consumer.sink.shape import IS_DELETED, PLAIN, Layout
from tailrace.spark_consumer.sink.state import TargetState
from tailrace.spark_consumer.sink.target import (
    Add,
    AllowNull,
    Change,
    Drop,
    FillColumns,
    MarkExisting,
    Note,
    Operation,
    RemoveRows,
    Rename,
    Retype,
    SetProperties,
    Target,
    Widen,
)
from tailrace.spark_consumer.sink.target_table import TargetTable
from tailrace.spark_consumer.source.common_type import common_type
from tailrace.spark_consumer.source.json_decoder import row_type
from tailrace.spark_consumer.source.kafka import load_remedy, reload_remedy
from tailrace.spark_consumer.source.types import SEQUENCE_TYPE

log = structlog.get_logger(__name__)


def evolve(
    target: Target,
    schema: TableSchema,
    alterations: Sequence[Alteration],
    policy: EvolutionPolicy,
    layout: Layout = PLAIN,
) -> Evolved:
    """Change the columns of a target as the policy says (evolution/plan.py), and add those of the layout.

    Raises SinkError for a change that the policy or the target does not allow, and for another shape.
    """
    _require_same_shape(target, layout)
    check_names(schema, [column.name for column in target.added(layout)])
    _add_columns(target, layout)
    return _evolve(target, schema, alterations, policy if target.shard is None else target.shard.policy(policy))


def _evolve(target: Target, schema: TableSchema, alterations: Sequence[Alteration], policy: EvolutionPolicy) -> Evolved:
    state, (stored, wanted) = target.state, target.kinds(schema)
    names = SourceNames.from_json(state.names) if state.names else SourceNames(tuple(stored))
    since = pending(alterations, state.last_alteration)
    if state.altering:
        attempt = Attempt.from_json(state.altering)
        made_for = attempt.alterations(since)
        if made_for:
            plan, left = attempt.plan(
                names,
                made_for,
                stored,
                can_widen=target.can_widen,
                mark=state.made,
                follows_case=target.follows_case,
            )
            evolution = _Evolution(target, schema, plan)
            evolution.check(attempt.policy)
            evolution.apply(attempt, left)
            return _evolve(target, schema, alterations, policy)
    plan = make_plan(
        stored,
        wanted,
        names,
        since,
        policy=policy,
        can_widen=target.can_widen,
        mark=state.made,
        follows_case=target.follows_case,
    )
    evolution = _Evolution(target, schema, plan)
    evolution.check(policy)
    evolution.apply(Attempt.of(plan, stored, policy))
    if len(plan.alterations) < len(since):
        return _evolve(target, schema, alterations, policy)
    return Evolved.by(plan)


def _require_same_shape(target: Target, layout: Layout) -> None:
    """Raise SinkError if a target has another shape."""
    stored, wording = target.state.shape or "scd1", target.wording
    if stored != layout.shape:
        raise SinkError(
            f"{wording.name} has the shape {stored}, and the configuration asks for {layout.shape}",
            hint=f"set the shape {stored} for the table in sink.shape.overrides; or " + load_remedy(wording.remove),
        )


def _add_columns(target: Target, layout: Layout) -> None:
    """Add the columns of a layout that a target lacks, and note them. Raises SinkError for one of another type."""
    columns, wording = target.added(layout), target.wording
    for column in columns:
        types = target.mismatch(column)
        if types is not None:
            raise SinkError(
                f"{wording.name} has a column {column.name} of another type than the metadata column of that name",
                hint="give the field another column in add.fields, as in field:name, or drop the column",
                stored=types[0],
                wanted=types[1],
            )
    stored = {name.lower() for name in target.column_names}
    missing = [column for column in columns if column.name.lower() not in stored]
    of_shape = {column.name for column in layout.own_columns}
    if layout.takes_changelog and any(column.name in of_shape for column in missing) and target.has_rows:
        raise SinkError(
            f"{wording.name} has rows, and not the columns of the shape {layout.shape}",
            hint=f"set another target, or {wording.remove}",
            missing=[column.name for column in missing],
        )
    names, state = [column.name for column in columns], target.state
    operations: list[Change] = [Add(tuple(missing))] if missing else []
    if IS_DELETED in state.added and any(column.name == IS_DELETED for column in missing):
        log.warning(
            "the marks of deleted rows are gone: rows that the source has deleted count as rows",
            target=wording.name,
            column=IS_DELETED,
            hint=load_remedy(wording.remove),
        )
        # Until all rows have a mark, also if an attempt is interrupted.
        state = state.without_added(IS_DELETED)
        operations.insert(0, Note(state))
    if IS_DELETED in names and IS_DELETED not in state.added:
        operations.append(MarkExisting())
    noted = state.with_layout(layout.shape, names)
    if operations or noted != state:
        target.change([*operations, Note(noted)])


def caught_up(state: TargetState, schema: TableSchema, alterations: Sequence[Alteration]) -> TargetState:
    """Return the state of a target that is new behind these alterations; it has no rows that they changed."""
    warn_of_records_before(schema, alterations)
    names = SourceNames(tuple(column.name for column in schema.columns)).to_json()
    return replace(state, names=names, last_alteration=position_text(alterations))


@dataclass(frozen=True, slots=True)
class _Evolution:
    """One plan for one target."""

    target: Target
    schema: TableSchema
    plan: Plan

    @property
    def _name(self) -> str:
        return f"{self.schema.database}.{self.schema.table}"

    @property
    def _end(self) -> TargetState:
        """The state when the plan is carried out."""
        state = self.target.state
        done = position_text(self.plan.alterations) or state.last_alteration
        return replace(state, names=self.plan.names.to_json(), last_alteration=done, altering="")

    def check(self, policy: EvolutionPolicy) -> None:
        """Raise SinkError for what the plan cannot do; warn of rows that it cannot know."""
        plan, target, wording = self.plan, self.target, self.target.wording
        source = [alteration.statement for alteration in self.plan.alterations]
        for reason in plan.conflicts:
            raise SinkError(
                f"{self._name} was altered in a way that its {wording.target} cannot follow: {reason}",
                hint=load_remedy(wording.remove),
                source=source,
            )
        for step in plan.refused:
            noted = replace(target.state, made=position_text(self.plan.alterations) or target.state.made)
            mark = [Note(noted)] if noted != target.state else []
            kept_out = f"schema.change.behavior=exception allows no change of the {wording.target}"
            if self.plan.alterations and not mark:
                kept_out += "; it is marked as changed, and its columns are not those after the change"
            end = "; its end stores that it was run, and the table stays parked without it" if mark else ""
            raise SinkError(
                f"{self._name} was altered, and {kept_out}",
                hint=f"run what was not run yet of the statement, and start again{end}; or set another "
                "schema.change.behavior, or exclude.schema.changes",
                change=step.kind.value,
                column=step.column,
                source=source,
                statement=target.explain([*self._column_changes(), *map(_retyped, plan.unsupported), *mark]),
            )
        for change in plan.unsupported:
            raise SinkError(
                f"the type of column {change.column} of {self._name} has changed, and {wording.keeps_type}",
                hint=reload_remedy(self.schema.topic, wording.remove)
                if change.needs_reload
                else wording.by_hand
                + load_remedy(wording.remove)
                + "; or set schema.change.behavior=try_evolve to convert the values that fit",
                stored=target.declared(change),
                now=change.now.simpleString(),
                statement=target.explain([_retyped(change)]),
            )
        if plan.unknown:
            statement = target.explain([Note(self._end)]) if policy.needs_exact_rows else None
            report_unknown(captured_name(self.schema, self.plan.alterations), plan, source, statement)

    def apply(self, attempt: Attempt | None, first: int = 0) -> None:
        """Carry out the plan, from the step ``first`` on, and store how far the target is.

        ``attempt`` is what to store before each step, if the columns do not tell which of them were made.
        """
        plan, state, end = self.plan, self.target.state, self._end
        operations: list[Change] = []
        if plan.changes_target:
            operations += self._steps(attempt, first)
            operations += map(_widened, plan.widened)
            if plan.fills:
                position = self.plan.alterations[-1].sequence if self.plan.alterations else None
                operations.append(FillColumns(plan.fills, self.schema, position))
        if operations or end != state:
            changes = self.target.explain(self._column_changes()) if plan.changes_target else ""
            self.target.change([*operations, Note(end)])
            if plan.changes_target:
                log.info("columns changed", table=self._name, changes=changes, filled=sorted(plan.fills))

    def _steps(self, attempt: Attempt | None, first: int) -> list[Change]:
        found: list[Change] = []
        state = self.target.state
        if attempt is not None and attempt.step < 0 and not self.plan.steps:
            found.append(Note(replace(state, altering=attempt.to_json(0))))
        for number, step in enumerate(self.plan.steps[first:], first):
            if attempt is not None and number > attempt.step:
                found.append(Note(replace(state, altering=attempt.to_json(number))))
            found.append(self._operation(step))
        return found

    def _column_changes(self) -> list[Change]:
        return [*map(self._operation, self.plan.steps), *map(_widened, self.plan.widened)]

    def _operation(self, step: Step) -> Change:
        if step.kind is ChangeKind.DROP:
            return Drop(step.column)
        if step.kind is ChangeKind.RENAME:
            return Rename(step.old, step.column)
        return Add.one(step.column, self.plan.types[step.column.lower()])


def _widened(change: TypeChange) -> Widen:
    return Widen(change.column, change.wider or change.now)


def _retyped(change: TypeChange) -> Retype:
    return Retype(change.column, change.wider or change.now)


_DECLARED: Final = "__CHAR_VARCHAR_TYPE_STRING"
"""Metadata of a column: the type as it was declared, if it is CHAR or VARCHAR."""
_DEFAULT: Final = "CURRENT_DEFAULT"
"""Metadata of a column: its default."""

log = structlog.get_logger(__name__)


def take_over(
    table: TargetTable,
    schema: TableSchema,
    alterations: Sequence[Alteration],
    state: TargetState,
    layout: Layout = PLAIN,
) -> None:
    """Make an existing table the target of a captured table; ``state`` is that of the table then.

    The order of its columns does not matter, types may be wider, and further columns are left alone. Raises SinkError
    for a table that does not fit.
    """
    check_names(schema, layout.names)
    table.check_schema(schema)
    problems, changes = _differences(table, schema, layout)
    has_sequence = SEQUENCE_COLUMN in table.columns.names
    foreign = not table.has_no_files and _has_foreign_rows(table, has_sequence=has_sequence)
    if foreign:
        problems.append("it has rows that Tailrace did not write")
    if problems:
        raise SinkError(
            f"the {table.format} table {table.name} exists and cannot take the rows of "
            f"{schema.database}.{schema.table}: {'; '.join(problems)}",
            hint="run the statement, or set another target; the table is then taken over",
            statement=table.explain([*([RemoveRows()] if foreign else []), *changes]),
        )
    if not has_sequence:
        table.change([Add.one(SEQUENCE_COLUMN, SEQUENCE_TYPE)])
    _add_columns(table, layout)
    table.set(caught_up(state, schema, alterations).properties)
    log.info("existing table taken over", table=table.name, columns_of_others=_others(table, schema, layout))


def _has_foreign_rows(table: TargetTable, *, has_sequence: bool) -> bool:
    rows = table.rows()
    if has_sequence:
        rows = rows.where(fn.col(SEQUENCE_COLUMN).isNull())
    return not rows.limit(1).isEmpty()


def _others(table: TargetTable, schema: TableSchema, layout: Layout) -> list[str]:
    own = {SEQUENCE_COLUMN, *(name.lower() for name in (*layout.names, *(each.name for each in schema.columns)))}
    return [name for name in table.columns.names if name.lower() not in own]


def _differences(table: TargetTable, schema: TableSchema, layout: Layout) -> tuple[list[str], list[Operation]]:
    """Return what does not fit, and the changes of the table that fix it."""
    problems: list[str] = []
    changes: list[Operation] = []
    stored = {field.name.lower(): field for field in table.columns}
    optional = {column.name: column.schema.optional for column in schema.columns} | dict.fromkeys(layout.names, True)
    # Tailrace adds these itself.
    added_later = {SEQUENCE_COLUMN, *layout.names}
    wanted = [*row_type(schema).fields, tp.StructField(SEQUENCE_COLUMN, SEQUENCE_TYPE), *layout.columns]
    for field in wanted:
        found = stored.pop(field.name.lower(), None)
        if found is None:
            if field.name not in added_later:
                problems.append(f"it lacks the column {field.name}")
                changes.append(Add.one(field.name, field.dataType))
            continue
        declared = found.metadata.get(_DECLARED, "")
        if common_type(field.dataType, found.dataType) != found.dataType or declared.startswith("char"):
            shown, now = declared or found.dataType.simpleString(), field.dataType.simpleString()
            problems.append(f"its column {found.name} is {shown}, which does not represent all values of {now}")
            wider = common_type(field.dataType, found.dataType)
            if wider is not None and wider != found.dataType and table.can_widen(found.dataType, wider):
                changes.append(Widen(found.name, wider))
            else:
                changes += [Drop(found.name), Add.one(field.name, field.dataType)]
        elif not found.nullable and optional.get(field.name, False):
            problems.append(f"its column {found.name} is NOT NULL")
            changes.append(AllowNull(found.name))
    for other in stored.values():
        if not other.nullable and _DEFAULT not in other.metadata:
            problems.append(f"its column {other.name}, which the source does not have, is NOT NULL without a default")
            changes.append(AllowNull(other.name))
    blocking = table.blocking_properties
    if blocking:
        problems.append("rows cannot be changed")
        changes.append(SetProperties(blocking))
    return problems, changes
