"""Brings a target up to date with the columns of its captured table.

Operations change the columns, and fill those whose values in existing rows are known. An attempt that was interrupted
is repeated: the steps that it made are found in the columns, or in the state where the columns do not tell
(evolution/attempt.py), and a fill is made once. The state says up to which statement the target is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog

from tailrace.schemas.alteration import Alteration
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.changelog.flatten import check_names
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.evolution.attempt import Attempt, is_made
from tailrace.spark_consumer.evolution.marks import pending, position_text
from tailrace.spark_consumer.evolution.outcome import Evolved, captured_name, report_unknown, warn_of_records_before
from tailrace.spark_consumer.evolution.plan import Plan, Step, TypeChange, make_plan
from tailrace.spark_consumer.evolution.policy import ChangeKind, EvolutionPolicy
from tailrace.spark_consumer.evolution.stored_text import SourceNames
from tailrace.spark_consumer.sink.shape import IS_DELETED, PLAIN, Layout
from tailrace.spark_consumer.sink.state import TargetState
from tailrace.spark_consumer.sink.target import (
    Add,
    Change,
    Drop,
    FillColumns,
    MarkExisting,
    Note,
    Rename,
    Retype,
    Target,
    Widen,
)
from tailrace.spark_consumer.source.kafka import load_remedy, reload_remedy

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
    add_columns(target, layout)
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
            _Evolution(target, schema, plan, made_for).apply(attempt, left)
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
    evolution = _Evolution(target, schema, plan, since)
    evolution.check(policy)
    evolution.apply(Attempt.of(plan, since, stored, wanted, policy))
    return Evolved.by(plan)


def _require_same_shape(target: Target, layout: Layout) -> None:
    """Raise SinkError if a target has another shape."""
    stored, wording = target.state.shape or "scd1", target.wording
    if stored != layout.shape:
        raise SinkError(
            f"{wording.name} has the shape {stored}, and the configuration asks for {layout.shape}",
            hint=f"set the shape {stored} for the table in sink.shape.overrides; or " + load_remedy(wording.remove),
        )


def add_columns(target: Target, layout: Layout) -> None:
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
    alterations: Sequence[Alteration]

    @property
    def _name(self) -> str:
        return f"{self.schema.database}.{self.schema.table}"

    @property
    def _end(self) -> TargetState:
        """The state when the plan is carried out."""
        state = self.target.state
        done = position_text(self.alterations) or state.last_alteration
        return replace(state, names=self.plan.names.to_json(), last_alteration=done, altering="")

    def check(self, policy: EvolutionPolicy) -> None:
        """Raise SinkError for what the plan cannot do; warn of rows that it cannot know."""
        plan, target, wording = self.plan, self.target, self.target.wording
        source = [alteration.statement for alteration in self.alterations]
        for reason in plan.conflicts:
            raise SinkError(
                f"{self._name} was altered in a way that its {wording.target} cannot follow: {reason}",
                hint=load_remedy(wording.remove),
                source=source,
            )
        for step in plan.refused:
            mark = [Note(replace(target.state, made=plan.mark))] if plan.mark else []
            raise SinkError(
                f"{self._name} was altered, and schema.change.behavior=exception allows no change of the "
                f"{wording.target}",
                hint="run the statement, and start again; or set another schema.change.behavior, or "
                "exclude.schema.changes",
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
            report_unknown(captured_name(self.schema, self.alterations), plan, source, statement)

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
                position = self.alterations[-1].sequence if self.alterations else None
                operations.append(FillColumns(plan.fills, self.schema, position))
        if operations or end != state:
            changes = self.target.explain(self._column_changes()) if plan.changes_target else ""
            self.target.change([*operations, Note(end)])
            if plan.changes_target:
                log.info("columns changed", table=self._name, changes=changes, filled=sorted(plan.fills))

    def _steps(self, attempt: Attempt | None, first: int) -> list[Change]:
        found: list[Change] = []
        state, columns = self.target.state, self.target.column_names
        if attempt is not None and attempt.step < 0 and not self.plan.steps:
            found.append(Note(replace(state, altering=attempt.to_json(0))))
        for number, step in enumerate(self.plan.steps[first:], first):
            if self.target.shard is not None and is_made(step, columns):
                continue  # another shard has made it since
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
