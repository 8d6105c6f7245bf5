"""Which sink writes which table: each of several sinks has lists of tables, and a table goes to exactly one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tailrace.runtime.config.section import Section
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.sink.base import Sink, SinkContext
from tailrace.spark_consumer.sink.plugin import SinkPlugin
from tailrace.spark_consumer.sink.shape import ShapeOptions
from tailrace.spark_consumer.source.topics import TableFilter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHOWN: Final = 20
"""Tables that a message names."""


@dataclass(frozen=True, slots=True)
class QuerySink:
    """A sink of a query."""

    name: str
    plugin: SinkPlugin
    options: Section
    tables: TableFilter = field(default_factory=TableFilter)
    """The tables that it writes."""

    @property
    def has_overrides(self) -> bool:
        """Whether some tables have shapes of their own."""
        return isinstance(self.options, ShapeOptions) and bool(self.options.shape_overrides)

    def images(self, database: str, table: str) -> Images:
        """Return what the sink reads of the changes of a table."""
        choose = self.plugin.table_images
        return self.plugin.images if choose is None else choose(self.options, database, table)

    def open(self, spark: SparkSession, context: SinkContext) -> Sink:
        """Open the sink."""
        return self.plugin.open(spark, self.options, context)


class SinkRouter:
    """The sinks of a query, by table."""

    def __init__(self, sinks: Sequence[QuerySink], prefix: str) -> None:
        """``prefix``: of the topics."""
        self.sinks = tuple(sinks)
        self._prefix = f"{prefix}."
        self._known: dict[str, tuple[QuerySink, ...]] = {}

    def of(self, topic: str) -> QuerySink:
        """Return the sink of a table; raises SinkError if it has none or several."""
        found = self._matching(topic)
        if len(found) == 1:
            return found[0]
        raise SinkError(
            f"{self._table(topic)} is a table of {_names(found)}" if found else f"{self._table(topic)} has no sink",
            hint="change the lists sinks.<name>.table.include.list and sinks.<name>.table.exclude.list so that the "
            "table is in those of one sink, or leave it out with table.exclude.list, and start again",
        )

    def name_of(self, topic: str) -> str:
        """Return the name of the sink of a table; '' if it has none or several."""
        found = self._matching(topic)
        return found[0].name if len(found) == 1 else ""

    def merges_tables(self, topic: str) -> bool:
        """Return whether the sink of a table can write several tables to one target."""
        return all(
            sink.plugin.merges_tables and self.images(topic) is sink.plugin.images for sink in self._matching(topic)
        )

    def images(self, topic: str) -> Images:
        """Return what the sink of a table reads of its changes."""
        database, _, table = self._table(topic).partition(".")
        return self.of(topic).images(database, table)

    def problems(self, topics: Iterable[str]) -> list[str]:
        """Return what is wrong with the lists of the sinks and with the shapes of tables, for some topics."""
        wrong: dict[tuple[str, ...], list[str]] = defaultdict(list)
        problems: list[str] = []
        for topic in sorted(topics):
            found = self._matching(topic)
            if len(found) != 1:
                wrong[tuple(sink.name for sink in found)].append(self._table(topic))
            else:
                problems += self._shape_problems(found[0], self._table(topic))
        for names, tables in sorted(wrong.items()):
            more = f" and {len(tables) - _SHOWN} more" if len(tables) > _SHOWN else ""
            listed = ", ".join(tables[:_SHOWN]) + more
            if names:
                problems.append(
                    f"sinks: tables of more than one sink ({', '.join(names)}): {listed}; a table goes to one: change "
                    f"sinks.{names[0]}.table.exclude.list, or start another query for the second target"
                )
            else:
                problems.append(
                    f"sinks: tables without a sink: {listed}; add them to a sinks.<name>.table.include.list, or leave "
                    "them out with table.exclude.list"
                )
        return problems

    def _shape_problems(self, sink: QuerySink, table: str) -> list[str]:
        if not isinstance(sink.options, ShapeOptions):
            return []
        database, _, name = table.partition(".")
        found = sink.options.shapes.matching(database, name)
        if len(found) < 2:
            return []
        start = f"sinks.{sink.name}." if len(self.sinks) > 1 else ""
        listed = ", ".join(f"{expression}:{shape}" for expression, shape in found)
        return [
            f"{start}sink.shape.overrides: several expressions match {table}: {listed}; change them so that one matches"
        ]

    def _table(self, topic: str) -> str:
        return topic.removeprefix(self._prefix)

    def _matching(self, topic: str) -> tuple[QuerySink, ...]:
        if topic not in self._known:
            table = self._table(topic)
            self._known[topic] = tuple(sink for sink in self.sinks if sink.tables.contains(table))
        return self._known[topic]


def _names(sinks: Iterable[QuerySink]) -> str:
    return " and ".join(sink.name for sink in sinks)
