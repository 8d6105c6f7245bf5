"""The streaming query: start, wait, and an orderly stop between two batches."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.listener import StreamingQueryListener

from tailrace.runtime.errors import ConfigError, TailraceError
from tailrace.schemas.names import watermarks_topic
from tailrace.spark_consumer.config import ConsumerConfig
from tailrace.spark_consumer.errors import as_tailrace_error
from tailrace.spark_consumer.monitor.status import Status, reported_offsets
from tailrace.spark_consumer.pipeline import Pipeline
from tailrace.spark_consumer.sink.routing import QuerySink
from tailrace.spark_consumer.source.kafka import stream_options
from tailrace.spark_consumer.source.kafka_admin import topic_names
from tailrace.spark_consumer.source.ranges import require_offsets
from tailrace.spark_consumer.source.topics import subscribe_pattern
from tailrace.spark_consumer.spark_line import last_progress
from tailrace.spark_consumer.tables.services import PipelineSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )
    from pyspark.sql.streaming.query import StreamingQuery


class ProgressListener(StreamingQueryListener):
    """Passes the reports of one query on; a session can have others. Spark calls it on a thread of its own."""

    def __init__(self, status: Status, control_topics: frozenset[str]) -> None:
        """``control_topics`` are in the stream and are no tables."""
        self._status = status
        self._control = control_topics
        self._query_id: str | None = None
        self._last = ""

    def follow(self, query_id: str) -> None:
        """Pass on the reports of this query."""
        self._query_id = query_id

    def report(self, text: str) -> None:
        """Pass on a report, the JSON of a ``StreamingQueryProgress``, unless it was passed on before."""
        found = json.loads(text)
        if found["id"] != self._query_id or found["timestamp"] <= self._last:
            return
        self._last = found["timestamp"]
        applied, ends = reported_offsets(found)
        ends = {topic: each for topic, each in ends.items() if topic not in self._control}
        self._status.progress(found["batchId"], applied, ends, found["durationMs"])

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Pass on the report of a batch."""
        self.report(event.progress.json)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Pass on that Kafka has answered, and has nothing more."""
        if str(event.id) == self._query_id:
            self._status.confirmed()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Do nothing."""


_POLL_S: Final = 1
_UNITS: Final = {"millisecond": 0.001, "second": 1, "minute": 60, "hour": 3600}


class RunningQuery:
    """A started query. A signal handler can call ``stop``; ``wait`` returns when the query has ended."""

    def __init__(self, spark: SparkSession, config: ConsumerConfig, sinks: Sequence[QuerySink], status: Status) -> None:
        """Raises ConfigError if a table that Kafka has does not belong to exactly one of several sinks."""
        self._spark, self._status = spark, status
        self._listener = ProgressListener(status, frozenset({watermarks_topic(config.topic_prefix)}))
        self._available_now = config.available_now
        self._stopping = threading.Event()
        self._paused = threading.Event()
        self._resume = threading.Event()
        self._error: BaseException | None = None
        settings = PipelineSettings(
            prefix=config.topic_prefix,
            client=config.kafka_client,
            source=config.source_options,
            checkpoint=config.checkpoint,
            accept_incomplete=config.accepts_incomplete_topics,
            format=config.format_settings,
            rules=config.transforms.rules,
            max_offsets=config.max_offsets,
            max_bytes=config.max_bytes,
            table_threads=config.table_threads,
            retry_s=0 if config.available_now else config.retry_ms / 1000,
            dead_letter_topic=config.dead_letter_topic if config.tolerance == "all" else None,
        )
        self._pipeline = Pipeline(settings, sinks, status)
        self._pipeline.pause_point = self._pause_point
        try:
            require_offsets(spark, config.checkpoint)
            _require_transforms(spark, config, self._pipeline)
            self._pipeline.load_positions(spark)
            if config.sinks or any(sink.has_overrides for sink in sinks):
                self._pipeline.check_sinks(table_topics(spark, config))
        except BaseException:
            self._pipeline.close()
            raise
        spark.streams.addListener(self._listener)
        self.query = self._start(spark, config, sinks)
        self._listener.follow(self.query.id)
        self._pipeline.start(self.query.id)
        status.running()

    def stop(self) -> None:
        """Request an orderly stop: the current batch ends, the next one does not start."""
        self._stopping.set()

    def retry_parked(self) -> None:
        """Request that the parked tables are tried again now."""
        self._pipeline.retry_parked()

    def wait(self) -> None:
        """Return after an orderly end of the query; raise the error that ended it otherwise."""
        try:
            while not self._has_ended():
                if self._stopping.is_set() and (self._paused.is_set() or not self._is_busy()):
                    self._resume.set()
                    self.query.stop()
                    break
                self._catch_up()
            if self._available_now and not self._stopping.is_set():
                self._finish_available()
            self._status.stopped("stopped")
        except TailraceError as error:
            self._status.failed(error)
            raise
        except BaseException:
            self._status.stopped("failed")
            raise
        finally:
            self._spark.streams.removeListener(self._listener)
            self._report_last()
            self._pipeline.close()

    def _has_ended(self) -> bool:
        try:
            return bool(self.query.awaitTermination(_POLL_S))
        except StreamingQueryException as error:
            raise as_tailrace_error(self._error or error) from error

    def _finish_available(self) -> None:
        """Read the backlog of the tables that were taken up again, and tend tables; raise if tables are parked."""
        while self._catch_up():
            pass
        self._pipeline.require_none_parked()

    def _catch_up(self) -> bool:
        try:
            return self._pipeline.catch_up(self._spark) or self._pipeline.tend()
        except Exception as error:
            raise as_tailrace_error(error) from error

    def _report_last(self) -> None:
        """Report the last batch: Spark calls listeners later, and not any more when the query has ended."""
        progress = last_progress(self.query)
        if progress is not None:
            self._listener.report(progress)

    def _is_busy(self) -> bool:
        return bool(self.query.status["isTriggerActive"])

    def _pause_point(self) -> None:
        if self._stopping.is_set():
            self._paused.set()
            self._resume.wait()

    def _start(self, spark: SparkSession, config: ConsumerConfig, sinks: Sequence[QuerySink]) -> StreamingQuery:
        options = stream_options(
            client=config.kafka_client,
            prefix=config.topic_prefix,
            tables=config.table_filter,
            max_offsets=config.max_offsets,
            extra=config.source_options,
        )
        # The stream plans the batches. Its records are never read: each table reads its own range.
        stream = spark.readStream.format("kafka").options(**options).load()
        writer: Any = stream.writeStream.queryName(config.name)
        writer = writer.option("checkpointLocation", config.checkpoint).foreachBatch(self._keep_error(self._pipeline))
        if config.available_now:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=config.processing_time or processing_time(sinks))
        started: StreamingQuery = writer.start()
        return started

    def _keep_error(self, pipeline: Pipeline) -> Callable[[DataFrame, int], None]:
        """Wrap the pipeline so that its error object is kept; Spark passes on only the text of an error."""

        def run(batch: DataFrame, batch_id: int) -> None:
            try:
                pipeline(batch, batch_id)
            except BaseException as error:
                self._error = error
                raise

        return run


def processing_time(sinks: Iterable[QuerySink]) -> str:
    """Return the longest default of some sinks: a batch commits all of its tables."""
    defaults = {sink.plugin.processing_time for sink in sinks}
    return max(defaults, key=_seconds) if len(defaults) > 1 else defaults.pop()


def _seconds(text: str) -> float:
    """Return the length of an interval such as ``10 seconds``; raises ValueError for another form."""
    number, _, unit = text.partition(" ")
    return float(number) * _UNITS[unit.removesuffix("s")]


def _require_transforms(spark: SparkSession, config: ConsumerConfig, pipeline: Pipeline) -> None:
    """Raise ConfigError with all faults of the transforms in the tables that are known; new ones are checked later."""
    rules, tables = config.transforms.rules, config.table_filter
    if rules.transforms or rules.routes:
        transforms = pipeline.load_transforms(spark)
        problems = transforms.problems(lambda schema: tables.contains(f"{schema.database}.{schema.table}"))
        if problems:
            raise ConfigError(problems)


def table_topics(spark: SparkSession, config: ConsumerConfig) -> list[str]:
    """Return the topics of tables that Kafka has and the query reads."""
    prefix = config.topic_prefix
    names = topic_names(spark, config.kafka_client, subscribe_pattern(prefix, config.table_filter))
    return [name for name in names if name != watermarks_topic(prefix)]
