"""Processes one micro-batch: the offset ranges of the batch, the work of each table, the result."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import structlog

from tailrace.runtime.errors import ConfigError, TailraceError
from tailrace.schemas.names import watermarks_topic
from tailrace.spark_consumer.errors import MissingTopicError, NewTopicError, SinkError, concerns_all_tables
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.monitor.status import Status
from tailrace.spark_consumer.monitor.table_result import TableResult
from tailrace.spark_consumer.sink.ledger import TargetBehindError
from tailrace.spark_consumer.sink.routing import QuerySink
from tailrace.spark_consumer.source.kafka_admin import missing_topic
from tailrace.spark_consumer.source.ranges import (
    BatchRanges,
    OffsetRange,
    Offsets,
    TopicRange,
    committed,
    ranges_of_batch,
)
from tailrace.spark_consumer.tables.changelog import ChangelogTable
from tailrace.spark_consumer.tables.parking import ParkedTables
from tailrace.spark_consumer.tables.pool import TablePool, clone_session
from tailrace.spark_consumer.tables.progress import TableProgress
from tailrace.spark_consumer.tables.reading import Reading
from tailrace.spark_consumer.tables.reasons import begin_with_what_is_left, known_reason, position, unknown_reason
from tailrace.spark_consumer.tables.services import PipelineSettings, QueryServices, TableServices
from tailrace.spark_consumer.tables.upsert import UpsertTable
from tailrace.spark_consumer.tables.work import MakePart, Parts, TableWork
from tailrace.spark_consumer.transform.transforms import Transforms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Opened:
    services: Mapping[str, TableServices]
    """By the name of the sink; they differ in nothing else."""
    parts: Parts
    pool: TablePool
    background: TablePool
    """For tables that are taken up again."""
    upkeep: SparkSession
    """The session for the upkeep of tables."""

    @property
    def reading(self) -> Reading:
        """That of all tables."""
        return next(iter(self.services.values())).reading


class Pipeline:
    """The function for foreachBatch; one per query."""

    def __init__(self, settings: PipelineSettings, sinks: Sequence[QuerySink], status: Status) -> None:
        self._settings = settings
        self._query = query = QueryServices(settings, sinks, status.phases)
        self._status = status
        status.sink_of = query.sinks.router.name_of
        self._parked = ParkedTables(
            settings.checkpoint,
            settings.max_offsets,
            settings.retry_s,
            unlimited=query.sinks.is_changelog,
            topic_id=query.ids.get,
            stored_id=query.stored.states.topic_id,
        )
        self._errors: dict[str, TailraceError] = {}
        """The last error of each table that had one."""
        self._opened: _Opened | None = None
        self._opening = threading.Lock()
        self._query_id = ""
        self._started = threading.Event()
        self._ends_read = False
        self.pause_point: Callable[[], None] = lambda: None
        """Called before each batch; an orderly stop pauses the query here."""

    def start(self, query_id: str) -> None:
        """Allow batches to run: the id of the query is known."""
        self._query_id = query_id
        self._started.set()

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Process one micro-batch; Spark commits it when this returns. The records of ``batch`` are not read."""
        self.pause_point()
        self._started.wait()
        started = time.monotonic()
        spark = batch.sparkSession
        opened = self._open(spark)
        ranges = ranges_of_batch(spark, self._settings.checkpoint, batch_id)
        self._find_new_topics(spark, ranges.end)
        tables = self._without_control(ranges)
        self._query.policies.read(spark, tables.end.keys())
        admitted = self._parked.admit(spark, tables)
        self._status.positions(self._parked.as_dict())
        self._status.batch_started(batch_id, {topic: found.offsets for topic, found in admitted.items()})
        try:
            with self._phase(spark, "certificates"):
                idle = self._idle_with_ends(spark, ranges)
            topics = sorted(admitted.keys() | idle.keys())
            self._query.sinks.note(spark, topics)
            works = [self._work(opened, topic, admitted.get(topic), ranges.end[topic], batch_id) for topic in topics]
            errors = self._run(spark, opened.pool, works)
            if not any(isinstance(error, (NewTopicError, MissingTopicError)) for error in errors.values()):
                self._raise_if_no_table_goes_on(errors, ranges)
            self._finish(spark, {**admitted, **idle}, errors)
            for topic in errors.keys() & idle.keys():
                self._query.stored.states.discard_idle(spark, topic, batch_id)
            # A new topic is read from its beginning, also if the query ends: the batch does not begin there.
            self._raise_if_no_table_goes_on(errors, ranges)
        finally:
            self._parked.release(TableProgress.IN_BATCH)
        seconds = time.monotonic() - started
        self._status.batch_applied(batch_id, seconds)
        log.info(
            "batch applied",
            batch=batch_id,
            tables=len(works),
            offsets=sum(found.offsets for found in admitted.values()),
            seconds=round(seconds, 3),
            phases=self._status.phases.last(),
            spark=self._status.phases.reported(),
            states=self._status.table_states(),
            lag_ms=self._status.lag_ms(),
        )

    def load_positions(self, spark: SparkSession) -> None:
        """Read which tables were parked or behind when the query ended."""
        self._parked.load(spark)
        self._status.positions(self._parked.as_dict())
        self._query.sinks.load(spark)

    def load_transforms(self, spark: SparkSession) -> Transforms:
        """Read the published schemas before the query starts; return the transforms, which the batches use."""
        transforms = self._query.transforms(clone_session(spark))
        self._query.schemas.refresh(spark, can_be_missing=True)
        return transforms

    def check_sinks(self, topics: Iterable[str]) -> None:
        """Raise ConfigError if a table does not have exactly one sink, and one shape.

        A table that was parked before is parked again: one that appeared in the running query must not stop the others
        when it starts again.
        """
        found = set(topics)
        problems = self._query.sinks.router.problems(found & self._parked.without_position(found))
        problems += self._query.sinks.moved(found)
        if problems:
            raise ConfigError(problems)

    def retry_parked(self) -> None:
        """Try the parked tables again at the next call of ``catch_up``."""
        self._query.sinks.retry()
        self._parked.retry()

    def catch_up(self, spark: SparkSession) -> bool:
        """Process one chunk of each table that is taken up again; return whether there was one.

        Called on another thread than the batches, concurrently.
        """
        if not self._parked.resuming:
            return False
        batch_id, ends = committed(spark, self._settings.checkpoint)
        self._parked.reread(spark)
        self._find_new_topics(spark, {})
        present = self._query.ids.ends(spark, self._parked.resuming)
        chunks = {chunk.topic: chunk for chunk in self._parked.behind(ends, present)}
        self._status.positions(self._parked.as_dict())
        self._query.policies.read(spark, chunks.keys())
        if not chunks:
            self._ends_read = False  # a table that has only certificates left takes part in the next batch
            return False
        try:
            opened = self._open(spark)
            works = [
                self._work(opened, topic, found, _ends_of_chunk(found, ends[topic]), batch_id)
                for topic, found in chunks.items()
            ]
            errors = self._run(spark, opened.background, works)
            self._finish(spark, chunks, errors)
            self._raise_if_no_table_goes_on(errors, BatchRanges({}, ends))
        finally:
            self._parked.release(TableProgress.RESUMING)
        return True

    def tend(self) -> bool:
        """Tend one table that is due; return whether there was one. Called as ``catch_up``, after it."""
        return self._opened is not None and self._query.sinks.tend(self._opened.upkeep)

    def _find_new_topics(self, spark: SparkSession, ends: Offsets) -> None:
        """Find topics of tables with a position that were deleted and created again; ``ends``: of a planned batch."""
        self._query.ids.refresh(spark, self._parked.topics())
        self._parked.find_new_topics(spark, ends)

    def require_none_parked(self) -> None:
        """Raise an error if a table is parked."""
        parked = self._parked.parked()
        if len(parked) == 1 and parked[0].topic in self._errors:
            raise self._errors[parked[0].topic]
        if parked:
            raise SinkError(
                f"{len(parked)} tables are parked; all others have been read to their ends",
                hint="remove the causes and start again: the tables are then taken up where they stopped",
                **{each.topic: "; ".join(filter(None, (each.reason, each.hint))) for each in parked},
            )

    def close(self) -> None:
        """Close the sinks and the clients; no batch may run any more."""
        self._query.close()

    def _open(self, spark: SparkSession) -> _Opened:
        with self._opening:
            if self._opened is None:
                self._started.wait()
                self._opened = self._new(clone_session(spark))
            return self._opened

    def _new(self, spark: SparkSession) -> _Opened:
        settings = self._settings
        services = self._query.open(spark, self._query_id)
        source = next(iter(services.values())).reading.source
        return _Opened(
            services,
            Parts(self._parked, source, settings.max_bytes),
            TablePool(spark, settings.table_threads),
            TablePool(spark, 1),
            clone_session(spark),
        )

    def _without_control(self, ranges: BatchRanges) -> BatchRanges:
        control = watermarks_topic(self._settings.prefix)
        both = ranges.start, ranges.end
        return BatchRanges(*({name: own for name, own in each.items() if name != control} for each in both))

    def _idle_with_ends(self, spark: SparkSession, ranges: BatchRanges) -> dict[str, TopicRange]:
        """Return topics without records in the batch that have unused END certificates or begin, with empty ranges.

        The watermarks topic is in the stream so that certificates start a batch, also when no record follows.
        """
        ends, schemas, topics = self._query.ends, self._query.schemas, set[str]()
        if watermarks_topic(self._settings.prefix) in ranges.ranges or not self._ends_read:
            ends.refresh(spark)
            self._ends_read = True
            topics = ends.topics()
            if ends.begun() - topics:
                schemas.refresh(spark)
        # The record of a table that arrives precedes its schema, which comes with its first row.
        topics |= {topic for topic in ends.begun() if schemas.has(topic)}
        idle = self._parked.admit_idle((topics & ranges.end.keys()) - ranges.ranges.keys())
        return {
            topic: TopicRange(topic, {int(n): OffsetRange(end, end) for n, end in ranges.end[topic].items()})
            for topic in idle
        }

    def _work(
        self,
        opened: _Opened,
        topic: str,
        found: TopicRange | None,
        ends: Mapping[str, int],
        batch_id: int,
    ) -> TableWork:
        """Return the work of a table; ``ends`` are all partitions, with the offsets at which the work ends."""

        def open_table() -> MakePart:
            services = opened.services[self._query.sinks.router.of(topic).name]
            images = self._query.sinks.router.images(topic)
            kind = ChangelogTable if images is Images.CHANGELOG else UpsertTable
            return partial(kind, services, topic, batch_id, images=images)

        read = {int(name): offset for name, offset in self._parked.read_to(topic, ends).items()}
        return TableWork(opened.parts, open_table, topic, found, read)

    def _run(self, spark: SparkSession, pool: TablePool, works: Sequence[TableWork]) -> dict[str, BaseException]:
        """Run some works and return the errors by topic; raise one that does not concern only its table."""
        reading, ids = self._open(spark).reading, self._query.ids
        if works:
            self._query.runs.next_batch()
            with self._phase(spark, "schemas"):
                reading.schemas.refresh(spark)
            ids.refresh(spark, [work.topic for work in works if work.offsets])
        with self._status.phases.measure("tables"):
            errors = pool.run(works, self._applied, reading.dead_letters, reading.shared)
        # A topic that does not exist looks like a broker that does not answer.
        unclear = [topic for topic, error in errors.items() if not isinstance(error, TailraceError)]
        missing = ids.missing(spark, unclear)
        for topic, error in errors.items():
            if topic not in missing and concerns_all_tables(error):
                raise error
        ranges = {work.topic: work.found for work in works}
        found: dict[str, BaseException] = {}
        for topic, error in errors.items():
            # What others read has no values: only the log has the texts of causes.
            level = "debug" if isinstance(error, TailraceError) and error.__cause__ is None else "error"
            getattr(log, level)("error of a table", topic=topic, exc_info=error)
            found[topic] = error
            if isinstance(error, TargetBehindError) and self._settings.accept_incomplete:
                begin_with_what_is_left(spark, reading.source, topic, error)
            if topic in missing:
                found[topic] = missing_topic(topic)
                found[topic].__cause__ = error
            elif not isinstance(error, TailraceError):
                same = self._query.stored.states.topic_id(spark, topic) == ids.present(spark, topic) != ""
                found[topic] = known_reason(spark, reading.source, topic, ranges[topic], error, same=same) or error
        return found

    def _finish(self, spark: SparkSession, done: Mapping[str, TopicRange], errors: Mapping[str, BaseException]) -> None:
        found = {
            topic: error if isinstance(error, TailraceError) else unknown_reason(topic, error)
            for topic, error in errors.items()
        }
        for topic, reason in found.items():
            reason.add_context(**position(reason))
            if len(self._query.sinks.router.sinks) > 1:
                reason.add_context(sink=self._query.sinks.router.name_of(topic))
        self._errors |= found
        behind = [topic for topic, reason in found.items() if isinstance(reason, TargetBehindError)]
        if behind:
            self._query.ends.reread(spark, behind)
            self._ends_read = False
        self._parked.finish(spark, done, found, went_back=partial(self._forget_steps, spark))
        self._status.positions(self._parked.as_dict())

    def _forget_steps(self, spark: SparkSession, topic: str, error: TargetBehindError) -> None:
        if error.step is not None:
            self._query.stored.states.go_back(spark, topic, error.step, error.truncated)

    def _raise_if_no_table_goes_on(self, errors: Mapping[str, BaseException], ranges: BatchRanges) -> None:
        tables = {topic for topic, ends in self._without_control(ranges).end.items() if any(ends.values())}
        failed = {topic: error for topic, error in errors.items() if not isinstance(error, TargetBehindError)}
        stopped = failed.keys() | {position.topic for position in self._parked.parked()}
        if failed and tables <= stopped:
            raise next(iter(failed.values()))

    def _applied(self, work: TableWork, result: TableResult) -> None:
        before = self._status.table_applied(work.topic, result)
        if result.snapshot is not None and (before is None or before.state != result.snapshot.state):
            if result.snapshot.state == "loading":
                log.info("table is loading", topic=work.topic, splits=result.snapshot.expected)
            elif result.snapshot.state == "complete":
                log.info("snapshot of the table complete", topic=work.topic, splits=result.snapshot.done)

    @contextmanager
    def _phase(self, spark: SparkSession, name: str) -> Iterator[None]:
        """Measure the block, and name its jobs in Spark's user interface."""
        spark.sparkContext.setJobDescription(f"{self._settings.prefix}: {name}")
        with self._status.phases.measure(name):
            yield


def _ends_of_chunk(found: TopicRange, ends: Mapping[str, int]) -> dict[str, int]:
    """Return the ends of a chunk for all partitions of its topic; 0 for those that it leaves out."""
    own = {str(number): each.end for number, each in found.partitions.items()}
    return {name: own.get(name, 0) for name in ends}
