"""The transforms of all tables of a query, checked against the schemas as soon as these are known."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final

import structlog

from tailrace.schemas.alteration import Alteration, AlterationKind
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import TransformError
from tailrace.spark_consumer.transform.columns import Columns, find_columns
from tailrace.spark_consumer.transform.rules import Rules
from tailrace.spark_consumer.transform.table_transform import TableTransform

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.spark_consumer.source.schema_tracker import SchemaTracker

_SETTINGS: Final = {"spark.sql.variable.substitute": "false"}

log = structlog.get_logger(__name__)


class Transforms:
    """Finds the transform of each schema once; several threads may use it."""

    def __init__(
        self, spark: SparkSession, rules: Rules, schemas: SchemaTracker, sink_of: Callable[[str], str] = lambda _: ""
    ) -> None:
        """``spark``: expressions are checked in it. ``sink_of`` returns the name of the sink of a topic."""
        self._spark = spark
        self._rules = rules
        self._schemas = schemas
        self._sink_of = sink_of
        self._known: dict[str, TableTransform] = {}
        self._latest: dict[str, TableTransform] = {}
        self._targets: dict[tuple[str, ...], TableSchema] = {}
        """What is written to a target, by its name in lower case."""
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
                self._claim(schema)
                self._known[schema.fingerprint] = found
            self._latest[schema.topic] = found
            return found

    def alterations(self, topic: str) -> Sequence[Alteration]:
        """Return what the alterations of a table mean for its target."""
        found = self._schemas.alterations(topic)
        latest = self._latest.get(topic)
        return found if latest is None else latest.alterations(found)

    def problems(self, is_read: Callable[[TableSchema], bool] = lambda _: True) -> list[str]:
        """Return the faults of the rules in all tables whose schemas are published and that are read.

        A rule that fits an earlier schema of a table is none: the source was altered since, and only this table stops.
        """
        faults: dict[str, list[str]] = {}
        matched: set[str] = set()
        for topic in self._schemas.topics():
            *earlier, latest = self._schemas.versions(topic)
            rule = self._rules.transform_of(latest.database, latest.table)
            if not is_read(latest) or rule is None:
                continue
            matched.add(rule.name)
            found, wrong = self._find(latest)
            if found is None and not any(self._find(schema)[0] for schema in earlier):
                for fault in wrong:
                    faults.setdefault(fault, []).append(_name(latest))
        unused = [rule.name for rule in self._rules.transforms if rule.name not in matched]
        if unused and self._schemas.topics():
            log.warning("no table that is known matches a transform", transforms=unused)
        problems = [_with_tables(fault, tables) for fault, tables in faults.items()]
        return problems + self._shared_targets(is_read)

    def _shared_targets(self, is_read: Callable[[TableSchema], bool]) -> list[str]:
        found: dict[tuple[str, ...], list[TableSchema]] = {}
        for topic in self._schemas.topics():
            schema = self._schemas.versions(topic)[-1]
            if is_read(schema):
                found.setdefault(self._target(schema), []).append(schema)
        return [
            f"routes: {_listed(list(map(_name, schemas)))} would be written to one target, {'.'.join(target[1:])}"
            for target, schemas in found.items()
            if len(schemas) > 1 and any(map(self._is_routed, schemas))
        ]

    def _claim(self, schema: TableSchema) -> None:
        """Raise TransformError if another table is written to the same target."""
        target = self._target(schema)
        first = self._targets.setdefault(target, schema)
        if first.topic != schema.topic and (self._is_routed(first) or self._is_routed(schema)):
            raise TransformError(
                f"{_name(schema)} and {_name(first)} would be written to one target, {'.'.join(target[1:])}",
                hint="change routes so that each table has a target of its own, and start again",
            )

    def _target(self, schema: TableSchema) -> tuple[str, ...]:
        """Return sink, database and table of a target in lower case: many catalogs know no other."""
        database, table = self._rules.target_of(schema.database, schema.table)
        return self._sink_of(schema.topic), database.lower(), table.lower()

    def _is_routed(self, schema: TableSchema) -> bool:
        names = schema.database, schema.table
        return self._rules.target_of(*names) != names

    def _find(self, schema: TableSchema) -> tuple[TableTransform | None, list[str]]:
        rule = self._rules.transform_of(schema.database, schema.table)
        columns: Columns | None = None
        if rule is not None:
            columns, faults = find_columns(self._spark, rule, schema)
            if columns is None:
                return None, faults
        return TableTransform.of(schema, self._rules.target_of(schema.database, schema.table), columns), []

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


def _name(schema: TableSchema) -> str:
    return f"{schema.database}.{schema.table}"
