"""What a topic holds now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.source.kafka_admin import beginning_offsets
from tailrace.spark_consumer.source.ranges import OffsetRange, TopicRange

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from tailrace.spark_consumer.source.kafka_admin import TopicIds


def whole_topic(spark: SparkSession, client: Mapping[str, str], topic: str, ids: TopicIds) -> dict[int, OffsetRange]:
    """Return what each partition has now, records of open transactions too. Raises SinkError if the topic is gone."""
    ends = ids.ends(spark, [topic]).get(topic)
    if ends is None:
        raise SinkError(
            "the topic is gone",
            hint="leave the table out with --tables if the topic was deleted on purpose; else look into "
            "tailrace.missing.topic.handling.mode of the producer",
        )
    begins = beginning_offsets(spark, client, topic, ends)
    return {number: OffsetRange(begins[number], end) for number, end in ends.items()}


def with_records(topic: str, partitions: Mapping[int, OffsetRange]) -> TopicRange:
    """Return the range of the partitions that are not empty."""
    return TopicRange(topic, {number: each for number, each in partitions.items() if each.start < each.end})
