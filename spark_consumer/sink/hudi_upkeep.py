"""Upkeep of Hudi tables (table_upkeep.py). Hudi itself removes old files and joins small ones when it writes.

Clustering joins the files that are small after all and sorts the rows by key, so that files have narrow ranges of keys.
Its commit has no ledger; the ledgers of the commits before it count.

Hudi does not number its commits: each start of the query begins to count at a random number.
"""

from __future__ import annotations

from collections import Counter
from random import randrange
from typing import TYPE_CHECKING

import structlog

from tailrace.spark_consumer.sink.hudi_table import HudiTable
from tailrace.spark_consumer.sink.table_names import literal
from tailrace.spark_consumer.sink.table_upkeep import Upkeep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = structlog.get_logger(__name__)


class HudiUpkeep(Upkeep[HudiTable]):
    """Runs the procedure of Hudi that clusters a table."""

    def __init__(self, batches: int) -> None:
        super().__init__(batches)
        self._first = randrange(1 << 16)  # so that short runs are due as often in the mean
        self._written: Counter[str] = Counter()

    def after_batch(self, table: HudiTable) -> None:
        """Count a batch that changed a table."""
        self._written[table.name] += 1
        super().after_batch(table)

    def _commits(self, table: HudiTable) -> int:
        return self._first + self._written[table.name]

    def _tend(self, spark: SparkSession, table: HudiTable) -> None:
        order = literal(",".join(table.key))
        # Without them the procedure has Hudi's defaults: a metadata table, and the timeline server. It splits their
        # text at commas and equals signs.
        given = {name: value for name, value in table.options.items() if value and not {",", "="} & set(value)}
        options = literal(",".join(f"{name}={value}" for name, value in given.items()))
        spark.sql(
            f"CALL run_clustering(path => {literal(table.name)}, order => {order}, options => {options})"
        ).collect()
        log.info("table clustered", table=table.name)
