"""A sink among several of one query: if its engine cannot be reached, its own tables stop and no others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import structlog

from tailrace.runtime.errors import TailraceError
from tailrace.spark_consumer.errors import UnreachableSinkError, is_unreachable
from tailrace.spark_consumer.java_errors import summary
from tailrace.spark_consumer.sink.base import Sink, TableBatch, TendedSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.schemas.table import TableSchema

log = structlog.get_logger(__name__)

_REST_S: Final = 10
"""Time in which an engine that could not be reached is not called: each table would wait for the connection."""


class SharedQuerySink:
    """Passes calls on to a sink, which it opens. Several threads call it."""

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
