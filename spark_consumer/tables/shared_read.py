"""Reads the records of several small ranges together: each read of Kafka opens a client and is planned by itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import structlog
from pyspark.sql import functions as fn
from pyspark.storagelevel import StorageLevel

from tailrace.spark_consumer.in_driver import DriverPath
from tailrace.spark_consumer.small_data import interpreted
from tailrace.spark_consumer.source.group_reader import GroupReader, RawRows
from tailrace.spark_consumer.source.kafka import read_raw, select_raw
from tailrace.spark_consumer.source.ranges import TopicRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Ranges = Sequence[TopicRange]

MOST_BYTES: Final = 8 << 20
"""The driver takes the records of a group only if they have at most so many bytes."""

_CACHE: Final = StorageLevel.MEMORY_AND_DISK_DESER

log = structlog.get_logger(__name__)


class GroupReaders:
    """The Kafka consumers of the driver: one for each thread that needs one, kept from one batch to the next."""

    def __init__(self, options: Mapping[str, str], most_bytes: int) -> None:
        """As GroupReader."""
        self._options = options
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._idle: list[GroupReader] = []
        self._path = DriverPath("topics are read by jobs for a while")
        self._is_closed = False

    def read(self, spark: SparkSession, ranges: Ranges) -> dict[str, RawRows]:
        """Return the records of some ranges by topic; nothing if they are too large, or if the read fails.

        Ranges that start at the earliest offset have none: only Kafka knows what that is.
        """
        with self._lock:
            if self._is_closed or not self._path.works:
                return {}
            reader = self._idle.pop() if self._idle else None
        try:
            reader = reader or GroupReader(spark, self._options, self._most_bytes)
            wanted = [found for found in ranges if all(each.start >= 0 for each in found.partitions.values())]
            found = reader.read(spark, wanted)
        except Exception as error:  # noqa: BLE001 - the job that reads instead has the error, if it lasts
            self._path.fail(error, topics=len(ranges))
            if reader is not None:
                reader.close()
            return {}
        with self._lock:
            if not self._is_closed:
                self._idle.append(reader)
                return found
        reader.close()
        return found

    def close(self) -> None:
        """Close the consumers; those that are in use are closed after their read."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for reader in idle:
            reader.close()


class _Group:
    """Ranges that one thread processes one after the other, and their records as soon as a table needs them."""

    def __init__(self, spark: SparkSession, source: Mapping[str, str], readers: GroupReaders, ranges: Ranges) -> None:
        self._spark = spark
        self._source = source
        self._readers = readers
        self._ranges = ranges
        self._records: DataFrame | None = None
        self._has_job = False
        self._in_driver: dict[str, RawRows] | None = None

    @property
    def records(self) -> DataFrame | None:
        """The cached records of all ranges; None if they cannot be read together."""
        if not self._has_job:
            self._has_job = True
            self._records = self._read()
        return self._records

    def in_driver(self, topic: str) -> RawRows | None:
        """Return the records of a topic in the driver; None if there are none, or too many of all topics."""
        if self._in_driver is None:
            self._in_driver = self._readers.read(self._spark, self._ranges)
        return self._in_driver.get(topic)

    def close(self) -> None:
        """Remove the records from the cache."""
        if self._records is not None:
            self._records.unpersist()

    def _read(self) -> DataFrame | None:
        spark, records = self._spark, None
        spark.sparkContext.setJobDescription(f"read: {len(self._ranges)} topics")
        try:
            with interpreted(spark, when=True):
                records = select_raw(read_raw(spark, self._source, *self._ranges)).coalesce(1).persist(_CACHE)
                records.count()
        except Exception as error:  # noqa: BLE001 - the tables that can be read must not fail for one that cannot
            cause = str(error).splitlines()[0]
            log.warning("topics are read one by one", topics=len(self._ranges), cause=cause)
            if records is not None:
                records.unpersist()
            return None
        return records


class SharedReads:
    """The records that are shared now, by topic; several threads use it, each for its own topics.

    Tables that the driver processes have their records from one consumer (group_reader.py), those that queries process
    from one job.
    """

    def __init__(self, source: Mapping[str, str]) -> None:
        """``source`` are the options of the Kafka source."""
        self._source = source
        self._readers = GroupReaders(source, MOST_BYTES)
        self._groups: dict[str, tuple[TopicRange, _Group]] = {}

    @contextmanager
    def of(self, spark: SparkSession, ranges: Ranges) -> Iterator[None]:
        """Share the records of some ranges in the block, in which one thread processes them.

        If they cannot be read together, each table reads its own range and has its own error.
        """
        if len(ranges) <= 1:
            yield
            return
        group = _Group(spark, self._source, self._readers, ranges)
        self._groups |= {found.topic: (found, group) for found in ranges}
        try:
            yield
        finally:
            for found in ranges:
                del self._groups[found.topic]
            group.close()

    def records(self, found: TopicRange) -> DataFrame | None:
        """Return the cached raw records of a whole range; None if they are not cached."""
        whole, group = self._groups.get(found.topic, (None, None))
        records = None if group is None or whole != found else group.records
        return None if records is None else records.where(fn.col("topic") == found.topic)

    def in_driver(self, found: TopicRange) -> RawRows | None:
        """Return the raw records of a whole range in the driver; None if they are not there, or if there are none."""
        whole, group = self._groups.get(found.topic, (None, None))
        return None if group is None or whole != found else group.in_driver(found.topic)

    def close(self) -> None:
        """Close the consumers of the driver."""
        self._readers.close()
