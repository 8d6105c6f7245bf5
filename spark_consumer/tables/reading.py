"""How the tables of a query read and decode their records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.metadata_fields import MetadataField
from tailrace.spark_consumer.normalize.tombstones import with_deletes_of_tombstones
from tailrace.spark_consumer.small_data import SMALL_OFFSETS
from tailrace.spark_consumer.source.formats.record_format import RecordFormat
from tailrace.spark_consumer.source.kafka import read_range
from tailrace.spark_consumer.source.raw_rows import RawRows
from tailrace.spark_consumer.source.schema_tracker import SchemaTracker
from tailrace.spark_consumer.source.topic_ids import unknown_id
from tailrace.spark_consumer.source.version_decoder import decode_versions
from tailrace.spark_consumer.tables.bad_record import DeadLetters
from tailrace.spark_consumer.tables.shared_read import SharedReads

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tailrace.schemas.sequence import Sequence
    from tailrace.schemas.table import TableSchema
    from tailrace.spark_consumer.source.ranges import TopicRange


@dataclass(frozen=True, slots=True)
class Reading:
    """The source of all tables of a query; every member is safe to use from several threads."""

    source: Mapping[str, str]
    """Options of the Kafka source (``range_options``)."""
    schemas: SchemaTracker
    format: RecordFormat
    is_compacted: Callable[[str], bool] = lambda _topic: False
    """Whether Kafka compacts a topic."""
    topic_id: Callable[[str], str] = unknown_id
    """Kafka's id of a topic; empty if it is not known."""
    shared: SharedReads | None = None
    """Has records of several tables that were read together."""
    dead_letters: DeadLetters | None = None
    """Takes bad records; None: a bad record stops its table."""

    def read(self, spark: SparkSession, found: TopicRange) -> DataFrame:
        """Return the raw records of a range."""
        shared = None if self.shared is None else self.shared.records(found)
        records = read_range(spark, self.source, found) if shared is None else shared
        if found.offsets <= SMALL_OFFSETS:
            # One task: no step of the batch exchanges records between tasks.
            records = records.coalesce(1)
        return records if self.dead_letters is None else self.dead_letters.left(records, found)

    def without_bad(self, records: DataFrame, topic: str) -> DataFrame:
        """Return raw records of any ranges without those that the dead letters have."""
        return records if self.dead_letters is None else self.dead_letters.without(records, topic)

    def rows_in_driver(self, found: TopicRange) -> RawRows | None:
        """Return the raw records of a range in the driver; None if they are not there, or if some are left out."""
        if self.shared is None or (self.dead_letters is not None and self.dead_letters.has(found.topic)):
            return None
        return self.shared.in_driver(found)

    def decode(
        self, raw: DataFrame, topic: str, images: Images, fields: tuple[MetadataField, ...]
    ) -> tuple[TableSchema, DataFrame]:
        """Decode the records of one topic; return the schema and the rows (json_decoder.py)."""
        found = self.format.resolve(raw, topic, self.schemas)
        alterations = self.schemas.alterations(topic)
        return decode_versions(found.records, found.schemas, images, alterations, read=found.read, fields=fields)

    def with_tombstones(
        self, raw: DataFrame, decoded: DataFrame, schema: TableSchema, found: TopicRange, passed: Mapping[int, Sequence]
    ) -> DataFrame:
        """Return the decoded records of a range for an upsert: in a compacted topic a tombstone can be a delete."""
        if not self.is_compacted(found.topic):
            return decoded
        records = self.format.resolve(raw, found.topic, self.schemas).records
        return with_deletes_of_tombstones(records, decoded, schema, found, passed)

    def newest_schema(self, spark: SparkSession, found: TopicRange) -> TableSchema:
        """Return the newest known schema of a topic; records of the range are read if none is known."""
        known = self.format.known_schema(found.topic, self.schemas)
        if known is not None:
            return known
        return self.format.resolve(self.read(spark, found), found.topic, self.schemas).schemas[-1]

    def reads_twice(self, topic: str) -> bool:
        """Return whether ``decode`` reads the records of a topic more than once, so that a cache of them pays."""
        return self.format.finds_schemas or self.is_compacted(topic) or len(self.schemas.versions(topic)) > 1
