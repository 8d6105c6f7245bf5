"""The work of a table in a batch: its range is processed in parts, so that their bytes are bounded.

Spark bounds a batch by offsets only (``maxOffsetsPerTrigger``). The size of the records is estimated from a sample. A
part is planned in the position of the table (parking.py) before it is processed: an attempt after a failure starts at
the part that failed, with the same records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Final

import structlog
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.storagelevel import StorageLevel

from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.monitor.table_result import TableResult
from tailrace.spark_consumer.normalize.split_progress import SplitProgress
from tailrace.spark_consumer.normalize.table_state import TableState
from tailrace.spark_consumer.sink.base import WaySink
from tailrace.spark_consumer.source.kafka import read_raw
from tailrace.spark_consumer.source.kafka_admin import beginning_offsets
from tailrace.spark_consumer.source.ranges import OffsetRange, TopicRange
from tailrace.spark_consumer.tables.parking import ParkedTables
from tailrace.spark_consumer.tables.reasons import ends_too_early
from tailrace.spark_consumer.tables.services import TableServices
from tailrace.spark_consumer.transform.table_transform import TableTransform

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.schemas.table import TableSchema

Offsets = Mapping[int, int]
"""Partition to offset."""
MakePart = Callable[[TopicRange | None, Offsets], "TablePart"]
"""``(range, offsets of all partitions after it)`` -> the part of the work of a table on a range."""

CACHE: Final = StorageLevel.MEMORY_AND_DISK_DESER
"""As objects: they are arrays of bytes by column, which other levels would copy into one when they are cached, and out
of it when they are read."""
_UNCHECKED: Final = 1000
"""Offsets that are processed without a look at the size of their records."""
_SAMPLE: Final = 50
"""Offsets at the start, and at the end, of each partition that a sample reads."""
_GROWTH: Final = 8
"""A sample is taken again if records that are so many times as large would not fit."""

log = structlog.get_logger(__name__)


class TablePart(ABC):
    """A part of the work of a table; ``found`` is None if only END certificates were read."""

    def __init__(
        self,
        services: TableServices,
        topic: str,
        batch_id: int,
        found: TopicRange | None,
        ends: Offsets,
        *,
        images: Images,
    ) -> None:
        """``ends`` are the offsets of all partitions of the topic after the part; ``images`` are decoded."""
        self._services = services
        self._reading = services.reading
        self._snapshots = services.snapshots
        self._stored = services.stored
        self._sink = services.writing.sink
        self._topic = topic
        self._batch_id = batch_id
        self._images = images
        self._range = found
        self._ends = ends

    def _require_end(self, before: TableState) -> None:
        """Raise an error if the topic ends before offsets that were read; its id tells what it is.

        Sharing a read, and leaving out what the target has applied, must not hide it.
        """
        if self._range is not None and self._range.cut_off:
            read = self._range.cut_off
            ends = {number: self._range.partitions[number].end for number in read}
            raise ends_too_early(self._topic, ends, read, same=self._is_same(before))

    def _is_same(self, before: TableState) -> bool:
        """Return whether the topic has the id of the one that was read before."""
        return before.topic_id == self._reading.topic_id(self._topic) != ""

    @property
    def _begins(self) -> Offsets:
        """How far each partition is read before the range."""
        return {**self._ends, **(self._range.begins if self._range else {})}

    def _load(self, spark: SparkSession) -> tuple[TableState, TableState | None]:
        """Return the state before the part, and that after it if an earlier attempt has stored it."""
        return self._stored.states.load(spark, self._topic, self._batch_id, self._range)

    def _after(self, before: TableState, progress: SplitProgress) -> TableState:
        """Return the state after the part, as far as it is the same for upserts and changelogs."""
        return replace(
            before,
            step=before.step + 1,
            batch=self._batch_id,
            idle=self._range is None,
            starts={} if self._range is None else self._range.begins,
            ends={**before.ends, **(self._range.ends if self._range else {})},
            progress=progress,
            topic_id=self._reading.topic_id(self._topic) or before.topic_id,
            begins=self._snapshots.begins(self._topic, before, self._begins),
        )

    def _result(self, state: TableState, rows: int, newest_ms: int | None, kinds: Mapping[str, int]) -> TableResult:
        """Return the result when all that a state says is written."""
        self._snapshots.ends.written(self._topic, state.truncated)
        status = self._snapshots.status(self._topic, state.progress)
        way = self._sink.way_of(self._topic) if isinstance(self._sink, WaySink) else ""
        return TableResult(rows, newest_ms, status, {kind: count for kind, count in kinds.items() if count}, way)

    def _decode(self, raw: DataFrame) -> tuple[TableSchema, DataFrame]:
        return self._reading.decode(raw, self._topic, self._images, self._services.writing.fields)

    def _transform(self, schema: TableSchema) -> TableTransform:
        """Return what is done with decoded records of a schema. Raises TransformError."""
        return self._services.writing.transforms.of(schema)

    def _phase(self, spark: SparkSession, name: str) -> AbstractContextManager[None]:
        return self._services.phase(spark, self._topic, name)

    @abstractmethod
    def run(self, spark: SparkSession) -> TableResult:
        """Read, decode and write the records. ``spark`` is a session that no other table uses now."""


class Parts:
    """Plans the parts of the tables of a query; safe to use from several threads for different tables."""

    def __init__(self, parked: ParkedTables, source: Mapping[str, str], max_bytes: int) -> None:
        """A part has about ``max_bytes`` at most. ``source`` are the options of the Kafka source."""
        self._parked = parked
        self._source = source
        self._max_bytes = max_bytes
        self._known: dict[str, float] = {}

    def next(self, spark: SparkSession, left: TopicRange) -> TopicRange:
        """Return the part at the beginning of a range, and store the plan unless the part is the whole range."""
        part = left.until(self._parked.planned(left.topic)) or self._first(spark, left)
        if part != left:
            log.info("range is processed in parts", topic=left.topic, offsets=left.offsets, part=part.offsets)
        self._parked.plan(spark, part, whole=part == left)
        return part

    def done(self, spark: SparkSession, part: TopicRange) -> None:
        """Store that a part is processed, and that another one follows."""
        self._parked.advance(spark, part)

    def _first(self, spark: SparkSession, left: TopicRange) -> TopicRange:
        if left.offsets <= _UNCHECKED or left.cut_off:
            return left
        resolved = _resolved(spark, self._source, left)
        known = self._known.get(left.topic)
        if known is None or known * resolved.offsets * _GROWTH > self._max_bytes:
            known = self._known[left.topic] = record_bytes(spark, self._source, resolved)
        most = int(self._max_bytes / max(1.0, known))
        if resolved.offsets <= most:
            return left
        part = resolved.first(max(1, most))
        starts = {number: left.partitions[number].start for number in part.partitions}
        return replace(part, partitions={n: OffsetRange(starts[n], each.end) for n, each in part.partitions.items()})


class TableWork:
    """The work of one table in one batch, part by part; a call after an error continues with the part that failed."""

    def __init__(
        self, parts: Parts, open_table: Callable[[], MakePart], topic: str, found: TopicRange | None, ends: Offsets
    ) -> None:
        """``found``: None if there is no record. ``ends`` are the offsets of all partitions after the range.

        ``open_table`` raises SinkError for a table that cannot be written.
        """
        self._parts = parts
        self._open_table = open_table
        self.topic = topic
        self.found = found
        """The offsets to read; None if there are none."""
        self._ends = ends
        self._result: TableResult | None = None

    @property
    def offsets(self) -> int:
        """The number of offsets to read."""
        return self.found.offsets if self.found else 0

    def run(self, spark: SparkSession) -> TableResult:
        """Process the parts that are left; return the sums. ``spark`` is a session that no other table uses now."""
        make = self._open_table()
        while self.found is not None:
            part = self._parts.next(spark, self.found)
            left = self.found.after(part.ends)
            done = make(part, {**self._ends, **left.begins}).run(spark)
            self._result = done if self._result is None else self._result.plus(done)
            if not left.partitions:
                return self._result
            self._parts.done(spark, part)
            self.found = left
        return make(None, self._ends).run(spark)


def record_bytes(spark: SparkSession, source: Mapping[str, str], found: TopicRange) -> float:
    """Return the mean bytes of the records at the start or at the end of a range, the greater one; 0 without records.

    Decompressed, as a task reads them.
    """
    partitions = found.partitions.items()
    windows = [
        replace(found, partitions={n: OffsetRange(r.start, min(r.end, r.start + _SAMPLE)) for n, r in partitions}),
        replace(found, partitions={n: OffsetRange(max(r.start, r.end - _SAMPLE), r.end) for n, r in partitions}),
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
