"""Upkeep of Delta tables by the query that writes them, between two batches of a table: no conflict with itself.

OPTIMIZE compacts small files, clusters them by key and applies their deletion vectors. Delta leaves files alone that
are part of a large set which was clustered together: a run rewrites what is new and not the whole table. The deletion
vectors of such files stay. REORG rewrites them when enough rows were replaced since the last time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

import structlog
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from tailrace.spark_consumer.sink.delta_table import DeltaTable
from tailrace.spark_consumer.small_data import with_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONFLICT: Final = "[DELTA_CONCURRENT_"
"""Start of the error condition of a transaction that lost against another one."""
_ATTEMPTS: Final = 5
_LARGE_SET: Final = "spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize.threshold"
_NO_LIMIT: Final = str(1 << 62)
_OPTIONS: Final = {
    # Files of moderate size have narrow ranges of keys.
    "spark.databricks.delta.optimize.maxFileSize": str(128 << 20),
    _LARGE_SET: str(1 << 30),
    "spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize.targetCubeSize": str(3 << 29),
}

Result = TypeVar("Result")

log = structlog.get_logger(__name__)


class Upkeep:
    """Runs OPTIMIZE and REORG for tables; several threads may use it, each for its own tables."""

    def __init__(self, batches: int, purge_percent: int) -> None:
        """``batches``: after how many batches with changes of a table; 0: never.

        ``purge_percent``: the share of replaced rows from which the files with deleted rows are rewritten; 0: never.
        """
        self._batches = batches
        self._purge_percent = purge_percent
        self._written: Counter[str] = Counter()
        self._replaced: Counter[str] = Counter()
        """Updates and deletes of each table since its last purge, or since the start of the query."""

    def after_batch(self, spark: SparkSession, table: DeltaTable, replaced: int) -> None:
        """Count a batch of a table, and tend the table if it is due; a failure is left to the next time."""
        self._written[table.name] += 1
        self._replaced[table.name] += replaced
        if not self._batches or self._written[table.name] < self._batches:
            return
        self._written[table.name] = 0
        try:
            with with_settings(spark, _OPTIONS):
                self._tend(spark, table)
        except (PySparkException, Py4JError) as error:  # Py4JError: a task failed
            cause = " ".join(str(error).splitlines()[:2])
            log.warning("the table was not optimized; it is tried again later", table=table.name, cause=cause)

    def _tend(self, spark: SparkSession, table: DeltaTable) -> None:
        spark.sql(f"OPTIMIZE {table.sql_name}")
        log.info("table optimized", table=table.name)
        if self._is_purge_due(table):
            # Large sets of clustered files would be left alone here too.
            self._replaced[table.name] = 0  # a command that fails is not repeated before it is due again
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


def retried(commit: Callable[[], Result], path: str) -> Result:
    """Run a command that commits, again if a command of somebody else, such as OPTIMIZE, changed the same files."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return commit()
        except PySparkException as error:
            if _CONFLICT not in str(error):
                raise
            log.warning("a concurrent command changed the table: the batch is written again", table=path)
    return commit()
