"""Reads the records of several small ranges in one job: each read of Kafka opens a client and is planned by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final

import structlog
from pyspark.sql import functions as fn
from pyspark.sql import types as tp
from pyspark.storagelevel import StorageLevel

from tailrace.spark_consumer.driver_plan import RowFunction, rows_of_type
from tailrace.spark_consumer.local_rows import read_bytes, row_sequence
from tailrace.spark_consumer.small_data import interpreted
from tailrace.spark_consumer.source.kafka import read_raw, select_raw

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from tailrace.spark_consumer.source.ranges import TopicRange

MOST_BYTES: Final = 8 << 20
"""The driver takes the records of a group of tables only if the cache needs at most so many bytes for them."""

_CACHE: Final = StorageLevel.MEMORY_AND_DISK

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RawRows:
    """The records of a range in the driver, without tombstones."""

    type: tp.StructType
    """RAW_COLUMNS."""
    rows: Any
    """A sequence of Scala with internal rows."""


@dataclass(frozen=True, slots=True)
class _Read:
    """A range whose records are among cached ones."""

    found: TopicRange
    records: DataFrame
    in_driver: InDriver


class InDriver:
    """The records of a group of ranges in the driver, if there are few; read from the cache when a table needs them."""

    def __init__(self, records: DataFrame) -> None:
        self._records = records
        self._known: tuple[tp.StructType, dict[str, Any]] | None = None

    def of(self, topic: str) -> RawRows | None:
        if self._known is None:
            self._known = self._read()
        schema, by_topic = self._known
        return RawRows(schema, by_topic[topic]) if topic in by_topic else None

    def _read(self) -> tuple[tp.StructType, dict[str, Any]]:
        records, spark = self._records, self._records.sparkSession
        # The decoder need not look for tombstones then.
        fields = [tp.StructField(f.name, f.dataType, f.nullable and f.name != "value") for f in records.schema]
        schema = tp.StructType(fields)
        with interpreted(spark, when=True):
            if read_bytes(records) > MOST_BYTES:
                return schema, {}
            rows = row_sequence(records.where(fn.col("value").isNotNull()))
        [topic] = RowFunction(rows_of_type(spark, schema).select("topic")).steps
        groups = rows.groupBy(topic)
        if not groups.size():
            return schema, {}
        # The text of a row with one column is the value in brackets; a name of a topic has no bracket.
        names = str(groups.keysIterator().mkString(" ")).split(" ")
        found = groups.values().toSeq()
        return schema, {name[1:-1]: found.apply(index) for index, name in enumerate(names)}


class SharedReads:
    """The records that are cached now, by topic; several threads use it, each for its own topics."""

    def __init__(self, source: Mapping[str, str]) -> None:
        """``source`` are the options of the Kafka source."""
        self._source = source
        self._reads: dict[str, _Read] = {}

    @contextmanager
    def of(self, spark: SparkSession, ranges: Sequence[TopicRange]) -> Iterator[None]:
        """Cache the records of some ranges for the block.

        If they cannot be read together, each table reads its own range and has its own error.
        """
        records = self._read(spark, ranges) if len(ranges) > 1 else None
        if records is None:
            yield
            return
        in_driver = InDriver(records)
        self._reads |= {found.topic: _Read(found, records, in_driver) for found in ranges}
        try:
            yield
        finally:
            for found in ranges:
                del self._reads[found.topic]
            records.unpersist()

    def records(self, found: TopicRange) -> DataFrame | None:
        """Return the cached raw records of a range; None if they are not cached."""
        read = self._reads.get(found.topic)
        if read is None or not _contains(read.found, found):
            return None
        own = read.records.where(fn.col("topic") == found.topic)
        return own if found == read.found else own.where(_within(found))

    def in_driver(self, found: TopicRange) -> RawRows | None:
        """Return the raw records of a whole range in the driver; None if they are not there, or if there are none."""
        read = self._reads.get(found.topic)
        return None if read is None or read.found != found else read.in_driver.of(found.topic)

    def _read(self, spark: SparkSession, ranges: Sequence[TopicRange]) -> DataFrame | None:
        spark.sparkContext.setJobDescription(f"read: {len(ranges)} topics")
        records: DataFrame | None = None
        try:
            with interpreted(spark, when=True):
                records = select_raw(read_raw(spark, self._source, *ranges)).coalesce(1).persist(_CACHE)
                records.count()
        except Exception as error:  # noqa: BLE001 - the tables that can be read must not fail for one that cannot
            cause = str(error).splitlines()[0]
            log.warning("topics are read one by one", topics=len(ranges), cause=cause)
            if records is not None:
                records.unpersist()
            return None
        return records


def _contains(whole: TopicRange, part: TopicRange) -> bool:
    return all(
        number in whole.partitions
        and whole.partitions[number].start <= each.start
        and each.end <= whole.partitions[number].end
        for number, each in part.partitions.items()
    )


def _within(found: TopicRange) -> Column:
    partition, offset = fn.col("partition"), fn.col("offset")
    return reduce(
        or_,
        ((partition == n) & (offset >= each.start) & (offset < each.end) for n, each in found.partitions.items()),
    )
