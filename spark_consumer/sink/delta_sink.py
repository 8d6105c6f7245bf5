"""Sink ``delta``: one Delta table per captured table (table_sink.py)."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from tailrace.runtime.config.section import supported
from tailrace.runtime.config.value_types import BOOLEAN, DIRECTORY, integer
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.in_driver import DriverPath
from tailrace.spark_consumer.sink.base import DriverBatch, NotStagedError, SinkContext, TableBatch, before_commit
from tailrace.spark_consumer.sink.delta_driver_rewrite import (
    ChangePlan,
    DriverChanges,
    KnownRows,
    change_plan,
    rewrite_in_driver,
)
from tailrace.spark_consumer.sink.delta_files import KnownFiles
from tailrace.spark_consumer.sink.delta_log import is_conflict
from tailrace.spark_consumer.sink.delta_small import FEW_CHANGES, MOST_CHANGES, merge_small
from tailrace.spark_consumer.sink.delta_table import DeltaTable
from tailrace.spark_consumer.sink.ledger import overlaps
from tailrace.spark_consumer.sink.open_table import After, OpenTable
from tailrace.spark_consumer.sink.plugin import SinkPlugin
from tailrace.spark_consumer.sink.shape import PROPERTIES, TableOptions, check_fields, shape_images
from tailrace.spark_consumer.sink.statements import RowChanges
from tailrace.spark_consumer.sink.table_names import TABLE_NAME, location
from tailrace.spark_consumer.sink.table_sink import TableSink
from tailrace.spark_consumer.sink.table_upkeep import Upkeep
from tailrace.spark_consumer.small_data import with_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tailrace.runtime.config.draft import Draft
    from tailrace.schemas.table import TableSchema
    from tailrace.spark_consumer.sink.delta_log import LogTransaction
    from tailrace.spark_consumer.sink.ledger import Ledger
    from tailrace.spark_consumer.source.ranges import TopicRange

_LARGE_SET: Final = "spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize.threshold"
_NO_LIMIT: Final = str(1 << 62)
_VACUUM_S: Final = 86_400
_LISTING: Final = {"spark.sql.sources.parallelPartitionDiscovery.parallelism": "8"}
"""VACUUM lists the few directories of a table in that many tasks; the default is 10,000."""
_OPTIONS: Final = {
    # Files of moderate size have narrow ranges of keys.
    "spark.databricks.delta.optimize.maxFileSize": str(128 << 20),
    _LARGE_SET: str(1 << 30),
    "spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize.targetCubeSize": str(3 << 29),
}

log = structlog.get_logger(__name__)


class DeltaUpkeep(Upkeep[DeltaTable]):
    """Runs OPTIMIZE, REORG and VACUUM.

    OPTIMIZE compacts small files, clusters them by key and applies their deletion vectors. Delta leaves files alone
    that are part of a large set which was clustered together: a run rewrites what is new and not the whole table. The
    deletion vectors of such files stay. REORG rewrites them when they have enough deleted rows. A table of one file
    needs no OPTIMIZE, such as one whose rows are all written again in each batch. VACUUM removes what such writes leave
    behind.
    """

    def __init__(self, batches: int, purge_percent: int, *, vacuum: bool) -> None:
        """``purge_percent``: the share of deleted rows from which their files are rewritten; 0: never."""
        super().__init__(batches)
        self._purge_percent = purge_percent
        self._vacuum = vacuum
        self._vacuumed: dict[str, float] = {}
        """By table: when this query has run VACUUM, by ``time.monotonic``."""

    def _commits(self, table: DeltaTable) -> int:
        return table.version

    def _tend(self, spark: SparkSession, table: DeltaTable) -> None:
        # Not each time: it lists all files. It is the first one, because REORG fails on clusters (docs/sinks/delta.md).
        now, last = time.monotonic(), self._vacuumed.get(table.name)
        if self._vacuum and (last is None or now > last + _VACUUM_S):
            self._vacuumed[table.name] = now
            with with_settings(spark, _LISTING):
                spark.sql(f"VACUUM {table.sql_name}")
            log.info("old files removed", table=table.name)
        with with_settings(spark, _OPTIONS):
            if table.file_count > 1:
                spark.sql(f"OPTIMIZE {table.sql_name}")
                log.info("table optimized", table=table.name)
            if self._is_purge_due(table):
                # Large sets of clustered files would be left alone here too.
                with with_settings(spark, {_LARGE_SET: _NO_LIMIT}):
                    spark.sql(f"REORG TABLE {table.sql_name} APPLY (PURGE)")
                log.info("deleted rows purged", table=table.name)

    def _is_purge_due(self, table: DeltaTable) -> bool:
        """Return whether so many rows are deleted that rewriting files costs little for each of them."""
        deleted = table.deleted_rows if self._purge_percent else 0
        return deleted > 0 and deleted * 100 >= self._purge_percent * table.rows().count()


class DeltaOptions(TableOptions):
    """Settings of the Delta sink."""

    path: str | None = supported(
        "sink.path",
        DIRECTORY,
        default_note="required without sink.table",
        doc="Directory of the tables, which are at <path>/<database>/<table>.",
    )
    table: str | None = supported(
        "sink.table",
        TABLE_NAME,
        doc="Names of the tables in a catalog, instead of sink.path, such as main.shop.{table} or "
        "main.{database}.{table}.",
    )
    purge_percent: int = supported(
        "sink.purge.percent",
        integer(0),
        default="20",
        doc="Percentage of rows that deletion vectors mark as deleted, from which OPTIMIZE is followed by REORG "
        "TABLE … APPLY (PURGE); 0: never.",
    )
    vacuum: bool = supported(
        "sink.vacuum",
        BOOLEAN,
        default="true",
        doc="Whether VACUUM runs when a table is due for OPTIMIZE, at most once a day in a run.",
    )


def check_location(draft: Draft) -> None:
    """Report a missing location of the tables, or two of them."""
    given = [name for name in ("sink.path", "sink.table") if draft.is_set(name)]
    if not given:
        draft.problems.append("sink.path is missing: the directory of the tables; or set sink.table")
    if len(given) > 1:
        draft.problems.append("sink.table: sink.path is set too; use one of them")


Changes = TypeVar("Changes", RowChanges, DriverChanges)

_EXTENSION: Final = "io.delta.sql.DeltaSparkSessionExtension"
_CATALOG: Final = "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog"
_MOST_PLANS: Final = 4096


class DeltaSink(TableSink[DeltaTable]):
    """Writes the tables at ``sink.path`` or with the names of ``sink.table``."""

    def __init__(self, spark: SparkSession, options: DeltaOptions, context: SinkContext) -> None:
        if _EXTENSION not in (spark.conf.get("spark.sql.extensions", "") or ""):
            raise SinkError(
                "the Spark session has no Delta Lake extension",
                hint=f"start the session with spark.sql.extensions={_EXTENSION} and {_CATALOG}",
            )
        upkeep = DeltaUpkeep(options.optimize_batches, options.purge_percent, vacuum=options.vacuum)
        super().__init__(spark, options, context, upkeep, is_conflict)
        self._location = partial(location, path=options.path, template=options.table)
        self._files = KnownFiles()
        self._rows = KnownRows()
        """Of tables that are written in the driver."""
        self._path = DriverPath("small tables are written by queries for a while")
        self._failures: dict[str, BaseException | None] = {}
        """Of the driver in the running batch, by topic."""
        self._plans: dict[str, ChangePlan] = {}
        """By topic, of tables that the driver writes."""

    def _table(self, schema: TableSchema) -> DeltaTable:
        return DeltaTable(self._spark, self._location(schema.database, schema.table), self._files)

    def _merge(self, opened: OpenTable[DeltaTable], batch: TableBatch, last: DataFrame, batch_id: int) -> None:
        self._failures.pop(opened.topic, None)
        super()._merge(opened, batch, last, batch_id)
        # No other way failed, as it would if the records could not be read, or the query were stopped.
        if opened.topic in self._failures:
            self._path.fail(self._failures.pop(opened.topic), table=opened.table.name)

    def _merge_directly(self, opened: OpenTable[DeltaTable], changes: RowChanges, after: After) -> bool:
        """Write a batch with few changes in a small commit (delta_small.py)."""
        opened.fits_driver = False
        if not opened.table.is_at_path or changes.most > MOST_CHANGES:
            return False  # as the conditions say, without a transaction for each large batch

        def commit() -> bool:
            transaction, given, ledger = self._begin(opened, changes, after)
            if self._path.works:
                try:
                    opened.fits_driver = rewrite_in_driver(transaction, given, self._rows)
                except NotStagedError as error:
                    self._failures[opened.topic] = error.__cause__
                    transaction, given, ledger = self._begin(opened, changes, after)
            merged = opened.fits_driver or merge_small(transaction, given)
            if merged:
                self._end(opened, transaction, ledger, in_whole=opened.fits_driver)
            return merged

        try:
            return opened.retried(commit)
        finally:
            if not opened.fits_driver:
                self._plans.pop(opened.topic, None)

    def _begin(
        self, opened: OpenTable[DeltaTable], changes: Changes, after: After
    ) -> tuple[LogTransaction, Changes, Ledger]:
        """Start a transaction; return it, the changes with the ledger of its commit, and this ledger."""
        transaction = opened.table.transaction(changes.spark)
        ledger = after(opened.followed(opened.table.ledger_at(transaction, opened.topic)))
        return transaction, replace(changes, metadata=ledger.metadata), ledger

    def _end(
        self, opened: OpenTable[DeltaTable], transaction: LogTransaction, ledger: Ledger, *, in_whole: bool
    ) -> None:
        opened.table.note(transaction, ledger)
        opened.ledger = ledger
        opened.way = "small commit, all rows" if in_whole else "small commit"

    def takes_from_driver(self, schema: TableSchema, offsets: int) -> bool:
        """Return whether a batch of so many offsets would probably be written with all rows of the table."""
        opened = self._open.get(schema.topic)
        return (
            self._path.works
            and opened is not None
            and opened.fits_driver
            and opened.table.shard is None
            and offsets <= FEW_CHANGES
        )

    def write_in_driver(self, batch: DriverBatch, batch_id: int) -> bool:
        """Write all rows of a small table, with changes that the driver has."""
        try:
            with self._alone(batch.schema) as opened:
                changes = self._driver_changes(opened, batch, batch_id)
                if changes is None or not self._rewrite(opened, changes, batch.range):
                    return False
                self._upkeep.after_batch(opened.table)
                return True
        except NotStagedError:
            raise
        except BaseException:
            # The commit may have been made: the next attempt reads from the table what it has applied.
            self._forget(batch.schema.topic)
            raise

    def _driver_changes(self, opened: OpenTable[DeltaTable], batch: DriverBatch, batch_id: int) -> DriverChanges | None:
        """Return the changes; None if ``write_batch`` would do more than merge them."""
        schema, table, topic, found = batch.schema, opened.table, opened.topic, batch.range
        if (
            opened.is_empty
            or opened.layout.takes_changelog
            or self._is_truncated_by(opened, batch)
            or table.state.load_run
            or overlaps(opened.known.merge, found)
        ):
            return None
        spark = batch.spark
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
        with before_commit():
            plan = self._plans[topic] = change_plan(opened, batch, self._plans.get(topic))
        own, former, query = opened.own_columns(schema), opened.former_columns, self._context.query_id
        return DriverChanges(schema, own, former, "", found.offsets, query, batch_id, spark, plan, batch.rows)

    def _rewrite(self, opened: OpenTable[DeltaTable], given: DriverChanges, found: TopicRange) -> bool:
        def commit() -> bool:
            transaction, changes, ledger = self._begin(
                opened, given, lambda before: before.appended(found).merged(found)
            )
            if not rewrite_in_driver(transaction, changes, self._rows):
                return False
            self._end(opened, transaction, ledger, in_whole=True)
            return True

        return opened.retried(commit)

    @staticmethod
    def _is_truncated_by(opened: OpenTable[DeltaTable], batch: DriverBatch) -> bool:
        """Return whether a truncation is new to the table, or removes changes of the batch."""
        done, truncated = opened.truncations(batch.truncated)
        return truncated != done or (truncated is not None and batch.earliest < truncated)


SINK = SinkPlugin(
    name="delta",
    doc="Keeps one Delta table per captured table, equal to the source table.",
    options=DeltaOptions,
    images=Images.UPSERT,
    guarantee="exactly once: each batch changes a table once, whatever fails",
    open=DeltaSink,
    merges_tables=True,
    checks=(check_location, check_fields),
    rejected_elsewhere=PROPERTIES,
    fields=attrgetter("fields"),
    table_images=shape_images,
    jars={"4.1": ("io.delta:delta-spark_4.1_2.13:4.4.0",)},
    # With a commit each second the log of a table would have half a million entries in a week.
    processing_time="10 seconds",
    spark_settings={
        # The list of the files of a table. By default 50 tasks read it after each commit.
        "spark.databricks.delta.snapshotPartitions": "4",
        "spark.sql.extensions": _EXTENSION,
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
)
