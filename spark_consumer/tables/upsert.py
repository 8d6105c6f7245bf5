"""One table in a batch of an upsert sink: decode, prepare the target, write the last change per key."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import structlog

from tailrace.spark_consumer.background import run_in_background
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.normalize.split_stats import summarize
from tailrace.spark_consumer.sink.base import TableBatch
from tailrace.spark_consumer.tables.base import CACHE, TableResult, TableServices

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tailrace.spark_consumer.source.ranges import TopicRange


log = structlog.get_logger(__name__)


class UpsertTable:
    """The work of one table for ``Images.UPSERT``."""

    def __init__(self, services: TableServices, found: TopicRange, batch_id: int) -> None:
        self._services = services
        self._range = found
        self._batch_id = batch_id

    @property
    def topic(self) -> str:
        """The topic of the table."""
        return self._range.topic

    @property
    def offsets(self) -> int:
        """The number of offsets to read."""
        return self._range.offsets

    def run(self, spark: SparkSession) -> TableResult:
        """Write the part of the range that the target has not applied."""
        newest = self._services.newest_schema(spark, self._range)
        if not newest.columns:  # a connector has written no row yet
            return TableResult(0, None)
        applied = self._services.sink.applied(newest)
        left = self._range.after(applied)
        if left != self._range:
            self._require_same_topic(spark, applied)
            log.info("records skipped that the target has applied", topic=self.topic, batch=self._batch_id)
        if not left.partitions:
            return TableResult(0, None)
        raw = self._services.read(spark, left)
        # Records with one known schema are read once. Otherwise their schemas are found first.
        cached = self._services.reads_twice(self.topic)
        if cached:
            raw = raw.persist(CACHE)
        try:
            return self._write(spark, raw, left)
        finally:
            if cached:
                raw.unpersist()

    def _require_same_topic(self, spark: SparkSession, applied: Mapping[int, int]) -> None:
        """Raise SinkError if the target has applied more than the topic has: it is another topic of the same name."""
        ends = self._services.end_offsets(spark, self.topic, applied)
        beyond = {number: offset for number, offset in applied.items() if offset > ends[number]}
        if beyond:
            raise SinkError(
                f"topic {self.topic} was deleted and created again: the target has applied records beyond its end",
                hint="move the target table away to load it from the new topic, and start again",
                applied=beyond,
                ends={number: ends[number] for number in beyond},
            )

    def _write(self, spark: SparkSession, raw: DataFrame, found: TopicRange) -> TableResult:
        sink = self._services.sink
        schema, rows = self._services.decode(raw, self.topic, Images.UPSERT)
        decoded = rows.persist(CACHE)
        try:
            with run_in_background(spark, partial(sink.prepare_table, schema)):
                stats = summarize(decoded)
            if stats:
                sink.write_batch(TableBatch(schema, decoded, stats, found), self._batch_id)
            newest = max((stat.newest_ms for stat in stats if stat.newest_ms is not None), default=None)
            return TableResult(sum(stat.rows + stat.changes for stat in stats), newest)
        finally:
            decoded.unpersist()
