"""A table under a metadata lock: the snapshots of other tables go on, and so do the changes of all."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from tailrace.producer.snapshot.hooks import SnapshotHooks
from tests.support.capture import CaptureThread, eventually, properties, records_of, verified_rows
from tests.support.incremental_window import fill, request_snapshot, settings_of, source_rows

if TYPE_CHECKING:
    from tailrace.producer.model.split import Split
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database


def _status(capture: CaptureThread, database: Database, table: str) -> dict[str, Any]:
    found: dict[str, Any] = capture.status.snapshot()["tables"].get(f"{database.name}.{table}", {})
    return found


def test_locked_table_waits_for_its_turn(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """Before its plan and between its splits; the status says who holds the lock, and the session stays."""
    fill(database, "a", "b", "c")
    split_reached, locked = threading.Event(), threading.Event()

    def lock(split: Split) -> None:
        if split.table.table == "b" and split.number == 2 and not split_reached.is_set():
            split_reached.set()
            assert locked.wait(120)

    small = {"incremental.snapshot.chunk.size": 40, "snapshot.max.threads": 1}
    settings = properties(mysql_server, kafka_broker, prefix, database.name, small)
    with (
        database.connect() as reading,
        database.connect() as writing,
        database.connect() as altering,
        reading.cursor() as cursor,
    ):
        cursor.execute("BEGIN")
        cursor.execute("SELECT COUNT(*) FROM a")
        alter = threading.Thread(target=altering.cursor().execute, args=("ALTER TABLE a COMMENT 'waits'",))
        alter.start()
        with CaptureThread(settings, SnapshotHooks(before_low=lock)) as capture:
            assert split_reached.wait(120)
            with writing.cursor() as writer:
                writer.execute("LOCK TABLES b WRITE")
                locked.set()
                writer.execute("UPDATE b SET v = 'locked' WHERE id IN (1, 100)")
                eventually(lambda: _status(capture, database, "c").get("mode") == "streaming", "the snapshot of c")
                database.execute("UPDATE c SET v = 'last' WHERE id = 1")
                capture.wait_position(mysql_server)  # the changes of the split of b are not held any more
                assert _status(capture, database, "a")["mode"] == "waiting"
                eventually(lambda: "holds SHARED_READ" in _status(capture, database, "a")["put_off"], "the lock of a")
                eventually(
                    lambda: "holds SHARED_NO_READ_WRITE" in _status(capture, database, "b")["put_off"], "that of b"
                )
                assert capture.status.snapshot()["stream"]["disconnects"] == 0
                writer.execute("UNLOCK TABLES")
            cursor.execute("COMMIT")
            alter.join(60)
            capture.wait_snapshot()
            capture.wait_position(mysql_server)
            assert _status(capture, database, "a")["put_off"] == ""
            assert capture.status.snapshot()["stream"]["disconnects"] == 0
    for table in ("a", "b", "c"):
        rows = verified_rows(kafka_broker.bootstrap, prefix, database.name, table).values()
        assert {row["id"]: row["v"] for row in rows} == source_rows(database, table), table


def test_request_does_not_wait_for_a_locked_table(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """Of an incremental snapshot; a later request for another table is served meanwhile."""
    fill(database, "a", "b")
    settings = settings_of(mysql_server, kafka_broker, prefix, database)

    def all_read(table: str) -> bool:
        records = records_of(kafka_broker.bootstrap, prefix, database.name, table)
        return len([r for r in records if r.json and r.json["source"]["snapshot"] == "incremental"]) == 200

    with database.connect() as session, session.cursor() as cursor, CaptureThread(settings) as capture:
        capture.wait_snapshot()
        cursor.execute("LOCK TABLES a WRITE")
        request_snapshot(kafka_broker, prefix, database, "a")
        eventually(lambda: _status(capture, database, "a")["put_off"], "the lock of a")
        request_snapshot(kafka_broker, prefix, database, "b")
        eventually(lambda: all_read("b"), "the rows of b")
        cursor.execute("UNLOCK TABLES")
        eventually(lambda: all_read("a"), "the rows of a")
        assert capture.status.snapshot()["stream"]["disconnects"] == 0
