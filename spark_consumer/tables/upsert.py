"""One table in a batch of an upsert sink: decode, prepare the target, write the last change per key."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tailrace.spark_consumer.background import run_in_background
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.normalize.split_stats import summarize
from tailrace.spark_consumer.sink.base import TableBatch
from tailrace.spark_consumer.tables.base import CACHE, TableResult, TableServices

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tailrace.spark_consumer.source.ranges import TopicRange


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
        """Write the range to the sink."""
        raw = self._services.read(spark, self._range)
        # Records with one known schema are read once. Otherwise their schemas are found first.
        cached = self._services.reads_twice(self.topic)
        if cached:
            raw = raw.persist(CACHE)
        try:
            return self._write(spark, raw)
        finally:
            if cached:
                raw.unpersist()

    def _write(self, spark: SparkSession, raw: DataFrame) -> TableResult:
        sink = self._services.sink
        schema, rows = self._services.decode(raw, self.topic, Images.UPSERT)
        decoded = rows.persist(CACHE)
        try:
            with run_in_background(spark, partial(sink.prepare_table, schema)):
                stats = summarize(decoded)
            if stats:
                sink.write_batch(TableBatch(schema, decoded, stats), self._batch_id)
            newest = max((stat.newest_ms for stat in stats if stat.newest_ms is not None), default=None)
            return TableResult(sum(stat.rows + stat.changes for stat in stats), newest)
        finally:
            decoded.unpersist()
