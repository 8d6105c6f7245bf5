"""Processes the range of a table in parts, so that the records that are processed at once are bounded by their bytes.

Spark bounds a batch by offsets only (``maxOffsetsPerTrigger``). The size of the records is estimated from a sample. A
part is planned in the position of the table (parking.py) before it is processed: an attempt after a failure starts at
the part that failed, with the same records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Final, Protocol

import structlog
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from tailrace.runtime.errors import TailraceError
from tailrace.spark_consumer.monitor.table_result import TableResult
from tailrace.spark_consumer.source.kafka import read_raw
from tailrace.spark_consumer.source.ranges import OffsetRange, TopicRange
from tailrace.spark_consumer.source.topic_ends import beginning_offsets
from tailrace.spark_consumer.tables.base import TableWork
from tailrace.spark_consumer.tables.parking import ParkedTables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MakeWork = Callable[[TopicRange, Mapping[int, int]], TableWork]
"""``(range, offsets of all partitions after it)`` -> the work of a table on a range."""

_UNCHECKED: Final = 1000
"""Offsets that are processed without a look at the size of their records."""
_SAMPLE: Final = 50
"""Offsets at the start, and at the end, of each partition that a sample reads."""
_GROWTH: Final = 8
"""A sample is taken again if records that are so many times as large would not fit."""

log = structlog.get_logger(__name__)


class Parts:
    """Plans the parts of the tables of a query; safe to use from several threads for different tables."""

    def __init__(self, parked: ParkedTables, max_bytes: int) -> None:
        """A part has about ``max_bytes`` at most."""
        self._parked = parked
        self._max_bytes = max_bytes
        self._known: dict[str, float] = {}

    def next(self, spark: SparkSession, source: Mapping[str, str], left: TopicRange) -> TopicRange:
        """Return the part at the beginning of a range, and store the plan unless the part is the whole range.

        ``source`` are the options of the Kafka source.
        """
        part = left.until(self._parked.planned(left.topic)) or self._first(spark, source, left)
        if part != left:
            log.info("range is processed in parts", topic=left.topic, offsets=left.offsets, part=part.offsets)
        self._parked.plan(spark, part, whole=part == left)
        return part

    def done(self, spark: SparkSession, part: TopicRange) -> None:
        """Store that a part is processed, and that another one follows."""
        self._parked.advance(spark, part)

    def _first(self, spark: SparkSession, source: Mapping[str, str], left: TopicRange) -> TopicRange:
        if left.offsets <= _UNCHECKED or left.cut_off:
            return left
        resolved = _resolved(spark, source, left)
        known = self._known.get(left.topic)
        if known is None or known * resolved.offsets * _GROWTH > self._max_bytes:
            known = self._known[left.topic] = record_bytes(spark, source, resolved)
        most = int(self._max_bytes / max(1.0, known))
        if resolved.offsets <= most:
            return left
        part = resolved.first(max(1, most))
        starts = {number: left.partitions[number].start for number in part.partitions}
        return replace(part, partitions={n: OffsetRange(starts[n], each.end) for n, each in part.partitions.items()})


class Work(Protocol):
    """What a table has to do in a batch."""

    @property
    def topic(self) -> str:
        """The topic of the table."""

    @property
    def offsets(self) -> int:
        """The number of offsets to read."""

    @property
    def found(self) -> TopicRange | None:
        """The offsets to read; None if there are none."""

    def run(self, spark: SparkSession) -> TableResult:
        """Do the work; ``spark`` is a session that no other table uses now."""


class FailedWork:
    """The work of a table that cannot begin."""

    def __init__(self, topic: str, found: TopicRange | None, error: TailraceError) -> None:
        self.topic, self.found, self._error = topic, found, error

    @property
    def offsets(self) -> int:
        """The number of offsets that are not read."""
        return self.found.offsets if self.found else 0

    def run(self, spark: SparkSession) -> TableResult:  # noqa: ARG002 - part of the protocol
        """Raise the error."""
        raise self._error


class PartedWork:
    """The work of one table on its range, part by part; a call after an error continues with the part that failed."""

    def __init__(
        self, parts: Parts, source: Mapping[str, str], make: MakeWork, found: TopicRange, ends: Mapping[int, int]
    ) -> None:
        """``ends`` are the offsets of all partitions after the range."""
        self._parts = parts
        self._source = source
        self._make = make
        self._left = found
        self._ends = ends
        self._result: TableResult | None = None

    @property
    def topic(self) -> str:
        """The topic of the table."""
        return self._left.topic

    @property
    def offsets(self) -> int:
        """The number of offsets to read."""
        return self._left.offsets

    @property
    def found(self) -> TopicRange | None:
        """The offsets to read."""
        return self._left

    def run(self, spark: SparkSession) -> TableResult:
        """Process the parts that are left; return the sums."""
        while True:
            part = self._parts.next(spark, self._source, self._left)
            left = self._left.after(part.ends)
            found = self._make(part, {**self._ends, **left.begins}).run(spark)
            self._result = found if self._result is None else self._result.plus(found)
            if not left.partitions:
                return self._result
            self._parts.done(spark, part)
            self._left = left


def record_bytes(spark: SparkSession, source: Mapping[str, str], found: TopicRange) -> float:
    """Return the mean bytes of the records at the start or at the end of a range, the greater one; 0 without records.

    Decompressed, as a task reads them.
    """
    windows = [
        replace(found, partitions={n: OffsetRange(r.start, min(r.end, r.start + _SAMPLE)) for n, r in _items(found)}),
        replace(found, partitions={n: OffsetRange(max(r.start, r.end - _SAMPLE), r.end) for n, r in _items(found)}),
    ]
    size = sum((fn.coalesce(fn.octet_length(name), fn.lit(0)) for name in ("key", "value")), fn.lit(0))
    reads = [
        read_raw(spark, source, window).select(fn.lit(index).alias("window"), size.alias("size"))
        for index, window in enumerate(windows)
    ]
    spark.sparkContext.setJobDescription(f"{found.topic}: sample")
    rows = reduce(DataFrame.unionAll, reads).collect()
    sizes = [[int(row["size"]) for row in rows if row["window"] == index] for index in range(len(windows))]
    return max((sum(each) / len(each) for each in sizes if each), default=0.0)


def _resolved(spark: SparkSession, source: Mapping[str, str], found: TopicRange) -> TopicRange:
    """Return a range with the offsets at which its partitions begin, where it only says: at the earliest one."""
    unknown = [number for number, each in found.partitions.items() if each.start < 0]
    return found.after(beginning_offsets(spark, source, found.topic, unknown)) if unknown else found


def _items(found: TopicRange) -> list[tuple[int, OffsetRange]]:
    return list(found.partitions.items())
