"""The transforms of all tables of a query, checked against the schemas as soon as these are known.

Several tables (shards) can have one target, if the sink supports that. Then:

- The key of the target has columns that are the same in all rows of a table and differ from table to table, such as
  ``__schema_name__``. So two tables never have a row with the same key, and nothing that is done for one key of a table
  concerns another table.
- Order, snapshots and what is applied belong to the topic, as without a transform.
- The target has the columns of all tables; rows of a table that lacks one have NULL.
- A truncate event removes the rows of its table only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from tailrace.schemas.alteration import Alteration, AlterationKind
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import TransformError
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.transform.columns import Columns, find_columns, shard_of
from tailrace.spark_consumer.transform.rules import Rules, TransformRule
from tailrace.spark_consumer.transform.table_transform import TableTransform

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.spark_consumer.source.schema_tracker import SchemaTracker


class TargetSinks(Protocol):
    """What is known of the sinks of a query."""

    def name_of(self, topic: str) -> str:
        """Return the name of the sink of a table."""

    def merges_tables(self, topic: str) -> bool:
        """Return whether the sink of a table can write several tables to one target."""

    def images(self, topic: str) -> Images:
        """Return what the sink of a table reads of its changes."""


_MOST_CHECKED: Final = 200
"""Different lists of columns for which a rule is checked at the start; others are checked with their first records."""
_SETTINGS: Final = {"spark.sql.variable.substitute": "false"}

log = structlog.get_logger(__name__)


class Transforms:
    """Finds the transform of each schema once; several threads may use it."""

    def __init__(
        self, spark: SparkSession, rules: Rules, schemas: SchemaTracker, sinks: TargetSinks | None = None
    ) -> None:
        """``spark``: expressions are checked in it. ``sinks``: None for one sink without shared targets."""
        self._spark = spark
        self._rules = rules
        self._schemas = schemas
        self._sinks = sinks
        self._known: dict[str, TableTransform] = {}
        self._latest: dict[str, TableTransform] = {}
        self._targets: dict[tuple[str, ...], dict[str, TableTransform]] = {}
        """What is written to a target, by topic."""
        self._layouts: dict[tuple[str, str], tuple[Columns | None, list[str]]] = {}
        """What rules make of columns, by rule and columns."""
        self._lock = threading.Lock()
        for name, value in _SETTINGS.items():
            spark.conf.set(name, value)

    def of(self, schema: TableSchema) -> TableTransform:
        """Return the transform of a table. Raises TransformError if its rule does not fit the schema."""
        with self._lock:
            found = self._known.get(schema.fingerprint)
            if found is None:
                found, faults = self._find(schema)
                if found is None:
                    raise self._error(schema, faults)
                self._claim(found)
                self._known[schema.fingerprint] = found
            self._latest[schema.topic] = found
            return found

    def alterations(self, topic: str) -> Sequence[Alteration]:
        """Return what the alterations of a table mean for its target."""
        found = self._schemas.alterations(topic)
        latest = self._latest.get(topic)
        return found if latest is None else latest.alterations(found)

    def shard(self, topic: str) -> Mapping[str, str]:
        """Return the columns that tell the rows of a table from those of others in a shared target, with their values.

        Empty if the target has one table.
        """
        found = self._latest.get(topic)
        if found is None or not self._is_routed(found.source):
            return {}
        return found.shard if self._sinks is not None and self._sinks.merges_tables(topic) else {}

    def problems(self, is_read: Callable[[TableSchema], bool] = lambda _: True) -> list[str]:
        """Return the faults of the rules in all tables whose schemas are published and that are read.

        A rule that fits an earlier schema of a table is none: the source was altered since, and only this table stops.
        """
        tables = [found for topic in self._schemas.topics() if is_read((found := self._schemas.versions(topic))[-1])]
        faults: dict[str, list[str]] = {}
        checked: dict[str, set[str]] = {}
        for *earlier, latest in tables:
            rule = self._rules.transform_of(latest.database, latest.table)
            if rule is None:
                continue
            layouts = checked.setdefault(rule.name, set())
            layouts.add(_layout(latest))
            if len(layouts) > _MOST_CHECKED:
                continue
            columns, wrong = self._checked(rule, latest)
            if columns is None and not any(self._checked(rule, schema)[0] for schema in earlier):
                for fault in wrong:
                    faults.setdefault(fault, []).append(_name(latest))
        unused = [rule.name for rule in self._rules.transforms if rule.name not in checked]
        if unused and tables:
            log.warning("no table that is known matches a transform", transforms=unused)
        problems = [_with_tables(fault, names) for fault, names in faults.items()]
        return problems + self._shared_targets([versions[-1] for versions in tables])

    def _shared_targets(self, schemas: Iterable[TableSchema]) -> list[str]:
        users: dict[tuple[str, ...], list[TableSchema]] = {}
        for schema in schemas:
            users.setdefault(self._target(schema), []).append(schema)
        shared = [found for found in users.values() if len(found) > 1 and any(map(self._is_routed, found))]
        transforms = ([transform for schema in found if (transform := self._find(schema)[0])] for found in shared)
        conflicts = (self._conflict(found) for found in transforms)
        return [f"routes: {conflict}" for conflict in conflicts if conflict]

    def _claim(self, transform: TableTransform) -> None:
        """Raise TransformError if tables that cannot share a target are written to it."""
        users = self._targets.setdefault(self._target(transform.source), {})
        conflict = self._conflict(
            [*(each for topic, each in users.items() if topic != transform.source.topic), transform]
        )
        if conflict:
            raise TransformError(conflict, hint="change routes or the key, and start again")
        users[transform.source.topic] = transform

    def _conflict(self, transforms: Sequence[TableTransform]) -> str:
        """Return why tables cannot be written to one target; '' if they can."""
        schemas = [transform.source for transform in transforms]
        if len(transforms) < 2 or not any(map(self._is_routed, schemas)):
            return ""
        target = ".".join(self._target(schemas[0])[1:])
        start = f"{_listed(list(map(_name, schemas)))} have one target, {target}"
        unrouted = [_name(schema) for schema in schemas if not self._is_routed(schema)]
        if unrouted:
            # A table that is written under its own name is the owner of its target.
            return f"{start}, and {_listed(unrouted)} has no route that leads there: give it a route to another target"
        if self._sinks is None or not all(self._sinks.merges_tables(schema.topic) for schema in schemas):
            return f"{start}: this sink needs a target for each table"
        if any(transform.schema.key != transforms[0].schema.key for transform in transforms):
            return f"{start}, and different keys"
        # A column that is constant in one table only can have any value in the rows of others.
        common = set.intersection(*(set(transform.shard) for transform in transforms))
        shards = {tuple(transform.shard[name] for name in sorted(common)) for transform in transforms}
        if not common or len(shards) < len(transforms):
            needed = "a column of the table alone, such as __schema_name__ AS shard"
            return f"{start}, and its key does not tell their rows apart: add to projection and primary-keys {needed}"
        return ""

    def _target(self, schema: TableSchema) -> tuple[str, ...]:
        """Return sink, database and table of a target in lower case: many catalogs know no other."""
        database, table = self._rules.target_of(schema.database, schema.table)
        sink = "" if self._sinks is None else self._sinks.name_of(schema.topic)
        return sink, database.lower(), table.lower()

    def _is_routed(self, schema: TableSchema) -> bool:
        names = schema.database, schema.table
        return self._rules.target_of(*names) != names

    def _find(self, schema: TableSchema) -> tuple[TableTransform | None, list[str]]:
        rule = self._rules.transform_of(schema.database, schema.table)
        columns: Columns | None = None
        shard: dict[str, str] = {}
        if rule is not None:
            columns, faults = self._checked(rule, schema)
            if columns is None:
                return None, faults
            shard = shard_of(self._spark, columns, schema)
        return TableTransform.of(schema, self._rules.target_of(schema.database, schema.table), columns, shard), []

    def _checked(self, rule: TransformRule, schema: TableSchema) -> tuple[Columns | None, list[str]]:
        """Return the columns that a rule gives a table in its sink, or None and the faults."""
        if rule.filter is not None and self._keeps_deleted(schema):
            return None, [
                rule.filter.fault("a table with soft deletes has no filter: it would keep rows that leave it")
            ]
        return self._columns(rule, schema)

    def _keeps_deleted(self, schema: TableSchema) -> bool:
        return self._sinks is not None and self._sinks.images(schema.topic) is Images.UPSERT_WITH_BEFORE

    def _columns(self, rule: TransformRule, schema: TableSchema) -> tuple[Columns | None, list[str]]:
        """Return the columns that a rule gives a table; shards with the same columns are checked once."""
        key = rule.name, _layout(schema)
        if key not in self._layouts:
            self._layouts[key] = find_columns(self._spark, rule, schema)
        return self._layouts[key]

    def _error(self, schema: TableSchema, faults: Collection[str]) -> TransformError:
        rule = self._rules.transform_of(schema.database, schema.table)
        moved = [
            each.statement
            for each in self._schemas.alterations(schema.topic)
            if any(change.kind in {AlterationKind.DROP, AlterationKind.RENAME} for change in each.changes)
        ]
        return TransformError(
            f"the transform {rule.name if rule else ''} does not fit {_name(schema)}: " + "\n".join(faults),
            hint="change the setting to the columns that the table has now, and start again",
            columns=", ".join(column.name for column in schema.columns),
            **({"source": moved[-1]} if moved else {}),
        )


def _with_tables(fault: str, tables: Sequence[str]) -> str:
    """Add the tables of a fault to its first line."""
    first, _, rest = fault.partition("\n")
    return f"{first} (table {_listed(tables)})\n{rest}"


def _listed(tables: Sequence[str]) -> str:
    return ", ".join(tables[:3]) + (f" and {len(tables) - 3} more" if len(tables) > 3 else "")


def _layout(schema: TableSchema) -> str:
    """Return a text that is the same for tables with the same columns and the same key."""
    return replace(schema, topic="", database="", table="").fingerprint


def _name(schema: TableSchema) -> str:
    return f"{schema.database}.{schema.table}"
