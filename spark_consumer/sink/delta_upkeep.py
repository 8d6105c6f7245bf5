"""Upkeep of Delta tables (table_upkeep.py).

OPTIMIZE compacts small files, clusters them by key and applies their deletion vectors. Delta leaves files alone that
are part of a large set which was clustered together: a run rewrites what is new and not the whole table. The deletion
vectors of such files stay. REORG rewrites them when enough rows were replaced since the last time.
"""

from __future__ import annotations

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
_OPTIONS: Final = {
    # Files of moderate size have narrow ranges of keys.
    "spark.databricks.delta.optimize.maxFileSize": str(128 << 20),
    _LARGE_SET: str(1 << 30),
    "spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize.targetCubeSize": str(3 << 29),
}

log = structlog.get_logger(__name__)


class DeltaUpkeep(Upkeep[DeltaTable]):
    """Runs OPTIMIZE and REORG."""

    def _tend(self, spark: SparkSession, table: DeltaTable) -> None:
        with with_settings(spark, _OPTIONS):
            spark.sql(f"OPTIMIZE {table.sql_name}")
            log.info("table optimized", table=table.name)
            if self._is_purge_due(table):
                self._replaced[table.name] = 0  # a command that fails is not repeated before it is due again
                # Large sets of clustered files would be left alone here too.
                with with_settings(spark, {_LARGE_SET: _NO_LIMIT}):
                    spark.sql(f"REORG TABLE {table.sql_name} APPLY (PURGE)")
                log.info("deleted rows purged", table=table.name)

    def _is_purge_due(self, table: DeltaTable) -> bool:
        """Return whether so many rows were replaced that rewriting files costs little for each of them."""
        replaced = self._replaced[table.name]
        if not self._purge_percent or not replaced:
            return False
        if table.properties.get("delta.enableDeletionVectors", "false").lower() != "true":
            return False
        return replaced * 100 >= self._purge_percent * table.rows().count()


def is_conflict(error: BaseException) -> bool:
    """Return whether a command of somebody else changed the same files, or what the table is."""
    return any(each.condition.startswith(_CONFLICTS) for each in java_errors(error))
