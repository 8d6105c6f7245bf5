"""The sinks of a running query: opened once, each for its tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.sink.assignments import Assignments
from tailrace.spark_consumer.sink.base import Sink, SinkContext, TendedSink
from tailrace.spark_consumer.sink.routing import QuerySink, SinkRouter
from tailrace.spark_consumer.sink.shared_query import SharedQuerySink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
