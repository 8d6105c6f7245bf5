"""Runs single batches through the consumer's pipeline, repeats them, and cuts them off at a step of the sink."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition

from tailrace.schemas.names import watermarks_topic
from tailrace.spark_consumer import config
from tailrace.spark_consumer.monitor.status import Status
from tailrace.spark_consumer.pipeline import Pipeline
from tailrace.spark_consumer.sink.base import Sink, SinkContext
from tailrace.spark_consumer.sink.plugin import load_sink
from tailrace.spark_consumer.source.kafka import select_raw
from tests.sinks.backend import SinkBackend
from tests.spark.records import Feed, Message, Table
from tests.support.topics import end_offset

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

Offsets = dict[str, dict[str, int]]
"""Topic to partition to offset."""


class CutOffError(Exception):
    """Raised instead of the rest of a batch."""


class BatchRunner:
    """One query over the topic of one table, with a batch for each call of ``batch``."""

    def __init__(self, feed: Feed, table: Table, backend: SinkBackend, work: Path) -> None:
        self.feed, self.table, self.backend = feed, table, backend
        # Settings that the pipeline changes must not reach other tests.
        self._spark: SparkSession = backend.spark.newSession()
        # Generating and compiling code for each plan takes longer than the few rows of a case.
        self._spark.conf.set("spark.sql.codegen.wholeStage", "false")
        self._checkpoint = str(work / "checkpoint")
        self._config = config.parse(
            {
                "bootstrap.servers": feed.broker.bootstrap,
                "topic.prefix": feed.prefix,
                "checkpointLocation": self._checkpoint,
                "sink": backend.sink,
                **backend.settings(),
            }
        )
        self._plugin = load_sink(backend.sink)
        self._number = -1
        self._start = self._end = self._ends()
        self._pipeline = self._new_pipeline(None)

    def write(self, *records: Iterable[Message]) -> None:
        """Write records in one transaction."""
        self.feed.write(message for messages in records for message in messages)

    def batch(self, *records: Iterable[Message], cut: tuple[str, str] | None = None) -> None:
        """Write records and process everything that is new in one batch; ``cut`` ends it there with CutOffError."""
        if records:
            self.write(*records)
        self._number += 1
        self._start, self._end = self._end, self._ends()
        if cut is not None:
            self._pipeline = self._new_pipeline(cut)
        self._run()

    def repeat(self) -> None:
        """Process the last batch again in a new process of the same query, as Spark does after a failure."""
        self._pipeline = self._new_pipeline(None)
        self._run()

    def _run(self) -> None:
        with self.backend.capture():
            self._pipeline(self._records(), self._number)

    def _new_pipeline(self, cut: tuple[str, str] | None) -> Pipeline:
        def open_sink(spark: SparkSession, context: SinkContext) -> Sink:
            sink = self._plugin.open(spark, self._config.sink_options, context)
            if cut is not None:
                _cut(sink, *cut)
            return sink

        pipeline = Pipeline(
            prefix=self.feed.prefix,
            client=self._config.kafka_client,
            images=self._plugin.images,
            open_sink=open_sink,
            checkpoint=self._checkpoint,
            status=Status("conformance", self._plugin.name),
        )
        pipeline.start("query-1")
        return pipeline

    def _records(self) -> DataFrame:
        options = {
            **self._config.kafka_client,
            "kafka.isolation.level": "read_committed",
            "subscribe": ",".join(self._end),
            "startingOffsets": json.dumps(self._start),
            "endingOffsets": json.dumps(self._end),
            "includeHeaders": "true",
        }
        return select_raw(self._spark.read.format("kafka").options(**options).load())

    def _ends(self) -> Offsets:
        client = Consumer(
            {
                "bootstrap.servers": self.feed.broker.bootstrap,
                "group.id": "conformance",
                # A commit returns before its markers are written; Spark waits for them when it reads.
                "isolation.level": "read_uncommitted",
            }
        )
        try:
            found: Offsets = {}
            topics = {self.table.schema.topic: self.table.partitions, watermarks_topic(self.feed.prefix): 1}
            for topic, partitions in topics.items():
                found[topic] = {str(p): end_offset(client, TopicPartition(topic, p)) for p in range(partitions)}
            return found
        finally:
            client.close()


def _cut(sink: Any, when: str, step: str) -> None:
    """Replace a method of a sink: it raises CutOffError before or after its work."""
    method = getattr(sink, step)

    def run(*arguments: Any) -> None:
        if when == "after":
            method(*arguments)
        raise CutOffError(f"{when} {step}")

    setattr(sink, step, run)
