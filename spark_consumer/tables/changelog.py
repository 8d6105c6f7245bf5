"""One table in a batch of a changelog sink: resolve complete splits, carry over the others, write the changes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from tailrace.schemas.watermark import Watermark
from tailrace.spark_consumer.changelog.rowkind import to_changelog
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.normalize.carry_over import CARRY_OVER_TYPE
from tailrace.spark_consumer.normalize.split_resolution import (
    SplitCompleteness,
    check_completeness,
    hold_incomplete,
    resolve_splits,
)
from tailrace.spark_consumer.normalize.split_stats import summarize
from tailrace.spark_consumer.sink.base import TableBatch
from tailrace.spark_consumer.source.kafka import RAW_COLUMNS
from tailrace.spark_consumer.tables.base import CACHE, TableResult, TableServices

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.schemas.table import TableSchema
    from tailrace.spark_consumer.source.ranges import TopicRange


class ChangelogTable:
    """The work of one table for ``Images.CHANGELOG``; ``found`` is None if only END watermarks were read."""

    def __init__(
        self,
        services: TableServices,
        topic: str,
        found: TopicRange | None,
        ends: Sequence[Watermark],
        batch_id: int,
    ) -> None:
        self._services = services
        self._topic = topic
        self._range = found
        self._ends = tuple(ends)
        self._batch_id = batch_id

    @property
    def topic(self) -> str:
        """The topic of the table."""
        return self._topic

    @property
    def offsets(self) -> int:
        """The number of offsets to read."""
        return self._range.offsets if self._range else 0

    def run(self, spark: SparkSession) -> TableResult:
        """Write the range and what was carried over to the sink."""
        carried = self._services.carry_over.read(spark, self._topic, self._batch_id)
        parts = [] if self._range is None else [self._services.read(spark, self._range)]
        parts += [carried] if carried is not None else []
        parts += [self._raw(spark, self._ends)] if self._ends else []
        records = reduce(DataFrame.unionByName, parts).persist(CACHE)
        try:
            own = records.where((fn.col("topic") == self._topic) & fn.col("value").isNotNull())
            schema, rows = self._services.decode(own, self._topic, Images.CHANGELOG)
            decoded = rows.persist(CACHE)
            try:
                completeness = check_completeness(summarize(decoded), self._all_ends(records))
                self._carry(spark, own, completeness, replace=carried is not None)
                return self._write(schema, decoded, completeness)
            finally:
                decoded.unpersist()
        finally:
            records.unpersist()

    def _write(self, schema: TableSchema, decoded: DataFrame, completeness: SplitCompleteness) -> TableResult:
        ready, _ = hold_incomplete(decoded, completeness.incomplete)
        rows = to_changelog(resolve_splits(ready, completeness.high)).persist(CACHE)
        try:
            totals = rows.agg(fn.count("*").alias("rows"), fn.max("ts_ms").alias("newest")).collect()[0]
            if totals["rows"]:
                self._services.sink.write_batch(TableBatch(schema, rows), self._batch_id)
            return TableResult(totals["rows"], totals["newest"], len(completeness.incomplete))
        finally:
            rows.unpersist()

    def _all_ends(self, records: DataFrame) -> list[Watermark]:
        values = records.where(fn.col("topic") != self._topic).select("value").collect()
        return [Watermark.from_json(bytes(row["value"])) for row in values]

    def _carry(self, spark: SparkSession, own: DataFrame, completeness: SplitCompleteness, *, replace: bool) -> None:
        """Store the held records, and the END watermarks whose records are not all there."""
        pending = self._raw(spark, completeness.pending)
        _, held = hold_incomplete(own, completeness.incomplete)
        if held is not None:
            self._services.carry_over.write(held.unionByName(pending), self._topic, self._batch_id)
        elif completeness.pending or replace:
            self._services.carry_over.write(pending, self._topic, self._batch_id)

    def _raw(self, spark: SparkSession, ends: Sequence[Watermark]) -> DataFrame:
        """Return END watermarks as raw records of another topic; order and position do not matter."""
        rows = [
            ("", 0, 0, bytearray(end.record_key()), bytearray(end.to_json()), None, None, None, None) for end in ends
        ]
        return spark.createDataFrame(rows, CARRY_OVER_TYPE).select(*RAW_COLUMNS)
