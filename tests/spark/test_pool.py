"""The threads of the tables follow the cores of the cluster."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

import pytest

from tailrace.spark_consumer.monitor.table_result import TableResult
from tailrace.spark_consumer.tables.pool import TablePool, clone_session
from tailrace.spark_consumer.tables.work import TableWork

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class _Meeting:
    """Works that end when as many of them run at the same time as the pool should have threads."""

    topic, offsets = "t", 1

    def __init__(self, parties: int) -> None:
        self._barrier = threading.Barrier(parties)
        self.partitions: set[str] = set()

    def run(self, spark: SparkSession) -> TableResult:
        """Wait for the others."""
        self.partitions.add(str(spark.conf.get("spark.sql.shuffle.partitions")))
        self._barrier.wait(60)
        return TableResult(0, None)


@pytest.mark.parametrize(("configured", "expected"), [("200", ({"4"}, {"10"})), ("7", ({"7"}, {"7"}))])
def test_executors_that_register_late_are_used(
    spark: SparkSession, configured: str, expected: tuple[set[str], set[str]]
) -> None:
    own = clone_session(spark)
    own.conf.set("spark.sql.shuffle.partitions", configured)
    cores = [2, 5]
    pool = TablePool(own, None, cores=lambda: cores[0])
    seen = []
    for count in list(cores):
        cores[0] = count
        meeting = _Meeting(count)
        works = [cast("TableWork", meeting)] * count
        assert pool.run(works, lambda _work, _result: None) == {}
        seen.append(meeting.partitions)

    assert tuple(seen) == expected
