"""Runs the work of several tables at the same time, each in a session of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.util import InheritableThread

from tailrace.spark_consumer.monitor.table_result import TableResult
from tailrace.spark_consumer.tables.bad_record import DeadLetters
from tailrace.spark_consumer.tables.parts import Work

Applied = Callable[[Work, TableResult], None]
"""Called on the thread of the table when its work is done."""


_MAX_THREADS: Final = 32
_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_DEFAULT_PARTITIONS: Final = "200"


class TablePool:
    """Sessions, each for one thread. A session has its own temporary views and settings.

    The sessions share the cache, the catalog and the settings that ``spark`` has when the pool is made. Executors of a
    cluster may register after the first batch has begun: the number of threads, and that of shuffle partitions unless
    it is configured, follow the cores at the start of each run.
    """

    def __init__(self, spark: SparkSession, threads: int | None, *, cores: Callable[[], int] | None = None) -> None:
        """``threads``: None for one per core, at least two. ``cores``: of the cluster now."""
        self._spark = spark
        self._threads = threads
        self._cores = cores or (lambda: int(spark.sparkContext.defaultParallelism))
        self._sessions: list[SparkSession] = []
        self._follows_cores = spark.conf.get(_PARTITIONS) == _DEFAULT_PARTITIONS

    def _ready(self) -> list[SparkSession]:
        """Return the sessions for the cores that there are now."""
        cores = self._cores()
        wanted = self._threads or min(max(2, cores), _MAX_THREADS)
        while len(self._sessions) < wanted:
            self._sessions.append(clone_session(self._spark))
        if self._follows_cores:
            for session in (self._spark, *self._sessions):
                session.conf.set(_PARTITIONS, str(2 * cores))
        return self._sessions[:wanted]

    def run(
        self, works: Iterable[Work], applied: Applied, letters: DeadLetters | None = None
    ) -> dict[str, BaseException]:
        """Run all works, the largest first; return the errors by topic.

        The jobs belong to the job group of the calling thread, so stopping the query stops them too.
        """
        sessions = self._ready()
        queue: deque[Work] = deque(sorted(works, key=lambda work: -work.offsets))
        errors: dict[str, BaseException] = {}
        threads = [
            InheritableThread(
                target=_drain, args=(session, queue, applied, letters, errors), name=f"tailrace-table-{number}"
            )
            for number, session in enumerate(sessions[: len(queue)])
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return errors


def _drain(
    spark: SparkSession,
    queue: deque[Work],
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


def _run(spark: SparkSession, work: Work, letters: DeadLetters | None) -> TableResult:
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
