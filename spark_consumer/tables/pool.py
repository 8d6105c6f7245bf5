"""Runs the work of several tables at the same time, each in a session of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.util import InheritableThread

from tailrace.spark_consumer.monitor.table_result import TableResult
from tailrace.spark_consumer.small_data import SMALL_OFFSETS
from tailrace.spark_consumer.source.group_reader import SharedReads
from tailrace.spark_consumer.tables.reading import DeadLetters
from tailrace.spark_consumer.tables.work import TableWork

Applied = Callable[[TableWork, TableResult], None]
"""Called on the thread of the table when its work is done."""


_MAX_THREADS: Final = 32
_MAX_GROUP: Final = 32
"""Tables whose records are read together."""
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
        self,
        works: Iterable[TableWork],
        applied: Applied,
        letters: DeadLetters | None = None,
        shared: SharedReads | None = None,
    ) -> dict[str, BaseException]:
        """Run all works, the largest first; return the errors by topic.

        Small ones follow each other on one thread in groups, whose records are read together (``shared``).

        The jobs belong to the job group of the calling thread, so stopping the query stops them too.
        """
        sessions = self._ready()
        ordered = sorted(works, key=lambda work: -work.offsets)
        queue = deque([work] for work in ordered) if shared is None else deque(_groups(ordered, len(sessions)))
        errors: dict[str, BaseException] = {}

        def run(spark: SparkSession, work: TableWork) -> None:
            try:
                spark.sparkContext.setJobDescription(work.topic)
                applied(work, _result(spark, work, letters))
            except BaseException as error:  # noqa: BLE001 - the caller decides about it
                errors[work.topic] = error

        def drain(spark: SparkSession) -> None:
            while True:
                try:
                    group = queue.popleft()
                except IndexError:
                    return
                ranges = [] if shared is None else [work.found for work in group if work.found is not None]
                try:
                    with nullcontext() if shared is None else shared.of(spark, ranges):
                        for work in group:
                            run(spark, work)
                except BaseException as error:  # noqa: BLE001 - no work may be left out without an error
                    for work in group:
                        errors.setdefault(work.topic, error)

        threads = [
            InheritableThread(target=drain, args=(session,), name=f"tailrace-table-{number}")
            for number, session in enumerate(sessions[: len(queue)])
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return errors


def _groups(works: Sequence[TableWork], threads: int) -> list[list[TableWork]]:
    """Return works in groups: small ranges together, others alone."""
    most = max(1, min(_MAX_GROUP, len(works) // (2 * threads)))
    groups: list[list[TableWork]] = []
    size = SMALL_OFFSETS
    for work in works:
        can_share = work.found is not None and not work.found.cut_off
        if not can_share or size + work.offsets > SMALL_OFFSETS or len(groups[-1]) >= most:
            groups.append([])
            size = 0
        groups[-1].append(work)
        size += work.offsets if can_share else SMALL_OFFSETS
    return groups


def _result(spark: SparkSession, work: TableWork, letters: DeadLetters | None) -> TableResult:
    while True:
        try:
            return work.run(spark)
        except Exception as error:
            if letters is None or not letters.take(spark, error, work.topic, work.found):
                raise


def clone_session(spark: SparkSession) -> SparkSession:
    """Return a new session with the settings that another one has now; ``newSession`` would lose them."""
    session: Any = spark._jsparkSession  # noqa: SLF001
    return SparkSession(spark.sparkContext, session.cloneSession())
