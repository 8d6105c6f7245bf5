"""From the columns of a target and of the source to the steps that bring the target up to date; no target is touched.

The alterations say what happened to columns that exist. What they do not explain is found by name: a column that the
target lacks was added with unknown values, one that the source lacks was dropped.

The behavior ``exception`` leaves the steps to a person (``refused``). Only a mark tells that they were made: the
position of the last alteration, which the last of the shown statements stores with the target. Columns that do not
follow from the marked alterations void it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pyspark.sql import types as tp

from tailrace.schemas.alteration import Alteration, AlterationKind, ColumnChange
from tailrace.spark_consumer.evolution.policy import (
    Action,
    ChangeKind,
    EvolutionPolicy,
    SourceNames,
    pending,
    read_mark,
)
from tailrace.spark_consumer.source.common_type import can_check, common_type
from tailrace.spark_consumer.source.schema_tracker import Origin, after_alteration, is_applicable, lineages, names_after

_AS_THE_SOURCE: Final = frozenset({Action.APPLY, Action.TRY, Action.REFUSE})
"""Columns are dropped and renamed; if the policy refuses that, these are the steps that somebody else can make."""
_UNKNOWN: Final = tp.NullType()
"""The type of a column that the target does not have now, or that no Spark type describes."""


@dataclass(frozen=True, slots=True)
class Fill:
    """The new value of a column in all rows: that of another column, or what ADD COLUMN gave to rows."""

    column: str
    copied: str = ""
    added: ColumnChange | None = None
    """Without ``copied``; None: NULL."""

    def moved(self, old: str, new: str) -> Fill:
        """Return the same for a column with another name."""
        column, copied = (new if name.lower() == old else name for name in (self.column, self.copied))
        return replace(self, column=column, copied=copied)


@dataclass(frozen=True, slots=True)
class TypeChange:
    """A column whose stored type does not represent all values of the source."""

    column: str
    stored: tp.DataType
    now: tp.DataType
    wider: tp.DataType | None
    """The type that represents both; None if there is none."""

    @property
    def needs_reload(self) -> bool:
        """Whether rows of both types cannot be in one table: also an empty one cannot be loaded from the topic."""
        return self.wider is None and not can_check(self.stored, self.now)


@dataclass(frozen=True, slots=True)
class Step:
    """A change of the target's columns."""

    kind: ChangeKind
    column: str
    """The name after the step; before it for DROP."""
    old: str = ""
    """The name before RENAME."""
    cause: ChangeKind | None = field(default=None, compare=False)
    """What the source did, if it is another kind."""


@dataclass(slots=True)
class Plan:
    """The steps in their order, and what remains to be said."""

    alterations: list[Alteration] = field(default_factory=list)
    """What it is for."""
    wanted: Mapping[str, tp.DataType] = field(default_factory=dict)
    """The columns of the source behind them."""
    steps: list[Step] = field(default_factory=list)
    types: dict[str, tp.DataType] = field(default_factory=dict)
    """The types of the columns that the steps add, by lower-case name; each of them is there after the steps."""
    widened: list[TypeChange] = field(default_factory=list)
    """After the steps."""
    fills: dict[str, Fill] = field(default_factory=dict)
    """After the types, by lower-case name; all values are those before the first fill."""
    converted: list[TypeChange] = field(default_factory=list)
    """Columns that keep their type: each value is checked."""
    unsupported: list[TypeChange] = field(default_factory=list)
    """Types that the target cannot take, nor can their values be checked."""
    refused: list[Step] = field(default_factory=list)
    """Changes that the policy does not allow, until a person has made them; the steps are then those to be made."""
    hides_names: bool = False
    """Steps are left out, or add a column under a later name: the columns do not tell which of them were made."""
    conflicts: list[str] = field(default_factory=list)
    """Reasons why the target cannot follow, whatever the policy says."""
    unknown: list[str] = field(default_factory=list)
    """Columns whose values in existing rows only reading the table again can tell."""
    names: SourceNames = field(default_factory=SourceNames)
    """What to remember."""

    @property
    def changes_target(self) -> bool:
        """Whether there is anything to do in the target."""
        return bool(self.steps or self.fills or self.widened)


def make_plan(
    stored: Mapping[str, tp.DataType],
    wanted: Mapping[str, tp.DataType],
    names: SourceNames,
    alterations: Sequence[Alteration],
    *,
    policy: EvolutionPolicy,
    can_widen: Callable[[tp.DataType, tp.DataType], bool],
    mark: str = "",
    follows_case: bool = True,
    moves_values: bool = True,
) -> Plan:
    """Return the plan for a target with the columns ``stored`` and a source with the columns ``wanted``.

    ``names`` are those after the last plan, ``alterations`` the statements since then, in order. A plan that was
    carried out in part can be made again. ``can_widen``: whether the target can widen a type to another one. ``mark``:
    as it is stored; if others follow the marked alterations, the plan is for the marked ones. ``follows_case``: whether
    a column can get its own name in other letters; if not, it keeps the spelling that it has. ``moves_values``: False
    for what earlier versions planned, which copied columns once values were planned.
    """
    rules = {"follows_case": follows_case, "moves_values": moves_values}
    plan, left = Plan(list(alterations), wanted), pending(alterations, read_mark(mark))
    made = plan.alterations[: len(plan.alterations) - len(left)]
    if made:
        known = {name.lower(): kind for name, kind in {**wanted, **stored}.items()}
        after = {name: known.get(name, _UNKNOWN) for name in lineages(names.columns, made)[0][1]}
        planner = _Planner(stored, names, policy, Plan(made, after if left else wanted), **rules)
        if planner.follow():
            planner.finish(can_widen)
            return planner.plan
    planner = _Planner(stored, names, policy, plan, **rules)
    if policy.behavior == "exception":
        planner.step_back()
    before = planner.alter()
    planner.finish(can_widen)
    if plan.refused:
        columns = {name.lower() for name in stored}
        if policy.keeps_columns:
            # All steps add a column; it can be there, because another shard has it.
            plan.steps = [step for step in plan.steps if step.column.lower() not in columns]
        else:
            plan.steps = _steps_left(plan.steps, before, columns)
    return plan


def _steps_left(steps: list[Step], names: set[str], columns: set[str]) -> list[Step]:
    """Return the steps behind the first ones that lead to the columns; all if none do. The mark decides, not this."""
    for number, step in enumerate(steps):
        if names == columns:
            return steps[number:]
        gone, new = step.old or step.column, set() if step.kind is ChangeKind.DROP else {step.column.lower()}
        names = names - {gone.lower()} | new
    return [] if names == columns else steps


class _Planner:
    def __init__(
        self,
        stored: Mapping[str, tp.DataType],
        names: SourceNames,
        policy: EvolutionPolicy,
        plan: Plan,
        *,
        follows_case: bool,
        moves_values: bool,
    ) -> None:
        self._follows_case = follows_case
        self._moves_values = moves_values
        self._wanted = {name.lower(): (name, plan.wanted[name]) for name in plan.wanted}
        self._stored = {name.lower(): (name, stored[name]) for name in stored}
        self._source = {name.lower() for name in names.columns}
        self._ignored = {name.lower() for name in names.ignored}
        self._kept = {name.lower() for name in names.kept}
        self._actual = dict(self._stored)
        self._passing: dict[str, tuple[ColumnChange, bool]] = {}
        """Columns that were added, and are renamed or dropped later; whether rows are read again."""
        self._policy = policy
        self.plan = plan

    def follow(self) -> bool:
        """Plan what remains after marked alterations; return whether the target has the columns after their steps."""
        policy, self._policy = self._policy, replace(self._policy, behavior="exception")
        self.step_back()
        before, plan, columns = self.alter(), self.plan, self._stored
        needed = columns.keys() - (self._kept - self._copied)
        new = {name: Fill(columns[name][0]) for name in plan.types.keys() & columns.keys()}
        plan.steps, plan.types, plan.fills, plan.hides_names = [], {}, new | plan.fills, False
        self._policy, self._stored = policy, dict(self._actual)
        return needed <= self._stored.keys() and not before & self._stored.keys() - columns.keys()

    def step_back(self) -> None:
        """Begin with the columns that the target had before the alterations, whatever a person has done since."""
        changes = (change for alteration in self.plan.alterations for change in alteration.changes)
        names = {name.lower() for change in changes for name in (change.column, change.old) if name}
        had = (self._source - self._ignored | self._kept) & names
        self._stored = {name: each for name, each in self._actual.items() if name not in names}
        self._stored |= {name: self._actual.get(name, (name, _UNKNOWN)) for name in had}

    def alter(self) -> set[str]:
        """Plan the alterations; return the names of the columns before them."""
        before = set(self._stored)
        for alteration in self.plan.alterations:
            self._alter(alteration)
        return before

    def _alter(self, alteration: Alteration) -> None:
        """Plan one statement; nothing if the columns are not those before it."""
        applicable = is_applicable(self._source, alteration)
        if applicable:
            self.plan.unknown = names_after(self.plan.unknown, alteration)
        for change in alteration.changes:
            if change.kind is AlterationKind.CONVERT and not alteration.reread:
                names = {change.column.lower()} if change.column else self._source
                self.plan.unknown += sorted(names & (self._source - self._ignored))
        if not applicable:
            return
        renames = {c.old.lower(): c.column for c in alteration.changes if c.kind is AlterationKind.RENAME}
        if any(new.lower() in renames and new.lower() != old for old, new in renames.items()):
            self.plan.conflicts.append("columns exchanged their names in one statement")
            return
        self._source = set(after_alteration({name: Origin(name) for name in self._source}, alteration))
        by_kind = {kind: [c for c in alteration.changes if c.kind is kind] for kind in AlterationKind}
        for change in by_kind[AlterationKind.DROP]:
            self._drop(change.column.lower())
        for change in by_kind[AlterationKind.RENAME]:
            self._rename(change.old.lower(), change.column)
        for change in by_kind[AlterationKind.ADD]:
            self._add(change.column, change, reread=alteration.reread)

    def finish(self, can_widen: Callable[[tp.DataType, tp.DataType], bool]) -> None:
        """Plan what the alterations do not explain, and the types."""
        planned = {name.lower() for step in self.plan.steps for name in (step.column, step.old)} | self._copied
        self._stored = {name: each for name, each in self._stored.items() if name in planned | self._actual.keys()}
        for name in sorted(self._source - set(self._wanted)):
            self._drop(name)
        for name in self._wanted:
            if name not in self._source:
                self._add(self._wanted[name][0], None)
        for name, (column, kind) in self._wanted.items():
            if name not in self._ignored:
                if name not in self._stored:
                    self._gain(column, kind, None)
                self._type(name, can_widen)
        plan = self.plan
        changes = [Step(step.cause or step.kind, step.column, step.old) for step in plan.steps]
        changes += [Step(ChangeKind.TYPE, each.column) for each in [*plan.widened, *plan.unsupported]]
        plan.refused = [step for step in changes if self._policy.action(step.kind) is Action.REFUSE]
        self.plan.names = SourceNames(
            tuple(shown for shown, _ in self._wanted.values()),
            tuple(self._wanted[name][0] for name in sorted(self._ignored & set(self._wanted))),
            tuple(self._stored[name][0] for name in sorted(self._kept & set(self._stored))),
        )

    def _drop(self, name: str) -> None:
        if name in self._ignored:
            self._ignored.discard(name)
            return
        self._passing.pop(name, None)
        if name not in self._stored:
            return
        action = self._policy.action(ChangeKind.DROP)
        self.plan.fills.pop(name, None)
        if action not in _AS_THE_SOURCE or name in self._copied:
            self._kept.add(name)
        elif name in self.plan.types and self._moves_values:
            self._take_back(name, self._stored.pop(name)[0])
        else:
            self.plan.steps.append(Step(ChangeKind.DROP, self._stored.pop(name)[0]))

    def _rename(self, old: str, new: str) -> None:
        name = new.lower()
        if old in self._ignored:
            self._ignored = self._ignored - {old} | {name}
            return
        action = self._policy.action(ChangeKind.RENAME)
        if old in self._passing:
            change, reread = self._passing.pop(old)
            if action is Action.IGNORE:
                self._ignored.add(name)
            else:
                self._add(new, change, reread=reread)
            return
        if old not in self._stored:
            return  # an earlier attempt renamed it
        if name == old and (action is Action.IGNORE or not self._follows_case or self._policy.keeps_columns):
            return
        shown, kind = self._stored[old]
        direct = action in _AS_THE_SOURCE and not self._policy.keeps_columns
        if action is Action.IGNORE:
            self._kept.add(old)
            self._ignored.add(name)
        elif name == old or (direct and name not in self._stored and self._can_move(old)):
            self._move(old, new)
        else:
            self._kept.add(old)
            earlier = self.plan.fills.get(old)
            fill = Fill(new, copied=shown) if earlier is None else replace(earlier, column=new)
            self._gain(new, kind, fill, cause=ChangeKind.RENAME)

    @property
    def _copied(self) -> set[str]:
        return {fill.copied.lower() for fill in self.plan.fills.values()}

    def _can_move(self, old: str) -> bool:
        return not (old in self._copied and old in self.plan.types) if self._moves_values else not self.plan.fills

    def _move(self, old: str, new: str) -> None:
        """Rename a column and what is planned for its values; one that is new is added under its later name."""
        shown, kind = self._stored.pop(old)
        plan, name = self.plan, new.lower()
        fills = {name if filled == old else filled: fill.moved(old, new) for filled, fill in plan.fills.items()}
        if old in plan.types and self._moves_values:
            self._gain(new, self._wanted.get(name, (new, kind))[1], None, self._take_back(old, shown))
        else:
            self._stored[name] = (new, kind)
            plan.steps.append(Step(ChangeKind.RENAME, new, shown))
        plan.fills = fills

    def _take_back(self, name: str, shown: str) -> ChangeKind | None:
        """Leave out the step that adds a column; return its cause."""
        number = self.plan.steps.index(Step(ChangeKind.ADD, shown))
        self.plan.hides_names = True
        del self.plan.types[name]
        return self.plan.steps.pop(number).cause

    def _add(self, column: str, change: ColumnChange | None, *, reread: bool = False) -> None:
        name = column.lower()
        if self._policy.action(ChangeKind.ADD) is Action.IGNORE:
            self._ignored.add(name)
            return
        if name not in self._wanted and name not in self._stored:
            if change is not None:
                self._passing[name] = change, reread  # no row has it under this name
            return
        known = change is not None and not change.needs_rows
        if not known and not reread:
            self.plan.unknown.append(column)
        _, kind = self._wanted.get(name) or self._stored.get(name) or (name, _UNKNOWN)
        value = change if known and change is not None and change.value is not None else None
        self._gain(column, kind, Fill(column, added=value) if value is not None or name in self._stored else None)

    def _gain(self, column: str, kind: tp.DataType, fill: Fill | None, cause: ChangeKind | None = None) -> None:
        """Let a column exist, and give it its values; one that was kept under that name is used again."""
        name = column.lower()
        if name not in self._stored:
            self.plan.steps.append(Step(ChangeKind.ADD, column, cause=cause))
            self.plan.types[name] = kind
            self._stored[name] = (column, kind)
        self._kept.discard(name)
        if fill is not None:
            self.plan.fills[name] = fill

    def _type(self, name: str, can_widen: Callable[[tp.DataType, tp.DataType], bool]) -> None:
        (column, now), (_, stored) = self._wanted[name], self._stored[name]
        if stored == _UNKNOWN:  # a person may have renamed it
            _, stored = self._actual.get(name, (column, now))
        common = common_type(now, stored)
        if common == stored:
            return
        change = TypeChange(column, stored, now, common)
        if name in self.plan.types and common is not None:
            self.plan.types[name] = common  # a column that is new can have any type
            return
        action = self._policy.action(ChangeKind.TYPE)
        if action is not Action.IGNORE and common is not None and can_widen(stored, common):
            self.plan.widened.append(change)
        elif action in {Action.IGNORE, Action.TRY} and can_check(now, stored):
            self.plan.converted.append(change)
        else:
            self.plan.unsupported.append(change)
