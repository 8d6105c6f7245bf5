"""Keeps all published schemas and alterations of each table topic, ordered by position in the source.

A record names its schema in the header ``tailrace.schema``. The schemas topic is read before every batch, because a
row can be written with a schema that was published after the last batch. The number of schemas grows with ALTER TABLE
statements, not with rows.

Lineages tell where the values of a column come from in rows that were written before ALTER TABLE statements. Without an
alteration that says otherwise, columns of one name are the same column.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from tailrace.runtime.errors import SchemaError
from tailrace.schemas.alteration import Alteration, AlterationKind, ColumnChange
from tailrace.schemas.sequence import Sequence as Position
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.source.control import ControlTopic
from tailrace.spark_consumer.source.kafka import reload_remedy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of a column: a column of the older row, or the value that ADD COLUMN gave to existing rows."""

    column: str = ""
    added: ColumnChange | None = None


Lineage = Mapping[str, Origin]
"""Origins by the lower-case name of the later column: MySQL compares names without case."""

Lineages = Sequence[tuple[Position, Lineage]]
"""The lineages of rows with the same columns by the position of the row: each holds from its position on."""

START: Final = Position(-1, -1, -1, -1, -1)
"""Before every record."""


def is_applicable(columns: Iterable[str], alteration: Alteration) -> bool:
    """Return whether a table with these columns (lower case) is before the alteration rather than after it."""
    present = set(columns)
    gone = {_gone(change) for change in alteration.changes} - {""}
    new = {_new(change) for change in alteration.changes} - {""}
    return bool(gone or new) and gone <= present and not (new & (present - gone))


def after_alteration(lineage: Lineage, alteration: Alteration) -> dict[str, Origin]:
    """Return the lineage after an alteration; the same if the columns are not those before it."""
    if not is_applicable(lineage, alteration):
        return dict(lineage)
    gone = {_gone(change) for change in alteration.changes}
    result = {name: origin for name, origin in lineage.items() if name not in gone}
    for change in alteration.changes:
        if change.kind is AlterationKind.ADD:
            result[change.column.lower()] = Origin(added=change)
        elif change.kind is AlterationKind.RENAME:
            result[change.column.lower()] = lineage[change.old.lower()]
    return result


def names_after(names: Iterable[str], alteration: Alteration) -> list[str]:
    """Return the names that columns have after an alteration, once each, without those that it drops."""
    new = {_gone(change): _new(change) and change.column for change in alteration.changes if _gone(change)}
    return list(dict.fromkeys(found for name in names if (found := new.get(name.lower(), name))))


def lineages(columns: Sequence[str], alterations: Sequence[Alteration]) -> Lineages:
    """Return the lineages of rows with these columns, of which a batch may have those of some only.

    A row is before the alterations whose position is greater than its own. ``alterations`` are in order.
    """
    found: list[tuple[Position, dict[str, Origin]]] = []
    for start in range(len(alterations) + 1):
        lineage = {name.lower(): Origin(name) for name in columns}
        for alteration in alterations[start:]:
            lineage = after_alteration(lineage, alteration)
        if not found or found[-1][1] != lineage:
            found.append((alterations[start - 1].sequence if start else START, lineage))
    return found


def until(alterations: Sequence[Alteration], columns: Iterable[str], position: Position) -> list[Alteration]:
    """Return the alterations, in order, that a table with these columns has behind it.

    The table was seen with the columns at the position, or read with them soon after it.
    """
    names = {name.lower() for name in columns}
    found = []
    for alteration in alterations:
        if alteration.sequence > position and (is_applicable(names, alteration) or not _moves(alteration)):
            break
        found.append(alteration)
    return found


def _moves(alteration: Alteration) -> bool:
    return any(change.kind is not AlterationKind.CONVERT for change in alteration.changes)


def _gone(change: ColumnChange) -> str:
    if change.kind is AlterationKind.RENAME:
        return change.old.lower()
    return change.column.lower() if change.kind is AlterationKind.DROP else ""


def _new(change: ColumnChange) -> str:
    return change.column.lower() if change.kind in {AlterationKind.ADD, AlterationKind.RENAME} else ""


log = structlog.get_logger(__name__)


def not_published(topic: str, schemas: str) -> SchemaError:
    """Return the error for records that name a schema which the schemas topic does not have."""
    return SchemaError(
        f"records of topic {topic} name a table schema that is not published",
        hint="restart the producer, which publishes the present schemas again, and let it alone write to the topics of "
        f"its prefix; if records with former schemas are left, {reload_remedy(topic)}",
        schemas=schemas,
    )


class SchemaTracker:
    """All schemas per topic."""

    def __init__(self, topic: ControlTopic) -> None:
        self._topic = topic
        self._lock = threading.Lock()
        self._versions: dict[str, dict[str, tuple[Position, TableSchema]]] = {}
        self._alterations: dict[str, dict[Position, Alteration]] = {}

    def refresh(self, spark: SparkSession, *, can_be_missing: bool = False) -> None:
        """Read the schemas that were published since the last call; waits for a call of another thread.

        ``can_be_missing``: there may be no schemas topic yet.
        """
        if can_be_missing and not self._topic.exists(spark):
            return
        with self._lock:
            records = self._topic.poll(spark)
            added = {self.add(record.value) for record in records} - {None}
        if added:
            log.info("table schemas read", tables=len(added), records=len(records))

    def add(self, value: bytes) -> str | None:
        """Add one record of the schemas topic; return the topic of its table if it is a new or a later schema."""
        try:
            alteration = Alteration.from_json(value)
            if alteration is not None:
                self._alterations.setdefault(alteration.topic, {})[alteration.sequence] = alteration
                return None
            schema, sequence = TableSchema.from_json(value)
        except (KeyError, TypeError, ValueError) as error:
            raise SchemaError(
                f"a record of {self._topic.topic} is not a table schema",
                hint="allow only the producer to write to this topic",
                value=value[:200],
            ) from error
        versions = self._versions.setdefault(schema.topic, {})
        known = versions.get(schema.fingerprint)
        if known is not None and sequence < known[0]:
            return None
        versions[schema.fingerprint] = (sequence, schema)
        log.debug("table schema read", topic=schema.topic, sequence=sequence, columns=len(schema.columns))
        return schema.topic

    def topics(self) -> list[str]:
        """Return the topics with a published schema."""
        return sorted(self._versions)

    def has(self, topic: str) -> bool:
        """Return whether a schema of a topic is published."""
        return topic in self._versions

    def versions(self, topic: str) -> list[TableSchema]:
        """Return the schemas of a topic, the latest last; raises SchemaError if none is published."""
        known = self._versions.get(topic)
        if known is None:
            raise SchemaError(
                f"no table schema is published for topic {topic}",
                hint="check topic and prefix; restart the producer, which publishes it with the next change, or leave "
                "the topic out with table.exclude.list; of topic prefixes none may be the start of another",
                schemas_topic=self._topic.topic,
            )
        return [schema for _, schema in sorted(known.values(), key=lambda entry: entry[0])]

    def alterations(self, topic: str) -> list[Alteration]:
        """Return the alterations of a table up to its latest schema, in order."""
        known = self._alterations.get(topic)
        if not known or topic not in self._versions:
            return []
        sequence, latest = max(self._versions[topic].values(), key=lambda entry: entry[0])
        in_order = [known[position] for position in sorted(known)]
        return until(in_order, [column.name for column in latest.columns], sequence)

    def published(self, topic: str) -> list[TableSchema]:
        """Return the schemas of a topic like ``versions``; none for a topic that only another connector wrote."""
        return self.versions(topic) if topic in self._versions else []
