"""SIGKILL while several tables are written to one target, at each step: after restarts it is exact."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.embedded.kafka import KafkaBroker
from tests.sinks.conformance import INTEGER
from tests.sinks.test_transforms import SHARDS
from tests.spark.model import Run
from tests.spark.records import Feed, Message, Row, table_schema
from tests.spark.running import settings
from tests.spark.test_kill import run_killed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOMENTS = (
    # One shard has its rows, the other one does not; then both have them, and their batch is not committed.
    "after-append:1",
    "before-append:2",
    "after-append:2",
    "before-write_batch:2",
    "before-merge:1",
    "after-merge:1",
    "before-merge:2",
    "after-merge:2",
    "after-write_batch:2",
)


@pytest.mark.long
@pytest.mark.timeout(5400)
def test_shared_delta_table_is_exact_after_kills_at_every_step(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """Two shards with the same keys are loaded and changed in the same batches."""
    feed = Feed(kafka_broker, prefix)
    runs = {}
    for number in (1, 2):
        schema = table_schema(prefix, "t", INTEGER)
        schema = replace(schema, topic=f"{prefix}.shop_{number}.t", database=f"shop_{number}")
        table = feed.table(schema, partitions=2)
        runs[number] = Run(table, prefix, seed=20 + number, keys=60, events=150)
    for messages in _side_by_side(runs[1].transactions, runs[2].transactions):
        feed.write(messages)
    given = settings(kafka_broker, prefix, tmp_path, maxOffsetsPerTrigger=60) | SHARDS

    run_killed(tmp_path, given, _MOMENTS)

    assert _stored(spark, tmp_path) == {
        (number, key): row for number, run in runs.items() for key, row in run.rows.items()
    }


def _side_by_side(first: list[list[Message]], second: list[list[Message]]) -> list[list[Message]]:
    """Return the transactions of two tables in turn."""
    longer, shorter = sorted((first, second), key=len, reverse=True)
    return [each for number, own in enumerate(longer) for each in (own, *shorter[number : number + 1])]


def _stored(spark: SparkSession, work: Path) -> dict[tuple[int, int], Row]:
    """Return the rows by shard and key; a duplicate is an error."""
    rows = spark.read.format("delta").load(str(work / "tables" / "shop" / "t")).drop("_seq").collect()
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for row in rows:
        values = row.asDict()
        shard = values.pop("shard")
        assert (shard, values["id"]) not in found, "duplicate key in the table"
        found[shard, values["id"]] = values
    return found
