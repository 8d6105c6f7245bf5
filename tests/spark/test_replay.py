"""A signal sets the stream back over a renamed column: rows that are not written again keep its values in the end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.producer.ops.status import Status
from tests.spark.running import consume, settings
from tests.support.capture import CaptureThread, eventually, properties
from tests.support.incremental_checks import signal, signal_completed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.embedded.kafka import KafkaBroker
    from tests.support.database import Database


class KilledError(Exception):
    """The process ends here."""


def _kill(_status: Status) -> None:
    raise KilledError


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_batch_ends_between_the_definitions(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, database: Database, tmp_path: Path
) -> None:
    def executed() -> str:
        return str(database.execute("SELECT @@global.gtid_executed")[0][0])

    def apply(column: str) -> dict[int, Any]:
        """Let the target follow; return the values of a column."""
        consume(spark, settings(kafka_broker, prefix, tmp_path))
        frame = spark.read.format("delta").load(str(tmp_path / "tables" / database.name / "t"))
        return {row["id"]: row[column] for row in frame.collect()}

    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    database.execute("INSERT INTO t VALUES (1, 10), (2, 20), (3, 30)")
    channel = {"signal.enabled.channels": "kafka", "signal.poll.interval.ms": 100}
    given = properties(database.server, kafka_broker, prefix, database.name, channel)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KilledError), CaptureThread(given) as capture:  # noqa: PT012
        patch.setattr(Status, "moved", _kill)
        capture.wait_snapshot()
        before = executed()
        database.execute("UPDATE t SET v = 11 WHERE id = 1")
        between = executed()
        database.execute("ALTER TABLE t RENAME COLUMN v TO w")
        database.execute("UPDATE t SET w = 12 WHERE id = 1")
        capture.wait_position(database.server)
        assert apply("w") == {1: 12, 2: 20, 3: 30}
        signal(kafka_broker, prefix, "set-binlog-position", {"gtid_set": before})
        eventually(lambda: not capture.running, "the end of the process")
    with CaptureThread({**given, "tailrace.stop.at": between}) as capture:
        eventually(lambda: not capture.running, "the end behind the first update")
    assert apply("v")[1] == 11
    with CaptureThread(given) as capture:
        capture.wait_position(database.server)
        eventually(lambda: signal_completed(kafka_broker, prefix), "the table is read")
    assert apply("w") == {1: 12, 2: 20, 3: 30}
