"""What the tables of a query share: what is known of its topics, and what its sinks are opened with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from tailrace.schemas.names import schemas_topic, watermarks_topic
from tailrace.spark_consumer.images import MetadataField
from tailrace.spark_consumer.monitor.status import Phases
from tailrace.spark_consumer.normalize.stored_records import CarryOver, RememberedDeletes
from tailrace.spark_consumer.normalize.table_state import TableStates
from tailrace.spark_consumer.sink.base import Sink, SinkContext
from tailrace.spark_consumer.sink.routing import QuerySink, TableSinks
from tailrace.spark_consumer.sink.state import Shard
from tailrace.spark_consumer.source.control import ControlTopic
from tailrace.spark_consumer.source.formats.record_format import record_format
from tailrace.spark_consumer.source.formats.registry import FormatSettings
from tailrace.spark_consumer.source.group_reader import SharedReads
from tailrace.spark_consumer.source.kafka import READ_COMMITTED, range_options
from tailrace.spark_consumer.source.kafka_admin import SharedAdmin, TopicIds, TopicPolicies
from tailrace.spark_consumer.source.schema_tracker import SchemaTracker
from tailrace.spark_consumer.source.watermarks import SnapshotRuns, SplitEnds
from tailrace.spark_consumer.tables.driver_decoder import DriverTables
from tailrace.spark_consumer.tables.reading import DeadLetters, Reading
from tailrace.spark_consumer.tables.snapshot import Snapshots
from tailrace.spark_consumer.transform.rules import Rules
from tailrace.spark_consumer.transform.transforms import Transforms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    accept_incomplete: bool = False
    """Whether a table goes on if its topic lacks records of its snapshot."""
    format: FormatSettings | None = None
    """How records are written; None: as Tailrace does by default."""
    dead_letter_topic: str | None = None
    """The topic that takes bad records; None: a bad record stops its table."""
    retry_s: float = 0
    """Seconds after which a parked table is tried again; 0: at the next start."""
    rules: Rules = field(default_factory=Rules)
    """Transforms and routes of tables."""
    max_offsets: int = 2_000_000
    """The size of a batch, and of the chunks in which the backlog of a table is read."""
    max_bytes: int = 2 << 30
    """About how many bytes of records of a table are processed at once."""
    table_threads: int | None = None
    """Tables that are processed at the same time; None: one per core, at least two."""


class StoredTables:
    """What the checkpoint has of tables, besides the positions of those that are parked."""

    def __init__(self, checkpoint: str) -> None:
        self.states = TableStates(checkpoint)
        self.carry_over = CarryOver(checkpoint)
        self.deletes = RememberedDeletes(checkpoint)


@dataclass(frozen=True, slots=True)
class Writing:
    """A sink, and what is done with rows before it gets them."""

    sink: Sink
    transforms: Transforms
    fields: tuple[MetadataField, ...] = ()
    """Fields of the envelope that the sink stores as metadata columns."""
    in_driver: DriverTables = field(default_factory=DriverTables)


@dataclass(frozen=True, slots=True)
class TableServices:
    """What the tables of one sink share; every member is safe to use from several threads."""

    reading: Reading
    snapshots: Snapshots
    stored: StoredTables
    writing: Writing
    phases: Phases

    @contextmanager
    def phase(self, spark: SparkSession, topic: str, name: str) -> Iterator[None]:
        """Measure the block, and name its jobs in Spark's user interface."""
        spark.sparkContext.setJobDescription(f"{topic}: {name}")
        with self.phases.measure(f"table.{name}"):
            yield


class QueryServices:
    """Opens the sinks of a query once, with the first batch; safe to use from several threads."""

    def __init__(self, settings: PipelineSettings, sinks: Sequence[QuerySink], phases: Phases) -> None:
        self._settings = settings
        self._phases = phases
        self._admin = SharedAdmin(settings.client)
        self.ids = TopicIds(self._admin)
        self.policies = TopicPolicies(self._admin)
        watermarks = watermarks_topic(settings.prefix)
        self.runs = SnapshotRuns(self._control(watermarks))
        self.ends = SplitEnds(self._control(watermarks, READ_COMMITTED))
        self.schemas = SchemaTracker(self._control(schemas_topic(settings.prefix)))
        self.stored = StoredTables(settings.checkpoint)
        self.sinks = TableSinks(sinks, settings.prefix, settings.checkpoint)
        self._transforms: Transforms | None = None
        self._reading: Reading | None = None

    def transforms(self, spark: SparkSession) -> Transforms:
        """Return the transforms, made with a session of their own, before anything else uses them."""
        if self._transforms is None:
            self._transforms = Transforms(spark, self._settings.rules, self.schemas, self.sinks.router)
        return self._transforms

    def open(self, spark: SparkSession, query_id: str) -> Mapping[str, TableServices]:
        """Open the sinks; return the services of the tables by the name of the sink. Called once."""
        _tune(spark)
        settings, letters = self._settings, self._settings.dead_letter_topic
        transforms = self.transforms(spark)
        source = range_options(client=settings.client, query_id=query_id, extra=settings.source)
        self._reading = reading = Reading(
            source,
            self.schemas,
            record_format(settings.format),
            is_compacted=self.policies.is_compacted,
            topic_id=self.ids.get,
            shared=SharedReads(source),
            dead_letters=DeadLetters(letters, settings.client, source) if letters else None,
        )
        snapshots = Snapshots(reading, self.ends, self.runs, settings.accept_incomplete)
        context = SinkContext(
            query_id=query_id,
            prefix=settings.prefix,
            client=settings.client,
            runs=self.runs,
            alterations=transforms.alterations,
            shard=partial(_shard, transforms),
            topic_id=self.ids.get,
        )
        fields = {sink.name: sink.plugin.fields(sink.options) for sink in self.sinks.router.sinks}
        return {
            name: TableServices(reading, snapshots, self.stored, Writing(sink, transforms, fields[name]), self._phases)
            for name, sink in self.sinks.open(spark, context).items()
        }

    def close(self) -> None:
        """Close the sinks and the clients of Kafka; nothing may use them any more."""
        try:
            self.sinks.close()
        finally:
            if self._reading is not None and self._reading.shared is not None:
                self._reading.shared.close()
            self._admin.close()

    def _control(self, topic: str, isolation: str = "read_uncommitted") -> ControlTopic:
        """Return a control topic; topics that another connector writes have none."""
        optional = self._settings.format is not None
        return ControlTopic(topic, self._settings.client, isolation, optional=optional, admin=self._admin)


def _shard(transforms: Transforms, topic: str) -> Shard | None:
    values = transforms.shard(topic)
    return Shard(topic, tuple(values.items())) if values else None


def _tune(spark: SparkSession) -> None:
    # Names of columns and tables are part of SQL statements: ``${env:NAME}`` in one must stay a name.
    spark.conf.set("spark.sql.variable.substitute", "false")
    # Streaming disables adaptive execution because of stateful plans; the jobs of a batch are ordinary batch jobs.
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    # Otherwise each ``persist`` clones the session to turn it off, or to keep the partitions of a cached exchange.
    spark.conf.set("spark.sql.sources.bucketing.autoBucketedScan.enabled", "false")
    spark.conf.set("spark.sql.optimizer.canChangeCachedPlanOutputPartitioning", "true")
    # Cached rows live for one batch: compression costs more than the memory it saves. What does not fit is spilled.
    spark.conf.set("spark.sql.inMemoryColumnarStorage.compressed", "false")
    # The first implementation of the Kafka source in Spark converts each record to a row object and back.
    first = spark.conf.get(_FIRST_SOURCES) or ""
    spark.conf.set(_FIRST_SOURCES, ",".join(name for name in first.split(",") if name.strip() != "kafka"))
