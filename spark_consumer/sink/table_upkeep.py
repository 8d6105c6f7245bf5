"""Upkeep of tables by the query that writes them, between two batches of a table: no conflict with itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import structlog
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from tailrace.spark_consumer.sink.target_table import TargetTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Table = TypeVar("Table", bound=TargetTable)
Result = TypeVar("Result")

SPARK_ERRORS: Final = (PySparkException, Py4JJavaError)
"""What a failed statement raises; errors of Java that Spark does not know come as they are."""
_ATTEMPTS: Final = 5

log = structlog.get_logger(__name__)


class Upkeep(ABC, Generic[Table]):
    """Compacts the files of tables; several threads may use it, each for its own tables."""

    def __init__(self, batches: int, purge_percent: int) -> None:
        """``batches``: after how many batches with changes of a table; 0: never.

        ``purge_percent``: the share of replaced rows from which files with deleted rows are rewritten; 0: never.
        """
        self._batches = batches
        self._purge_percent = purge_percent
        self._written: Counter[str] = Counter()
        self._replaced: Counter[str] = Counter()
        """Updates and deletes of each table since its last purge, or since the start of the query."""

    def after_batch(self, spark: SparkSession, table: Table, replaced: int) -> None:
        """Count a batch of a table, and tend the table if it is due; a failure is left to the next time."""
        self._written[table.name] += 1
        self._replaced[table.name] += replaced
        if not self._batches or self._written[table.name] < self._batches:
            return
        self._written[table.name] = 0
        try:
            self._tend(spark, table)
        except SPARK_ERRORS as error:
            cause = " ".join(str(error).splitlines()[:2])  # a failed task is named in the second line
            log.warning("the table was not optimized; it is tried again later", table=table.name, cause=cause)

    @abstractmethod
    def _tend(self, spark: SparkSession, table: Table) -> None:
        """Compact the files of a table."""


def retried(commit: Callable[[], Result], name: str, is_conflict: Callable[[BaseException], bool]) -> Result:
    """Run a command that commits, again if a command of somebody else, such as a compaction, changed the same files.

    ``is_conflict``: whether an error says that.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return commit()
        except SPARK_ERRORS as error:
            if not is_conflict(error):
                raise
            log.warning("a concurrent command changed the table: the batch is written again", table=name)
    return commit()
