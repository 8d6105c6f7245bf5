"""From the columns of a target and of the source to the steps that bring the target up to date; no target is touched.

The alterations say what happened to columns that exist. What they do not explain is found by name: a column that the
target lacks was added with unknown values, one that the source lacks was dropped.

A policy can leave the steps to somebody (``refused``). Whether they were made is found in the columns, unless a name is
dropped or renamed and added again: then a mark (``Plan.mark``), which is the last of the statements, tells it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pyspark.sql import types as tp

from tailrace.schemas.alteration import Alteration, AlterationKind, ColumnChange
from tailrace.spark_consumer.evolution.marks import Mark, marks_text, read_marks
from tailrace.spark_consumer.evolution.policy import Action, ChangeKind, EvolutionPolicy
from tailrace.spark_consumer.evolution.stored_text import SourceNames
from tailrace.spark_consumer.source.common_type import can_check, common_type
from tailrace.spark_consumer.source.lineage import Origin, after_alteration, is_applicable, names_after

_AS_THE_SOURCE: Final = frozenset({Action.APPLY, Action.TRY, Action.REFUSE})
"""Columns are dropped and renamed; if the policy refuses that, these are the steps that somebody else can make."""
_UNKNOWN: Final = tp.NullType()
"""The type of a column that is gone."""


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
    """Changes that the policy does not allow, until somebody has made them; the steps are then those to be made."""
    mark: str = ""
    """What has to be stored after the refused steps, because the columns do not tell that they were made."""
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
    alterations: Iterable[Alteration],
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
    that of the last plan, if it is stored. ``follows_case``: whether a column can get its own name in other letters; if
    not, it keeps the spelling that it has. ``moves_values``: False for what earlier versions planned, which
    copied columns once values were planned.
    """
    alterations = list(alterations)
    marks = read_marks(mark, alterations)
    rules = {"follows_case": follows_case, "moves_values": moves_values}

    def planned(columns: Mapping[str, tp.DataType], marks: Sequence[Mark]) -> _Planner | None:
        """Return what is planned; None if the columns are not those that follow from the marks."""
        planner, made = _Planner(columns, wanted, names, policy, **rules), deque(marks)
        if made:
            planner.begin_with(made[0])
        for alteration in alterations:
            planner.alter(alteration)
            if made and tuple(alteration.sequence) == made[0].position:
                made.popleft()
                if not planner.go_on_with(made[0] if made else None):
                    return None
        planner.finish(can_widen)
        return planner

    planner = planned(stored, marks)
    if planner is None:
        marks, planner = [], planned(stored, [])
    assert planner is not None
    plan = planner.plan
    if plan.refused and alterations:
        repeated = planned(planner.columns, [])
        if marks or repeated is None or not _is_done(repeated.plan, plan):
            last = Mark(tuple(alterations[-1].sequence), tuple(stored), tuple(wanted))
            plan.mark = marks_text([*marks, last])
    return plan


def _is_done(repeated: Plan, plan: Plan) -> bool:
    """Return whether a plan that is made after the steps of another one finds them, and does what is left."""
    fills = [
        # NULL in a column that is new needs no fill.
        {name: fill for name, fill in each.fills.items() if fill.copied or fill.added or name not in plan.types}
        for each in (repeated, plan)
    ]
    return not repeated.refused and repeated.names == plan.names and fills[0] == fills[1]


class _Planner:
    def __init__(
        self,
        stored: Mapping[str, tp.DataType],
        wanted: Mapping[str, tp.DataType],
        names: SourceNames,
        policy: EvolutionPolicy,
        *,
        follows_case: bool,
        moves_values: bool,
    ) -> None:
        self._follows_case = follows_case
        self._moves_values = moves_values
        self._wanted = {name.lower(): (name, wanted[name]) for name in wanted}
        self._stored = {name.lower(): (name, stored[name]) for name in stored}
        self._source = {name.lower() for name in names.columns}
        self._ignored = {name.lower() for name in names.ignored}
        self._kept = {name.lower() for name in names.kept}
        self._actual, self._before = dict(self._stored), set(self._stored)
        self._needed = set(self._wanted)
        """Columns of the source that the target gets."""
        self._passing: dict[str, tuple[ColumnChange, bool]] = {}
        """Columns that were added, and are renamed or dropped later; whether rows are read again."""
        self._policy = policy
        self.plan = Plan()

    @property
    def columns(self) -> dict[str, tp.DataType]:
        """The columns that the target has after the steps."""
        types = {each.column.lower(): each.wider or each.now for each in [*self.plan.widened, *self.plan.unsupported]}
        types = self.plan.types | types
        return {shown: types.get(name, kind) for name, (shown, kind) in self._stored.items()}

    def begin_with(self, mark: Mark) -> None:
        """Plan the steps that were made from the columns that target and source had then."""
        self._stored = {name.lower(): self._actual.get(name.lower(), (name, _UNKNOWN)) for name in mark.columns}
        self._before, self._needed = set(self._stored), {name.lower() for name in mark.source}

    def go_on_with(self, mark: Mark | None) -> bool:
        """Take the steps planned so far for made, and go on with the next mark, or with the columns as they are.

        Returns whether the target has the columns that follow from the steps.
        """
        planned, gone = set(self._stored), self._before - self._stored.keys()
        if mark is not None:
            self.begin_with(mark)
        else:
            self._stored, self._needed = dict(self._actual), set(self._wanted)
        self.plan.steps, self.plan.types = [], {}
        return planned <= self._stored.keys() and not gone & self._stored.keys()

    def alter(self, alteration: Alteration) -> None:
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
        needed = any(fill.copied.lower() == name for fill in self.plan.fills.values())
        if action not in _AS_THE_SOURCE or needed:
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
        if name == old and (action is Action.IGNORE or not self._follows_case):
            return
        shown, kind = self._stored[old]
        direct = action in _AS_THE_SOURCE
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

    def _can_move(self, old: str) -> bool:
        fills = self.plan.fills
        copies = any(fill.copied.lower() == old for fill in fills.values())
        return not (copies and old in self.plan.types) if self._moves_values else not fills

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
        if name not in self._needed and name not in self._stored:
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
