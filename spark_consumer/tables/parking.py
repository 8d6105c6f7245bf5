"""Tables that cannot go on: their positions are kept, and the other tables go on without them.

The position of a table is the offset per partition at which its unapplied records begin. It is a file next to the
checkpoint. The next start of the query resumes the table, and a running query tries it from time to time: its backlog
is read in chunks in the background, and a batch takes the table in when the rest is small. From then on the position
only excludes what is applied already; it is removed when a batch starts at it.

A position that is there and cannot be read parks its table too: where it goes on is not known, so none of its records
is applied. Each attempt reads the file again.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import structlog

from tailrace.runtime.errors import TailraceError
from tailrace.runtime.stored_format import NewerFormatError
from tailrace.schemas.known_fields import known_fields
from tailrace.spark_consumer.documents import delete_document, document_names, read_document, write_document
from tailrace.spark_consumer.errors import MissingTopicError, NewTopicError, StoredFileError
from tailrace.spark_consumer.sink.behind import TargetBehindError
from tailrace.spark_consumer.source.ranges import EARLIEST, BatchRanges, OffsetRange, Offsets, TopicRange
from tailrace.spark_consumer.source.topic_ids import unknown_id
from tailrace.spark_consumer.tables.reasons import LostEndError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TablePosition:
    """Where the unapplied records of a table begin."""

    topic: str
    starts: Mapping[str, int]
    """Partition to offset. A partition that is missing begins at its earliest offset."""
    reason: str | None = None
    """Why the table cannot go on; None while it is taken up again."""
    hint: str = ""
    details: Mapping[str, str] = field(default_factory=dict)
    parked_at: float | None = None
    """Seconds since 1970."""
    until: Mapping[str, int] = field(default_factory=dict)
    """Partition to the end of the part that is processed now (parts.py)."""
    topic_id: str = ""
    """Kafka's id of the topic that the offsets belong to; empty if it is not known."""
    cut_off: bool = False
    """The topic has lost its last records. Later ones take their offsets, so the table waits for another topic."""

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> TablePosition:
        """Read what a document has; the table is taken up again, unless it waits for another topic."""
        known = known_fields(cls, body)
        position = replace(cls(**known), starts=dict(known["starts"]))
        return position if position.cut_off else replace(position, reason=None)

    def range_to(self, ends: Mapping[str, int]) -> TopicRange:
        """Return the records from the position up to some offsets."""
        found = {int(name): OffsetRange(self.starts.get(name, EARLIEST), end) for name, end in ends.items()}
        return TopicRange(self.topic, {n: each for n, each in found.items() if max(each.start, 0) < each.end})

    def cut_off_at(self, ends: Mapping[int, int]) -> TopicRange | None:
        """Return the partitions that end, at some offsets, before the position; None if there are none."""
        found = {int(name): offset for name, offset in self.starts.items() if offset > ends.get(int(name), offset)}
        ranges = {number: OffsetRange(EARLIEST, ends[number]) for number in found}
        return TopicRange(self.topic, ranges, found) if found else None

    def reaches(self, starts: Mapping[str, int]) -> bool:
        """Return whether no record before some offsets is missing."""
        return all(max(self.starts.get(name, 0), 0) >= offset for name, offset in starts.items())

    def is_at(self, starts: Mapping[str, int]) -> bool:
        """Return whether the unapplied records begin at some offsets; a partition without one begins at 0."""
        own = {name: max(offset, 0) for name, offset in self.starts.items()}  # EARLIEST is no number of a record
        return self.reaches(starts) and all(starts.get(name, 0) == offset for name, offset in own.items())

    def is_beyond(self, ends: Mapping[str, int]) -> bool:
        """Return whether the topic ended, at some offsets, before records that were read: it is another topic."""
        return bool(ends) and any(offset > ends.get(name, 0) for name, offset in self.starts.items())

    def at_beginning_of(self, topic_id: str, ends: Iterable[str]) -> TablePosition:
        """Return the position before all records of another topic of that name, with some partitions."""
        return replace(self, starts=dict.fromkeys(ends, EARLIEST), until={}, topic_id=topic_id, cut_off=False)


class ParkedTables:
    """The positions of a query. A batch and the background never have the same table at the same time."""

    def __init__(
        self,
        checkpoint: str,
        max_offsets: int,
        retry_s: float,
        *,
        unlimited: Callable[[str], bool] = lambda _topic: False,
        topic_id: Callable[[str], str] = unknown_id,
    ) -> None:
        """``max_offsets``: of a chunk. ``unlimited``: whether the backlog of a topic is one chunk.

        ``topic_id``: Kafka's id of a topic, '' if it is not known.
        """
        self._unlimited = unlimited
        self._topic_id = topic_id
        self._read_ids: dict[str, str] = {}
        """The ids of the topics whose records were processed last."""
        self._root = f"{checkpoint.rstrip('/')}/tailrace/parked"
        self._max_offsets = max_offsets
        self._retry_s = retry_s
        self._positions: dict[str, TablePosition] = {}
        self._unread: set[str] = set()
        """Parked tables whose position cannot be read; that in ``_positions`` has the reason, and no offsets."""
        self._busy: dict[str, Mapping[str, int]] = {}
        """Topics that are processed, to the offsets of all their partitions before that."""
        self._requested: set[str] = set()
        """Parked tables that are to be tried now."""
        self._lock = threading.Lock()

    def load(self, spark: SparkSession) -> None:
        """Read the positions of earlier runs; their tables are taken up again."""
        for topic in document_names(spark, self._root):
            self._read(spark, topic)

    def reread(self, spark: SparkSession) -> None:
        """Read the positions that could not be read, if their tables are to be tried now."""
        with self._lock:
            for topic in [each for each in self._unread if self._is_resuming(self._positions[each])]:
                self._requested.discard(topic)
                self._read(spark, topic)

    def _read(self, spark: SparkSession, topic: str) -> None:
        """Read the position of a table; park the table if that fails."""
        file = self._file(topic)
        try:
            position = read_document(spark, file, TablePosition.from_json)
            if position is None or position.topic != topic:
                raise StoredFileError(
                    f"{file} is not the position of the table any more",
                    hint="restore the file; or remove it and restart, and the table goes on with the next batch",
                )
            self._unread.discard(topic)
            if position.reason is None:
                log.info("table taken up again", topic=topic, starts=dict(position.starts))
        except (StoredFileError, NewerFormatError) as error:
            self._unread.add(topic)
            position = _parked(TablePosition(topic, {}), error)
            _log_parked(position)
        self._positions[topic] = position

    def parked(self) -> list[TablePosition]:
        """Return the tables that cannot go on."""
        return [position for position in list(self._positions.values()) if position.reason is not None]

    def retry(self) -> None:
        """Try the parked tables again at the next call of ``behind``.

        A signal handler may call it, so it waits for no lock and writes no log.
        """
        self._requested.update(position.topic for position in self.parked())

    def topics(self) -> list[str]:
        """Return the topics whose tables have a position."""
        return list(self._positions)

    def find_new_topics(self, spark: SparkSession, ends: Offsets) -> None:
        """Find topics that were deleted and created again: their tables begin at the beginning of the new ones.

        ``ends``: of a batch that Spark has planned. Offsets of the former topic say nothing about the new one. It can
        end before them: then there would be nothing to read.
        """
        with self._lock:
            for topic, position in list(self._positions.items()):
                own, now = ends.get(topic, {}), self._topic_id(topic)
                is_known = bool(now and position.topic_id)
                is_other = now != position.topic_id if is_known else position.is_beyond(own)
                if topic not in self._busy and is_other:
                    log.warning("topic was deleted and created again", topic=topic, starts=dict(position.starts))
                    self._store(spark, position.at_beginning_of(now, own.keys() | position.starts.keys()))

    def admit(self, spark: SparkSession, batch: BatchRanges) -> dict[str, TopicRange]:
        """Return the ranges of the tables that take part in a batch; ``finish`` ends it."""
        with self._lock:
            # A table without records in the batch may use certificates then.
            self._remove_reached(spark, batch.start)
            admitted = {}
            for topic, found in batch.ranges.items():
                own = self._admit(topic, found, batch)
                if own is not None:
                    admitted[topic] = own
                    self._busy[topic] = batch.start.get(topic, {})
            return admitted

    def _admit(self, topic: str, found: TopicRange, batch: BatchRanges) -> TopicRange | None:
        position = self._positions.get(topic)
        if position is None:
            return found
        if position.reason is not None or topic in self._busy:
            return None
        own = position.range_to(batch.end[topic])
        return own if own.offsets <= self._limit(topic) else None

    def _limit(self, topic: str) -> int:
        return sys.maxsize if self._unlimited(topic) else self._max_offsets

    def without_position(self, topics: set[str]) -> set[str]:
        """Return the topics that take part in the batches without a position of their own."""
        with self._lock:
            return topics - self._positions.keys()

    def behind(self, committed: Offsets, present: Mapping[str, Mapping[int, int]]) -> list[TopicRange]:
        """Return the next chunk of each table that is taken up again and behind; ``finish`` ends it.

        ``committed`` are the ends of the last committed batch: they can belong to a former topic of that name, and so
        a chunk ends where the topic ends now (``present``). A table that is not behind takes part in the batch that
        starts at its position.
        """
        with self._lock:
            chunks = []
            for topic, position in list(self._positions.items()):
                if self._is_resuming(position) and topic not in self._busy:
                    ends, now = committed.get(topic, {}), present.get(topic)
                    if now is not None:
                        ends = {name: min(end, now[int(name)]) for name, end in ends.items() if int(name) in now}
                    chunk = position.cut_off_at(now or {}) or position.range_to(ends).first(self._limit(topic))
                    if not chunk.partitions and not (ends and position.is_at(ends)):
                        continue
                    self._requested.discard(topic)
                    if position.reason is not None:
                        log.info("parked table is tried again", topic=topic)
                    if chunk.partitions:
                        chunks.append(chunk)
                        self._busy[topic] = position.starts
                    else:
                        self._positions[topic] = replace(position, reason=None)
            return chunks

    def _remove_reached(self, spark: SparkSession, starts: Mapping[str, Mapping[str, int]]) -> None:
        """Remove the positions at which a batch starts.

        Only when a batch starts: the one that is processed may have been admitted without the table.
        """
        for topic, position in list(self._positions.items()):
            free = position.reason is None and not position.until and topic not in self._busy
            if free and position.is_at(starts.get(topic, {})):
                self._remove(spark, topic)

    @property
    def resuming(self) -> list[str]:
        """The topics of the tables that are taken up again."""
        return [position.topic for position in list(self._positions.values()) if self._is_resuming(position)]

    def _is_resuming(self, position: TablePosition) -> bool:
        if position.cut_off:
            return False
        if position.reason is None or position.topic in self._requested:
            return True
        return self._retry_s > 0 and time.time() >= (position.parked_at or 0) + self._retry_s

    def finish(self, spark: SparkSession, done: Mapping[str, TopicRange], errors: Mapping[str, TailraceError]) -> None:
        """Store the positions after the work on some ranges; park the tables with an error."""
        with self._lock:
            for topic, found in done.items():
                starts = self._busy.pop(topic, {})
                if topic in errors:
                    self._park(spark, found, starts, errors[topic])
                    continue
                if self._topic_id(topic):
                    self._read_ids[topic] = self._topic_id(topic)
                if topic in self._positions:
                    known = self._positions[topic]
                    ends = {str(number): each.end for number, each in found.partitions.items()}
                    topic_id = known.topic_id or self._topic_id(topic)
                    self._store(spark, TablePosition(topic, {**known.starts, **ends}, topic_id=topic_id))

    def release(self, topics: Mapping[str, TopicRange]) -> None:
        """Forget that tables are being processed, without a result."""
        with self._lock:
            for topic in topics:
                self._busy.pop(topic, None)

    def planned(self, topic: str) -> Mapping[str, int]:
        """Return the end of the part of a table that an earlier attempt began; empty if there is none."""
        position = self._positions.get(topic)
        return {} if position is None else position.until

    def plan(self, spark: SparkSession, part: TopicRange, *, whole: bool) -> None:
        """Store the part that is processed next, unless it is the whole range of a table without a position."""
        with self._lock:
            known = self._positions.get(part.topic)
            ends = {str(number): each.end for number, each in part.partitions.items()}
            if known is None and whole:
                return
            position = known or self._new(part, self._busy.get(part.topic, {}))
            if dict(position.until) != ends:
                self._store(spark, replace(position, until=ends))

    def advance(self, spark: SparkSession, part: TopicRange) -> None:
        """Store that a part is processed."""
        with self._lock:
            ends = {str(number): each.end for number, each in part.partitions.items()}
            position = self._positions[part.topic]
            self._store(spark, replace(position, starts={**position.starts, **ends}, until={}))

    def _park(self, spark: SparkSession, found: TopicRange, starts: Mapping[str, int], error: TailraceError) -> None:
        # The position of a table is ahead of its range if parts of the range are processed.
        known = self._positions.get(found.topic) or self._new(found, starts)
        if isinstance(error, TargetBehindError):
            self._store(spark, replace(known, starts={**known.starts, **error.starts}, reason=None, until={}))
            log.warning(error.message, topic=found.topic, **error.context)
            return
        # Offsets of the former topic say nothing about the new one. A topic that does not exist can only come back as
        # another one, unless a broker has not heard of it yet: its id tells, if it is known.
        if isinstance(error, NewTopicError) or (isinstance(error, MissingTopicError) and not known.topic_id):
            numbers = known.starts.keys() | {str(number) for number in found.partitions}
            known = known.at_beginning_of(self._topic_id(found.topic), numbers)
        if isinstance(error, LostEndError):
            known = replace(known, starts={**known.starts, **starts}, cut_off=True)
        position = _parked(known, error)
        self._store(spark, position)
        _log_parked(position)

    def _new(self, found: TopicRange, starts: Mapping[str, int]) -> TablePosition:
        """Return the position of a table that has none: the start of a range, and ``starts`` for other partitions."""
        own = {str(number): each.start for number, each in found.partitions.items()}
        topic_id = self._read_ids.get(found.topic) or self._topic_id(found.topic)
        return TablePosition(found.topic, {**starts, **own}, topic_id=topic_id)

    def _store(self, spark: SparkSession, position: TablePosition) -> None:
        write_document(spark, self._file(position.topic), asdict(position))
        self._positions[position.topic] = position

    def _remove(self, spark: SparkSession, topic: str) -> None:
        delete_document(spark, self._file(topic))
        del self._positions[topic]
        log.info("table has caught up", topic=topic)

    def _file(self, topic: str) -> str:
        return f"{self._root}/{topic}.json"

    def as_dict(self) -> dict[str, Any]:
        """Return the parked tables for /status."""
        hidden = {"topic", "topic_id", "until", "cut_off"}
        return {
            position.topic: {name: value for name, value in asdict(position).items() if name not in hidden}
            for position in self.parked()
        }


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
