"""What a plan means for a writer, and an attempt to carry it out.

An attempt is stored with the target while the columns do not tell which steps were made. If a column is renamed and its
name is added once more, both steps look as if nothing had been done yet: a plan made from the columns would copy the
new column over the renamed one. So what the plan was made from is stored before the first step, and the number of a
step before each other one. The next start makes the same plan and carries out the rest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

import structlog
from pyspark.sql import types as tp

from tailrace.schemas.alteration import Alteration
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.evolution.plan import Plan, Step, TypeChange, make_plan
from tailrace.spark_consumer.evolution.policy import ChangeKind, EvolutionPolicy, SourceNames, position_text, reading
from tailrace.spark_consumer.source.common_type import common_type
from tailrace.spark_consumer.source.schema_tracker import names_after

_NOT_IN_TOPICS: Final = re.compile(r"[^A-Za-z0-9._-]")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Evolved:
    """What a writer needs to know of a table; names in lower case."""

    ignored: frozenset[str] = frozenset()
    """Columns of the source that the table does not have."""
    converted: frozenset[str] = frozenset()
    """Columns whose values are checked, because the type of the table does not represent all of them."""
    kept: frozenset[str] = frozenset()
    """Columns of the table that the source had earlier."""

    @classmethod
    def by(cls, plan: Plan) -> Evolved:
        """Return what holds when a plan is carried out."""
        return cls(
            frozenset(name.lower() for name in plan.names.ignored),
            frozenset(each.column.lower() for each in plan.converted),
            frozenset(name.lower() for name in plan.names.kept),
        )

    def source_columns(self, schema: TableSchema) -> list[str]:
        """Return the columns of the source that the table has."""
        return [column.name for column in schema.columns if column.name.lower() not in self.ignored]


def warn_of_records_before(schema: TableSchema, alterations: Sequence[Alteration]) -> None:
    """Warn if records from before some alterations, which a new table is created behind, can have other values.

    Such records are converted when they are decoded, as far as the values are known.
    """
    unknown: list[str] = []
    for each in alterations:
        found = [change.column for change in each.changes if change.needs_rows and not each.reread]
        unknown = list(dict.fromkeys([*names_after(unknown, each), *found]))
    if unknown:
        log.warning(
            "records from before an ALTER TABLE can have other values than the source has now; the signal "
            "execute-snapshot makes the producer read the table again",
            table=f"{schema.database}.{schema.table}",
            columns=unknown,
        )


def captured_name(schema: TableSchema, alterations: Sequence[Alteration]) -> str:
    """Return ``db.table`` in the source; the schema of a routed table has the name of its target."""
    if alterations:
        return f"{alterations[-1].database}.{alterations[-1].table}"
    name = f"{schema.database}.{schema.table}"
    in_topic = _NOT_IN_TOPICS.sub("_", name)
    return name if schema.topic.endswith(f".{in_topic}") else ".".join(schema.topic.split(".")[-2:])


def report_unknown(name: str, plan: Plan, source: Sequence[str], statement: str | None) -> None:
    """Warn of rows whose values the plan cannot know.

    ``source``: the ALTER TABLE statements. ``statement``: what makes the target go on after a stop; the function then
    raises SinkError instead.
    """
    signal = '{"type": "execute-snapshot", "data": {"type": "incremental", "data-collections": ["' + name + '"]}}'
    if statement is not None:
        raise SinkError(
            f"rows of {name} can have other values than the source: MySQL writes no events for the rows that "
            "ALTER TABLE changes",
            hint="send the signal to the producer, then run the statement to go on; or set "
            "tailrace.snapshot.altered.tables=true in the producer",
            columns=plan.unknown,
            source=source,
            signal=signal,
            statement=statement,
        )
    log.warning(
        "rows of earlier batches can have other values than the source: MySQL writes no events for the rows that "
        "ALTER TABLE changes; the signal makes the producer read the table again",
        table=name,
        columns=plan.unknown,
        source=source,
        signal=signal,
    )


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
