"""What happens to one micro-batch: read once, part by table, decode, normalize where the sink wants it, apply."""

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
from tailrace.spark_consumer.monitor.status import Status
from tailrace.spark_consumer.normalize.carry_over import CarryOver
from tailrace.spark_consumer.normalize.split_resolution import (
    SplitCompleteness,
    check_completeness,
    hold_incomplete,
    resolve_splits,
)
from tailrace.spark_consumer.normalize.summary import summarize
from tailrace.spark_consumer.sink.base import Sink, SinkContext, TableBatch
from tailrace.spark_consumer.source.control import ControlTopic
from tailrace.spark_consumer.source.json_decoder import Images, decode
from tailrace.spark_consumer.source.offsets import topics_of_batch
from tailrace.spark_consumer.source.runs import SnapshotRuns
from tailrace.spark_consumer.source.schema_tracker import SchemaTracker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from tailrace.schemas.table import TableSchema

log = structlog.get_logger(__name__)

_LEVEL = StorageLevel.MEMORY_AND_DISK


class Pipeline:
    """The function of foreachBatch; one per query."""

    def __init__(self, *, prefix: str, client: Mapping[str, str], sink: Sink, checkpoint: str, status: Status) -> None:
        self._prefix = prefix
        self._sink = sink
        self._status = status
        self._schemas = SchemaTracker(ControlTopic(schemas_topic(prefix), client))
        self._runs = SnapshotRuns(ControlTopic(watermarks_topic(prefix), client))
        self._checkpoint = checkpoint
        self._carry = CarryOver(checkpoint)
        self._query_id = ""
        self._started = threading.Event()
        self._prepared = False
        self.gate: Callable[[], None] = lambda: None
        """Called before a batch begins; an orderly stop holds the query here."""

    def start(self, query_id: str) -> None:
        """Let batches begin: the query's id is known."""
        self._query_id = query_id
        self._started.set()

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Apply one micro-batch; when this returns, Spark commits it."""
        self.gate()
        self._started.wait()
        begun = time.monotonic()
        spark = batch.sparkSession
        if not self._prepared:
            _tune(spark)
            context = SinkContext(query_id=self._query_id, prefix=self._prefix, runs=self._runs)
            self._sink.prepare(spark, context)
            self._prepared = True
        incomplete = 0
        if self._sink.images is Images.UPSERT:
            self._upserts(batch, batch_id)
        else:
            incomplete = self._changelog(batch, batch_id)
        seconds = time.monotonic() - begun
        self._status.batch_applied(batch_id, seconds, incomplete)
        log.info("batch", batch=batch_id, seconds=round(seconds, 3), incomplete=incomplete)

    def _topics(self, raw: DataFrame) -> list[str]:
        rows = raw.where(fn.col("value").isNotNull()).groupBy("topic").count().collect()
        return self._data_topics({row["topic"] for row in rows})

    def _data_topics(self, topics: set[str]) -> list[str]:
        return sorted(topics - {watermarks_topic(self._prefix)})

    def _upserts(self, batch: DataFrame, batch_id: int) -> None:
        moved = topics_of_batch(batch.sparkSession, self._checkpoint, batch_id)
        if moved is not None and len(self._data_topics(moved)) <= 1:
            # Of one table nothing but the decoded records is needed twice.
            self._each_upsert(batch, self._data_topics(moved), batch_id)
            return
        raw = batch.persist(_LEVEL)
        try:
            self._each_upsert(raw, self._topics(raw), batch_id)
        finally:
            raw.unpersist()

    def _each_upsert(self, raw: DataFrame, topics: list[str], batch_id: int) -> None:
        if topics:
            self._schemas.refresh(raw.sparkSession)
        for topic in topics:
            schema = self._schemas.get(topic)
            decoded = decode(raw.where(fn.col("topic") == topic), schema, Images.UPSERT).persist(_LEVEL)
            try:
                with run_in_background(raw.sparkSession, partial(self._sink.make_ready, raw.sparkSession, schema)):
                    facts = summarize(decoded)
                if facts:
                    self._sink.apply(TableBatch(schema, decoded, facts), batch_id)
                newest = max((fact.newest_ms for fact in facts if fact.newest_ms is not None), default=None)
                self._status.table_applied(topic, sum(fact.rows + fact.changes for fact in facts), newest)
            finally:
                decoded.unpersist()

    def _changelog(self, raw: DataFrame, batch_id: int) -> int:
        """Complete what can be completed, carry the rest over, and hand the changelog on."""
        spark = raw.sparkSession
        self._carry.clean(spark, batch_id)
        everything = raw.unionByName(self._carry.read(spark, batch_id)).persist(_LEVEL)
        tables: list[tuple[TableSchema, DataFrame]] = []
        try:
            topics = self._topics(everything)
            if topics:
                self._schemas.refresh(spark)
            for topic in topics:
                schema = self._schemas.get(topic)
                decoded = decode(everything.where(fn.col("topic") == topic), schema, Images.CHANGELOG)
                tables.append((schema, decoded.persist(_LEVEL)))
            facts = [fact for _, decoded in tables for fact in summarize(decoded)]
            verdict = check_completeness(facts, self._ends(everything))
            self._carry.write(self._left_over(everything, verdict), spark, batch_id)
            for schema, decoded in tables:
                ready, _ = hold_incomplete(decoded, verdict.incomplete)
                rows = to_changelog(resolve_splits(ready, verdict.high)).persist(_LEVEL)
                try:
                    self._apply(schema, rows, batch_id)
                finally:
                    rows.unpersist()
            return len(verdict.incomplete)
        finally:
            for _, decoded in tables:
                decoded.unpersist()
            everything.unpersist()

    def _ends(self, everything: DataFrame) -> list[Watermark]:
        kind = fn.get_json_object(fn.col("value").cast("string"), "$.kind")
        marks = everything.where(
            (fn.col("topic") == watermarks_topic(self._prefix)) & (kind == WatermarkKind.END.value)
        )
        ends = [Watermark.from_json(bytes(row["value"])) for row in marks.select("value").collect()]
        return [end for end in ends if not end.incremental]  # those name no record that has to wait

    def _left_over(self, everything: DataFrame, verdict: SplitCompleteness) -> DataFrame | None:
        """Return the raw records for the next batch: held ones, and END records of splits still waited for."""
        control = fn.col("topic") == watermarks_topic(self._prefix)
        left: DataFrame | None = None
        if verdict.incomplete:
            records = everything.where(~control & fn.col("value").isNotNull())
            _, left = hold_incomplete(records, verdict.incomplete, scope=("topic",))
        if verdict.pending:
            split = fn.get_json_object(fn.col("value").cast("string"), "$.split")
            kind = fn.get_json_object(fn.col("value").cast("string"), "$.kind")
            waiting = [end.split for end in verdict.pending]
            ends = everything.where(control & (kind == WatermarkKind.END.value) & split.isin(waiting))
            left = ends if left is None else left.unionByName(ends)
        return left

    def _apply(self, schema: TableSchema, rows: DataFrame, batch_id: int) -> None:
        facts = rows.agg(fn.count("*").alias("n"), fn.max("ts_ms").alias("newest")).collect()[0]
        if facts["n"]:
            self._sink.apply(TableBatch(schema, rows), batch_id)
        self._status.table_applied(schema.topic, facts["n"], facts["newest"])


def _tune(spark: SparkSession) -> None:
    """Set, for this query's session, what Spark switches off or sets for large clusters."""
    # Streaming switches adaptive execution off for its stateful plans; the jobs of a batch are ordinary ones.
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    # Cached rows live for one batch: packing them costs more than the memory it saves, and what does not fit spills.
    spark.conf.set("spark.sql.inMemoryColumnarStorage.compressed", "false")
    if spark.conf.get("spark.sql.shuffle.partitions") == "200":
        spark.conf.set("spark.sql.shuffle.partitions", str(2 * spark.sparkContext.defaultParallelism))
