"""The sinks of a query: each of several has lists of tables, a table goes to exactly one, and each is opened once."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog

from tailrace.runtime.config.section import Section
from tailrace.runtime.errors import TailraceError
from tailrace.spark_consumer.errors import SinkError, UnreachableSinkError, is_unreachable
from tailrace.spark_consumer.files import read_document, write_document
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.java_errors import summary
from tailrace.spark_consumer.sink.base import (
    DriverBatch,
    DriverSink,
    Sink,
    SinkContext,
    TableBatch,
    TendedSink,
    WaySink,
)
from tailrace.spark_consumer.sink.plugin import SinkPlugin
from tailrace.spark_consumer.sink.shape import ShapeOptions
from tailrace.spark_consumer.source.topics import TableFilter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.schemas.table import TableSchema

_SHOWN: Final = 20
"""Tables that a message names."""
_REST_S: Final = 10
"""Time in which an engine that could not be reached is not called: each table would wait for the connection."""

log = structlog.get_logger(__name__)


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


class Assignments:
    """Which sink has the rows of each table, in ``<checkpoint>/tailrace/sinks.json``.

    Another sink would get only the changes from now on.
    """

    def __init__(self, checkpoint: str) -> None:
        self._file = f"{checkpoint.rstrip('/')}/tailrace/sinks.json"
        self._known: dict[str, str] = {}

    def load(self, spark: SparkSession) -> None:
        """Read what earlier runs of the query have noted."""
        self._known = read_document(spark, self._file, _sinks) or {}

    def note(self, spark: SparkSession, sinks: Mapping[str, str]) -> None:
        """Store the sinks of topics, before their first records are written; '' is no sink."""
        new = {topic: name for topic, name in sinks.items() if name and topic not in self._known}
        if new:
            self._known |= new
            write_document(spark, self._file, {"sinks": self._known})

    def problems(self, sinks: Mapping[str, str]) -> list[str]:
        """Return which topics have another sink now."""
        moved: dict[tuple[str, str], list[str]] = defaultdict(list)
        for topic, name in sorted(sinks.items()):
            before = self._known.get(topic, name)
            if name and before != name:
                moved[before, name].append(topic)
        return [
            f"sinks: {', '.join(topics)} went to the sink {before} until now and would go to {name}, which lacks their "
            "rows; restore the lists, or read the tables with another query. If the sink has the rows, remove the "
            f"topics from {self._file}"
            for (before, name), topics in sorted(moved.items())
        ]


def _sinks(body: dict[str, Any]) -> dict[str, str]:
    """Return the sinks by topic; without a format the document had nothing else."""
    found = body["sinks"] if "format" in body else body
    return {topic: str(name) for topic, name in found.items()}


class SharedQuerySink:
    """Passes calls on to a sink among several of one query, which it opens. Several threads call it.

    If its engine cannot be reached, its own tables stop and no others.
    """

    def __init__(self, name: str, open_sink: Callable[[], Sink]) -> None:
        self._name = name
        self._open_sink = open_sink
        self._sink: Sink | None = None
        self._opening = threading.Lock()
        self._failed: tuple[float, str] | None = None
        """When the engine could not be reached, by ``time.monotonic``, and why."""

    def open(self) -> None:
        """Open the sink now; an engine that cannot be reached is called again for its tables."""
        try:
            with self._calls():
                pass
        except UnreachableSinkError as error:
            log.warning("sink cannot be opened; its tables are parked", sink=self._name, cause=error.context["cause"])

    def retry(self) -> None:
        """Call the engine again at once. A signal handler may call it."""
        self._failed = None

    def applied(self, schema: TableSchema) -> Mapping[int, int] | None:
        """Return what the target of a table has applied."""
        with self._calls() as sink:
            return sink.applied(schema)

    def prepare_table(self, schema: TableSchema) -> None:
        """Create or change the target of a table."""
        with self._calls() as sink:
            sink.prepare_table(schema)

    def write_batch(self, batch: TableBatch, batch_id: int) -> None:
        """Write the records of a table."""
        with self._calls() as sink:
            sink.write_batch(batch, batch_id)

    def takes_from_driver(self, schema: TableSchema, offsets: int) -> bool:
        """Return whether the sink would probably write a batch of so many offsets in the driver."""
        return isinstance(self._sink, DriverSink) and self._sink.takes_from_driver(schema, offsets)

    def write_in_driver(self, batch: DriverBatch, batch_id: int) -> bool:
        """Write the changes of a table in the driver; ``takes_from_driver`` was true."""
        with self._calls() as sink:
            return isinstance(sink, DriverSink) and sink.write_in_driver(batch, batch_id)

    def way_of(self, topic: str) -> str:
        """Return how the last batch of a table was written; '' if the sink does not tell."""
        return self._sink.way_of(topic) if isinstance(self._sink, WaySink) else ""

    def tend(self, spark: SparkSession) -> bool:
        """Tend one table of the sink that is due."""
        return isinstance(self._sink, TendedSink) and self._sink.tend(spark)

    def close(self) -> None:
        """Close the sink if it is open."""
        if self._sink is not None:
            self._sink.close()

    @contextmanager
    def _calls(self) -> Iterator[Sink]:
        try:
            yield self._opened()
        except Exception as error:
            if not is_unreachable(error):
                raise
            self._failed = time.monotonic(), _text(error)
            raise self._error(self._failed[1]) from error

    def _opened(self) -> Sink:
        with self._opening:
            failed = self._failed
            if failed is not None and time.monotonic() < failed[0] + _REST_S:
                raise self._error(failed[1])
            if self._sink is None:
                self._sink = self._open_sink()
            return self._sink

    def _error(self, cause: str) -> UnreachableSinkError:
        return UnreachableSinkError(
            f"the engine of the sink {self._name} cannot be reached",
            hint="restore the connection; the tables of this sink go on at the next attempt "
            "(tailrace.parked.table.retry.ms, or the signal SIGUSR1)",
            sink=self._name,
            cause=cause,
        )


def _text(error: Exception) -> str:
    return error.message if isinstance(error, TailraceError) else summary(error)


class TableSinks:
    """Opens and closes the sinks of a query."""

    def __init__(self, sinks: Sequence[QuerySink], prefix: str, checkpoint: str) -> None:
        """``prefix``: of the topics."""
        self._assigned = Assignments(checkpoint)
        self.router = SinkRouter(sinks, prefix)
        self._shared: list[SharedQuerySink] = []
        self._opened: dict[str, Sink] = {}

    def load(self, spark: SparkSession) -> None:
        """Read which sinks the tables had."""
        if len(self.router.sinks) > 1:
            self._assigned.load(spark)

    def note(self, spark: SparkSession, topics: Iterable[str]) -> None:
        """Store which sinks the tables have, before their records are written."""
        if len(self.router.sinks) > 1:
            self._assigned.note(spark, {topic: self.router.name_of(topic) for topic in topics})

    def moved(self, topics: Iterable[str]) -> list[str]:
        """Return a text for tables that went to another sink before."""
        return self._assigned.problems({topic: self.router.name_of(topic) for topic in topics})

    def open(self, spark: SparkSession, context: SinkContext) -> dict[str, Sink]:
        """Open all sinks and return them by name.

        The only sink of a query is used as it is: if its engine cannot be reached, no table can go on.
        """
        sinks = self.router.sinks
        for sink in sinks:
            if len(sinks) == 1:
                self._opened[sink.name] = sink.open(spark, context)
            else:
                shared = SharedQuerySink(sink.name, partial(sink.open, spark, context))
                self._shared.append(shared)
                self._opened[sink.name] = shared
                shared.open()
        return dict(self._opened)

    def is_changelog(self, topic: str) -> bool:
        """Return whether the sink of a table reads every change of it."""
        try:
            return self.router.images(topic) is Images.CHANGELOG
        except SinkError:  # it has no sink
            return False

    def tend(self, spark: SparkSession) -> bool:
        """Tend one table that is due; return whether there was one."""
        return any(isinstance(sink, TendedSink) and sink.tend(spark) for sink in list(self._opened.values()))

    def retry(self) -> None:
        """Call engines that could not be reached again at once. A signal handler may call it."""
        for sink in list(self._shared):
            sink.retry()

    def close(self) -> None:
        """Close all sinks that are open, also if one fails."""
        with ExitStack() as stack:
            for sink in self._opened.values():
                stack.callback(sink.close)
            self._opened = {}
