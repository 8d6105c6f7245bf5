"""``tailrace verify --certificates``: proves from the topics alone that they hold what the snapshots have read.

The certificates are read first, then the topic up to the end that it has behind them: a certificate follows the records
that it counts. What was announced is read last, so each split of the topic is known then. A split whose certificate is
written meanwhile counts as one without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson
import structlog
from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.schemas.names import watermarks_topic
from tailrace.schemas.rowkind import Op
from tailrace.spark_consumer import session
from tailrace.spark_consumer.app import load_sinks
from tailrace.spark_consumer.source.control import ControlTopic
from tailrace.spark_consumer.source.json_decoder import Read, read_json, row_checksum
from tailrace.spark_consumer.source.kafka import READ_COMMITTED
from tailrace.spark_consumer.source.kafka_admin import (
    TopicIds,
    matching,
)
from tailrace.spark_consumer.source.ranges import TopicRange
from tailrace.spark_consumer.source.topics import subscribe_pattern
from tailrace.spark_consumer.source.watermarks import read_certificates, splits_begun
from tailrace.spark_consumer.tables.reading import Reading
from tailrace.spark_consumer.verify.certificates import (
    FAULTS,
    ComparedSplit,
    HeldSplit,
    SnapshotResult,
    SplitResult,
    compare_splits,
)
from tailrace.spark_consumer.verify.run_metrics import DIFFERENT, EQUAL, FAILED, VerifiedTable
from tailrace.spark_consumer.verify.tables import chosen_topics, compare_each, open_topics, print_line
from tailrace.spark_consumer.verify.topic_rows import whole_topic, with_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.spark_consumer.config import ConsumerConfig
    from tailrace.spark_consumer.source.watermarks import Certificates

_ENVELOPE: Final = tp.StructType([tp.StructField("op", tp.StringType())])
_CHANGES: Final = (Op.CREATE.value, Op.UPDATE.value, Op.DELETE.value)
_SHOWN: Final = 10

log = structlog.get_logger(__name__)


def verify(config: ConsumerConfig, tables: str, metrics: Path | None = None) -> int:
    """Compare in a session of its own; return the exit code."""
    spark = session.build(config, [sink.plugin for sink in load_sinks(config)])
    try:
        return compare_snapshots(spark, config, tables, metrics)
    finally:
        spark.stop()


def compare_snapshots(
    spark: SparkSession, config: ConsumerConfig, tables: str = "", metrics: Path | None = None
) -> int:
    """Compare the splits of each table with their certificates; print those that are not equal, and the numbers."""
    client, prefix = config.kafka_client, config.topic_prefix
    watermarks = watermarks_topic(prefix)
    certificates = read_certificates(spark, ControlTopic(watermarks, client, READ_COMMITTED))
    pattern = subscribe_pattern(prefix, config.table_filter)
    topics = chosen_topics(spark, config, tables, lambda: matching(spark, pattern, certificates.ends))
    with open_topics(spark, config, topics) as (reading, ids, policies):
        policies.read(spark, [topic for topic in topics if ids.get(topic)])
        proof = _Proof(spark, reading, certificates, ids, ControlTopic(watermarks, client))
        return compare_each(topics, proof.compare, metrics)


@dataclass(frozen=True, slots=True)
class _Proof:
    """Compares one table after another."""

    spark: SparkSession
    reading: Reading
    certificates: Certificates
    ids: TopicIds
    watermarks: ControlTopic

    def compare(self, topic: str) -> VerifiedTable:
        """Print, log and return what is known of one table. Raises TailraceError if it cannot be read."""
        ends, created = self.certificates.ends.get(topic, []), self.certificates.created.get(topic)
        found = with_records(topic, whole_topic(self.spark, self.reading.source, topic, self.ids))
        held = held_splits(self.spark, self.reading, found)
        if not ends and not held:
            return _without_snapshot(topic, created=created is not None)
        gone = self._gone(found) if self.reading.is_compacted(topic) else None
        self.watermarks.rewind()
        begun = splits_begun(self.spark, self.watermarks) if held.keys() - {end.split for end in ends} else set()
        result = compare_splits(ends, held, begun, created=created, gone=gone)
        for split in result.unequal:
            print_line(_split_line(topic, split))
        return _report(topic, result, found, gone)

    def _gone(self, found: TopicRange) -> int:
        """Return how many offsets have no record: removed ones, markers of transactions, and what was aborted."""
        if not found.partitions:
            return 0
        return found.offsets - self.reading.read(self.spark, found).select("offset").count()


def held_splits(spark: SparkSession, reading: Reading, found: TopicRange) -> dict[str, HeldSplit]:
    """Return what a range holds of each split, of initial and incremental snapshots; only numbers are collected."""
    if not found.partitions:
        return {}
    raw = reading.read(spark, found).withColumn("_split", fn.coalesce("split", "incremental"))
    splits = raw.where(fn.col("_split").isNotNull() & fn.col("value").isNotNull())
    read: Read = read_json
    if reading.format.finds_schemas:  # plain JSON needs no schema here
        resolved = reading.format.resolve(splits, found.topic, reading.schemas)
        splits, read = resolved.records, resolved.read
    records = read(splits, _ENVELOPE).select("_split", fn.col("e.op").alias("op"), "value")
    is_row = fn.coalesce(fn.col("op") == Op.READ.value, fn.lit(False))
    counted = records.select(
        "_split",
        is_row.alias("is_row"),
        fn.coalesce(fn.col("op").isin(*_CHANGES), fn.lit(False)).alias("is_change"),
        fn.when(is_row, row_checksum(fn.col("value"))).alias("checksum"),
    )
    rows = counted.groupBy("_split").agg(
        fn.count_if("is_row").alias("rows"),
        fn.count_if("is_change").alias("changes"),
        fn.count_if(~fn.col("is_row") & ~fn.col("is_change")).alias("unreadable"),
        fn.count("checksum").alias("known"),
        fn.sum("checksum").alias("checksum"),
    )
    return {
        row["_split"]: HeldSplit(
            row["rows"],
            row["changes"],
            (row["checksum"] or 0) % (1 << 64) if row["known"] == row["rows"] else None,
            row["unreadable"],
        )
        for row in rows.collect()
    }


def _without_snapshot(topic: str, *, created: bool) -> VerifiedTable:
    if created:
        log.warning(
            "nothing to compare: the table began while it was captured, and no topic says that it had no rows",
            hint="compare the target with its source",
            topic=topic,
        )
    else:
        log.error(
            "nothing to compare: the watermarks topic has no END watermark of the table",
            hint="use snapshot.mode=initial or the signal execute-snapshot; leave a table of a connector out with "
            "--tables",
            topic=topic,
        )
    print_line({"topic": topic, "result": "no snapshot", "splits": {}})
    return VerifiedTable(FAILED)


def _split_line(topic: str, split: ComparedSplit) -> dict[str, Any]:
    line: dict[str, Any] = {"topic": topic, "split": split.split, "difference": split.result.value}
    end, held = split.end, split.held
    if end is not None:
        line["lower"], line["upper"] = (None if each is None else orjson.loads(each) for each in (end.lower, end.upper))
        line["end"] = _numbers(end.rows, end.backfill, end.checksum)
    line["held"] = _numbers(held.rows, held.backfill, held.checksum)
    if held.unreadable:
        line["held"]["unreadable"] = held.unreadable
    return line


def _numbers(rows: int, backfill: int, checksum: int | None) -> dict[str, Any]:
    return {"rows": rows, "backfill": backfill, "checksum": None if checksum is None else f"{checksum:016x}"}


def _report(topic: str, result: SnapshotResult, found: TopicRange, gone: int | None) -> VerifiedTable:
    counts: Mapping[str, int] = {each.value: result.counts[each] for each in SplitResult}
    code = DIFFERENT if result.different else EQUAL if result.decided else FAILED
    outcome = {DIFFERENT: "different", EQUAL: "equal", FAILED: "not decided"}[code]
    begins = {number: each.start for number, each in found.partitions.items() if each.start > 0}
    if result.counts[SplitResult.MISSING] and begins:
        log.warning(
            "the topic begins behind offset 0: its first records have expired, or were deleted",
            hint="set retention.ms=-1 and retention.bytes=-1 on the topic, and request a snapshot of the table",
            topic=topic,
            begins=begins,
        )
    if result.counts[SplitResult.COMPACTED]:
        log.warning(
            "the topic is compacted, or may be: the records that a split lacks may have been replaced by later ones",
            hint="compare the target with its source instead; another cleanup.policy does not bring records back",
            topic=topic,
            offsets_without_record=gone,
        )
    if result.counts[SplitResult.WITHOUT_END]:
        log.warning(
            "splits have no END watermark yet",
            hint="start the producer and run the command again; if it streams the table, the watermarks are lost",
            topic=topic,
        )
    if not result.covers:
        log.warning(
            "the splits with an END watermark do not cover all keys",
            hint="wait until the snapshot is complete; if the producer streams the table, splits are lost, or a table "
            "that was created while it was captured has been read in part: compare the target with its source",
            topic=topic,
            former=result.former,
            covered=sorted(result.run.bounds.items())[:_SHOWN] if result.run else [],
        )
    if result.without_checksum:
        log.warning(
            "checksums not compared: the records are not plain JSON", topic=topic, splits=result.without_checksum
        )
    numbers = {"former": result.former, "without_checksum": result.without_checksum}
    log.info("snapshot compared", topic=topic, result=outcome, rows=result.rows, **counts, **numbers)
    print_line({"topic": topic, "result": outcome, "rows": result.rows, "splits": {**counts, **numbers}})
    faults = {each.value: result.counts[each] for each in FAULTS}
    return VerifiedTable(code, result.rows, result.counts.total(), faults, result.undecided)
