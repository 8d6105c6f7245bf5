"""Tables that cannot go on: their positions are kept, and the other tables go on without them.

The position of a table is a file next to the checkpoint. The next start of the query resumes the table, and a running
query tries it from time to time: its backlog is read in chunks in the background, and a batch takes the table in when
the rest is small. From then on the position only excludes what is applied already; it is removed when a batch starts
at it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import structlog

from tailrace.runtime.errors import TailraceError
from tailrace.runtime.stored_format import NewerFormatError
from tailrace.spark_consumer.errors import MissingTopicError, NewTopicError, StoredFileError
from tailrace.spark_consumer.files import delete_document, document_names, read_document, write_document
from tailrace.spark_consumer.sink.ledger import TargetBehindError
from tailrace.spark_consumer.source.kafka_admin import unknown_id
from tailrace.spark_consumer.source.ranges import BatchRanges, Offsets, TopicRange
from tailrace.spark_consumer.tables.progress import AT_WORK, TablePosition, TableProgress, TrackedTable
from tailrace.spark_consumer.tables.reasons import LostEndError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = structlog.get_logger(__name__)


def write_position(spark: SparkSession, checkpoint: str, position: TablePosition) -> None:
    """Store where the table of a query goes on."""
    write_document(spark, _file(checkpoint, position.topic), asdict(position))


class ParkedTables:
    """The progress of the tables of a query; safe to use from several threads."""

    def __init__(
        self,
        checkpoint: str,
        max_offsets: int,
        retry_s: float,
        *,
        unlimited: Callable[[str], bool] = lambda _topic: False,
        topic_id: Callable[[str], str] = unknown_id,
        stored_id: Callable[[SparkSession, str], str] = lambda _spark, _topic: "",
    ) -> None:
        """``max_offsets``: of a chunk. ``unlimited``: whether the backlog of a topic is one chunk.

        ``topic_id``: Kafka's id of a topic, '' if it is not known. ``stored_id``: the one that was read last.
        """
        self._unlimited = unlimited
        self._topic_id = topic_id
        self._stored_id = stored_id
        self._checkpoint = checkpoint
        self._max_offsets = max_offsets
        self._retry_s = retry_s
        self._tables: dict[str, TrackedTable] = {}
        self._lock = threading.Lock()

    def load(self, spark: SparkSession) -> None:
        """Read the positions of earlier runs; their tables are taken up again."""
        for topic in document_names(spark, _folder(self._checkpoint)):
            self._tables[topic] = TrackedTable(topic, TableProgress.UNREADABLE)
            self._read(spark, self._tables[topic])

    def reread(self, spark: SparkSession) -> None:
        """Read the positions that could not be read, if their tables are to be tried now."""
        with self._lock:
            for table in self._tables.values():
                if table.progress is TableProgress.UNREADABLE and self._is_due(table):
                    table.is_requested = False
                    self._read(spark, table)

    def _read(self, spark: SparkSession, table: TrackedTable) -> None:
        """Read the position of a table; if that fails, it has the reason and no offsets."""
        file = _file(self._checkpoint, table.topic)
        try:
            position = read_document(spark, file, TablePosition.from_json)
            if position is None or position.topic != table.topic:
                raise StoredFileError(
                    f"{file} is not the position of the table any more",
                    hint="restore the file; or remove it and restart, and the table goes on with the next batch",
                )
        except (StoredFileError, NewerFormatError) as error:
            table.position = _parked(TablePosition(table.topic, {}), error)
            _log_parked(table.position)
            return
        table.position = position
        table.settle()
        if position.reason is None:
            log.info("table taken up again", topic=table.topic, starts=dict(position.starts))

    def _with_position(self) -> list[tuple[TrackedTable, TablePosition]]:
        return [(table, table.position) for table in list(self._tables.values()) if table.position is not None]

    def parked(self) -> list[TablePosition]:
        """Return the tables that cannot go on."""
        return [position for _, position in self._with_position() if position.reason is not None]

    def retry(self) -> None:
        """Try the parked tables again at the next call of ``behind``.

        A signal handler may call it, so it waits for no lock and writes no log.
        """
        for table, position in self._with_position():
            if position.reason is not None:
                table.is_requested = True

    def topics(self) -> list[str]:
        """Return the topics whose tables have a position."""
        return [table.topic for table, _ in self._with_position()]

    def find_new_topics(self, spark: SparkSession, ends: Offsets) -> None:
        """Find topics that were deleted and created again: their tables begin at the beginning of the new ones.

        ``ends``: of a batch that Spark has planned. Offsets of the former topic say nothing about the new one. It can
        end before them: then there would be nothing to read.
        """
        with self._lock:
            for table, position in self._with_position():
                own, now = ends.get(table.topic, {}), self._topic_id(table.topic)
                is_known = bool(now and position.topic_id)
                is_other = now != position.topic_id if is_known else position.is_beyond(own)
                if table.progress not in AT_WORK and is_other:
                    log.warning("topic was deleted and created again", topic=table.topic, starts=dict(position.starts))
                    self._store(spark, position.at_beginning_of(now, own.keys() | position.starts.keys()))
                    table.settle()

    def admit(self, spark: SparkSession, batch: BatchRanges) -> dict[str, TopicRange]:
        """Return the ranges of the tables that take part in a batch; ``finish`` ends it."""
        with self._lock:
            # A table without records in the batch may use certificates then.
            self._remove_reached(spark, batch.start)
            self._keep_absent(spark, batch)
            admitted = {}
            for topic, found in batch.ranges.items():
                table = self._tables.setdefault(topic, TrackedTable(topic))
                own = self._range_in(batch, table, found)
                if own is not None:
                    admitted[topic] = own
                    table.begin(TableProgress.IN_BATCH, batch.start.get(topic, {}))
            return admitted

    def _keep_absent(self, spark: SparkSession, batch: BatchRanges) -> None:
        """Keep how far the tables are whose topics are no longer in the query: excluded, deleted, or without access.

        If a topic comes back, Spark begins at its beginning.
        """
        for topic in batch.start.keys() - batch.end.keys():
            table = self._tables.setdefault(topic, TrackedTable(topic))
            if table.position is None:
                topic_id = table.topic_id or self._stored_id(spark, topic) or self._topic_id(topic)
                self._store(spark, TablePosition(topic, dict(batch.start[topic]), topic_id=topic_id))
                table.settle()

    def _range_in(self, batch: BatchRanges, table: TrackedTable, found: TopicRange) -> TopicRange | None:
        if table.position is None:
            return found
        if table.progress is not TableProgress.BEHIND:
            return None
        own = table.position.range_to(batch.end[table.topic])
        # The position can be beyond the batch (reload.py).
        return own if 0 < own.offsets <= self._limit(table.topic) else None

    def _limit(self, topic: str) -> int:
        return sys.maxsize if self._unlimited(topic) else self._max_offsets

    def admit_idle(self, topics: Iterable[str]) -> list[str]:
        """Return the topics whose tables take part in a batch that has no record of them; ``finish`` ends it."""
        with self._lock:
            tables = [self._tables.setdefault(topic, TrackedTable(topic)) for topic in topics]
            admitted = [table for table in tables if table.progress is TableProgress.FOLLOWING]
            for table in admitted:
                table.begin(TableProgress.IN_BATCH, {})
            return [table.topic for table in admitted]

    def without_position(self, topics: set[str]) -> set[str]:
        """Return the topics that take part in the batches without a position of their own."""
        return topics.difference(self.topics())

    def behind(self, committed: Offsets, present: Mapping[str, Mapping[int, int]]) -> list[TopicRange]:
        """Return the next chunk of each table that is taken up again and behind; ``finish`` ends it.

        ``committed`` are the ends of the last committed batch: they can belong to a former topic of that name, and so
        a chunk ends where the topic ends now (``present``). A table that is not behind takes part in the batch that
        starts at its position. One whose topic is not in the query has nothing to read.
        """
        with self._lock:
            chunks = []
            for table, position in self._with_position():
                is_free = table.progress in {TableProgress.BEHIND, TableProgress.PARKED} and table.topic in committed
                if not is_free or not self._is_due(table):
                    continue
                ends, now = committed[table.topic], present.get(table.topic)
                if now is not None:
                    ends = {name: min(end, now[int(name)]) for name, end in ends.items() if int(name) in now}
                chunk = position.cut_off_at(now or {}) or position.range_to(ends).first(self._limit(table.topic))
                if not chunk.partitions and not (ends and position.is_at(ends)):
                    continue
                table.is_requested = False
                if position.reason is not None:
                    log.info("parked table is tried again", topic=table.topic)
                if chunk.partitions:
                    chunks.append(chunk)
                    table.begin(TableProgress.RESUMING, position.starts)
                else:
                    table.position = replace(position, reason=None)
                    table.settle()
            return chunks

    def _remove_reached(self, spark: SparkSession, starts: Mapping[str, Mapping[str, int]]) -> None:
        """Remove the positions at which a batch starts.

        Only when a batch starts: the one that is processed may have been admitted without the table.
        """
        for table, position in self._with_position():
            is_free = table.progress is TableProgress.BEHIND and not position.until
            if is_free and position.is_at(starts.get(table.topic, {})):
                delete_document(spark, _file(self._checkpoint, table.topic))
                table.position = None
                table.settle()
                log.info("table has caught up", topic=table.topic)

    @property
    def resuming(self) -> list[str]:
        """The topics of the tables that are taken up again."""
        return [table.topic for table, _ in self._with_position() if self._is_due(table)]

    def _is_due(self, table: TrackedTable) -> bool:
        position = table.position
        if position is None or position.cut_off:
            return False
        if position.reason is None or table.is_requested:
            return True
        # A clock that was ahead when the table was parked must not hold it.
        return self._retry_s > 0 and not 0 <= time.time() - (position.parked_at or 0) < self._retry_s

    def finish(
        self,
        spark: SparkSession,
        done: Mapping[str, TopicRange],
        errors: Mapping[str, TailraceError],
        *,
        went_back: Callable[[str, TargetBehindError], None] = lambda _topic, _error: None,
    ) -> None:
        """Store the positions after the work on some ranges; park the tables with an error.

        ``went_back`` is called when the position of a table is set back, before anything processes it.
        """
        with self._lock:
            for topic, found in done.items():
                table = self._tables[topic]
                if topic in errors:
                    error = errors[topic]
                    self._park(spark, table, found, error)
                    if isinstance(error, TargetBehindError):
                        went_back(topic, error)
                else:
                    table.topic_id = self._topic_id(topic) or table.topic_id
                    if table.position is not None:
                        known = table.position
                        topic_id = known.topic_id or self._topic_id(topic)
                        starts = {**known.starts, **_stored(found.ends)}
                        self._store(spark, TablePosition(topic, starts, topic_id=topic_id))
                table.settle()

    def release(self, work: TableProgress) -> None:
        """End the work on tables that have no result of it: that of the batch, or of the background."""
        with self._lock:
            for table in self._tables.values():
                if table.progress is work:
                    table.settle()

    def read_to(self, topic: str, ends: Mapping[str, int]) -> dict[str, int]:
        """Return how far each partition of a table is read after work on it that ends at some offsets.

        Of a partition without records in the work the position says it: the work can end before it.
        """
        position = self._tables[topic].position
        starts = {} if position is None else position.starts
        return {name: max(end, starts.get(name, 0)) for name, end in ends.items()}

    def planned(self, topic: str) -> Mapping[str, int]:
        """Return the end of the part of a table that an earlier attempt began; empty if there is none."""
        position = self._tables[topic].position
        return {} if position is None else position.until

    def plan(self, spark: SparkSession, part: TopicRange, *, whole: bool) -> None:
        """Store the part that is processed next, unless it is the whole range of a table without a position."""
        with self._lock:
            table = self._tables[part.topic]
            if table.position is None and whole:
                return
            position, ends = table.position or self._new(table, part), _stored(part.ends)
            if dict(position.until) != ends:
                self._store(spark, replace(position, until=ends))

    def advance(self, spark: SparkSession, part: TopicRange) -> None:
        """Store that a part is processed."""
        with self._lock:
            position = self._tables[part.topic].position
            assert position is not None
            self._store(spark, replace(position, starts={**position.starts, **_stored(part.ends)}, until={}))

    def _park(self, spark: SparkSession, table: TrackedTable, found: TopicRange, error: TailraceError) -> None:
        # The position of a table is ahead of its range if parts of the range are processed.
        known = table.position or self._new(table, found)
        if isinstance(error, TargetBehindError):
            self._store(spark, replace(known, starts={**known.starts, **error.starts}, reason=None, until={}))
            log.warning(error.message, topic=table.topic, **error.context)
            return
        # Offsets of the former topic say nothing about the new one. A topic that does not exist can only come back as
        # another one, unless a broker has not heard of it yet: its id tells, if it is known.
        if isinstance(error, NewTopicError) or (isinstance(error, MissingTopicError) and not known.topic_id):
            numbers = known.starts.keys() | {str(number) for number in found.partitions}
            known = known.at_beginning_of(self._topic_id(table.topic), numbers)
        if isinstance(error, LostEndError):
            known = replace(known, starts={**known.starts, **table.begins}, cut_off=True)
        position = _parked(known, error)
        self._store(spark, position)
        _log_parked(position)

    def _new(self, table: TrackedTable, found: TopicRange) -> TablePosition:
        """Return the position of a table that has none: the start of its range, and of the batch elsewhere."""
        own = {str(number): each.start for number, each in found.partitions.items()}
        topic_id = table.topic_id or self._topic_id(table.topic)
        return TablePosition(table.topic, {**table.begins, **own}, topic_id=topic_id)

    def _store(self, spark: SparkSession, position: TablePosition) -> None:
        write_position(spark, self._checkpoint, position)
        self._tables[position.topic].position = position

    def as_dict(self) -> dict[str, Any]:
        """Return the tables with a position for /status; those with a reason are parked."""
        hidden = {"topic", "topic_id", "until", "cut_off"}
        return {
            position.topic: {name: value for name, value in asdict(position).items() if name not in hidden}
            for _, position in self._with_position()
        }


def _stored(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(number): offset for number, offset in offsets.items()}


def _folder(checkpoint: str) -> str:
    return f"{checkpoint.rstrip('/')}/tailrace/parked"


def _file(checkpoint: str, topic: str) -> str:
    return f"{_folder(checkpoint)}/{topic}.json"


def _parked(position: TablePosition, error: TailraceError) -> TablePosition:
    details = {name: str(value) for name, value in error.context.items()}
    return replace(position, reason=error.message, hint=error.hint, details=details, parked_at=time.time())


def _log_parked(position: TablePosition) -> None:
    log.error(
        "table parked; the other tables go on",
        topic=position.topic,
        reason=position.reason,
        hint=position.hint,
        starts=dict(position.starts),
        **{f"error_{name}": value for name, value in position.details.items()},
    )
