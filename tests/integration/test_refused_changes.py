"""Changes that the binlog has in a form that cannot be written: the producer stops, or skips them and reads again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tailrace.producer.errors import BinlogError
from tests.support.capture import CaptureThread, eventually, properties, records_of
from tests.support.reference_model import final_rows

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database

MODE = "event.processing.failure.handling.mode"


def test_skipped_changes_are_reread(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """A statement stops the producer, with place and remedy; in mode warn, the stream goes on behind each form."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, j JSON, v INT)")
    database.execute("CREATE TABLE untouched (id INT PRIMARY KEY)")
    document = '{"a": "a longer text", "b": "another longer text"}'
    for number in range(1, 7):
        database.execute("INSERT INTO t VALUES (%s, %s, 0)", (number, document))
    database.execute("INSERT INTO untouched VALUES (1)")
    settings = properties(mysql_server, kafka_broker, prefix, database.name)
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        capture.wait_position(mysql_server)

    with database.connect() as session, session.cursor() as cursor:
        cursor.execute("CREATE TRIGGER g AFTER UPDATE ON t FOR EACH ROW SET @last = NEW.v")
        cursor.execute("SET binlog_format = STATEMENT")
        cursor.execute("UPDATE t SET v = 1 WHERE id = 1")
        cursor.execute("DELETE FROM t WHERE id = 6")
    with pytest.raises(BinlogError) as caught, CaptureThread(settings) as capture:
        eventually(lambda: not capture.running, "an error")
    assert caught.value.context["tables"] == f"{database.name}.t"
    assert {"file", "pos", "gtid", "statement"} <= caught.value.context.keys()
    assert caught.value.context["others"] == f"{database.name}.t has triggers"
    assert f"{MODE}=warn" in caught.value.hint

    with database.connect() as session, session.cursor() as cursor:
        cursor.execute("SET binlog_row_image = MINIMAL")
        cursor.execute("UPDATE t SET v = 2 WHERE id = 2")
        cursor.execute("SET binlog_row_image = FULL, binlog_row_value_options = PARTIAL_JSON")
        cursor.execute("UPDATE t SET v = 3, j = JSON_SET(j, '$.a', 'b') WHERE id = 3")
        cursor.execute("SET binlog_row_value_options = ''")
        cursor.execute("UPDATE t SET v = 4 WHERE id = 4")
    with CaptureThread({**settings, MODE: "warn"}) as capture:
        capture.wait_position(mysql_server)
        database.execute("INSERT INTO t VALUES (7, NULL, 7)")
        capture.wait_position(mysql_server)
        expected = dict(database.execute("SELECT id, v FROM t"))
        eventually(lambda: _rows(kafka_broker, prefix, database) == {**expected, 6: 0}, "the rows", 60)
        assert capture.status.snapshot()["stream"]["refused"] == 4
        capture.wait_snapshot()
    with CaptureThread(settings) as capture:  # the refused events are behind the stored offset
        capture.wait_position(mysql_server)

    repeated = [r for r in records_of(kafka_broker.bootstrap, prefix, database.name, "untouched") if r.value]
    assert len(repeated) == 1
    changes = [r.json for r in records_of(kafka_broker.bootstrap, prefix, database.name, "t") if r.value]
    assert "incremental" in {change["source"]["snapshot"] for change in changes}


def _rows(broker: KafkaBroker, prefix: str, database: Database) -> dict[int, int]:
    rows = final_rows(records_of(broker.bootstrap, prefix, database.name, "t"))
    return {row["id"]: row["v"] for row in rows.values()}
