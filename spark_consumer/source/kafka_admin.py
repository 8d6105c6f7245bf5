"""Clients of Spark's Kafka jars in the driver: Spark itself has no API for what they do.

They tell the offsets, ids, numbers of partitions and cleanup policies of topics: a topic that was deleted and created
again has another id under the same name.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]

from tailrace.runtime.errors import KafkaUnavailableError
from tailrace.spark_consumer.errors import MissingTopicError
from tailrace.spark_consumer.java_errors import java_errors
from tailrace.spark_consumer.jvm import java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open_admin(spark: SparkSession, client: Mapping[str, str]) -> Any:
    """Return a Java ``AdminClient``, which the caller closes.

    ``client`` has Kafka client options with their prefix ``kafka.``; other options are left out.
    """
    return java_class(spark, "org.apache.kafka.clients.admin.AdminClient").create(_settings(spark, client, {}))


def open_consumer(spark: SparkSession, client: Mapping[str, str], own: Mapping[str, str]) -> Any:
    """Return a Java ``KafkaConsumer`` of no group, which the caller closes; ``client`` as for ``open_admin``.

    ``own``: its settings, without a prefix.
    """
    settings = {
        "enable.auto.commit": "false",
        # An offset that the log does not have is an error.
        "auto.offset.reset": "none",
        # A deleted topic stays deleted, also on a broker that creates what it is asked for.
        "allow.auto.create.topics": "false",
        # The records are there: the broker need not wait for more.
        "fetch.min.bytes": "1",
        **own,
    }
    return java_class(spark, "org.apache.kafka.clients.consumer.KafkaConsumer")(_settings(spark, client, settings))


def close_consumer(consumer: Any, within: Any) -> None:
    """Close a consumer of ``open_consumer``; what fails then is of no interest, because it is a member of no group.

    ``within``: a ``java.time.Duration``.
    """
    with suppress(Py4JError):
        consumer.close(within)


def _settings(spark: SparkSession, client: Mapping[str, str], own: Mapping[str, str]) -> Any:
    given = {name.removeprefix("kafka."): value for name, value in client.items() if name.startswith("kafka.")}
    settings = java_class(spark, "java.util.Properties")()
    for name, value in {**given, **own}.items():
        settings.setProperty(name, value)
    return settings


class SharedAdmin:
    """One admin client for several users, which may be in several threads."""

    def __init__(self, client: Mapping[str, str]) -> None:
        """``client`` has Kafka client options with their prefix ``kafka.``."""
        self._client = client
        self._lock = threading.Lock()
        self._admin: Any = None

    def get(self, spark: SparkSession) -> Any:
        """Return the Java ``AdminClient``; the first call opens it."""
        with self._lock:
            if self._admin is None:
                self._admin = open_admin(spark, self._client)
            return self._admin

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._admin is not None:
                self._admin.close()
                self._admin = None


def topic_names(spark: SparkSession, client: Mapping[str, str], pattern: str) -> list[str]:
    """Return the names of the topics that Kafka has and a regular expression of Java finds, as Spark subscribes."""
    admin = open_admin(spark, client)
    try:
        return matching(spark, pattern, map(str, admin.listTopics().names().get()))
    finally:
        admin.close()


def matching(spark: SparkSession, pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names that a regular expression of Java finds."""
    jvm: Any = spark._jvm  # noqa: SLF001 - Python's expressions are not the same
    expression = jvm.java.util.regex.Pattern.compile(pattern)
    return [name for name in names if expression.matcher(name).find()]


def _offsets(
    spark: SparkSession, client: Mapping[str, str], topic: str, partitions: Iterable[int], *, which: str
) -> dict[int, int]:
    """Return an offset of each partition; ``client`` has Kafka client options with their prefix ``kafka.``."""
    admin = open_admin(spark, client)
    try:
        found = listed_offsets(spark, admin, [(topic, number) for number in partitions], which)
        return {number: offset for (_, number), offset in found.items()}
    finally:
        admin.close()


end_offsets: Final = partial(_offsets, which="latest")
beginning_offsets: Final = partial(_offsets, which="earliest")


def listed_offsets(
    spark: SparkSession, admin: Any, partitions: Iterable[tuple[str, int]], which: str = "latest"
) -> dict[tuple[str, int], int]:
    """Return offsets by a Java ``AdminClient``: ``latest`` or ``earliest``. Records of open transactions count."""
    topic_partition = java_class(spark, "org.apache.kafka.common.TopicPartition")
    spec = getattr(java_class(spark, "org.apache.kafka.clients.admin.OffsetSpec"), which)()
    keys = {partition: topic_partition(*partition) for partition in partitions}
    specs = java_class(spark, "java.util.HashMap")()
    for partition in keys.values():
        specs.put(partition, spec)
    found = admin.listOffsets(specs)
    return {key: int(found.partitionResult(partition).get().offset()) for key, partition in keys.items()}


_MISSING: Final = "org.apache.kafka.common.errors.UnknownTopicOrPartitionException"
_TIMEOUT_MS: Final = 15_000


def unknown_id(_topic: str) -> str:
    """Return that the id of a topic is not known."""
    return ""


def missing_topic(topic: str) -> MissingTopicError:
    """Return the error for a topic that Kafka does not have."""
    return MissingTopicError(
        f"topic {topic} does not exist",
        hint="restart the producer, which creates the topic and, with tailrace.missing.topic.handling.mode=snapshot, "
        "reads the table again; or leave the table out with table.exclude.list",
    )


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

    def ends_of(self, spark: SparkSession, topic: str) -> dict[int, int]:
        """Return the end offsets of a topic whose id was read.

        Raises MissingTopicError if Kafka does not have it (any more), KafkaUnavailableError if Kafka does not tell.
        """
        if found := self.ends(spark, [topic]).get(topic):
            return found
        if self.missing(spark, [topic]):
            raise missing_topic(topic)
        raise KafkaUnavailableError(
            f"Kafka does not tell the id and the end offsets of topic {topic}",
            hint="check that the brokers run, grant READ and DESCRIBE on the topic to the user of the query, and run "
            "the command again",
        )

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
        options = jvm.org.apache.kafka.clients.admin.DescribeTopicsOptions().timeoutMs(_TIMEOUT_MS)
        found = self._admin.get(spark).describeTopics(list(topics), options).topicNameValues()
        for topic in topics:
            try:
                yield topic, found.get(topic).get()
            except Py4JError as error:
                yield topic, error


def _says_missing(described: Any) -> bool:
    return isinstance(described, Py4JError) and any(each.is_any(_MISSING) for each in java_errors(described))


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
        jvm: Any = spark._jvm  # noqa: SLF001 - the arguments of the client are Java objects
        config = jvm.org.apache.kafka.common.config.ConfigResource
        resources = {topic: config(config.Type.TOPIC, topic) for topic in topics}
        answers = self._admin.get(spark).describeConfigs(list(resources.values())).values()
        return {topic: answers.get(resource) for topic, resource in resources.items()}

    @staticmethod
    def _policy(answer: Any) -> str | None:
        """Return the policy of a topic; None if Kafka did not answer, and the next batch reads it."""
        try:
            return str(answer.get().get(_POLICY).value())
        except Py4JJavaError as error:
            return _DENIED if any(each.is_any(_NOT_AUTHORIZED) for each in java_errors(error)) else None
