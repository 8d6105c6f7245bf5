"""SIGKILL during a batch, at each step: after a restart the table is exact."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.schemas.connect import ConnectField
from tests.embedded.kafka import KafkaBroker
from tests.embedded.spark import spark_environment, spark_settings
from tests.spark.model import Run
from tests.spark.records import Feed, connect, table_schema
from tests.spark.running import consume, settings, table_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]


def run_consumer(work: Path, given: dict[str, str], moment: str) -> int:
    """Run a consumer in its own process group and return its exit code."""
    file = work / "consumer.json"
    spark = {name: value for name, value in spark_settings(work).items() if name != "spark.driver.memory"}
    file.write_text(json.dumps({**given, **spark, "spark.driver.memory": "1g"}), encoding="utf-8")
    with (work / f"consumer-{moment.replace(':', '-')}.log").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.crash_consumer", str(file), moment],
            cwd=ROOT,
            env={**os.environ, **spark_environment()},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            return process.wait(1200)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def run_killed(work: Path, given: dict[str, str], moments: Iterable[str]) -> None:
    """Run a consumer that is killed (SIGKILL) at each of some moments, and then one to its end."""
    for moment in moments:
        assert run_consumer(work, given, moment) == -signal.SIGKILL, moment
    assert run_consumer(work, given, "never") == 0


@pytest.mark.long
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("sink", ["delta", "iceberg"])
def test_table_is_exact_after_kills_at_every_step_of_a_batch(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path, sink: str
) -> None:
    feed = Feed(kafka_broker, prefix)
    run = Run(
        feed.table(table_schema(prefix, "customers", ConnectField("n", connect("int32"))), partitions=2),
        prefix,
        seed=11,
        keys=60,
        events=120,
    )
    for transaction in run.transactions:
        feed.write(transaction)
    given = settings(kafka_broker, prefix, tmp_path, maxOffsetsPerTrigger=60, sink=sink)
    if sink == "iceberg":
        given["sink.table"] = "iceberg.{database}.{table}"

    run_killed(tmp_path, given, ("after-append:1", "before-merge:2", "after-merge:1", "after-write_batch:2"))

    if sink == "delta":
        assert table_rows(spark, tmp_path, "customers") == run.rows
    else:
        rows = spark.read.format("iceberg").load(str(tmp_path / "iceberg" / "shop" / "customers")).drop("_seq")
        found = [row.asDict() for row in rows.collect()]
        assert sorted(found, key=lambda row: row["id"]) == [run.rows[key] for key in sorted(run.rows)]


@pytest.mark.timeout(2700)
def test_kill_between_append_and_merge_repeats_nothing(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    feed = Feed(kafka_broker, prefix)
    table = feed.table(table_schema(prefix, "t"))
    rows = {i: {"id": i, "name": "snapshot"} for i in range(20)}
    changed = [{**rows[3], "name": "changed"}, {**rows[13], "name": "changed"}]
    given = settings(kafka_broker, prefix, tmp_path)
    feed.write(table.snapshot(prefix, 0, [rows[i] for i in range(10)], low=100, high=200))
    # The first change is in the same batch as its row. That batch fills the empty table and has no MERGE.
    feed.write(table.change("u", rows[3], changed[0], pos=300))
    consume(spark, given)
    history = spark.sql(f"DESCRIBE HISTORY delta.`{tmp_path}/tables/shop/t`").collect()
    assert "MERGE" not in {entry["operation"] for entry in history}
    feed.write(table.snapshot(prefix, 1, [rows[i] for i in range(10, 20)], low=310, high=400))
    feed.write([*table.change("u", rows[13], changed[1], pos=500), *table.change("d", rows[4], None, pos=510)])

    assert run_consumer(tmp_path, given, "after-append:1") == -signal.SIGKILL
    between = table_rows(spark, tmp_path, "t")
    consume(spark, given)

    assert between == {**{i: row for i, row in rows.items() if i != 13}, 3: changed[0]}
    expected = {**rows, 3: changed[0], 13: changed[1]}
    assert table_rows(spark, tmp_path, "t") == {i: row for i, row in expected.items() if i != 4}


@pytest.mark.long
@pytest.mark.timeout(2700)
def test_kill_after_the_append_into_an_empty_table_repeats_nothing(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    feed = Feed(kafka_broker, prefix)
    table = feed.table(table_schema(prefix, "t"))
    rows = {i: {"id": i, "name": "snapshot"} for i in range(20)}
    feed.write(table.snapshot(prefix, 0, rows.values(), low=100, high=200))
    changed, new = {**rows[3], "name": "changed"}, {"id": 50, "name": "new"}
    feed.write([*table.change("u", rows[3], changed, pos=300), *table.change("d", rows[4], None, pos=310)])
    feed.write([*table.change("c", None, new, pos=320), *table.change("c", None, {**new, "id": 51}, pos=330)])
    feed.write(table.change("d", {**new, "id": 51}, None, pos=340))
    given = settings(kafka_broker, prefix, tmp_path)

    assert run_consumer(tmp_path, given, "after-append:1") == -signal.SIGKILL
    filled = table_rows(spark, tmp_path, "t")
    consume(spark, given)

    assert filled == {i: row for i, row in {**rows, 3: changed, 50: new}.items() if i != 4}
    assert table_rows(spark, tmp_path, "t") == filled
