"""Clients of Spark's Kafka jars in the driver: Spark itself has no API for what they do."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

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
    jvm: Any = spark._jvm  # noqa: SLF001 - Python's expressions are not the same
    expression = jvm.java.util.regex.Pattern.compile(pattern)
    admin = open_admin(spark, client)
    try:
        return [str(name) for name in admin.listTopics().names().get() if expression.matcher(name).find()]
    finally:
        admin.close()
