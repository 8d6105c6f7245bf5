"""Reads the control topics of a prefix (table schemas and watermarks) in Spark batch jobs, up to the end of the topic.

The isolation level is read_uncommitted by default, on purpose. The producer writes a schema or a LOW watermark before
the first row that needs it, or in the same Kafka transaction. A transaction commits only after all its records are
written. So if a row is visible as committed, its control record is in the topic, even if the commit marker of that
partition is not written yet; a read_committed reader could miss it. A control record of an aborted transaction does no
harm: it describes a real schema or split, and nothing depends on its absence.

A topic rarely has something new. Its end offset is asked for first: one request instead of a job. Nothing is read if
the end is where it was before the last read. Commit markers have offsets too, so that this holds for read_committed as
well. The end and the records can come from different brokers, one of which is behind: so the topic is read all the same
after some polls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import functions as fn

from tailrace.spark_consumer.errors import ControlTopicError
from tailrace.spark_consumer.source.kafka import CLIENT_DEFAULTS
from tailrace.spark_consumer.source.kafka_admin import listed_offsets

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

    from tailrace.spark_consumer.source.kafka_admin import SharedAdmin


_MOST_SKIPPED: Final = 20


class ControlRecord(NamedTuple):
    """One record of a control topic."""

    offset: int
    value: bytes


class ControlTopic:
    """A topic with one partition; each poll continues where the last one ended."""

    def __init__(
        self,
        topic: str,
        client: Mapping[str, str],
        isolation: str = "read_uncommitted",
        *,
        optional: bool = False,
        admin: SharedAdmin | None = None,
    ) -> None:
        """``optional``: a topic that does not exist has no records. Without ``admin`` each poll is a job."""
        self.topic = topic
        self._admin = admin
        self._end: int | None = None
        """The end offset before the last read; None if it is not known."""
        self._skipped = 0
        """Polls since the last read."""
        self._optional = optional
        self._client = dict(client)
        self._isolation = isolation
        self._next = 0

    def exists(self, spark: SparkSession) -> bool:
        """Return whether Kafka has the topic; also true if that is not known, as the next read tells then."""
        if self._admin is None or self._optional:
            return True
        try:
            return bool(self._admin.get(spark).listTopics().names().get().contains(self.topic))
        except Py4JError:
            return True

    def poll(self, spark: SparkSession) -> list[ControlRecord]:
        """Return the records appended since the last call, in order.

        Raises ControlTopicError if the topic cannot be read.
        """
        rows = self._poll(spark, lambda records: records.select("offset", "value").where(fn.col("value").isNotNull()))
        return [ControlRecord(row["offset"], bytes(row["value"])) for row in rows]

    def rewind(self) -> None:
        """Let the next poll begin at the beginning of the topic."""
        self._next, self._end = 0, None

    def poll_fields(self, spark: SparkSession, fields: str, where: Column) -> list[Row]:
        """Return fields of the JSON records appended since the last call, in order; ``where`` selects records.

        The driver gets only these fields of these records. Raises ControlTopicError as ``poll``.
        """
        entry = fn.from_json(fn.col("value").cast("string"), fields).alias("e")
        return self._poll(spark, lambda records: records.select("offset", entry).select("offset", "e.*").where(where))

    def _poll(self, spark: SparkSession, wanted: Callable[[DataFrame], DataFrame]) -> list[Row]:
        end = self._end_now(spark)
        if end is not None and end == self._end and self._skipped < _MOST_SKIPPED:
            self._skipped += 1
            return []
        self._skipped = 0
        try:
            rows = sorted(wanted(self._read(spark)).collect(), key=lambda row: int(row["offset"]))
        except (PySparkException, Py4JJavaError) as error:
            raise ControlTopicError(
                f"topic {self.topic} cannot be read",
                hint="start the producer of this prefix first, and allow this client to read the topic",
                cause=_cause(error),
            ) from error
        if rows:
            self._next = rows[-1]["offset"] + 1
        self._end = end
        return rows

    def _end_now(self, spark: SparkSession) -> int | None:
        if self._admin is None or self._optional:
            return None
        try:
            return listed_offsets(spark, self._admin.get(spark), [(self.topic, 0)])[self.topic, 0]
        except Py4JError:  # the read tells why
            return None

    def _read(self, spark: SparkSession) -> DataFrame:
        start = json.dumps({self.topic: {"0": self._next}}) if self._next else "earliest"
        options = {
            **CLIENT_DEFAULTS,
            **self._client,
            "kafka.isolation.level": self._isolation,
            # Spark finds no partitions for a pattern that no topic matches, and waits for none.
            **({"subscribePattern": f"^{re.escape(self.topic)}$"} if self._optional else {"subscribe": self.topic}),
            "startingOffsets": start,
            "endingOffsets": "latest",
            # Compaction and retention remove old records. The reader of a control record reports a missing one.
            "failOnDataLoss": "false",
        }
        return spark.read.format("kafka").options(**options).load()


def _cause(error: Exception) -> str:
    """Return the line that names the first cause."""
    lines = str(error).splitlines()
    causes = [line.partition("Caused by: ")[2] for line in lines if "Caused by: " in line]
    return causes[-1] if causes else lines[0]
