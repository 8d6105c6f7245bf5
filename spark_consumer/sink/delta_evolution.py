"""Brings a Delta table up to date with the columns of its captured table.

Statements change the columns; one rewrite of the table fills columns whose values in existing rows are known. An
attempt that was interrupted is repeated: the steps that it made are found in the columns, and the rewrite has a
transaction id. The table properties say up to which statement the table is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog
from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.schemas.alteration import Alteration
from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.changelog.flatten import check_names
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.evolution.plan import (
    Plan,
    SourceNames,
    Step,
    TypeChange,
    make_plan,
    pending,
    position_text,
)
from tailrace.spark_consumer.evolution.policy import ChangeKind, EvolutionPolicy
from tailrace.spark_consumer.sink.delta_table import (
    KEY,
    DeltaTable,
    assignments,
    key_text,
    needs_mapping,
    require_key,
)
from tailrace.spark_consumer.sink.table_names import quote
from tailrace.spark_consumer.source.conversion import added_value, convert_value
from tailrace.spark_consumer.source.json_decoder import row_type

if TYPE_CHECKING:
    from pyspark.sql import Column

LAST_ALTERATION: Final = "tailrace.altered"
"""Table property: the position of the last ALTER TABLE that the table is done with."""
NAMES: Final = "tailrace.columns"
"""Table property: the columns of the source and what became of them (SourceNames)."""

_INTEGERS: Final = (tp.ByteType, tp.ShortType, tp.IntegerType, tp.LongType)

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


def evolve(
    table: DeltaTable,
    schema: TableSchema,
    alterations: Sequence[Alteration],
    policy: EvolutionPolicy,
) -> Evolved:
    """Change the columns of a table as the policy says (evolution/plan.py).

    Raises SinkError for a change that the policy or Delta does not allow, and for another key.
    """
    require_key(schema)
    stored = {each.name: each.dataType for each in table.columns if each.name != SEQUENCE_COLUMN}
    if len(stored) == len(table.columns):
        raise SinkError(
            f"the Delta table {table.name} was not created by Tailrace: it has no column {SEQUENCE_COLUMN}",
            hint="set another sink.path, or move the table away",
        )
    _require_same_key(table, schema)
    found = table.properties.get(NAMES)
    names = SourceNames(tuple(stored)) if found is None else SourceNames.from_json(found)
    since = pending(alterations, table.properties.get(LAST_ALTERATION, ""))
    wanted = {each.name: each.dataType for each in row_type(schema).fields}
    plan = make_plan(stored, wanted, names, since, policy=policy, can_widen=can_widen)
    evolution = _Evolution(table, schema, plan, since)
    evolution.check(policy)
    evolution.apply()
    return Evolved(
        frozenset(name.lower() for name in plan.names.ignored),
        frozenset(each.column.lower() for each in plan.converted),
        frozenset(name.lower() for name in plan.names.kept),
    )


def created_behind(schema: TableSchema, alterations: Sequence[Alteration]) -> dict[str, str]:
    """Return the properties of a table that is created behind these alterations; it has no rows that they changed.

    Records from before them are converted when they are decoded, as far as the values are known.
    """
    unknown = [change.column for each in alterations if not each.reread for change in each.changes if change.needs_rows]
    if unknown:
        log.warning(
            "records from before an ALTER TABLE can have other values than the source has now; the signal "
            "execute-snapshot makes the producer read the table again",
            table=f"{schema.database}.{schema.table}",
            columns=unknown,
        )
    return {LAST_ALTERATION: position_text(alterations)} if alterations else {}


def names_of(schema: TableSchema) -> dict[str, str]:
    """Return the property with the names of the source, for a table that has them all."""
    return {NAMES: SourceNames(tuple(column.name for column in schema.columns)).to_json()}


class _Evolution:
    """One plan for one table."""

    def __init__(
        self,
        table: DeltaTable,
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
                f"{self._name} was altered in a way that its Delta table cannot follow: {reason}",
                hint="move the Delta table away and start with an empty checkpoint to load the table again",
                source=source,
            )
        for step in plan.refused:
            raise SinkError(
                f"{self._name} was altered, and schema.change.behavior=exception allows no change of the Delta table",
                hint="set another schema.change.behavior, or exclude.schema.changes",
                change=step.kind.value,
                column=step.column,
                source=source,
                statement="; ".join(self._statements()),
            )
        for change in plan.unsupported:
            raise SinkError(
                f"the type of column {change.column} of {self._name} has changed, "
                "and Delta cannot change the type of the column",
                hint="move the Delta table away and start with an empty checkpoint to load the table again, or set "
                "schema.change.behavior=try_evolve to convert the values that fit",
                stored=change.stored.simpleString(),
                now=change.now.simpleString(),
                statement=self._alter(_widening(change)),
            )
        if plan.unknown:
            self._report_unknown(source, stop=policy.needs_exact_rows)

    def apply(self) -> None:
        """Carry out the plan and store how far the table is."""
        plan, table = self._plan, self._table
        if plan.changes_target:
            check_names(self._schema)
            needed = {name: value for name, value in self._features().items() if table.properties.get(name) != value}
            if needed:
                table.set(needed)
            for change in self._changes():
                table.alter(change)
            if plan.fills:
                self._fill()
            log.info("columns changed", table=self._name, changes=self._changes(), filled=sorted(plan.fills))
        stored = self._progress()
        if any(table.properties.get(name, "") != value for name, value in stored.items()):
            table.set(stored)

    def _report_unknown(self, source: Sequence[str], *, stop: bool) -> None:
        signal = (
            '{"type": "execute-snapshot", "data": {"type": "incremental", "data-collections": ["' + self._name + '"]}}'
        )
        if stop:
            raise SinkError(
                f"rows of {self._name} can have other values than the source: MySQL writes no events for the rows that "
                "ALTER TABLE changes",
                hint="send the signal to the producer, then run the statement to go on; or set "
                "tailrace.snapshot.altered.tables=true in the producer",
                columns=self._plan.unknown,
                source=source,
                signal=signal,
                statement=self._alter(f"SET TBLPROPERTIES ({assignments(self._progress())})"),
            )
        log.warning(
            "rows of earlier batches can have other values than the source: MySQL writes no events for the rows that "
            "ALTER TABLE changes; the signal makes the producer read the table again",
            table=self._name,
            columns=self._plan.unknown,
            source=source,
            signal=signal,
        )

    def _progress(self) -> dict[str, str]:
        done = position_text(self._alterations) or self._table.properties.get(LAST_ALTERATION, "")
        return {NAMES: self._plan.names.to_json()} | ({LAST_ALTERATION: done} if done else {})

    def _features(self) -> dict[str, str]:
        """Return the table properties that the changes need: Delta sets them by itself only at creation."""
        plan, found = self._plan, {}
        gained = [*plan.types.values(), *(change.wider for change in plan.widened)]
        if any(isinstance(kind, tp.TimestampNTZType) for kind in gained):
            found["delta.feature.timestampNtz"] = "supported"
        moved = any(step.kind is not ChangeKind.ADD for step in plan.steps)
        if moved or any(needs_mapping(step.column) for step in plan.steps):
            found["delta.columnMapping.mode"] = "name"
        if plan.widened:
            found["delta.enableTypeWidening"] = "true"
        return found

    def _changes(self) -> list[str]:
        return [self._change(step) for step in self._plan.steps] + [_widening(each) for each in self._plan.widened]

    def _change(self, step: Step) -> str:
        if step.kind is ChangeKind.DROP:
            return f"DROP COLUMN {quote(step.column)}"
        if step.kind is ChangeKind.RENAME:
            return f"RENAME COLUMN {quote(step.old)} TO {quote(step.column)}"
        return f"ADD COLUMNS ({quote(step.column)} {self._plan.types[step.column.lower()].simpleString()})"

    def _statements(self) -> list[str]:
        return [self._alter(change) for change in self._changes()]

    def _alter(self, change: str) -> str:
        return f"ALTER TABLE {self._table.sql_name} {change}"

    def _fill(self) -> None:
        """Rewrite the table with the values of existing rows."""
        stored = self._table.rows()
        types = {each.name.lower(): each.dataType for each in stored.schema}
        columns = [self._filled(each.name, types).alias(each.name) for each in stored.schema.fields]
        options = {}
        if self._alterations:
            position = self._alterations[-1].sequence
            options["txnAppId"] = f"tailrace/{self._schema.topic}/altered/{position.epoch}"
            options["txnVersion"] = str((position.file << 36) + position.pos)
        self._table.replace(stored.select(*columns), **options)

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


def can_widen(stored: tp.DataType, wider: tp.DataType) -> bool:
    """Return whether Delta's type widening supports a change (delta.io, "Type widening")."""
    if isinstance(stored, _INTEGERS):
        if isinstance(wider, tp.DecimalType):
            return wider.precision - wider.scale >= (20 if isinstance(stored, tp.LongType) else 10)
        return isinstance(wider, _INTEGERS) or (
            isinstance(wider, tp.DoubleType) and not isinstance(stored, tp.LongType)
        )
    if isinstance(stored, tp.DecimalType):
        return isinstance(wider, tp.DecimalType)
    return (isinstance(stored, tp.FloatType) and isinstance(wider, tp.DoubleType)) or (
        isinstance(stored, tp.DateType) and isinstance(wider, tp.TimestampNTZType)
    )


def _widening(change: TypeChange) -> str:
    return f"ALTER COLUMN {quote(change.column)} TYPE {(change.wider or change.now).simpleString()}"


def _require_same_key(table: DeltaTable, schema: TableSchema) -> None:
    stored = table.properties.get(KEY)
    if stored is not None and stored != key_text(schema):
        raise SinkError(
            f"the key of {schema.database}.{schema.table} has changed: its rows cannot be matched with the table",
            hint="move the Delta table away, start the producer with another topic.prefix and the consumer with an "
            "empty checkpoint",
            stored=stored,
            now=key_text(schema),
        )
