"""From other kinds of servers through the real producer into Delta tables: equal, and ``verify`` says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.spark_consumer import config
from tailrace.spark_consumer.verify.command import VerifyOptions, compare_tables, source_command
from tests.spark.running import consume, settings
from tests.spark.test_end_to_end import delta_rows
from tests.support.capture import CaptureThread, properties
from tests.support.captured_source import captured
from tests.support.database import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer

pytestmark = pytest.mark.timeout(900)

MARIADB = {"connector.class": "io.debezium.connector.mariadb.MariaDbConnector"}


def _without_gtids() -> AbstractContextManager[MySqlServer]:
    from tests.embedded.mysql import MySqlServer  # noqa: PLC0415 - only if the test runs

    return MySqlServer(settings={"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"})


def _minimal() -> AbstractContextManager[MySqlServer]:
    from tests.embedded.mysql import MySqlServer  # noqa: PLC0415 - only if the test runs

    return MySqlServer(settings={"binlog_row_metadata": "MINIMAL"})


def _before_8() -> AbstractContextManager[MySqlServer]:
    from tests.embedded.mysql import MySqlServer  # noqa: PLC0415 - only if the test runs

    return MySqlServer(version="5.7.22", settings={"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"})


def _mariadb() -> AbstractContextManager[MySqlServer]:
    from tests.embedded.mariadb import SOURCE, MariaDbServer  # noqa: PLC0415 - only if the test runs
    from tests.support.mariadb import family  # noqa: PLC0415

    return family(MariaDbServer(settings={**SOURCE, "character_set_server": "utf8mb4"}))


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(_mariadb, id="mariadb", marks=pytest.mark.mariadb),
        pytest.param(_without_gtids, id="without-gtids", marks=[pytest.mark.mysql, pytest.mark.long]),
        pytest.param(_minimal, id="minimal", marks=[pytest.mark.mysql, pytest.mark.long]),
        pytest.param(_before_8, id="5.7", marks=[pytest.mark.mysql("5.7.22"), pytest.mark.long]),
    ],
)
def test_targets_equal_the_source(
    start: Callable[[], AbstractContextManager[MySqlServer]],
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    prefix: str,
    tmp_path: Path,
) -> None:
    changes = MARIADB if start is _mariadb else {}
    with start() as server:
        database = Database(server, "shop")
        source = captured(database, kafka_broker, prefix, changes)
        offsets = sum(len(rows) for rows in source.tables.values())
        given = settings(kafka_broker, prefix, tmp_path, maxOffsetsPerTrigger=offsets)
        consume(spark, given)
        for table, rows in source.tables.items():
            assert delta_rows(spark, source, tmp_path, table) == rows, table

        producer = properties(server, kafka_broker, prefix, database.name, changes)
        file = tmp_path / "producer.json"
        file.write_text(json.dumps(producer))
        options = VerifyOptions(source_command(None, str(file)), "", 120, repair=False)
        with CaptureThread(producer) as capture:
            capture.wait_snapshot()
            consume(spark, given)
            assert compare_tables(spark, config.parse(given), options) == 0
            customer, _ = next(iter(source.tables["orders"]))
            spark.sql(f"DELETE FROM delta.`{tmp_path}/tables/shop/orders` WHERE customer = {customer}")
            assert compare_tables(spark, config.parse(given), options) == 3
