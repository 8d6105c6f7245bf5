"""Processes one micro-batch: split by table, decode, normalize for the sink, write."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import structlog
from pyspark.sql import functions as fn
from pyspark.storagelevel import StorageLevel

from tailrace.schemas.names import schemas_topic, watermarks_topic
from tailrace.schemas.watermark import Watermark, WatermarkKind
from tailrace.spark_consumer.background import run_in_background
from tailrace.spark_consumer.changelog.rowkind import to_changelog
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.monitor.status import Status
from tailrace.spark_consumer.normalize.carry_over import CarryOver
from tailrace.spark_consumer.normalize.split_resolution import (
    SplitCompleteness,
    check_completeness,
    hold_incomplete,
    resolve_splits,
)
from tailrace.spark_consumer.normalize.split_stats import summarize
from tailrace.spark_consumer.sink.base import Sink, SinkContext, TableBatch
from tailrace.spark_consumer.source.control import ControlTopic
from tailrace.spark_consumer.source.offsets import topics_of_batch
from tailrace.spark_consumer.source.runs import SnapshotRuns
from tailrace.spark_consumer.source.schema_tracker import SchemaTracker
from tailrace.spark_consumer.source.version_decoder import decode_versions, schemas_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from tailrace.schemas.table import TableSchema

log = structlog.get_logger(__name__)

_LEVEL = StorageLevel.MEMORY_AND_DISK


class Pipeline:
    """The function for foreachBatch; one per query."""

    def __init__(
        self,
        *,
        prefix: str,
        client: Mapping[str, str],
        images: Images,
        open_sink: Callable[[SparkSession, SinkContext], Sink],
        checkpoint: str,
        status: Status,
    ) -> None:
        self._prefix = prefix
        self._client = dict(client)
        self._images = images
        self._open_sink = open_sink
        self._sink: Sink | None = None
        self._status = status
        self._schemas = SchemaTracker(ControlTopic(schemas_topic(prefix), client))
        self._checkpoint = checkpoint
        self._carry_over = CarryOver(checkpoint)
        self._query_id = ""
        self._started = threading.Event()
        self.pause_point: Callable[[], None] = lambda: None
        """Called before each batch; an orderly stop pauses the query here."""

    def start(self, query_id: str) -> None:
        """Allow batches to run: the id of the query is known."""
        self._query_id = query_id
        self._started.set()

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Process one micro-batch; Spark commits it when this returns."""
        self.pause_point()
        self._started.wait()
        started = time.monotonic()
        sink = self._open(batch.sparkSession) if self._sink is None else self._sink
        incomplete = 0
        if self._images is Images.UPSERT:
            self._write_upserts(sink, batch, batch_id)
        else:
            incomplete = self._write_changelog(sink, batch, batch_id)
        seconds = time.monotonic() - started
        self._status.batch_applied(batch_id, seconds, incomplete)
        log.info("batch applied", batch=batch_id, seconds=round(seconds, 3), splits_incomplete=incomplete)

    def close(self) -> None:
        """Close the sink; no batch may run any more."""
        if self._sink is not None:
            self._sink.close()

    def _open(self, spark: SparkSession) -> Sink:
        _tune(spark)
        runs = SnapshotRuns(ControlTopic(watermarks_topic(self._prefix), self._client))
        context = SinkContext(query_id=self._query_id, prefix=self._prefix, client=self._client, runs=runs)
        self._sink = self._open_sink(spark, context)
        return self._sink

    def _table_topics(self, topics: set[str]) -> list[str]:
        return sorted(topics - {watermarks_topic(self._prefix)})

    def _topics_of(self, raw: DataFrame) -> list[str]:
        rows = raw.where(fn.col("value").isNotNull()).groupBy("topic").count().collect()
        return self._table_topics({row["topic"] for row in rows})

    def _write_upserts(self, sink: Sink, batch: DataFrame, batch_id: int) -> None:
        spark = batch.sparkSession
        topics = topics_of_batch(spark, self._checkpoint, batch_id)
        tables = None if topics is None else self._table_topics(topics)
        cached = tables is None or len(tables) > 1
        if cached:
            batch.persist(_LEVEL)
        try:
            if tables is None or cached:
                tables = self._topics_of(batch)
            if tables:
                self._schemas.refresh(spark)
            # One table with one schema reads the raw records once, so only its decoded records need a cache.
            if not cached and any(len(self._schemas.versions(topic)) > 1 for topic in tables):
                batch.persist(_LEVEL)
                cached = True
            self._write_tables(sink, batch, tables, batch_id)
        finally:
            if cached:
                batch.unpersist()

    def _write_tables(self, sink: Sink, raw: DataFrame, topics: list[str], batch_id: int) -> None:
        for topic in topics:
            schema, rows = self._decode(raw, topic)
            decoded = rows.persist(_LEVEL)
            try:
                with run_in_background(raw.sparkSession, partial(sink.prepare_table, schema)):
                    stats = summarize(decoded)
                if stats:
                    sink.write_batch(TableBatch(schema, decoded, stats), batch_id)
                newest = max((stat.newest_ms for stat in stats if stat.newest_ms is not None), default=None)
                self._status.table_applied(topic, sum(stat.rows + stat.changes for stat in stats), newest)
            finally:
                decoded.unpersist()

    def _decode(self, raw: DataFrame, topic: str) -> tuple[TableSchema, DataFrame]:
        own = raw.where(fn.col("topic") == topic)
        return decode_versions(own, schemas_in(own, topic, self._schemas), self._images)

    def _write_changelog(self, sink: Sink, raw: DataFrame, batch_id: int) -> int:
        """Resolve complete splits, carry over the others, write the changelog; return how many are incomplete."""
        spark = raw.sparkSession
        self._carry_over.clean(spark, batch_id)
        records = raw.unionByName(self._carry_over.read(spark, batch_id)).persist(_LEVEL)
        tables: list[tuple[TableSchema, DataFrame]] = []
        try:
            topics = self._topics_of(records)
            if topics:
                self._schemas.refresh(spark)
            for topic in topics:
                schema, decoded = self._decode(records, topic)
                tables.append((schema, decoded.persist(_LEVEL)))
            stats = [stat for _, decoded in tables for stat in summarize(decoded)]
            completeness = check_completeness(stats, self._end_watermarks(records))
            self._carry_over.write(self._held(records, completeness), spark, batch_id)
            for schema, decoded in tables:
                ready, _ = hold_incomplete(decoded, completeness.incomplete)
                rows = to_changelog(resolve_splits(ready, completeness.high)).persist(_LEVEL)
                try:
                    self._write_changelog_rows(sink, schema, rows, batch_id)
                finally:
                    rows.unpersist()
            return len(completeness.incomplete)
        finally:
            for _, decoded in tables:
                decoded.unpersist()
            records.unpersist()

    def _write_changelog_rows(self, sink: Sink, schema: TableSchema, rows: DataFrame, batch_id: int) -> None:
        totals = rows.agg(fn.count("*").alias("rows"), fn.max("ts_ms").alias("newest")).collect()[0]
        if totals["rows"]:
            sink.write_batch(TableBatch(schema, rows), batch_id)
        self._status.table_applied(schema.topic, totals["rows"], totals["newest"])

    def _end_watermarks(self, records: DataFrame) -> list[Watermark]:
        """Return the END watermarks; those of incremental snapshots are ignored, because no record waits for them."""
        kind = fn.get_json_object(fn.col("value").cast("string"), "$.kind")
        is_end = (fn.col("topic") == watermarks_topic(self._prefix)) & (kind == WatermarkKind.END.value)
        values = records.where(is_end).select("value").collect()
        ends = [Watermark.from_json(bytes(row["value"])) for row in values]
        return [end for end in ends if not end.incremental]

    def _held(self, records: DataFrame, completeness: SplitCompleteness) -> DataFrame | None:
        """Return the raw records to carry over: held records, and END watermarks whose records are not all there."""
        is_control = fn.col("topic") == watermarks_topic(self._prefix)
        held: DataFrame | None = None
        if completeness.incomplete:
            rows = records.where(~is_control & fn.col("value").isNotNull())
            _, held = hold_incomplete(rows, completeness.incomplete, scope=("topic",))
        if completeness.pending:
            split = fn.get_json_object(fn.col("value").cast("string"), "$.split")
            kind = fn.get_json_object(fn.col("value").cast("string"), "$.kind")
            pending = [end.split for end in completeness.pending]
            ends = records.where(is_control & (kind == WatermarkKind.END.value) & split.isin(pending))
            held = ends if held is None else held.unionByName(ends)
        return held


def _tune(spark: SparkSession) -> None:
    """Change defaults of Spark that do not suit this query."""
    # Names of columns and tables are part of SQL statements: ``${env:NAME}`` in one must stay a name.
    spark.conf.set("spark.sql.variable.substitute", "false")
    # Streaming disables adaptive execution because of stateful plans; the jobs of a batch are ordinary batch jobs.
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    # Cached rows live for one batch: compression costs more than the memory it saves. What does not fit is spilled.
    spark.conf.set("spark.sql.inMemoryColumnarStorage.compressed", "false")
    if spark.conf.get("spark.sql.shuffle.partitions") == "200":
        spark.conf.set("spark.sql.shuffle.partitions", str(2 * spark.sparkContext.defaultParallelism))
