"""Tables that cannot go on: their positions are kept, and the other tables go on without them.

The position of a table is the offset per partition at which its unapplied records begin. It is a file next to the
checkpoint. The next start of the query resumes the table, and a running query tries it from time to time: its backlog
is read in chunks in the background, and a batch takes the table in when the rest is small. From then on the position
only excludes what is applied already; it is removed when a batch starts at it.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import structlog

from tailrace.runtime.errors import TailraceError
from tailrace.spark_consumer.errors import NewTopicError
from tailrace.spark_consumer.files import children, delete, read_text, write_text
from tailrace.spark_consumer.source.ranges import EARLIEST, BatchRanges, OffsetRange, TopicRange

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

    def range_to(self, ends: Mapping[str, int]) -> TopicRange:
        """Return the records from the position up to some offsets."""
        found = {int(name): OffsetRange(self.starts.get(name, EARLIEST), end) for name, end in ends.items()}
        return TopicRange(self.topic, {n: each for n, each in found.items() if max(each.start, 0) < each.end})

    def reaches(self, starts: Mapping[str, int]) -> bool:
        """Return whether no record before some offsets is missing."""
        return all(self.starts.get(name, 0) >= offset for name, offset in starts.items())

    def is_at(self, starts: Mapping[str, int]) -> bool:
        """Return whether the unapplied records begin at some offsets; a partition without one begins at 0."""
        return self.reaches(starts) and all(starts.get(name, 0) == offset for name, offset in self.starts.items())


class ParkedTables:
    """The positions of a query. A batch and the background never have the same table at the same time."""

    def __init__(
        self,
        checkpoint: str,
        max_offsets: int,
        retry_s: float,
        *,
        unlimited: Callable[[str], bool] = lambda _topic: False,
    ) -> None:
        """``max_offsets``: of a chunk. ``unlimited``: whether the backlog of a topic is one chunk."""
        self._unlimited = unlimited
        self._root = f"{checkpoint.rstrip('/')}/tailrace/parked"
        self._max_offsets = max_offsets
        self._retry_s = retry_s
        self._positions: dict[str, TablePosition] = {}
        self._busy: dict[str, Mapping[str, int]] = {}
        """Topics that are processed, to the offsets of all their partitions before that."""
        self._requested: set[str] = set()
        """Parked tables that are to be tried now."""
        self._lock = threading.Lock()

    def load(self, spark: SparkSession) -> None:
        """Read the positions of earlier runs; their tables are taken up again."""
        for name in {name.removesuffix(".tmp") for name in children(spark, self._root)}:
            text = read_text(spark, f"{self._root}/{name}")
            if name.endswith(".json") and text:
                position = replace(TablePosition(**json.loads(text)), reason=None)
                self._positions[position.topic] = position
                log.info("table taken up again", topic=position.topic, starts=dict(position.starts))

    def parked(self) -> list[TablePosition]:
        """Return the tables that cannot go on."""
        return [position for position in list(self._positions.values()) if position.reason is not None]

    def retry(self) -> None:
        """Try the parked tables again at the next call of ``behind``.

        A signal handler may call it, so it waits for no lock and writes no log.
        """
        self._requested.update(position.topic for position in self.parked())

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

    def behind(self, committed: Mapping[str, Mapping[str, int]]) -> list[TopicRange]:
        """Return the next chunk of each table that is taken up again and behind; ``finish`` ends it.

        A table that is not behind takes part in the batch that starts at its position.
        """
        with self._lock:
            chunks = []
            for topic, position in list(self._positions.items()):
                if self._is_resuming(position) and topic not in self._busy:
                    ends = committed.get(topic, {})
                    chunk = position.range_to(ends).first(self._limit(topic))
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
    def resuming(self) -> bool:
        """Whether a table is taken up again."""
        return any(self._is_resuming(position) for position in list(self._positions.values()))

    def _is_resuming(self, position: TablePosition) -> bool:
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
                elif topic in self._positions:
                    ends = {str(number): each.end for number, each in found.partitions.items()}
                    self._store(spark, TablePosition(topic, {**self._positions[topic].starts, **ends}))

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
            position = known or TablePosition(part.topic, _starts(part, self._busy.get(part.topic, {})))
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
        known = self._positions.get(found.topic) or TablePosition(found.topic, _starts(found, starts))
        if isinstance(error, NewTopicError):
            # Offsets of the former topic say nothing about the new one.
            numbers = known.starts.keys() | {str(number) for number in found.partitions}
            known = replace(known, starts=dict.fromkeys(numbers, EARLIEST), until={})
        details = {name: str(value) for name, value in error.context.items()}
        position = replace(known, reason=error.message, hint=error.hint, details=details, parked_at=time.time())
        self._store(spark, position)
        log.error(
            "table parked; the other tables go on",
            topic=found.topic,
            reason=error.message,
            hint=error.hint,
            starts=dict(position.starts),
            **{f"error_{name}": value for name, value in details.items()},
        )

    def _store(self, spark: SparkSession, position: TablePosition) -> None:
        write_text(spark, f"{self._root}/{position.topic}.json", json.dumps(asdict(position)))
        self._positions[position.topic] = position

    def _remove(self, spark: SparkSession, topic: str) -> None:
        delete(spark, f"{self._root}/{topic}.json")
        del self._positions[topic]
        log.info("table has caught up", topic=topic)

    def as_dict(self) -> dict[str, Any]:
        """Return the parked tables for /status."""
        hidden = {"topic", "until"}
        return {
            position.topic: {name: value for name, value in asdict(position).items() if name not in hidden}
            for position in self.parked()
        }


def _starts(found: TopicRange, starts: Mapping[str, int]) -> dict[str, int]:
    """Return where the partitions of a table begin: those of a range, and ``starts`` for the others."""
    return {**starts, **{str(number): each.start for number, each in found.partitions.items()}}
