"""The consumer on a standalone cluster: driver and executors are separate processes, and an executor is killed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.samples import ROOT
from tests.embedded import supervised
from tests.embedded.kafka import KafkaBroker
from tests.embedded.spark_cluster import SparkCluster
from tests.spark.records import Feed, table_schema
from tests.spark.running import consume, settings, table_rows
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


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_table_that_kills_its_executors_is_parked_and_others_go_on(
    spark: SparkSession, kafka_broker: KafkaBroker, cluster: SparkCluster, zip_file: Path, tmp_path: Path
) -> None:
    """A value takes more memory than an executor has, whichever runs its task: each of them ends."""
    prefix, row = "deadly", {"id": 1, "name": "x"}
    feed = Feed(kafka_broker, prefix)
    names = ("deadly", *(f"good{number}" for number in range(4)))
    for table in (feed.table(table_schema(prefix, name)) for name in names):
        feed.write(table.change("c", None, row, pos=1))
    given = settings(kafka_broker, prefix, tmp_path)
    transform = {"source-table": r"shop\.deadly", "projection": "*, length(repeat(name, 1900000000)) AS n"}
    deadly = {"transforms": "t", **{f"transforms.t.{name}": value for name, value in transform.items()}}

    with SubmittedConsumer(cluster, zip_file, given | deadly, tmp_path / "driver") as consumer:
        code = consumer.wait(1800)

    text = consumer.log_text()
    assert code == 1, text[-4000:]
    assert "Lost executor" in text
    parked = [json.loads(file.read_text()) for file in (tmp_path / "checkpoint/tailrace/parked").glob("*.json")]
    assert [each["topic"] for each in parked] == [f"{prefix}.shop.deadly"]
    assert "tasks ran out of memory, or lost their executors" in parked[0]["reason"]
    assert "spark.executor.memory" in parked[0]["hint"]
    consume(spark, given)
    # The query without the transform fills the table; its column is from the first one.
    assert table_rows(spark, tmp_path, "deadly") == {1: row | {"n": None}}
    for name in names[1:]:
        assert table_rows(spark, tmp_path, name) == {1: row}, name
