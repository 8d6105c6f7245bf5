"""The ids of topics in Kafka: a topic that was deleted and created again has another id under the same name."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from tailrace.spark_consumer.source.kafka_admin import SharedAdmin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def unknown_id(_topic: str) -> str:
    """Return that the id of a topic is not known."""
    return ""


class TopicIds:
    """The ids of the topics of a query, read with the admin client of Spark's Kafka jars."""

    def __init__(self, admin: SharedAdmin) -> None:
        self._admin = admin
        self._ids: dict[str, str] = {}
        self._lock = threading.Lock()

    def refresh(self, spark: SparkSession, topics: Collection[str]) -> None:
        """Read the ids of topics, in one request; that of a topic which cannot be described is not known then."""
        if not topics:
            return
        with self._lock:
            jvm: Any = spark._jvm  # noqa: SLF001 - the arguments of the client are Java objects
            names = jvm.java.util.ArrayList()
            for topic in topics:
                names.add(topic)
            found = self._admin.get(spark).describeTopics(names).topicNameValues()
            for topic in topics:
                try:
                    self._ids[topic] = str(found.get(topic).get().topicId())
                except Py4JError:
                    self._ids.pop(topic, None)

    def get(self, topic: str) -> str:
        """Return the id of a topic; '' if it is not known."""
        with self._lock:
            return self._ids.get(topic, "")
