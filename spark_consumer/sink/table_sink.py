"""Sinks with one table per captured table, in some table format, with the last change per key of each batch.

A batch makes at most two commits per table, an append (initial_load.py) and a MERGE. Both carry the offsets that are
then applied (ledger.py), so that a batch skips the records that are applied already. MERGE changes a row only if the
sequence of the record is greater than the stored one. The batch that creates a table needs no MERGE, because the table
is empty: the final row of each key is appended in one commit. If that batch runs again after its commit, the ledger
says that it is applied.
"""

from __future__ import annotations

import uuid
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial, reduce
from typing import TYPE_CHECKING, Final, Generic

import structlog
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from tailrace.schemas.rowkind import Op
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.evolution.attempt import Evolved
from tailrace.spark_consumer.normalize.key_ranges import key_ranges, predicate
from tailrace.spark_consumer.normalize.latest import last_per_key, without_truncated
from tailrace.spark_consumer.sink.base import SinkContext, TableBatch, TargetRows
from tailrace.spark_consumer.sink.evolve import caught_up, evolve, take_over
from tailrace.spark_consumer.sink.initial_load import InitialLoad, append_or_merge
from tailrace.spark_consumer.sink.ledger import Ledger, comparable, is_applied, missing_target, not_applied
from tailrace.spark_consumer.sink.open_table import After, Committer, OpenTable
from tailrace.spark_consumer.sink.shape import TableOptions
from tailrace.spark_consumer.sink.state import OF_A_SHARD, REMOVE_SHARD, SEVERAL, TargetState, key_text
from tailrace.spark_consumer.sink.statements import SOURCE, RowChanges, merge_versions_statement
from tailrace.spark_consumer.sink.table_names import quote
from tailrace.spark_consumer.sink.table_upkeep import Upkeep
from tailrace.spark_consumer.sink.target import TargetSink
from tailrace.spark_consumer.sink.target_table import Table
from tailrace.spark_consumer.sink.versions import changed_versions, history_rows, kept_rows, keys_of_changelog
from tailrace.spark_consumer.small_data import SMALL_OFFSETS, by_operator, interpreted, with_settings
from tailrace.spark_consumer.source.kafka import NEW_TOPIC_REMEDY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.spark_consumer.sink.shape import Layout
    from tailrace.spark_consumer.source.ranges import TopicRange

_SMALL_MERGE: Final = {"spark.sql.shuffle.partitions": "1"}

log = structlog.get_logger(__name__)


class TableSink(TargetSink[OpenTable[Table]], Generic[Table]):
    """Writes tables of one format."""

    def __init__(
        self,
        spark: SparkSession,
        options: TableOptions,
        context: SinkContext,
        upkeep: Upkeep[Table],
        is_conflict: Callable[[BaseException], bool],
    ) -> None:
        """``is_conflict``: whether a failed commit can be tried again, since somebody else changed the same files."""
        super().__init__(context)
        self._spark = spark
        self._options = options
        self._upkeep = upkeep
        self._committer = Committer(context.topic_id, is_conflict, uuid.uuid4().hex[:12])

    @abstractmethod
    def _table(self, schema: TableSchema) -> Table:
        """Return the table of a captured table, which need not exist."""

    def _target(self, schema: TableSchema) -> OpenTable[Table]:
        table, topic = self._table(schema), schema.topic
        table.require_format()
        table.share(self._context.shard(topic))
        layout = self._options.layout_of(topic, self._context.prefix)
        return OpenTable(table, topic, layout, self._committer)

    def read_target(self, spark: SparkSession, schema: TableSchema) -> TargetRows:  # noqa: ARG002 - that of the sink
        """Return the table, with the ledger before and behind the query of its rows."""
        table, topic = self._table(schema), schema.topic
        if not table.exists:
            raise missing_target(table.name, topic)
        table.require_format()

        def ledger() -> Ledger:
            return comparable(table.ledger(topic), self._context, topic, table.name)

        before = ledger()
        layout = self._options.layout_of(topic, self._context.prefix)
        return TargetRows(layout.rows_of_source(table.rows(), table.name), before.applied, lambda: ledger().reached)

    def _refresh(self, opened: OpenTable[Table]) -> None:
        opened.table.refresh()

    def _applied(self, opened: OpenTable[Table], schema: TableSchema) -> Mapping[int, int]:
        table, topic = opened.table, schema.topic
        if not opened.is_read and table.exists:
            opened.read()
            self._upkeep.opened(table)
        if not opened.is_read:
            return {}
        ledger, topic_id = opened.ledger, self._context.topic_id(topic)
        if ledger is None:
            return {}
        if table.shard is None:
            ledger.require_same_topic(topic_id, "the table", hint=NEW_TOPIC_REMEDY, table=table.name)
        elif ledger.is_of_another_topic(topic_id):
            if opened.has_rows_of_shard():
                condition = table.shard.condition(table.columns)
                ledger.require_same_topic(
                    topic_id,
                    "the table",
                    hint=REMOVE_SHARD,
                    table=table.name,
                    statement=f"DELETE FROM {table.sql_name} WHERE {condition}",
                )
            # Its rows were removed: it begins as a new one.
            table.unset(*OF_A_SHARD)
            table.refresh()
            opened.begin()
            opened.prepared_for = None
        return opened.known.applied

    def _prepare(self, opened: OpenTable[Table], schema: TableSchema) -> None:
        table, layout, alterations = opened.table, opened.layout, tuple(self._context.alterations(schema.topic))
        if not opened.is_read and table.shard is not None:
            self._applied(opened, schema)  # another shard may have created the table meanwhile
        is_empty = not opened.is_read or opened.ledger is not None
        if not opened.is_read:
            self._create(opened, schema)
            self._upkeep.opened(table)
            opened.begin()
            opened.is_empty = True
        elif table.shard is not None and table.state.topic == SEVERAL:
            opened.claim_shard(caught_up(self._owned_by(schema, layout, loads=is_empty), schema, alterations))
            opened.is_empty |= is_empty
            log.info("table shared", table=table.name, topic=schema.topic)
        owner = table.state.topic
        if not owner:
            take_over(table, schema, alterations, self._owned_by(schema, layout, loads=is_empty), layout)
        elif owner != schema.topic:
            raise SinkError(
                f"the {table.format} table {table.name} belongs to another topic",
                hint="use a separate sink.path or sink.table for each topic.prefix; with sink.table, names that differ "
                "only in case, and tables of several databases without {database}, can become one name",
                table_topic=owner,
                batch_topic=schema.topic,
            )
        if table.shard is not None:
            opened.claim_shard()
        if opened.prepared_for != (schema, alterations):

            def bring() -> Evolved:
                table.refresh()  # another process may have changed it, or rolled it back
                table.require_owned(schema)
                return evolve(table, schema, alterations, self._options.policy, layout)

            opened.evolved = opened.retried(bring)
            opened.prepared_for = schema, alterations

    def _write(self, opened: OpenTable[Table], batch: TableBatch, batch_id: int) -> None:
        assert opened.is_read, "applied and prepare_table come first"
        batch = self._truncate(opened, batch)
        # Also a commit of offsets alone is one behind which somebody else may have written rows.
        empty, opened.is_empty = opened.is_empty, False
        if not batch.stats:
            if batch.range is not None:
                self._append(opened, batch, None, None)
            return
        load = self._open_load(opened, batch)
        if load is not None:
            self._load(opened, batch, load, batch_id, empty=empty)
        else:
            last = last_per_key(batch.records, incremental=any(stat.incremental for stat in batch.stats))
            if empty:
                self._append(opened, batch, None, last)
            else:
                self._merge(opened, batch, last, batch_id)
        self._upkeep.after_batch(opened.table)

    def _write_changelog(self, batch: TableBatch) -> None:
        """Write the rows of a changelog in one commit with the ledger."""
        assert batch.write is not None
        query, write, opened = self._context.query_id, batch.write, self._reached(batch)
        table, known = opened.table, opened.ledger

        def after(ledger: Ledger) -> Ledger:
            return ledger.written(query, write)

        if opened.layout.shape == "history":
            repeated = known is None or known.is_repeat(query, write)
            rows = history_rows(opened, batch, repeated=repeated)
            opened.append(after, rows)
        else:
            self._merge_versions(opened, batch, after)
        self._upkeep.after_batch(table)

    def _merge_versions(self, opened: OpenTable[Table], batch: TableBatch, after: After) -> None:
        schema, table, spark = batch.schema, opened.table, batch.records.sparkSession
        within = keys_of_changelog(opened, batch)
        # The rows come from the table itself: Spark cannot plan a MERGE of Iceberg whose source reads its target.
        small = batch.write is not None and batch.write.offsets <= SMALL_OFFSETS and table.is_small
        # Parts of the plan are planned as it is made.
        with interpreted(spark, when=small), kept_rows(changed_versions(opened, batch, within)) as source:
            if source.isEmpty():
                opened.append(after)
                return
            source.createOrReplaceTempView(SOURCE)
            try:
                own = opened.own_columns(schema)

                def merge(ledger: Ledger) -> None:
                    with with_settings(spark, table.commit_settings(ledger.metadata)), table.following() as target:
                        spark.sql(merge_versions_statement(target, schema, own, within))

                opened.advance(after, merge)
            finally:
                spark.catalog.dropTempView(SOURCE)

    def tend(self, spark: SparkSession) -> bool:
        """Tend one table that is due, while no batch writes it."""
        return self._upkeep.tend(spark, self._lock)

    def _truncate(self, opened: OpenTable[Table], batch: TableBatch) -> TableBatch:
        """Delete the rows that a truncate event has removed; return the batch without such rows.

        The ledger follows the delete: a batch that runs again deletes again, which changes nothing. A table whose
        ledger is not known gets one with its records.
        """
        table, (done, truncated) = opened.table, opened.truncations(batch.truncated)
        if truncated is None:
            return batch
        if truncated != done:
            table.truncate_before(truncated, opened.layout)
            if opened.ledger is not None:
                opened.append(lambda before: replace(before, truncated=truncated))
            log.info("table truncated", table=table.name, sequence=truncated)
        if not batch.stats:
            return batch
        return replace(batch, records=without_truncated(batch.records, truncated))

    def way_of(self, topic: str) -> str:
        """Return how the last batch of a table was written; '' if there was none."""
        opened = self._open.get(topic)
        return "" if opened is None else opened.way

    def _open_load(self, opened: OpenTable[Table], batch: TableBatch) -> InitialLoad | None:
        """Return the initial load for this batch, or None if it is closed; updates the table properties."""
        table = opened.table
        load = InitialLoad.of(table.state)
        if load is None:
            return None
        if batch.moved:
            _close(table, load, "initial load closed: the topic has got more partitions")
            return None
        if batch.loaded and all(stat.split is None for stat in batch.stats):
            _close(table, load, "initial load complete")
            return None
        splits = [stat.split for stat in batch.stats if stat.split is not None]
        self._context.runs.refresh_for(self._spark, splits)
        own_splits = self._context.runs.splits_of(load.run, splits)
        updated = None
        # Without a ledger a row may be appended that the table has.
        if opened.ledger is not None and not load.closes_for(batch.stats, own_splits):
            updated = load.with_early_keys(batch.records, batch.stats)
        if updated is None:
            _close(table, load, "initial load closed")
            return None
        if updated != load:
            table.store(updated.noted(table.state))
        return updated

    def _load(
        self, opened: OpenTable[Table], batch: TableBatch, load: InitialLoad, batch_id: int, *, empty: bool
    ) -> None:
        changes = sum(stat.changes for stat in batch.stats)
        rows, others = append_or_merge(batch.records, load.early_keys, changes=changes)
        has_others = bool(changes) or (bool(load.early_keys) and not others.isEmpty())
        if empty:
            self._append(opened, batch, rows, last_per_key(others) if has_others else None)
            return
        # Also without a row to append: a truncate event alone.
        if any(stat.split is not None for stat in batch.stats) or not has_others:
            self._append(opened, batch, rows, None, has_others)
        if has_others:
            self._merge(opened, batch, last_per_key(others), batch_id)

    def _create(self, opened: OpenTable[Table], schema: TableSchema) -> None:
        table, layout = opened.table, opened.layout
        state = caught_up(self._owned_by(schema, layout), schema, self._context.alterations(schema.topic))
        shard = "" if table.shard is None else table.shard.text
        state = replace(state, shard=shard).with_layout(layout.shape, layout.names)
        table.create(schema, {**self._options.table_properties, **state.properties}, layout)
        log.info("table created", table=table.name, initial_load=state.load_run or None)

    def _owned_by(self, schema: TableSchema, layout: Layout, *, loads: bool = True) -> TargetState:
        """Return the state of a table of a topic; ``loads``: it is empty, so an initial load can begin."""
        state = TargetState(schema.topic, key=key_text(schema), query=self._context.query_id)
        if not loads or layout.takes_changelog:
            return state
        self._context.runs.refresh(self._spark)
        run = self._context.runs.first(schema.topic)
        return state if run is None else InitialLoad(run.id, run.start).noted(state)

    def _append(
        self,
        opened: OpenTable[Table],
        batch: TableBatch,
        rows: DataFrame | None,
        last: DataFrame | None,
        merge_follows: bool = False,
    ) -> None:
        """Append ``rows``, each the only record of its key, and the final rows of the keys in ``last``.

        Without both, the commit says how far the table is.
        """
        ledger, found, layout = opened.known, range_of(batch), opened.layout
        if is_applied(ledger.append if merge_follows else ledger.merge, found):
            return
        parts = [] if rows is None else [not_applied(rows, ledger.append, found)]
        if rows is None and last is None:
            parts = [batch.records.limit(0)]
        if last is not None:
            parts.append(last if layout.keeps_deleted else last.where(fn.col("op") != Op.DELETE.value))
        stored = opened.stored_columns(batch.schema)
        appended = reduce(DataFrame.unionByName, [records.select(*stored) for records in parts])

        def after(before: Ledger) -> Ledger:
            return before.appended(found) if merge_follows else before.appended(found).merged(found)

        with by_operator(appended.sparkSession, when=found.offsets <= SMALL_OFFSETS):
            opened.append(after, appended)
        if rows is not None or last is not None:
            opened.way = "append"

    def _merge_directly(self, opened: OpenTable[Table], changes: RowChanges, after: After) -> bool:  # noqa: ARG002
        """Merge changes without the MERGE statement if that is possible; otherwise nothing is done."""
        return False

    def _merge(self, opened: OpenTable[Table], batch: TableBatch, last: DataFrame, batch_id: int) -> None:
        """Merge the last change of each key."""
        table, ledger, found = opened.table, opened.known, range_of(batch)
        if is_applied(ledger.merge, found):
            return
        schema, source = batch.schema, not_applied(last, ledger.merge, found)
        source = source.select(*opened.stored_columns(schema), opened.layout.removed)
        # The size is asked for once, also if the statement is repeated: a format may need a query for it.
        small = cache(lambda: table.is_small)
        ranges = partial(_key_condition, batch, small)
        query, spark = self._context.query_id, source.sparkSession
        own, former = opened.own_columns(schema), opened.former_columns
        changes = RowChanges(schema, own, former, "", found.offsets, query, batch_id, spark, source, ranges)

        def after(before: Ledger) -> Ledger:
            return before.appended(found).merged(found)

        if not self._merge_directly(opened, changes, after):
            self._merge_by_statement(opened, changes, after, small)

    def _merge_by_statement(
        self,
        opened: OpenTable[Table],
        changes: RowChanges,
        after: After,
        small: Callable[[], bool],
    ) -> None:
        spark, table = changes.spark, opened.table
        changes.rows.createOrReplaceTempView(SOURCE)
        planned_once = changes.most <= SMALL_OFFSETS and small()

        def merge(ledger: Ledger) -> None:
            # Other commits of this session have no ledger.
            settings = {**table.commit_settings(ledger.metadata), **(_SMALL_MERGE if planned_once else {})}
            with with_settings(spark, settings), by_operator(spark, when=planned_once):
                table.merge(replace(changes, metadata=ledger.metadata))

        try:
            opened.advance(after, merge)
        finally:
            spark.catalog.dropTempView(SOURCE)
        opened.way = "merge"


def _close(table: Table, load: InitialLoad, why: str) -> None:
    log.info(why, table=table.name, run=load.run)
    table.store(table.state.without_load())


def range_of(batch: TableBatch) -> TopicRange:
    """Return the offsets of a batch of decoded records."""
    assert batch.range is not None
    return batch.range


def _key_condition(batch: TableBatch, small: Callable[[], bool]) -> str:
    """Return the condition that all keys of a batch meet; none if the table is ``small``.

    All files of a small table are read in less time than the ranges of the keys are found.
    """
    return "" if small() else predicate(key_ranges(batch.records, batch.schema), "t", quote)
