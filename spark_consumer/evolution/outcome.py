"""What a plan means for a writer, and what it leaves to the operator; the same for every target."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from tailrace.schemas.alteration import Alteration
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.evolution.plan import Plan
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
