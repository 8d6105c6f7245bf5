"""The ids of topics in Kafka: a topic that was deleted and created again has another id under the same name.

With the id comes the number of partitions.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from tailrace.spark_consumer.java_errors import java_errors
from tailrace.spark_consumer.source.kafka_admin import SharedAdmin
from tailrace.spark_consumer.source.topic_ends import listed_offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MISSING: Final = "org.apache.kafka.common.errors.UnknownTopicOrPartitionException"
_TIMEOUT_MS: Final = 15_000


def unknown_id(_topic: str) -> str:
    """Return that the id of a topic is not known."""
    return ""


class TopicIds:
    """The ids of the topics of a query, read with the admin client of Spark's Kafka jars."""

    def __init__(self, admin: SharedAdmin) -> None:
        self._admin = admin
        self._ids: dict[str, str] = {}
        self._partitions: dict[str, int] = {}
        self._lock = threading.Lock()

    def refresh(self, spark: SparkSession, topics: Collection[str]) -> None:
        """Read the ids of topics, in one request; that of a topic which cannot be described is not known then."""
        if not topics:
            return
        with self._lock:
            for topic, described in self._describe(spark, topics):
                if isinstance(described, Py4JError):
                    self._ids.pop(topic, None)
                else:
                    self._ids[topic] = str(described.topicId())
                    self._partitions[topic] = int(described.partitions().size())

    def get(self, topic: str) -> str:
        """Return the id of a topic; '' if it is not known."""
        with self._lock:
            return self._ids.get(topic, "")

    def ends(self, spark: SparkSession, topics: Collection[str]) -> dict[str, dict[int, int]]:
        """Return the end offsets that topics have now; one whose id is not known is left out."""
        with self._lock:
            known = [(topic, n) for topic in topics if topic in self._ids for n in range(self._partitions[topic])]
            found: dict[str, dict[int, int]] = {}
            try:
                for (topic, number), end in listed_offsets(spark, self._admin.get(spark), known).items():
                    found.setdefault(topic, {})[number] = end
            except Py4JError:  # a topic was deleted meanwhile: the read tells
                return {}
            return found

    def present(self, spark: SparkSession, topic: str) -> str:
        """Return the id that a topic has now; '' if that is not known."""
        with self._lock:
            [(_, described)] = self._describe(spark, [topic])
            return "" if isinstance(described, Py4JError) else str(described.topicId())

    def missing(self, spark: SparkSession, topics: Collection[str]) -> set[str]:
        """Return the topics that Kafka does not have; one that it cannot be asked about is not among them."""
        if not topics:
            return set()
        with self._lock:
            try:
                return {topic for topic, described in self._describe(spark, topics) if _says_missing(described)}
            except (Py4JError, OSError):  # there is no session any more
                return set()

    def _describe(self, spark: SparkSession, topics: Collection[str]) -> Iterator[tuple[str, Any]]:
        """Return the description of each topic, or the error instead of it."""
        jvm: Any = spark._jvm  # noqa: SLF001 - the arguments of the client are Java objects
        names = jvm.java.util.ArrayList()
        for topic in topics:
            names.add(topic)
        options = jvm.org.apache.kafka.clients.admin.DescribeTopicsOptions().timeoutMs(_TIMEOUT_MS)
        found = self._admin.get(spark).describeTopics(names, options).topicNameValues()
        for topic in topics:
            try:
                yield topic, found.get(topic).get()
            except Py4JError as error:
                yield topic, error


def _says_missing(described: Any) -> bool:
    return isinstance(described, Py4JError) and any(each.is_any(_MISSING) for each in java_errors(described))
