"""Reads the records of several small ranges together, in the driver or with one job.

Spark opens a consumer for each partition that it reads, and plans and runs a job for each read. In the driver one
request of one consumer fetches the records of all.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog
from pyspark.sql import functions as fn
from pyspark.sql import types as tp
from pyspark.storagelevel import StorageLevel

from tailrace.spark_consumer.in_driver import DriverPath, RowFunction, rows_of_type, set_active
from tailrace.spark_consumer.jvm import companion, java_class
from tailrace.spark_consumer.small_data import interpreted
from tailrace.spark_consumer.source.kafka import read_raw, select_raw
from tailrace.spark_consumer.source.kafka_admin import close_consumer, open_consumer
from tailrace.spark_consumer.source.ranges import TopicRange

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from tailrace.spark_consumer.source.ranges import TopicRange


@dataclass(frozen=True, slots=True)
class RawRows:
    """The records of a range in the driver, without tombstones."""

    type: tp.StructType
    """RAW_COLUMNS."""
    rows: Any
    """A sequence of Scala with internal rows."""


class RowsByTopic:
    """Tells the records of several topics apart; for one thread at a time."""

    def __init__(self, spark: SparkSession, raw: tp.StructType) -> None:
        """``raw`` is the type of the records."""
        # The decoder need not look for tombstones then.
        fields = [tp.StructField(f.name, f.dataType, f.nullable and f.name != "value") for f in raw]
        self._type = tp.StructType(fields)
        [self._topic] = RowFunction(rows_of_type(spark, self._type).select("topic")).steps

    def of(self, rows: Any) -> dict[str, RawRows]:
        """Return the records by topic; ``rows`` is a collection of Scala with internal rows without tombstones."""
        groups = rows.groupBy(self._topic)
        if not groups.size():
            return {}
        # The text of a row with one column is the value in brackets; a name of a topic has no bracket.
        names = str(groups.keysIterator().mkString(" ")).split(" ")
        found = groups.values().toSeq()
        return {name[1:-1]: RawRows(self._type, found.apply(index)) for index, name in enumerate(names)}


_CONVERTERS: Final = "org.apache.spark.sql.kafka010.KafkaRecordToRowConverter"
_BYTES: Final = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
_WAIT_MS: Final = 500
"""A poll returns earlier if there are records."""
_MOST_WAIT_S: Final = 10
"""A read without any progress for so long has failed."""
_AT_ONCE: Final = 50
"""Records of one poll. Their size is not known before; those beyond a range are read in vain."""

_Partition = tuple[str, int]


class StalledReadError(Exception):
    """Kafka does not return records that a range has."""


class GroupReader:
    """A Kafka consumer that keeps its connections from one group of ranges to the next; for one thread at a time."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str], most_bytes: int) -> None:
        """``options`` come from ``range_options``. The driver takes at most ``most_bytes`` of a group."""
        self._spark = spark
        self._most_bytes = most_bytes
        self._duration: Any = java_class(spark, "java.time.Duration").ofMillis(_WAIT_MS)
        self._as_scala: Any = java_class(spark, "scala.jdk.javaapi.CollectionConverters")
        self._convert: Any = java_class(spark, _CONVERTERS)().toInternalRowWithHeaders()
        kafka = json.loads(str(java_class(spark, _CONVERTERS).kafkaSchema(True).json()))
        raw = select_raw(rows_of_type(spark, tp.StructType.fromJson(kafka)))
        self._select = RowFunction(raw)
        self._by_topic = RowsByTopic(spark, raw.schema)
        self._describe = RowFunction(rows_of_type(spark, raw.schema).select(_description()))
        self._consumer = self._open(options)

    def read(self, spark: SparkSession, ranges: Sequence[TopicRange]) -> dict[str, RawRows]:
        """Return the records of some ranges by topic; nothing if there are too many bytes.

        The ranges start at offsets, and not at the earliest one. Raises an error of py4j if Kafka refuses a read, also
        if an offset is not in the log any more, and StalledReadError.
        """
        set_active(spark)
        ends = {(found.topic, number): each.end for found in ranges for number, each in found.partitions.items()}
        starts = {(found.topic, number): each.start for found in ranges for number, each in found.partitions.items()}
        partitions = {key: java_class(spark, "org.apache.kafka.common.TopicPartition")(*key) for key in ends}
        self._consumer.assign(list(partitions.values()))
        try:
            for key, partition in partitions.items():
                self._consumer.seek(partition, starts[key])
            rows = self._rows(partitions, ends)
        finally:
            # A partition that stays assigned stays paused, and its records in memory.
            self._consumer.unsubscribe()
        return {} if rows is None else self._by_topic.of(rows)

    def close(self) -> None:
        """Close the connections."""
        close_consumer(self._consumer, self._duration)

    def _rows(self, partitions: dict[_Partition, Any], ends: Mapping[_Partition, int]) -> Any | None:
        """Return the records of some partitions up to their ends in a buffer of Scala, None if they are too large."""
        rows = self._buffer(self._as_scala.asScala([]))
        size, progress = 0, time.monotonic()
        while partitions:
            polled = self._consumer.poll(self._duration)
            count = int(polled.count())
            if count:
                found, taken = self._wanted(polled, ends)
                size += taken
                if size > self._most_bytes:
                    return None
                rows.addAll(found)
            # An offset can be that of the marker of a transaction: no record tells that it was read.
            done = [key for key, partition in partitions.items() if self._consumer.position(partition) >= ends[key]]
            if done:
                self._consumer.pause([partitions.pop(key) for key in done])
            if done or count:
                progress = time.monotonic()
            elif time.monotonic() > progress + _MOST_WAIT_S:
                topics = ", ".join(sorted({topic for topic, _ in partitions}))
                raise StalledReadError(f"no records for {_MOST_WAIT_S} s: {topics}")
        return rows

    def _wanted(self, polled: Any, ends: Mapping[_Partition, int]) -> tuple[Any, int]:
        """Return the records within their ranges that are no tombstones, and their bytes."""
        records = self._as_scala.asScala(polled.iterator()).map(self._convert)
        # The function takes one record after the other, and the rows that it returns are new.
        rows = self._select.of(self._buffer(records))
        described = self._describe.json(rows)
        wanted = [
            each.get("value") is not None and each["offset"] < ends[each["topic"], each["partition"]]
            for each in described
        ]
        for first, count in _gaps_from_the_end(wanted):
            rows.remove(first, count)
        return rows, sum(
            (each.get("key") or 0) + each["value"]
            for each, is_wanted in zip(described, wanted, strict=True)
            if is_wanted
        )

    def _buffer(self, found: Any) -> Any:
        buffers = companion(self._spark, "scala.collection.mutable.ArrayBuffer")
        return getattr(buffers, "from")(found)

    def _open(self, options: Mapping[str, str]) -> Any:
        most, size = (
            int(options.get(f"kafka.{name}", sys.maxsize)) for name in ("max.poll.records", "fetch.max.bytes")
        )
        own = {
            "key.deserializer": _BYTES,
            "value.deserializer": _BYTES,
            "max.poll.records": str(min(_AT_ONCE, most)),
            "fetch.max.bytes": str(min(self._most_bytes, size)),
        }
        return open_consumer(self._spark, options, own)


def _description() -> Column:
    """Return what Python needs to know of a record, as JSON."""
    sizes = (fn.octet_length(name).alias(name) for name in ("key", "value"))
    return fn.to_json(fn.struct("topic", "partition", "offset", *sizes))


def _gaps_from_the_end(wanted: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Yield the first index and the length of each run of what is not wanted, the last run first."""
    end = len(wanted)
    while end:
        start = end - 1
        if not wanted[start]:
            while start and not wanted[start - 1]:
                start -= 1
            yield start, end - start
        end = start


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
