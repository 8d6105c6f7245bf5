"""Records that cannot be decoded or transformed: what an error says about one, and the topic that takes them."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import structlog
from pyspark.errors import PySparkException
from pyspark.sql import functions as fn

from tailrace.spark_consumer.source.kafka import read_range, read_raw
from tailrace.spark_consumer.source.ranges import OffsetRange, TopicRange

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

log = structlog.get_logger(__name__)

_POSITION: Final = re.compile(r"topic (\S+), partition (\d+), offset (\d+): ([^\n]*?)\s*(?:SQLSTATE: \w+|\n|$)")
"""How errors of the decoder (json_decoder.failure_prefix) and of transforms (failing_record.py) name a record."""
_SHOWN: Final = 200
_MOST: Final = 1000
"""Records of a topic that are skipped; more are not single bad records."""


def bad_record(text: str) -> tuple[TopicRange, str] | None:
    """Return the record that the text of an error names and the reason, or None."""
    found = _POSITION.search(text)
    if found is None:
        return None
    partition, offset = int(found[2]), int(found[3])
    return TopicRange(found[1], {partition: OffsetRange(offset, offset + 1)}), found[4]


def describe(spark: SparkSession, source: Mapping[str, str], error: BaseException) -> dict[str, object]:
    """Return the position and the beginning of the value of the record that an error names."""
    named = bad_record(str(error))
    if named is None:
        return {}
    [(partition, offsets)] = named[0].partitions.items()
    try:
        rows = read_range(spark, source, named[0]).select(fn.col("value").cast("string")).collect()
    except PySparkException:
        rows = []
    value = str(rows[0]["value"])[:_SHOWN] if rows else "cannot be read"
    return {"partition": partition, "offset": offsets.start, "value": value}


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

    def take(self, spark: SparkSession, error: BaseException) -> bool:
        """Write the record that an error names; return whether the work can be done again without it."""
        named = bad_record(str(error))
        if named is None:
            return False
        found, reason = named
        [(partition, offsets)] = found.partitions.items()
        with self._lock:
            skipped = self._skipped.setdefault(found.topic, set())
            if (partition, offsets.start) in skipped or len(skipped) >= _MOST:
                return False
        self._write(spark, found, reason)
        skipped.add((partition, offsets.start))
        log.error("record skipped", topic=found.topic, partition=partition, offset=offsets.start, reason=reason)
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
