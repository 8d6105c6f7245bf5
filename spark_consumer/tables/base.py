"""A table in a batch: the unit of work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark.storagelevel import StorageLevel

from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.metadata_fields import MetadataField
from tailrace.spark_consumer.monitor.phases import Phases
from tailrace.spark_consumer.monitor.table_result import SnapshotStatus, TableResult
from tailrace.spark_consumer.normalize.carry_over import CarryOver
from tailrace.spark_consumer.normalize.moved_keys import RememberedDeletes
from tailrace.spark_consumer.normalize.split_progress import SplitProgress
from tailrace.spark_consumer.normalize.table_state import TableState, TableStates
from tailrace.spark_consumer.normalize.tombstones import with_deletes_of_tombstones
from tailrace.spark_consumer.sink.base import Sink
from tailrace.spark_consumer.small_data import SMALL_OFFSETS
from tailrace.spark_consumer.source.formats.record_format import RecordFormat
from tailrace.spark_consumer.source.kafka import read_range
from tailrace.spark_consumer.source.raw_rows import RawRows
from tailrace.spark_consumer.source.runs import SnapshotRuns
from tailrace.spark_consumer.source.schema_tracker import SchemaTracker
from tailrace.spark_consumer.source.split_ends import SplitEnds
from tailrace.spark_consumer.source.topic_ends import beginning_offsets, end_offsets
from tailrace.spark_consumer.source.topic_ids import unknown_id
from tailrace.spark_consumer.source.version_decoder import decode_versions
from tailrace.spark_consumer.tables.bad_record import DeadLetters
from tailrace.spark_consumer.tables.driver_decoder import DriverTables
from tailrace.spark_consumer.tables.reasons import ends_too_early
from tailrace.spark_consumer.tables.shared_read import SharedReads
from tailrace.spark_consumer.transform.table_transform import TableTransform
from tailrace.spark_consumer.transform.transforms import Transforms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tailrace.schemas.sequence import Sequence
    from tailrace.schemas.table import TableSchema
    from tailrace.spark_consumer.source.ranges import TopicRange

CACHE: Final = StorageLevel.MEMORY_AND_DISK_DESER
"""As objects: they are arrays of bytes by column, which other levels would copy into one when they are cached, and out
of it when they are read."""


@dataclass(frozen=True, slots=True)
class TableServices:
    """What all tables of a query share; every member is safe to use from several threads."""

    source: Mapping[str, str]
    """Options of the Kafka source (``range_options``)."""
    sink: Sink
    schemas: SchemaTracker
    ends: SplitEnds
    states: TableStates
    carry_over: CarryOver
    deletes: RememberedDeletes
    format: RecordFormat

    runs: SnapshotRuns | None = None
    """Tells how many partitions a topic had; None: not known."""
    transforms: Transforms | None = None
    """What is done with rows before the sink gets them; None: nothing."""
    is_compacted: Callable[[str], bool] = lambda _topic: False
    """Whether Kafka compacts a topic."""
    topic_id: Callable[[str], str] = unknown_id
    """Kafka's id of a topic; empty if it is not known."""
    phases: Phases = field(default_factory=Phases)
    accept_incomplete: bool = False
    """Whether a table goes on if its topic lacks records of its snapshot."""
    fields: tuple[MetadataField, ...] = ()
    """Fields of the envelope that the sink stores as metadata columns."""
    shared: SharedReads | None = None
    """Has records of several tables that were read together."""
    in_driver: DriverTables = field(default_factory=DriverTables)
    dead_letters: DeadLetters | None = None
    """Takes bad records; None: a bad record stops its table."""

    @contextmanager
    def phase(self, spark: SparkSession, topic: str, name: str) -> Iterator[None]:
        """Measure the block, and name its jobs in Spark's user interface."""
        spark.sparkContext.setJobDescription(f"{topic}: {name}")
        with self.phases.measure(f"table.{name}"):
            yield

    def snapshot_status(self, topic: str, progress: SplitProgress) -> SnapshotStatus:
        """Return how far the snapshot of a topic has been read."""
        return progress.status(self.ends.pending(topic).values())

    def read(self, spark: SparkSession, found: TopicRange) -> DataFrame:
        """Return the raw records of a range."""
        shared = None if self.shared is None else self.shared.records(found)
        records = read_range(spark, self.source, found) if shared is None else shared
        if found.offsets <= SMALL_OFFSETS:
            # One task: no step of the batch exchanges records between tasks.
            records = records.coalesce(1)
        return records if self.dead_letters is None else self.dead_letters.left(records, found)

    def rows_in_driver(self, found: TopicRange) -> RawRows | None:
        """Return the raw records of a range in the driver; None if they are not there, or if some are left out."""
        if self.shared is None or (self.dead_letters is not None and self.dead_letters.has(found.topic)):
            return None
        return self.shared.in_driver(found)

    def end_offsets(self, spark: SparkSession, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Return the end offsets that a topic has now."""
        return end_offsets(spark, self.source, topic, partitions)

    def beginning_offsets(self, spark: SparkSession, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Return the first offsets that a topic has now."""
        return beginning_offsets(spark, self.source, topic, partitions)

    def decode(self, raw: DataFrame, topic: str, images: Images) -> tuple[TableSchema, DataFrame]:
        """Decode the records of one topic; return the schema and the rows (json_decoder.py)."""
        found = self.format.resolve(raw, topic, self.schemas)
        alterations = self.schemas.alterations(topic)
        return decode_versions(found.records, found.schemas, images, alterations, read=found.read, fields=self.fields)

    def decode_compacted(
        self, raw: DataFrame, found: TopicRange, images: Images, passed: Mapping[int, Sequence]
    ) -> tuple[TableSchema, DataFrame]:
        """Decode the records of one topic for an upsert; a tombstone can be a delete (tombstones.py)."""
        schema, decoded = self.decode(raw, found.topic, images)
        if not self.is_compacted(found.topic):
            return schema, decoded
        records = self.format.resolve(raw, found.topic, self.schemas).records
        return schema, with_deletes_of_tombstones(records, decoded, schema, found, passed)

    def transform(self, schema: TableSchema) -> TableTransform:
        """Return what is done with decoded records of a schema. Raises TransformError."""
        return TableTransform(schema, schema) if self.transforms is None else self.transforms.of(schema)

    def newest_schema(self, spark: SparkSession, found: TopicRange) -> TableSchema:
        """Return the newest known schema of a topic; records of the range are read if none is known."""
        known = self.format.known_schema(found.topic, self.schemas)
        if known is not None:
            return known
        return self.format.resolve(self.read(spark, found), found.topic, self.schemas).schemas[-1]

    def reads_twice(self, topic: str) -> bool:
        """Return whether ``decode`` reads the records of a topic more than once, so that a cache of them pays."""
        return self.format.finds_schemas or self.is_compacted(topic) or len(self.schemas.versions(topic)) > 1


class TableWork(ABC):
    """The work of one table in one batch; ``found`` is None if only END certificates were read."""

    def __init__(
        self,
        services: TableServices,
        topic: str,
        found: TopicRange | None,
        batch_id: int,
        ends: Mapping[int, int],
        *,
        images: Images = Images.UPSERT,
    ) -> None:
        """``ends`` are the offsets of all partitions of the topic at the end of the batch; ``images`` are decoded."""
        self._services = services
        self._topic = topic
        self._range = found
        self._batch_id = batch_id
        self._ends = ends
        self._images = images

    @property
    def topic(self) -> str:
        """The topic of the table."""
        return self._topic

    @property
    def offsets(self) -> int:
        """The number of offsets to read."""
        return self._range.offsets if self._range else 0

    @property
    def found(self) -> TopicRange | None:
        """The offsets to read; None if there are none."""
        return self._range

    def _require_end(self, before: TableState) -> None:
        """Raise an error if the topic ends before offsets that were read; its id tells what it is.

        Sharing a read, and leaving out what the target has applied, must not hide it.
        """
        if self._range is not None and self._range.cut_off:
            read = self._range.cut_off
            ends = {number: self._range.partitions[number].end for number in read}
            raise ends_too_early(self._topic, ends, read, same=self._is_same(before))

    def _is_same(self, before: TableState) -> bool:
        """Return whether the topic has the id of the one that was read before."""
        return before.topic_id == self._services.topic_id(self._topic) != ""

    @property
    def _begins(self) -> Mapping[int, int]:
        """How far each partition is read before the range."""
        return {**self._ends, **(self._range.begins if self._range else {})}

    def _is_whole(self, before: TableState) -> bool:
        """Return whether an earlier batch has read the topic from its beginning (snapshot.check_start)."""
        return before.step >= 0 and not self._services.accept_incomplete

    def _phase(self, spark: SparkSession, name: str) -> AbstractContextManager[None]:
        return self._services.phase(spark, self._topic, name)

    @abstractmethod
    def run(self, spark: SparkSession) -> TableResult:
        """Read, decode and write the records of the table. ``spark`` is a session that no other table uses now."""
