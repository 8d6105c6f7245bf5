"""Upkeep of tables by the query that writes them: in the background, and never during a write of the same table.

A table is due when the number of its commits passes a multiple of ``sink.optimize.batches``, moved by a hash of its
name. The table itself has that number. So short runs and restarts tend their tables as often as one long run, and
tables that change in the same batches are due in different ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Generic
from zlib import crc32

import structlog

from tailrace.spark_consumer.sink.target_table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


log = structlog.get_logger(__name__)


class Upkeep(ABC, Generic[Table]):
    """Compacts the files of tables; several threads may use it, each for its own tables."""

    def __init__(self, batches: int) -> None:
        """``batches``: after how many commits a table is due; 0: never."""
        self._batches = batches
        self._rounds: dict[str, int] = {}
        """By table: how many multiples its commits have passed."""
        self._due: dict[str, Table] = {}

    def opened(self, table: Table) -> None:
        """Note the commits of a table when it is opened or created."""
        if self._batches and table.name not in self._rounds:
            self._rounds[table.name] = self._round(table)

    def after_batch(self, table: Table) -> None:
        """Note whether a table is due after a batch that changed it."""
        if self._batches:
            now = self._round(table)
            if now > self._rounds.get(table.name, -1):
                self._due[table.name] = table
            self._rounds[table.name] = now

    def tend(self, spark: SparkSession, alone: Callable[[str], AbstractContextManager[object]]) -> bool:
        """Tend one table that is due; return whether there was one. A failure is left to the next time.

        ``alone`` keeps the batches away from the table with a name. No batch may use the session at the same time.
        """
        try:
            name, table = self._due.popitem()
        except KeyError:
            return False
        try:
            with alone(name):
                self._tend(spark, table)
                self._rounds[name] = self._round(table)
        except Exception as error:  # noqa: BLE001 - the rows are written, and no table waits for its upkeep
            cause = " ".join(str(error).splitlines()[:2])  # a failed task is named in the second line
            log.warning("the table was not optimized; it is tried again later", table=name, cause=cause)
        return True

    def _round(self, table: Table) -> int:
        return (self._commits(table) + crc32(table.name.encode()) % self._batches) // self._batches

    @abstractmethod
    def _commits(self, table: Table) -> int:
        """Return a number that grows with each commit, and outlives the process."""

    @abstractmethod
    def _tend(self, spark: SparkSession, table: Table) -> None:
        """Compact the files of a table."""
