"""Runs the work of several tables at the same time, each in a session of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from pyspark.sql import SparkSession
from pyspark.util import InheritableThread

from tailrace.spark_consumer.monitor.table_result import TableResult
from tailrace.spark_consumer.tables.bad_record import DeadLetters
from tailrace.spark_consumer.tables.base import TableWork

Applied = Callable[[TableWork, TableResult], None]
"""Called on the thread of the table when its work is done."""


class TablePool:
    """A number of sessions, each for one thread. A session has its own temporary views and settings.

    The sessions share the cache, the catalog and the settings that ``spark`` has when the pool is made.
    """

    def __init__(self, spark: SparkSession, threads: int) -> None:
        self._sessions = [clone_session(spark) for _ in range(threads)]

    def run(
        self, works: Iterable[TableWork], applied: Applied, letters: DeadLetters | None = None
    ) -> dict[str, BaseException]:
        """Run all works, the largest first; return the errors by topic.

        The jobs belong to the job group of the calling thread, so stopping the query stops them too.
        """
        queue: deque[TableWork] = deque(sorted(works, key=lambda work: -work.offsets))
        errors: dict[str, BaseException] = {}
        threads = [
            InheritableThread(
                target=_drain, args=(session, queue, applied, letters, errors), name=f"tailrace-table-{number}"
            )
            for number, session in enumerate(self._sessions[: len(queue)])
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return errors


def _drain(
    spark: SparkSession,
    queue: deque[TableWork],
    applied: Applied,
    letters: DeadLetters | None,
    errors: dict[str, BaseException],
) -> None:
    while True:
        try:
            work = queue.popleft()
        except IndexError:
            return
        try:
            spark.sparkContext.setJobDescription(work.topic)
            applied(work, _run(spark, work, letters))
        except BaseException as error:  # noqa: BLE001 - the caller decides about it
            errors[work.topic] = error


def _run(spark: SparkSession, work: TableWork, letters: DeadLetters | None) -> TableResult:
    while True:
        try:
            return work.run(spark)
        except Exception as error:
            if letters is None or not letters.take(spark, error):
                raise


def clone_session(spark: SparkSession) -> SparkSession:
    """Return a new session with the settings that another one has now; ``newSession`` would lose them."""
    session: Any = spark._jsparkSession  # noqa: SLF001
    return SparkSession(spark.sparkContext, session.cloneSession())
