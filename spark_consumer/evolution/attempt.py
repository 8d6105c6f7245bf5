"""An attempt to carry out a plan, stored with the target while the columns do not tell which steps were made.

If a column is renamed and its name is added once more, both steps look as if nothing had been done yet: a plan made
from the columns would copy the new column over the renamed one. So what the plan was made from is stored before the
first step, and the number of a step before each other one. The next start makes the same plan and carries out the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from pyspark.sql import types as tp

from tailrace.schemas.alteration import Alteration
from tailrace.spark_consumer.evolution.plan import Plan, Step, TypeChange, make_plan
from tailrace.spark_consumer.evolution.policy import ChangeKind, EvolutionPolicy, SourceNames, position_text, reading
from tailrace.spark_consumer.source.common_type import common_type


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a plan was made from, and the last step that began."""

    position: str
    """That of the last alteration (``position_text``)."""
    stored: Mapping[str, tp.DataType]
    wanted: Mapping[str, tp.DataType]
    policy: EvolutionPolicy
    step: int = -1
    """Those before it are made; -1: the attempt is not stored yet."""
    moves_values: bool = True
    """Of ``make_plan``; False: an earlier version stored the attempt, whose steps are those of its plan."""

    def to_json(self, step: int) -> str:
        """Return the text to store before a step."""
        return json.dumps(
            {
                "position": self.position,
                "stored": _columns(self.stored),
                "wanted": _columns(self.wanted),
                "behavior": self.policy.behavior,
                "include": sorted(self.policy.include),
                "exclude": sorted(self.policy.exclude),
                "keeps_columns": self.policy.keeps_columns,
                "step": step,
                "moves_values": self.moves_values,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return what is stored. Raises SinkError if it is damaged."""
        with reading("an interrupted schema change", text):
            found = json.loads(text)
            lists = frozenset(found["include"]), frozenset(found["exclude"])
            policy = EvolutionPolicy(found["behavior"], *lists, found.get("keeps_columns", False))
            columns = _types(found["stored"]), _types(found["wanted"])
            return cls(found["position"], *columns, policy, found["step"], found.get("moves_values", False))

    def alterations(self, pending: Iterable[Alteration]) -> list[Alteration]:
        """Return those of the pending alterations that the plan was made for."""
        found = list(pending)
        while found and position_text(found) != self.position:
            found.pop()
        return found

    def plan(
        self,
        names: SourceNames,
        alterations: Sequence[Alteration],
        columns: Mapping[str, tp.DataType],
        *,
        can_widen: Callable[[tp.DataType, tp.DataType], bool],
        mark: str,
        follows_case: bool = True,
    ) -> tuple[Plan, int]:
        """Return the plan of the attempt and the number of the first step that is left.

        ``columns`` are those that the target has now; the other arguments are those of ``make_plan``.
        """
        plan = make_plan(
            self.stored,
            self.wanted,
            names,
            alterations,
            policy=self.policy,
            can_widen=can_widen,
            mark=mark,
            follows_case=follows_case,
            moves_values=self.moves_values,
        )
        made = self.step < len(plan.steps) and is_made(plan.steps[self.step], columns)
        left = self.step + made
        plan.widened = [each for each in plan.widened if not _is_widened(each, columns, plan.steps[left:])]
        return plan, left

    @classmethod
    def of(cls, plan: Plan, stored: Mapping[str, tp.DataType], policy: EvolutionPolicy) -> Self | None:
        """Return the attempt to store for a plan; None if the columns tell which of its steps were made."""
        if not plan.alterations or not _uses_a_name_twice(plan):
            return None
        return cls(position_text(plan.alterations), stored, plan.wanted, policy)


def is_made(step: Step, columns: Iterable[str]) -> bool:
    """Return whether a step was made, in a target that has the columns before or after it."""
    names = set(columns)
    if step.kind is ChangeKind.RENAME:
        return step.old not in names  # the names can differ in case only
    return (step.column.lower() in {name.lower() for name in names}) != (step.kind is ChangeKind.DROP)


def _uses_a_name_twice(plan: Plan) -> bool:
    if plan.hides_names:
        return True
    names = [name for step in plan.steps for name in {step.old.lower(), step.column.lower()} - {""}]
    copied = {fill.copied.lower() for fill in plan.fills.values() if fill.copied}
    return len(set(names)) < len(names) or not copied.isdisjoint(plan.fills)


def _is_widened(change: TypeChange, columns: Mapping[str, tp.DataType], left: Sequence[Step]) -> bool:
    """Return whether a column has the type, or a wider one that another shard needed, before the steps ``left``."""
    name = change.column.lower()
    stored = {each.lower(): kind for each, kind in columns.items()}.get(name)
    is_moved = any(name in (step.old.lower(), step.column.lower()) for step in left)
    return stored is not None and not is_moved and common_type(change.wider or change.now, stored) == stored


def _columns(types: Mapping[str, tp.DataType]) -> object:
    return tp.StructType([tp.StructField(name, kind) for name, kind in types.items()]).jsonValue()


def _types(found: dict[str, object]) -> dict[str, tp.DataType]:
    return {field.name: field.dataType for field in tp.StructType.fromJson(found)}
