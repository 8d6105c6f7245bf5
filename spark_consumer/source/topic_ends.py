"""Reads the first and the end offsets of a topic from the broker, with the admin client of Spark's Kafka jars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tailrace.spark_consumer.source.kafka_admin import open_admin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def end_offsets(
    spark: SparkSession, client: Mapping[str, str], topic: str, partitions: Iterable[int]
) -> dict[int, int]:
    """Return the end offset of each partition; ``client`` has Kafka client options with their prefix ``kafka.``."""
    return _offsets(spark, client, topic, partitions, "latest")


def beginning_offsets(
    spark: SparkSession, client: Mapping[str, str], topic: str, partitions: Iterable[int]
) -> dict[int, int]:
    """Return the first offset of each partition, like ``end_offsets``."""
    return _offsets(spark, client, topic, partitions, "earliest")


def _offsets(
    spark: SparkSession, client: Mapping[str, str], topic: str, partitions: Iterable[int], which: str
) -> dict[int, int]:
    admin = open_admin(spark, client)
    try:
        found = listed_offsets(spark, admin, [(topic, number) for number in partitions], which)
        return {number: offset for (_, number), offset in found.items()}
    finally:
        admin.close()


def listed_offsets(
    spark: SparkSession, admin: Any, partitions: Iterable[tuple[str, int]], which: str = "latest"
) -> dict[tuple[str, int], int]:
    """Return offsets by a Java ``AdminClient``: ``latest`` or ``earliest``. Records of open transactions count."""
    jvm: Any = spark._jvm  # noqa: SLF001 - the arguments of the client are Java objects
    kafka = jvm.org.apache.kafka
    keys = {partition: kafka.common.TopicPartition(*partition) for partition in partitions}
    specs = jvm.java.util.HashMap()
    for partition in keys.values():
        specs.put(partition, getattr(kafka.clients.admin.OffsetSpec, which)())
    found = admin.listOffsets(specs)
    return {key: int(found.partitionResult(partition).get().offset()) for key, partition in keys.items()}
