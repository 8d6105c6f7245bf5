"""Upkeep of Delta tables by the query that writes them, between two batches of a table: no conflict with itself.

OPTIMIZE compacts small files, clusters them by key and applies their deletion vectors. Delta leaves files alone that
are part of a large set which was clustered together: a run rewrites what is new and not the whole table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog
from pyspark.errors import PySparkException

from tailrace.spark_consumer.sink.delta_table import DeltaTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONFLICT: Final = "[DELTA_CONCURRENT_"
"""Start of the error condition of a transaction that lost against another one."""
_ATTEMPTS: Final = 5
_OPTIONS: Final = {
    # Files of moderate size have narrow ranges of keys.
    "spark.databricks.delta.optimize.maxFileSize": str(128 << 20),
    "spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize.threshold": str(1 << 30),
    "spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize.targetCubeSize": str(3 << 29),
}

log = structlog.get_logger(__name__)


class Upkeep:
    """Runs OPTIMIZE for a table after a number of batches; several threads may use it, each for its own tables."""

    def __init__(self, batches: int) -> None:
        """``batches``: after how many batches with changes of a table; 0: never."""
        self._batches = batches
        self._written: Counter[str] = Counter()

    def after_batch(self, spark: SparkSession, table: DeltaTable) -> None:
        """Count a batch of a table, and optimize the table if it is due; a failure is left to the next time."""
        self._written[table.name] += 1
        if not self._batches or self._written[table.name] < self._batches:
            return
        self._written[table.name] = 0
        before = {name: spark.conf.get(name, None) for name in _OPTIONS}
        try:
            for name, value in _OPTIONS.items():
                spark.conf.set(name, value)
            spark.sql(f"OPTIMIZE {table.sql_name}")
        except PySparkException as error:
            cause = str(error).splitlines()[0]
            log.warning("the table was not optimized; it is tried again later", table=table.name, cause=cause)
        else:
            log.info("table optimized", table=table.name)
        finally:
            for name, earlier in before.items():
                if earlier is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, earlier)


def retried(commit: Callable[[], object], path: str) -> None:
    """Run a command that commits, again if a command of somebody else, such as OPTIMIZE, changed the same files."""
    for attempt in range(_ATTEMPTS):
        try:
            commit()
        except PySparkException as error:
            if _CONFLICT not in str(error) or attempt == _ATTEMPTS - 1:
                raise
            log.warning("a concurrent command changed the table: the batch is written again", table=path)
        else:
            return
