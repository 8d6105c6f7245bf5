"""Values that the modes cannot represent, in a running capture: counted with warn, located by the error with fail."""

from __future__ import annotations

import pytest

from tailrace.runtime.errors import SchemaError, TailraceError
from tests.embedded.kafka import KafkaBroker
from tests.embedded.mysql import MySqlServer
from tests.support.capture import CaptureThread, eventually, properties
from tests.support.database import Database

pytestmark = [pytest.mark.mysql, pytest.mark.kafka]
MODE = "event.converting.failure.handling.mode"


def test_inexact_values_are_counted_or_stop_the_capture(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """Snapshot and stream, each with both modes; the error names table, column, value, and where the row is."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v TIME)")
    database.execute("INSERT INTO t VALUES (1, '101:00:00')")
    table = f"{database.name}.t"
    settings = properties(
        mysql_server,
        kafka_broker,
        prefix,
        database.name,
        {"time.precision.mode": "connect", MODE: "fail", "event.processing.failure.handling.mode": "fail"},
    )
    with pytest.raises(TailraceError) as in_snapshot, CaptureThread(settings) as capture:
        eventually(lambda: not capture.running, "the end of the capture")
    for part in (table, "column: v", "101:00:00", "split", "time.precision.mode"):
        assert part in str(in_snapshot.value)

    with CaptureThread({**settings, MODE: "warn"}) as capture:
        capture.wait_snapshot()
        assert capture.status.snapshot()["tables"][table]["values_replaced"] == 1
        database.execute("INSERT INTO t VALUES (2, '-00:00:01'), (3, '23:00:00')")
        capture.wait_position(mysql_server)
        eventually(lambda: capture.status.snapshot()["tables"][table]["values_replaced"] == 2, "the second value")

    database.execute("INSERT INTO t VALUES (4, '-10:00:00')")
    with pytest.raises(SchemaError) as in_stream, CaptureThread(settings) as capture:
        eventually(lambda: not capture.running, "the end of the capture")
    context = in_stream.value.context
    assert {name: str(context[name]) for name in ("table", "column", "value")} == {
        "table": table,
        "column": "v",
        "value": "-10:00:00",
    }
    assert context["file"]
    assert int(str(context["pos"])) > 0
    assert str(context["gtid"]).count(":") == 1
