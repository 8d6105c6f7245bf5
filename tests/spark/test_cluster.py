"""The consumer on a standalone cluster: driver and executors are separate processes, and an executor is killed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.samples import ROOT
from tests.embedded import supervised
from tests.embedded.spark_cluster import SparkCluster
from tests.spark.running import settings
from tests.spark.test_end_to_end import delta_rows
from tests.support.captured_source import CapturedSource
from tests.support.submitted import SubmittedConsumer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    """A master and two workers."""
    with SparkCluster() as started:
        yield started


@pytest.fixture(scope="module")
def zip_file() -> Path:
    """The archive, built as the page says."""
    subprocess.run(["./run", "archive"], cwd=ROOT, check=True, capture_output=True)
    return ROOT / "dist" / "tailrace-spark.zip"


def test_tables_are_exact_after_an_executor_was_killed(
    spark: SparkSession, source: CapturedSource, cluster: SparkCluster, zip_file: Path, tmp_path: Path
) -> None:
    offsets = sum(len(rows) for rows in source.tables.values())
    given = settings(source.broker, source.prefix, tmp_path, maxOffsetsPerTrigger=offsets)
    with SubmittedConsumer(cluster, zip_file, given, tmp_path / "driver") as consumer:
        supervised.wait_until(
            lambda: consumer.batches() > 0 or not consumer.running, what="the first batch", deadline_s=300
        )
        killed = cluster.kill_executor()
        code = consumer.wait(600)

    assert code == 0, consumer.log_text()[-4000:]
    assert killed is not None
    assert "Lost executor" in consumer.log_text()
    assert consumer.batches() > 1
    for table, expected in source.tables.items():
        assert delta_rows(spark, source, tmp_path, table) == expected, table
