"""One streaming query: started, watched, and stopped between two batches."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import structlog
from pyspark.errors import StreamingQueryException

from tailrace.runtime.errors import SinkError, TailraceError
from tailrace.spark_consumer.config import ConsumerConfig
from tailrace.spark_consumer.monitor.status import Status
from tailrace.spark_consumer.pipeline import Pipeline
from tailrace.spark_consumer.sink.base import Sink
from tailrace.spark_consumer.source.kafka import read_stream, stream_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = structlog.get_logger(__name__)

_POLL_S = 1


class RunningQuery:
    """A started query. ``stop`` may be called from a signal handler; ``wait`` returns when the query has ended."""

    def __init__(self, spark: SparkSession, config: ConsumerConfig, sink: Sink, status: Status) -> None:
        self._sink, self._status = sink, status
        self._stopping = threading.Event()
        self._parked = threading.Event()
        self._released = threading.Event()
        self._error: BaseException | None = None
        self._pipeline = Pipeline(
            prefix=config.topic_prefix,
            client=config.kafka_client,
            sink=sink,
            checkpoint=config.checkpoint,
            status=status,
        )
        self._pipeline.gate = self._gate
        self.query = self._start(spark, config)
        self._pipeline.start(self.query.id)
        status.running()

    def stop(self) -> None:
        """Ask for an orderly end: the running batch is finished, the next one does not begin."""
        self._stopping.set()

    def wait(self) -> None:
        """Return after an orderly end; raise the error that ended the query otherwise."""
        try:
            while not self._ended():
                if self._stopping.is_set() and (self._parked.is_set() or not self._busy()):
                    self._released.set()
                    self.query.stop()
                    break
            self._status.stopped("stopped")
        except BaseException:
            self._status.stopped("failed")
            raise
        finally:
            self._sink.close()

    def _ended(self) -> bool:
        try:
            return bool(self.query.awaitTermination(_POLL_S))
        except StreamingQueryException as error:
            raise self._told(error) from error

    def _told(self, error: StreamingQueryException) -> TailraceError:
        """Return the error in our words where a batch raised one, else Spark's first line."""
        if isinstance(self._error, TailraceError):
            return self._error
        return SinkError(
            "the query failed",
            hint="read the log above for the whole story",
            cause=_first_lines(str(self._error or error)),
        )

    def _busy(self) -> bool:
        return bool(self.query.status["isTriggerActive"])

    def _gate(self) -> None:
        if self._stopping.is_set():
            self._parked.set()
            self._released.wait()

    def _start(self, spark: SparkSession, config: ConsumerConfig) -> StreamingQuery:
        options = stream_options(
            client=config.kafka_client,
            prefix=config.topic_prefix,
            max_offsets=config.max_offsets,
            extra=config.source_options,
        )
        writer: Any = read_stream(spark, options).writeStream.queryName(config.name)
        writer = writer.option("checkpointLocation", config.checkpoint).foreachBatch(self._remember(self._pipeline))
        if config.available_now:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=config.processing_time)
        started: StreamingQuery = writer.start()
        return started

    def _remember(self, pipeline: Pipeline) -> Callable[[DataFrame, int], None]:
        """Wrap the pipeline so that its own error is at hand; Spark passes on only a text."""

        def run(batch: DataFrame, batch_id: int) -> None:
            try:
                pipeline(batch, batch_id)
            except BaseException as error:
                self._error = error
                raise

        return run


def _first_lines(text: str, count: int = 3) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    return " ".join(lines[:count])[:1000]
