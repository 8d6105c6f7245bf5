"""Records that cannot be decoded or transformed: what an error says about one, and the topic that takes them."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import structlog
from pyspark.sql import functions as fn

from tailrace.runtime.errors import TailraceError
from tailrace.spark_consumer.errors import BadRecord, BadRecordError, TransformError
from tailrace.spark_consumer.java_errors import java_errors
from tailrace.spark_consumer.source.kafka import read_raw
from tailrace.spark_consumer.source.ranges import OffsetRange, TopicRange

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

log = structlog.get_logger(__name__)

_RAISED: Final = re.compile(r"a record cannot be decoded: topic (\S+), partition (\d+), offset (\d+): ([^\n]*)")
"""The message that the decoder raises (json_decoder.failure_prefix)."""
_MOST: Final = 1000
"""Records of a topic that are skipped; more are not single bad records."""


def bad_record(error: BaseException, topic: str, within: TopicRange | None = None) -> BadRecord | None:
    """Return the record of a topic, and of the range that was read, that an error is about; None if it is about none.

    A text that quotes a value can say anything. So only an exception of the decoder itself counts, whose message begins
    as the decoder begins it, and an error that has the record. A transform can fail for a row that was held since an
    earlier range.
    """
    own = next(filter(None, _records(error)), None)
    found = own or next(filter(None, (_read(each.raised) for each in java_errors(error))), None)
    if found is None or found.topic != topic:
        return None
    if own is None and within is not None:
        read = within.partitions.get(found.partition)
        if within.topic != topic or read is None or not read.start <= found.offset < read.end:
            return None
    return found


def _records(error: BaseException | None) -> Iterator[BadRecord | None]:
    while error is not None:
        if isinstance(error, BadRecordError | TransformError):
            yield error.record
        error = error.__cause__


def _read(message: str) -> BadRecord | None:
    found = _RAISED.match(message)
    return None if found is None else BadRecord(found[1], int(found[2]), int(found[3]), found[4])


def position(error: TailraceError) -> dict[str, object]:
    """Return the position of the record that an error is about. Its value stays in the topic: others read this."""
    named = error.record if isinstance(error, BadRecordError | TransformError) else None
    return {} if named is None else {"partition": named.partition, "offset": named.offset}


def _range(record: BadRecord) -> TopicRange:
    return TopicRange(record.topic, {record.partition: OffsetRange(record.offset, record.offset + 1)})


class DeadLetters:
    """Writes bad records to a topic, once per attempt of a batch, and knows which records are left out since then.

    The headers of a record have the names that Kafka Connect uses.
    """

    def __init__(self, topic: str, client: Mapping[str, str], source: Mapping[str, str]) -> None:
        self._topic = topic
        self._client = dict(client)
        self._source = dict(source)
        self._skipped: dict[str, set[tuple[int, int]]] = {}
        self._lock = threading.Lock()

    def take(self, spark: SparkSession, error: BaseException, topic: str, read: TopicRange | None) -> bool:
        """Write the record of a topic that an error is about; return whether the work can be done without it.

        ``read``: the range that was read; None if the work is on records that were held.
        """
        found = bad_record(error, topic, read)
        if found is None:
            return False
        at = found.partition, found.offset
        with self._lock:
            skipped = self._skipped.setdefault(found.topic, set())
            if at in skipped or len(skipped) >= _MOST:
                return False
        self._write(spark, _range(found), found.reason)
        skipped.add(at)
        log.error(
            "record skipped", topic=found.topic, partition=found.partition, offset=found.offset, reason=found.reason
        )
        return True

    def has(self, topic: str) -> bool:
        """Return whether records of a topic were taken."""
        return bool(self._skipped.get(topic))

    def left(self, records: DataFrame, found: TopicRange) -> DataFrame:
        """Return the records of a range without those that were taken."""
        for partition, offset in sorted(self._skipped.get(found.topic, ())):
            own = found.partitions.get(partition)
            if own is not None and own.start <= offset < own.end:
                records = _without(records, partition, offset)
        return records

    def without(self, records: DataFrame, topic: str) -> DataFrame:
        """Return records of any ranges without those that were taken."""
        for partition, offset in sorted(self._skipped.get(topic, ())):
            records = _without(records, partition, offset)
        return records

    def _write(self, spark: SparkSession, found: TopicRange, reason: str) -> None:
        raw = read_raw(spark, self._source, found)
        added = {
            "topic": fn.col("topic"),
            "partition": fn.col("partition"),
            "offset": fn.col("offset"),
            "exception.message": fn.lit(reason),
        }
        headers = fn.array(*(_header(f"__connect.errors.{name}", value) for name, value in added.items()))
        own = fn.coalesce(fn.col("headers"), fn.array().cast(headers_type(raw)))
        letters = raw.select("key", "value", fn.concat(own, headers).alias("headers"))
        writer = letters.write.format("kafka").mode("append").options(**self._client)
        writer.option("topic", self._topic).option("includeHeaders", "true").save()


def _without(records: DataFrame, partition: int, offset: int) -> DataFrame:
    return records.where(~((fn.col("partition") == partition) & (fn.col("offset") == offset)))


def headers_type(raw: DataFrame) -> str:
    """Return the type of the headers of raw records."""
    return str(raw.schema["headers"].dataType.simpleString())


def _header(name: str, value: Column) -> Column:
    return fn.struct(fn.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))
