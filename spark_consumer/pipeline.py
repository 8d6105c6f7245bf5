"""Processes one micro-batch: the offset ranges of the batch, the work of each table, the result."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog
from pyspark.sql import functions as fn

from tailrace.schemas.names import schemas_topic, watermarks_topic
from tailrace.schemas.watermark import Watermark, WatermarkKind
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.monitor.status import Status
from tailrace.spark_consumer.normalize.carry_over import CarryOver
from tailrace.spark_consumer.sink.base import Sink, SinkContext
from tailrace.spark_consumer.source.control import ControlTopic
from tailrace.spark_consumer.source.formats.select import record_format
from tailrace.spark_consumer.source.formats.settings import FormatSettings
from tailrace.spark_consumer.source.kafka import range_options
from tailrace.spark_consumer.source.ranges import ranges_of_batch
from tailrace.spark_consumer.source.runs import SnapshotRuns
from tailrace.spark_consumer.source.schema_tracker import SchemaTracker
from tailrace.spark_consumer.tables.base import TableResult, TableServices, TableWork
from tailrace.spark_consumer.tables.changelog import ChangelogTable
from tailrace.spark_consumer.tables.pool import TablePool
from tailrace.spark_consumer.tables.upsert import UpsertTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = structlog.get_logger(__name__)

_MAX_THREADS: Final = 32
_FIRST_SOURCES: Final = "spark.sql.sources.useV1SourceList"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSettings:
    """What a pipeline needs to know about its query."""

    prefix: str
    client: Mapping[str, str]
    """Kafka client options, with their ``kafka.`` prefix."""
    source: Mapping[str, str]
    """Further options of Spark's Kafka source."""
    checkpoint: str
    images: Images
    format: FormatSettings | None = None
    """How records are written; None: as Tailrace does by default."""
    table_threads: int | None = None
    """Tables that are processed at the same time; None: one per core, at least two."""


class Pipeline:
    """The function for foreachBatch; one per query."""

    def __init__(
        self,
        settings: PipelineSettings,
        open_sink: Callable[[SparkSession, SinkContext], Sink],
        status: Status,
    ) -> None:
        self._settings = settings
        self._open_sink = open_sink
        self._status = status
        self._services: TableServices | None = None
        self._pool: TablePool | None = None
        self._query_id = ""
        self._started = threading.Event()
        self.pause_point: Callable[[], None] = lambda: None
        """Called before each batch; an orderly stop pauses the query here."""

    def start(self, query_id: str) -> None:
        """Allow batches to run: the id of the query is known."""
        self._query_id = query_id
        self._started.set()

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Process one micro-batch; Spark commits it when this returns. The records of ``batch`` are not read."""
        self.pause_point()
        self._started.wait()
        started = time.monotonic()
        spark = batch.sparkSession
        if self._services is None or self._pool is None:
            self._services, self._pool = self._open(spark)
        works = self._works(spark, self._services, batch_id)
        if works:
            self._services.schemas.refresh(spark)
        errors = self._pool.run(works, self._applied)
        for error in errors.values():
            raise error
        seconds = time.monotonic() - started
        self._status.batch_applied(batch_id, seconds)
        log.info("batch applied", batch=batch_id, tables=len(works), seconds=round(seconds, 3))

    def close(self) -> None:
        """Close the sink; no batch may run any more."""
        if self._services is not None:
            self._services.sink.close()

    def _open(self, spark: SparkSession) -> tuple[TableServices, TablePool]:
        _tune(spark)
        settings = self._settings
        runs = SnapshotRuns(self._control(watermarks_topic(settings.prefix)))
        context = SinkContext(query_id=self._query_id, prefix=settings.prefix, client=settings.client, runs=runs)
        services = TableServices(
            source=range_options(client=settings.client, query_id=self._query_id, extra=settings.source),
            sink=self._open_sink(spark, context),
            schemas=SchemaTracker(self._control(schemas_topic(settings.prefix))),
            carry_over=CarryOver(settings.checkpoint),
            format=record_format(settings.format),
        )
        cores = int(spark.sparkContext.defaultParallelism)
        threads = settings.table_threads or min(max(2, cores), _MAX_THREADS)
        return services, TablePool(spark, threads)

    def _control(self, topic: str) -> ControlTopic:
        """Return a control topic; topics that another connector writes have none."""
        return ControlTopic(topic, self._settings.client, optional=self._settings.format is not None)

    def _works(self, spark: SparkSession, services: TableServices, batch_id: int) -> list[TableWork]:
        ranges = ranges_of_batch(spark, self._settings.checkpoint, batch_id)
        watermarks = ranges.pop(watermarks_topic(self._settings.prefix), None)
        if self._settings.images is Images.UPSERT:
            return [UpsertTable(services, found, batch_id) for found in ranges.values()]
        ends = {} if watermarks is None else _end_watermarks(services.read(spark, watermarks))
        return [
            ChangelogTable(services, topic, ranges.get(topic), ends.get(topic, ()), batch_id)
            for topic in ranges.keys() | ends.keys()
        ]

    def _applied(self, work: TableWork, result: TableResult) -> None:
        self._status.table_applied(work.topic, result.records, result.newest_ms, result.incomplete)


def _end_watermarks(records: DataFrame) -> dict[str, list[Watermark]]:
    """Return the END watermarks by topic; those of incremental snapshots are ignored: no record waits for them."""
    kind = fn.get_json_object(fn.col("value").cast("string"), "$.kind")
    found: dict[str, list[Watermark]] = {}
    for row in records.where(kind == WatermarkKind.END.value).select("value").collect():
        end = Watermark.from_json(bytes(row["value"]))
        if not end.incremental:
            found.setdefault(end.topic, []).append(end)
    return found


def _tune(spark: SparkSession) -> None:
    """Change defaults of Spark that do not suit this query."""
    # Names of columns and tables are part of SQL statements: ``${env:NAME}`` in one must stay a name.
    spark.conf.set("spark.sql.variable.substitute", "false")
    # Streaming disables adaptive execution because of stateful plans; the jobs of a batch are ordinary batch jobs.
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    # Cached rows live for one batch: compression costs more than the memory it saves. What does not fit is spilled.
    spark.conf.set("spark.sql.inMemoryColumnarStorage.compressed", "false")
    # The first implementation of the Kafka source in Spark converts each record to a row object and back.
    first = spark.conf.get(_FIRST_SOURCES) or ""
    spark.conf.set(_FIRST_SOURCES, ",".join(name for name in first.split(",") if name.strip() != "kafka"))
    if spark.conf.get("spark.sql.shuffle.partitions") == "200":
        spark.conf.set("spark.sql.shuffle.partitions", str(2 * spark.sparkContext.defaultParallelism))
