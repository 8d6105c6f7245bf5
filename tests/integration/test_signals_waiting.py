"""A request that arrives during the first snapshot waits until the stream has ended that snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.producer.snapshot.hooks import SnapshotHooks
from tests.support.capture import CaptureThread, eventually
from tests.support.incremental_checks import incremental_rows, signal_completed
from tests.support.incremental_window import (
    CHUNK,
    ROWS,
    fill,
    notified,
    request_snapshot,
    rows_of_reader,
    settings_of,
    source_rows,
)
from tests.support.topics import read_topic

if TYPE_CHECKING:
    from tailrace.producer.model.split import Split
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database


def test_request_is_executed_although_the_stream_is_behind_the_readers(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """All splits are read, and the stream needs some time to reach the high watermark of the last one."""
    database.execute("CREATE TABLE bulk (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(50))")
    fill(database, "t")

    def act(split: Split) -> None:
        if split.incremental or split.table.table != "t":
            return
        if split.number == 0:
            request_snapshot(kafka_broker, prefix, database, "t")
        elif split.number == ROWS // CHUNK - 1:
            database.execute("INSERT INTO bulk (v) SELECT 'x' FROM t a, t b, (SELECT 1 FROM t LIMIT 3) c")

    settings = settings_of(mysql_server, kafka_broker, prefix, database, snapshot_max_threads=1)
    with CaptureThread(settings, SnapshotHooks(before_high=act)) as capture:
        eventually(lambda: capture.status.snapshot()["tables"], "the stream is connected", 120)
        eventually(lambda: _reached(kafka_broker, prefix), "the request", 120)
        capture.wait_snapshot()
        capture.wait_position(mysql_server)
    assert notified(kafka_broker, prefix)[1] == ("TABLE_SCAN_COMPLETED", "t", "SUCCEEDED")
    assert len(incremental_rows(kafka_broker, prefix, database.name)) == ROWS
    assert rows_of_reader(read_topic(kafka_broker.bootstrap, f"{prefix}.{database.name}.t")) == source_rows(
        database, "t"
    )


def _reached(broker: KafkaBroker, prefix: str) -> bool:
    """Whether the request is done, in one way or another."""
    return signal_completed(broker, prefix) and any(note[0] == "COMPLETED" for note in notified(broker, prefix))
