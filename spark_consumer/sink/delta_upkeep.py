"""Upkeep of Delta tables (table_upkeep.py).

OPTIMIZE compacts small files, clusters them by key and applies their deletion vectors. Delta leaves files alone that
are part of a large set which was clustered together: a run rewrites what is new and not the whole table. The deletion
vectors of such files stay. REORG rewrites them when they have enough deleted rows. A table of one file needs no
OPTIMIZE, such as one whose rows are all written again in each batch. VACUUM removes what such writes leave behind.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import structlog

from tailrace.spark_consumer.java_errors import java_errors
from tailrace.spark_consumer.sink.delta_table import DeltaTable
from tailrace.spark_consumer.sink.table_upkeep import Upkeep
from tailrace.spark_consumer.small_data import with_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONFLICTS: Final = ("DELTA_CONCURRENT_", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
"""Starts of the error conditions of a transaction that lost against another one."""
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
    """Runs OPTIMIZE, REORG and VACUUM."""

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


def is_conflict(error: BaseException) -> bool:
    """Return whether a command of somebody else changed the same files, or what the table is."""
    return any(each.condition.startswith(_CONFLICTS) for each in java_errors(error))
