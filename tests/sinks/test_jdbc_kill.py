"""SIGKILL during a batch of the JDBC sink, at each step: after a restart the table is exact."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.schemas.connect import ConnectField
from tests.embedded.kafka import KafkaBroker
from tests.sinks.jdbc_backend import JdbcBackend, JdbcServer
from tests.spark.model import Run
from tests.spark.records import Feed, connect, table_schema
from tests.spark.running import settings
from tests.spark.test_kill import run_killed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.long
@pytest.mark.timeout(5400)
def test_table_is_exact_after_kills_at_every_step_of_a_batch(
    spark: SparkSession, kafka_broker: KafkaBroker, jdbc_server: JdbcServer, prefix: str, tmp_path: Path
) -> None:
    class Backend(JdbcBackend):
        server = jdbc_server

    backend = Backend(spark, kafka_broker, tmp_path)
    feed = Feed(kafka_broker, prefix)
    table = feed.table(table_schema(prefix, "customers", ConnectField("n", connect("int32"))), partitions=2)
    run = Run(table, prefix, seed=11, keys=60, events=120)
    for transaction in run.transactions:
        feed.write(transaction)
    given = settings(kafka_broker, prefix, tmp_path, sink="jdbc", maxOffsetsPerTrigger=60)
    given |= backend.settings()

    run_killed(
        tmp_path,
        given,
        ("after-fill:1", "after-change_rows:2", "after-note:1", "after-unstage:1", "after-write_batch:2"),
    )

    assert backend.rows(table.schema) == run.rows
    assert backend.stages() == []
