"""A table that cannot follow its source is loaded again alone, by what its hint says."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.schemas.connect import ConnectField
from tests.embedded.kafka import KafkaBroker
from tests.sinks.conformance import INTEGER, row
from tests.sinks.harness import BatchRunner
from tests.sinks.test_delta import DeltaBackend
from tests.sinks.test_exception_mode import NUMBER, records_of, rename
from tests.spark.records import Feed, table_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


def test_a_table_that_was_moved_away_is_loaded_by_the_next_attempt(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """In the same process, which knew the former one."""
    feed, backend = Feed(kafka_broker, prefix), DeltaBackend(spark, kafka_broker, tmp_path)
    table = feed.table(table_schema(prefix, "t", INTEGER, ConnectField("k", NUMBER)))
    other = feed.table(table_schema(prefix, "other", INTEGER))
    run = BatchRunner(feed, table, backend, tmp_path)
    run.others = [other]
    first: dict[str, Any] = {**row(1, 1), "k": 2}
    run.batch(table.change("c", None, first, pos=100), other.change("c", None, row(1), pos=110))
    exchanged = records_of(feed, table, ((rename("n", "k"), rename("k", "n")),))
    last: dict[str, Any] = {**row(2, 3), "k": 4}
    run.batch(exchanged, table.change("c", None, last, pos=300), other.change("c", None, row(2), pos=310))
    hint = run.parked()[table.schema.topic]["hint"]
    assert hint == "move the Delta table away: the next attempt loads it again from its topic, and no other table"

    folder = tmp_path / "tables" / table.schema.database / "t"
    shutil.move(folder, tmp_path / "away")
    run.retry()

    assert run.parked() == {}
    assert backend.rows(table.schema) == {1: {**row(1, 2), "k": 1}, 2: last}
