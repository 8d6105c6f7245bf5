"""One table in a batch of an upsert sink: decode, prepare the target, write the last change per key."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from tailrace.spark_consumer.errors import IncompleteTopicError
from tailrace.spark_consumer.monitor.table_result import TableResult
from tailrace.spark_consumer.normalize.latest import last_truncate, later
from tailrace.spark_consumer.normalize.split_progress import SplitStats, summarize
from tailrace.spark_consumer.normalize.stored_records import MovedKeys, greatest_by_partition
from tailrace.spark_consumer.normalize.table_state import TableState
from tailrace.spark_consumer.sink.base import DriverBatch, DriverSink, NotStagedError, TableBatch, before_commit
from tailrace.spark_consumer.sink.ledger import require_reached
from tailrace.spark_consumer.small_data import SMALL_OFFSETS, interpreted
from tailrace.spark_consumer.source.kafka import reload_remedy
from tailrace.spark_consumer.source.kafka_admin import end_offsets
from tailrace.spark_consumer.source.ranges import EARLIEST, OffsetRange, TopicRange
from tailrace.spark_consumer.tables.reasons import ends_too_early
from tailrace.spark_consumer.tables.work import CACHE, TablePart
from tailrace.spark_consumer.transform.table_transform import failures_named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tailrace.schemas.table import TableSchema

log = structlog.get_logger(__name__)


class UpsertTable(TablePart):
    """The work of one table for ``Images.UPSERT`` and ``Images.UPSERT_WITH_BEFORE``."""

    def run(self, spark: SparkSession) -> TableResult:
        """Write the part of the range that the target has not applied."""
        if self._range is None:
            return self._without_records(spark)
        before, _ = self._load(spark)
        self._require_end(before)
        newest = self._reading.newest_schema(spark, self._range)
        if not newest.columns and self._reading.is_compacted(self._topic):
            newest = self._schema_of_all(spark, before)
        if not newest.columns:  # a connector has written no row yet
            return TableResult(0, None)
        applied = self._sink.applied(self._transform(newest).schema)
        moved = self._snapshots.known_keys(spark, self._topic, before, len(self._ends)).grown(len(self._ends))
        if applied is not None:
            whole_from = self._snapshots.whole_from(self._topic, before)
            require_reached(self._topic, self._begins, applied, applied, whole_from=whole_from, moved=moved)
        applied = applied or {}
        self._snapshots.check_start(self._topic, before, self._range, applied)
        left = self._range.after(applied)
        if left != self._range:
            self._require_same_topic(spark, applied, before)
            log.info("records skipped that the target has applied", topic=self._topic, batch=self._batch_id)
        if left != self._range or (applied and before.step < 0):
            self._skip(spark)
        if moved:
            left = self._range  # deletes that the target has applied are remembered; the sink leaves out such records
        if not left.partitions:
            before, _ = self._stored.states.load(spark, self._topic, self._batch_id, None)
            return self._counted(before)
        failure = None
        try:
            written = self._write_in_driver(spark, newest, left)
            if written is not None:
                return written
        except NotStagedError as error:
            failure = error
        result = self._write_by_queries(spark, left)
        if failure is not None and self._is_for_driver(newest, left):
            # Queries did not fail, as they would for a bad record, or if the query were stopped.
            self._services.writing.in_driver.path.fail(failure.__cause__, topic=self._topic)
        return result

    def _schema_of_all(self, spark: SparkSession, before: TableState) -> TableSchema:
        """Return the newest schema in a topic of which the range has only tombstones."""
        ends = {number: OffsetRange(EARLIEST, end) for number, end in self._ends.items() if end}
        found = self._reading.newest_schema(spark, TopicRange(self._topic, ends))
        if not found.columns and before.step >= 0:
            raise IncompleteTopicError(
                f"topic {self._topic} has only tombstones left: the rows that they delete are not known",
                hint="set cleanup.policy=delete on the topic; then " + reload_remedy(self._topic),
            )
        return found

    def _is_for_driver(self, schema: TableSchema, found: TopicRange) -> bool:
        """Return whether a range of a table has so few records that queries cost more than they do."""
        sink = self._sink
        transform = self._transform(schema)
        return (
            self._services.writing.in_driver.path.works
            and isinstance(sink, DriverSink)
            and transform.columns is None
            and sink.takes_from_driver(transform.schema, found.offsets)
            and self._reading.is_for_driver(self._topic)
        )

    def _write_in_driver(self, spark: SparkSession, newest: TableSchema, found: TopicRange) -> TableResult | None:
        """Process a range without queries; return None if nothing was written, because it is not plain.

        Raises NotStagedError if something fails before the commit that need not fail in queries.
        """
        writing = self._services.writing
        with self._phase(spark, "decode"), before_commit():
            rows = self._reading.rows_in_driver(found) if self._is_for_driver(newest, found) else None
            before, _ = self._load(spark)
            moved = self._snapshots.known_keys(spark, self._topic, before, len(self._ends))
            if rows is None or moved.deletes or moved.grown(len(self._ends)):
                return None
            decoder = writing.in_driver.decoder(spark, rows.type, newest, self._images, writing.fields)
            last = max((each.sequence for each in self._reading.schemas.alterations(self._topic)), default=None)
            changes = None if decoder is None else decoder.last_changes(spark, rows, last)
            if decoder is None or changes is None:
                return None
            schema = self._transform(decoder.schema).schema
        self._prepare(spark, schema)
        with self._phase(spark, "state"):
            state, before = self._advance(spark, found, [changes.stats], None, None)
        with self._phase(spark, "write"):
            assert isinstance(self._sink, DriverSink)
            batch = DriverBatch(
                spark, schema, decoder.type, changes.rows, found, changes.stats.earliest, state.truncated
            )
            is_written = self._sink.write_in_driver(batch, self._batch_id)
        return self._counted(state, [changes.stats]) if is_written else None

    def _write_by_queries(self, spark: SparkSession, left: TopicRange) -> TableResult:
        raw = self._reading.read(spark, left)
        # Records with one known schema are read once. Otherwise their schemas are found first.
        cached = self._reading.reads_twice(self._topic)
        if cached:
            raw = raw.persist(CACHE)
        try:
            return self._write(spark, raw, left)
        finally:
            if cached:
                raw.unpersist()

    def _skip(self, spark: SparkSession) -> None:
        """Keep in mind that records are not counted, unless an earlier attempt of the batch has counted them."""
        before, after = self._load(spark)
        if after is None and not before.unverified:
            begins = self._snapshots.begins(self._topic, before, self._begins)
            state = replace(before, step=before.step + 1, batch=-1, idle=False, unverified=True, begins=begins)
            self._stored.states.save(spark, self._topic, state, before)

    def _require_same_topic(self, spark: SparkSession, applied: Mapping[int, int], before: TableState) -> None:
        ends = end_offsets(spark, self._reading.source, self._topic, applied)
        beyond = {number: ends[number] for number, offset in applied.items() if offset > ends[number]}
        if beyond:
            raise ends_too_early(self._topic, beyond, applied, same=self._is_same(before))

    def _write(self, spark: SparkSession, raw: DataFrame, found: TopicRange) -> TableResult:
        before, _ = self._load(spark)
        source, rows = self._decode(raw)
        rows = self._reading.with_tombstones(raw, rows, source, found, before.moved_keys.passed)
        transform = self._transform(source)
        small = found.offsets <= SMALL_OFFSETS
        with interpreted(spark, when=small):
            decoded = rows.persist(CACHE)
        # Certificates count the records of the source, also those that the filter turns into deletes.
        records = transform.apply(decoded, self._images)
        try:
            with self._phase(spark, "decode"), interpreted(spark, when=small):
                stats = summarize(decoded)
            self._prepare(spark, transform.schema)
            with failures_named(decoded, transform, self._images):
                with self._phase(spark, "state"):
                    state, before = self._advance(spark, found, stats, decoded, records)
                # Deletes of the batch itself are ordered by the sink. Without a record, the target stores the offsets.
                left = self._stored.deletes.without_older(records, self._topic, before.moved_keys.deletes)
                loaded = state.progress.complete
                batch = TableBatch(transform.schema, left, stats, found, truncated=state.truncated, loaded=loaded)
                batch = replace(batch, moved=state.moved_keys.grown(len(self._ends)))
                with self._phase(spark, "write"):
                    self._sink.write_batch(batch, self._batch_id)
            return self._counted(state, stats)
        finally:
            decoded.unpersist()

    def _prepare(self, spark: SparkSession, schema: TableSchema) -> None:
        with self._phase(spark, "prepare"):
            self._sink.prepare_table(schema)

    def _counted(self, state: TableState, stats: Collection[SplitStats] = ()) -> TableResult:
        newest = max((stat.newest_ms for stat in stats if stat.newest_ms is not None), default=None)
        records = sum(stat.rows + stat.changes for stat in stats)
        updates, deletes = sum(stat.updates for stat in stats), sum(stat.deletes for stat in stats)
        rows = {"insert": records - updates - deletes, "update_after": updates, "delete": deletes}
        return self._result(state, records, newest, rows)

    def _without_records(self, spark: SparkSession) -> TableResult:
        """Use certificates that arrived after the last record; a table without rows is created when it is read."""
        with self._phase(spark, "state"):
            state, _ = self._advance(spark, None, (), None, None)
        if state.progress.complete or state.truncated is not None:
            schema = self._transform(self._reading.schemas.versions(self._topic)[-1]).schema
            self._sink.applied(schema)
            self._prepare(spark, schema)
            if state.truncated is not None:
                batch = TableBatch(schema, spark.range(0), truncated=state.truncated)
                self._sink.write_batch(batch, self._batch_id)
        return self._counted(state)

    def _advance(
        self,
        spark: SparkSession,
        left: TopicRange | None,
        stats: Collection[SplitStats],
        decoded: DataFrame | None,
        records: DataFrame | None,
    ) -> tuple[TableState, TableState]:
        """Return the states after and before the batch; the former is stored before the sink gets the records.

        ``left`` is the part of the range that the target has not applied. ``decoded`` are the records of the source,
        ``records`` those that the sink gets.
        """
        before, after = self._load(spark)
        if after is not None:
            return after, before
        self._snapshots.check_beginning(spark, self._topic, left)
        step = self._snapshots.advance(spark, self._topic, before, stats, read=self._ends)
        truncated = None if decoded is None else last_truncate(decoded, stats)
        state = replace(
            self._after(before, step.progress),
            truncated=later(later(before.truncated, truncated), self._snapshots.ends.created(self._topic)),
            moved_keys=self._moved_keys(spark, before, records if stats else None),
        )
        if state.differs(before):
            self._stored.states.save(spark, self._topic, state, before)
        return state, before

    def _moved_keys(self, spark: SparkSession, before: TableState, records: DataFrame | None) -> MovedKeys:
        """Remember the deletes of the batch if keys can have moved to other partitions."""
        known = self._snapshots.known_keys(spark, self._topic, before, len(self._ends))
        grown = known.grown(len(self._ends))
        if records is None or not (grown or self._reading.is_compacted(self._topic)):
            return known
        deletes, step = self._stored.deletes, before.step + 1
        within = () if self._range is None else self._range.partitions.keys()
        after = known.advance(greatest_by_partition(records), self._ends, within)
        if not grown:
            return after
        above = after.lowest if after.passed.keys() >= self._ends.keys() else None
        deletes.keep(spark, self._topic, known.deletes, before.step)
        return replace(after, deletes={**after.deletes, **deletes.write(records, self._topic, step, above=above)})
