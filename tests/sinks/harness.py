"""Runs single batches through the consumer's pipeline, repeats them, and cuts them off at a step of the sink."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition

from tailrace.runtime.config.section import Section
from tailrace.schemas.names import watermarks_topic
from tailrace.spark_consumer import config
from tailrace.spark_consumer.monitor.status import Status
from tailrace.spark_consumer.pipeline import Pipeline
from tailrace.spark_consumer.sink.base import Sink, SinkContext
from tailrace.spark_consumer.sink.plugin import load_sink
from tailrace.spark_consumer.sink.routing import QuerySink
from tailrace.spark_consumer.tables.progress import TablePosition
from tailrace.spark_consumer.tables.services import PipelineSettings
from tests.sinks.backend import SinkBackend
from tests.spark.records import Feed, Message, Table
from tests.spark.running import upkeep_off
from tests.support.topics import end_offset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import SparkSession

Offsets = dict[str, dict[str, int]]
"""Topic to partition to offset."""


class CutOffError(Exception):
    """Raised instead of the rest of a batch."""


class BatchRunner:
    """One query over the topic of one table, with a batch for each call of ``batch``."""

    def __init__(
        self, feed: Feed, table: Table, backend: SinkBackend, work: Path, more: Mapping[str, str] | None = None
    ) -> None:
        """``more``: settings besides those of the backend."""
        self.feed, self.table, self.backend = feed, table, backend
        self.others: list[Table] = []
        """Further tables of the query, added before their first record."""
        self.accept_incomplete = False
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
                **upkeep_off(backend.sink),
                **backend.settings(),
                **(more or {}),
            }
        )
        self._plugin = load_sink(backend.sink)
        self._number = -1
        self._repair: Callable[[], None] = lambda: None
        """Undoes the last cut."""
        self._start = self._end = self._ends()
        self._pipeline = self._new_pipeline(None)

    def write(self, *records: Iterable[Message]) -> None:
        """Write records in one transaction."""
        self.feed.write(message for messages in records for message in messages)

    def batch(
        self,
        *records: Iterable[Message],
        cut: tuple[str, str] | None = None,
        planned: Callable[[], object] | None = None,
        until: Mapping[int, int] | None = None,
    ) -> None:
        """Write records and process everything that is new in one batch; ``cut`` ends it there with CutOffError.

        ``planned`` is called when the offsets of the batch are known, and nothing is read yet. ``until``: where the
        batch ends in some partitions of the table, as Spark bounds it.
        """
        if records:
            self.write(*records)
        self._number += 1
        self._start, self._end = self._end, self._ends()
        self._end[self.table.schema.topic] |= {str(number): offset for number, offset in (until or {}).items()}
        if cut is not None:
            self._pipeline = self._new_pipeline(cut)
        self._run(planned)

    def leave(self) -> None:
        """Process a batch in which the query does not have the topic of the table."""
        self._number += 1
        self._start = self._end
        self._end = {topic: ends for topic, ends in self._ends().items() if topic != self.table.schema.topic}
        self._run()

    def repeat(self) -> None:
        """Process the last batch again in a new process of the same query, as Spark does after a failure."""
        self._pipeline = self._new_pipeline(None)
        self._run()

    def restart(self) -> None:
        """Continue in a new process of the query: parked tables are taken up again."""
        self._pipeline = self._new_pipeline(None)
        self._pipeline.load_positions(self._spark)

    def from_beginning(self) -> BatchRunner:
        """Let the first batch begin at the beginning of all topics."""
        self._end = {topic: dict.fromkeys(ends, 0) for topic, ends in self._end.items()}
        return self

    def seek(self, offsets: Mapping[int, int]) -> None:
        """Let the next batch begin at other offsets of the table's topic."""
        self._end[self.table.schema.topic] = {str(number): offset for number, offset in offsets.items()}

    def save(self) -> tuple[Path, int, Offsets]:
        """Copy the checkpoint, for ``restore``."""
        copy = Path(self._checkpoint).with_name(f"checkpoint-{self._number}")
        shutil.copytree(self._checkpoint, copy)
        return copy, self._number, self._end

    def restore(self, saved: tuple[Path, int, Offsets]) -> None:
        """Continue with a checkpoint that was saved, in a new process of the query."""
        copy, self._number, self._end = saved
        shutil.rmtree(self._checkpoint)
        shutil.copytree(copy, self._checkpoint)
        self.restart()

    def retry(self) -> None:
        """Try the parked tables again in the same process, whose sink works from now on."""
        self._repair()
        self._repair = lambda: None
        (log := Path(self._checkpoint) / "commits").mkdir(exist_ok=True)
        (log / str(self._number)).write_text("v1\n{}", encoding="utf-8")
        self._pipeline.retry_parked()
        while self._pipeline.catch_up(self._spark):
            pass

    def parked(self) -> dict[str, dict[str, Any]]:
        """Return the stored positions of the tables that cannot go on, by topic."""
        files = sorted((Path(self._checkpoint) / "tailrace" / "parked").glob("*.json"))
        found = [json.loads(file.read_text(encoding="utf-8")) for file in files]
        return {each["topic"]: each for each in found if each["reason"] is not None}

    def pipeline_parked(self) -> list[TablePosition]:
        """Return the tables that cannot go on, also those without a stored position."""
        return self._pipeline._parked.parked()

    def _run(self, planned: Callable[[], object] | None = None) -> None:
        self._plan()
        if planned is not None:
            planned()
        with self.backend.capture():
            # The pipeline takes only the session from the records of the stream.
            self._pipeline(self._spark.range(0), self._number)
        while self._pipeline.tend():
            pass

    def _new_pipeline(self, cut: tuple[str, str] | None) -> Pipeline:
        def open_sink(spark: SparkSession, options: Section, context: SinkContext) -> Sink:
            sink = self._plugin.open(spark, options, context)
            if cut is not None:
                _cut(sink, *cut)
                self._repair = partial(delattr, sink, cut[1])
            return sink

        settings = PipelineSettings(
            prefix=self.feed.prefix,
            client=self._config.kafka_client,
            source={},
            checkpoint=self._checkpoint,
            accept_incomplete=self.accept_incomplete,
            rules=self._config.transforms.rules,
        )
        query_sink = QuerySink(self._plugin.name, replace(self._plugin, open=open_sink), self._config.sink_options)
        pipeline = Pipeline(settings, [query_sink], Status("conformance", self._plugin.name))
        pipeline.start("query-1")
        return pipeline

    def _plan(self) -> None:
        """Write the offset log of the batch, as the streaming query does."""
        log = Path(self._checkpoint) / "offsets"
        log.mkdir(parents=True, exist_ok=True)
        before = log / str(self._number - 1)
        if self._number == 0:
            before = Path(self._checkpoint) / "sources" / "0" / "0"
            before.parent.mkdir(parents=True, exist_ok=True)
        before.write_text(f"v1\n{{}}\n{json.dumps(self._start)}", encoding="utf-8")
        (log / str(self._number)).write_text(f"v1\n{{}}\n{json.dumps(self._end)}", encoding="utf-8")

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
            topics = {table.schema.topic: table.partitions for table in (self.table, *self.others)}
            topics[watermarks_topic(self.feed.prefix)] = 1
            for topic, partitions in topics.items():
                found[topic] = {str(p): end_offset(client, TopicPartition(topic, p)) for p in range(partitions)}
            return found
        finally:
            client.close()


def _cut(sink: Any, when: str, step: str) -> None:
    """Replace a method of a sink: it raises CutOffError before or after its work."""
    method = getattr(sink, step)

    def run(*arguments: Any, **named: Any) -> None:
        if when == "after":
            method(*arguments, **named)
        raise CutOffError(f"{when} {step}")

    setattr(sink, step, run)
