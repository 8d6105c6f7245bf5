"""How the tables of a query read and decode their records, and the topic that takes bad ones.

In a compacted topic, of a delete only the tombstone may be left. A delete event is followed by a tombstone. Kafka
removes the event in time, and later the tombstone too. So in such a topic a tombstone whose key has no delete event
before it is a delete. One that follows a delete event of an earlier batch is applied once more, which changes nothing.
A tombstone has no place in the binlog. It is after every change that was read before it in its partition, and before
every later change of its key: its sequence is the next one after the greatest that the partition had. The state keeps
that number of each partition (``MovedKeys.passed``). A tombstone that other records of its key follow has no effect.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

import structlog
from pyspark.sql import Window
from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.schemas.rowkind import Op
from tailrace.schemas.sequence import Sequence
from tailrace.spark_consumer.images import Images, MetadataField
from tailrace.spark_consumer.small_data import SMALL_OFFSETS
from tailrace.spark_consumer.source.formats.record_format import RecordFormat
from tailrace.spark_consumer.source.group_reader import RawRows, SharedReads
from tailrace.spark_consumer.source.json_decoder import failure_prefix
from tailrace.spark_consumer.source.kafka import load_remedy, read_raw, select_raw
from tailrace.spark_consumer.source.kafka_admin import unknown_id
from tailrace.spark_consumer.source.ranges import OffsetRange, TopicRange
from tailrace.spark_consumer.source.schema_tracker import SchemaTracker
from tailrace.spark_consumer.source.types import SEQUENCE_TYPE, field_type, sequence_literal
from tailrace.spark_consumer.source.version_decoder import decode_versions
from tailrace.spark_consumer.tables.reasons import bad_record

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from tailrace.schemas.sequence import Sequence
    from tailrace.schemas.table import TableSchema
    from tailrace.spark_consumer.source.ranges import TopicRange

_TOMBSTONE: Final = "tombstone"
_NO_POSITION: Final = (
    "it is a tombstone, compaction has removed its delete event, and nothing tells its place among the changes; "
    + load_remedy()
)
_NO_KEY: Final = (
    "it is a tombstone, compaction has removed its delete event, and its key does not match the table schema"
)


def with_deletes_of_tombstones(
    records: DataFrame, decoded: DataFrame, schema: TableSchema, found: TopicRange, passed: Mapping[int, Sequence]
) -> DataFrame:
    """Return the decoded records of a range, and a delete for each tombstone that stands for one.

    ``records`` are the same with tombstones. ``passed``: the greatest sequence of each partition before the range.
    """
    tombstones = records.where(fn.col("value").isNull() & fn.col("key").isNotNull()).select(
        "partition", "offset", "key", fn.lit(None).cast(SEQUENCE_TYPE).alias("seq"), fn.lit(_TOMBSTONE).alias("op")
    )
    known = decoded.select("partition", "offset", "key", "seq", "op").unionByName(tombstones)
    own, all_keys = Window.partitionBy("partition", "key").orderBy("offset"), Window.partitionBy("partition")
    until = all_keys.orderBy("offset").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    since = all_keys.orderBy("offset").rowsBetween(Window.currentRow, Window.unboundedFollowing)
    read = reduce(
        lambda column, item: column.when(fn.col("partition") == item[0], sequence_literal(item[1])),
        passed.items(),
        fn.when(fn.lit(False), fn.lit(None).cast(SEQUENCE_TYPE)),
    )
    placed = known.select(
        "partition",
        "offset",
        "key",
        "op",
        fn.last(fn.when(fn.col("op") != _TOMBSTONE, fn.col("op")), ignorenulls=True)
        .over(own.rowsBetween(Window.unboundedPreceding, Window.currentRow))
        .alias("before"),
        fn.lead("op").over(own).alias("after"),
        fn.greatest(fn.max("seq").over(until), read).alias("last"),
        fn.first("seq", ignorenulls=True).over(since).alias("next"),
    )
    begins = [number for number, each in found.partitions.items() if each.start <= 0]
    is_delete = (
        (fn.col("op") == _TOMBSTONE)
        & fn.col("after").isNull()
        & ~fn.col("before").eqNullSafe(Op.DELETE.value)
        # Before the first change of a partition there is nothing to delete.
        & (fn.col("last").isNotNull() | ~fn.col("partition").isin(begins))
    )
    next_row = (fn.col("last")["row"] + 1).alias("row")
    after_last = fn.struct(
        *(next_row if name == "row" else fn.col("last")[name].alias(name) for name in Sequence._fields)
    )
    seq = fn.coalesce(fn.when(fn.col("last").isNotNull(), after_last), fn.col("next"))
    before = _before(schema, decoded.schema["before"].dataType)
    no_key = reduce(or_, (before[name].isNull() for name in schema.key))
    problem = fn.when(seq.isNull(), fn.lit(_NO_POSITION)).when(no_key, fn.lit(_NO_KEY))
    failure = fn.raise_error(fn.concat(failure_prefix(schema), problem))
    values = {
        "seq": seq,
        "op": fn.when(problem.isNotNull(), failure).otherwise(fn.lit(Op.DELETE.value)),
        "incremental": fn.lit(False),
        "before": before,
        **{name: fn.col(name) for name in ("partition", "offset", "key")},
    }
    columns = [values.get(f.name, fn.lit(None)).cast(f.dataType).alias(f.name) for f in decoded.schema]
    return decoded.unionByName(placed.where(is_delete).select(*columns))


def _before(schema: TableSchema, image: tp.DataType) -> Column:
    """Return the image of a deleted row, of which only the key is known."""
    assert isinstance(image, tp.StructType)
    types = {
        c.name: field_type(c.schema, column=c.name, topic=schema.topic) for c in schema.columns if c.name in schema.key
    }
    key = fn.from_json(
        fn.col("key").cast("string"), tp.StructType([tp.StructField(n, t.json) for n, t in types.items()])
    )
    members = []
    for field in image:
        found = types.get(field.name)
        value = fn.lit(None) if found is None else key[field.name]
        members.append(
            (value if found is None or found.decode is None else found.decode(value))
            .cast(field.dataType)
            .alias(field.name)
        )
    return fn.struct(*members)


_MOST: Final = 1000
"""Records of a topic that are skipped; more are not single bad records."""

log = structlog.get_logger(__name__)


class DeadLetters:
    """Writes bad records to a topic, once per attempt of a batch, and knows which records are left out since then.

    The headers of a record have the names that Kafka Connect uses.
    """

    def __init__(self, topic: str, client: Mapping[str, str], source: Mapping[str, str]) -> None:
        self._topic = topic
        self._client = dict(client)
        self._source = dict(source)
        self._skipped: dict[str, set[tuple[int, int]]] = {}
        self._lock = threading.Lock()

    def take(self, spark: SparkSession, error: BaseException, topic: str, read: TopicRange | None) -> bool:
        """Write the record of a topic that an error is about; return whether the work can be done without it.

        ``read``: the range that was read; None if the work is on records that were held.
        """
        found = bad_record(error, topic, read)
        if found is None:
            return False
        at = found.partition, found.offset
        with self._lock:
            skipped = self._skipped.setdefault(found.topic, set())
            if at in skipped or len(skipped) >= _MOST:
                return False
        one = TopicRange(found.topic, {found.partition: OffsetRange(found.offset, found.offset + 1)})
        self._write(spark, one, found.reason)
        skipped.add(at)
        log.error(
            "record skipped", topic=found.topic, partition=found.partition, offset=found.offset, reason=found.reason
        )
        return True

    def has(self, topic: str) -> bool:
        """Return whether records of a topic were taken."""
        return bool(self._skipped.get(topic))

    def left(self, records: DataFrame, topic: str, found: TopicRange | None = None) -> DataFrame:
        """Return the records of a range, or of any ranges, without those that were taken."""
        for partition, offset in sorted(self._skipped.get(topic, ())):
            own = None if found is None else found.partitions.get(partition, OffsetRange(0, 0))
            if own is None or own.start <= offset < own.end:
                records = records.where(~((fn.col("partition") == partition) & (fn.col("offset") == offset)))
        return records

    def _write(self, spark: SparkSession, found: TopicRange, reason: str) -> None:
        raw = read_raw(spark, self._source, found)
        added = {
            "topic": fn.col("topic"),
            "partition": fn.col("partition"),
            "offset": fn.col("offset"),
            "exception.message": fn.lit(reason),
        }
        headers = fn.array(*(_header(f"__connect.errors.{name}", value) for name, value in added.items()))
        own = fn.coalesce(fn.col("headers"), fn.array().cast(raw.schema["headers"].dataType.simpleString()))
        letters = raw.select("key", "value", fn.concat(own, headers).alias("headers"))
        writer = letters.write.format("kafka").mode("append").options(**self._client)
        writer.option("topic", self._topic).option("includeHeaders", "true").save()


def _header(name: str, value: Column) -> Column:
    return fn.struct(fn.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))


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
        records = select_raw(read_raw(spark, self.source, found)) if shared is None else shared
        if found.offsets <= SMALL_OFFSETS:
            # One task: no step of the batch exchanges records between tasks.
            records = records.coalesce(1)
        return records if self.dead_letters is None else self.dead_letters.left(records, found.topic, found)

    def without_bad(self, records: DataFrame, topic: str) -> DataFrame:
        """Return raw records of any ranges without those that the dead letters have."""
        return records if self.dead_letters is None else self.dead_letters.left(records, topic)

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

    def is_for_driver(self, topic: str) -> bool:
        """Return whether each record of a topic names its schema, and is a change by itself."""
        return not (self.format.finds_schemas or self.is_compacted(topic))

    def reads_twice(self, topic: str) -> bool:
        """Return whether ``decode`` reads the records of a topic more than once, so that a cache of them pays."""
        return not self.is_for_driver(topic) or len(self.schemas.versions(topic)) > 1
