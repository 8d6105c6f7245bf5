"""A short soak of the consumer; ``./run soak --consumer`` runs longer ones."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.embedded.kafka import KafkaBroker
from tests.embedded.mysql import MySqlServer
from tests.soak.consumer.round import Plan, Running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


def test_tables_are_exact_after_kills_and_lost_checkpoints(
    spark: SparkSession, mysql_server: MySqlServer, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    script = ("kill_driver", "restore_checkpoint", "delete_checkpoint")
    plan = Plan(1, 1, 60, len(script), time.monotonic() + 600, script=script, deletes_topic=False)

    result = Running(plan, mysql_server, kafka_broker, tmp_path).run(lambda: spark, None, tmp_path)

    assert result.verdict.problems == ()
    assert result.verdict.rows > 100
    assert result.starts == 2 + len(script)


def test_tables_are_exact_after_restored_targets_and_damaged_files(
    spark: SparkSession, mysql_server: MySqlServer, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    script = (
        "recreate_table",
        "add_partition",
        "restore_table_copy",
        "restore_version",
        "damage_state",
        "rename_table",
    )
    plan = Plan(3, 1, 60, len(script), time.monotonic() + 600, script=script, deletes_topic=False)

    result = Running(plan, mysql_server, kafka_broker, tmp_path).run(lambda: spark, None, tmp_path)

    assert result.verdict.problems == ()
    assert any(reason.startswith("parked: ") for reason in result.complaints)


def test_other_tables_go_on_when_a_topic_is_deleted(
    spark: SparkSession, mysql_server: MySqlServer, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    plan = Plan(2, 1, 60, 0, time.monotonic() + 600)

    result = Running(plan, mysql_server, kafka_broker, tmp_path).run(lambda: spark, None, tmp_path)

    assert result.verdict.problems == ()
    assert result.faults == {"delete_topic": 1}
