"""Which topics are compacted: Kafka removes records of such a topic that later records of their keys replace."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

import structlog
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from tailrace.spark_consumer.java_errors import java_errors
from tailrace.spark_consumer.source.kafka_admin import SharedAdmin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLICY: Final = "cleanup.policy"
_DENIED: Final = "denied"
_NOT_AUTHORIZED: Final = "org.apache.kafka.common.errors.AuthorizationException"

log = structlog.get_logger(__name__)


class TopicPolicies:
    """The cleanup policies of the topics of a query, each read once: at the start, or when the topic is found."""

    def __init__(self, admin: SharedAdmin) -> None:
        self._admin = admin
        self._compacted: dict[str, bool] = {}
        self._lock = threading.Lock()

    def read(self, spark: SparkSession, topics: Collection[str]) -> None:
        """Read the policies of topics that are new, in one request; a compacted one is warned of."""
        with self._lock:
            new = sorted(set(topics) - self._compacted.keys())
            if not new:
                return
            answers = {topic: self._policy(answer) for topic, answer in self._describe(spark, new).items()}
            found = {topic: policy for topic, policy in answers.items() if policy is not None}
            self._compacted |= {topic: policy == _DENIED or "compact" in policy for topic, policy in found.items()}
        if compacted := [topic for topic, policy in found.items() if "compact" in policy]:
            log.warning(
                "topics are compacted: records that later ones of their keys replace are gone before they are read. A "
                "changelog lacks these changes, a snapshot can lack rows, and a row that was deleted can stay if Kafka "
                "has removed the tombstone too",
                topics=compacted,
                hint="set cleanup.policy=delete on the topics",
            )
        if unknown := [topic for topic, policy in found.items() if policy == _DENIED]:
            log.warning(
                "whether topics are compacted cannot be read: they are processed as if they were, which takes longer",
                topics=unknown,
                hint="grant DESCRIBE_CONFIGS on the topics to the user of this client",
            )

    def is_compacted(self, topic: str) -> bool:
        """Return whether a topic is compacted, or may be."""
        with self._lock:
            return self._compacted.get(topic, True)

    def _describe(self, spark: SparkSession, topics: Collection[str]) -> dict[str, Any]:
        """Return what is to come for each topic."""
        jvm: Any = spark._jvm  # noqa: SLF001 - the arguments of the client are Java objects
        config = jvm.org.apache.kafka.common.config.ConfigResource
        resources = {topic: config(config.Type.TOPIC, topic) for topic in topics}
        listed = jvm.java.util.ArrayList()
        for resource in resources.values():
            listed.add(resource)
        answers = self._admin.get(spark).describeConfigs(listed).values()
        return {topic: answers.get(resource) for topic, resource in resources.items()}

    @staticmethod
    def _policy(answer: Any) -> str | None:
        """Return the policy of a topic; None if Kafka did not answer, and the next batch reads it."""
        try:
            return str(answer.get().get(_POLICY).value())
        except Py4JJavaError as error:
            return _DENIED if any(each.is_any(_NOT_AUTHORIZED) for each in java_errors(error)) else None
