"""Tables that are dropped, renamed or truncated during an incremental snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tailrace.producer.snapshot.hooks import SnapshotHooks
from tailrace.schemas.names import SPLIT_HEADER
from tests.support.capture import CaptureThread, eventually, records_of
from tests.support.incremental_checks import incremental_rows, signal_completed
from tests.support.incremental_window import (
    ROWS,
    BackgroundStatements,
    SplitHook,
    check_changes,
    check_counts,
    fill,
    no_splits_left,
    notified,
    request_snapshot,
    rows_of_reader,
    settings_of,
    source_rows,
)

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database


@pytest.mark.parametrize("moment", ["before_low", "after_low", "before_high"])
def test_truncate_during_an_incremental_snapshot(
    moment: str, mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """The truncate record removes the rows read before; later rows come from the stream: no split is read twice."""
    fill(database, "t", "u")
    statements = (
        "UPDATE t SET v = 'before' WHERE id % 3 = 0",
        "TRUNCATE TABLE t",
        "INSERT INTO t SELECT id, 'fresh' FROM u WHERE id % 2 = 0",
        "UPDATE t SET v = 'after' WHERE id % 4 = 0",
        "DELETE FROM t WHERE id % 10 = 0",
    )
    background = BackgroundStatements(database, *(statements if moment != "before_high" else statements[1:]))

    def act() -> None:
        if moment == "before_high":
            background()
        else:
            for statement in statements:
                database.execute(statement)

    settings = settings_of(mysql_server, kafka_broker, prefix, database, skipped_operations="none")
    hook = SplitHook("t", act)
    with CaptureThread(settings, SnapshotHooks(**{moment: hook})) as capture:
        capture.wait_snapshot()
        request_snapshot(kafka_broker, prefix, database, "t", "u")
        eventually(lambda: hook.done and signal_completed(kafka_broker, prefix), "incremental snapshot")
        if moment == "before_high":
            background.join()
        database.execute("UPDATE t SET v = CONCAT(v, '.') WHERE id < 60")
        capture.wait_position(mysql_server)

    records = records_of(kafka_broker.bootstrap, prefix, database.name, "t")
    assert [r.json["op"] for r in records if r.value and r.json["op"] == "t"] == ["t"]
    assert rows_of_reader(records) == source_rows(database, "t")
    assert {row["id"]: row["v"] for row in check_changes(records).values()} == source_rows(database, "t")
    assert sum(SPLIT_HEADER in r.headers for r in records) == ROWS, "the initial snapshot was repeated"
    check_counts(kafka_broker, prefix, f"{prefix}.{database.name}.t")
    started, *scanned, completed = notified(kafka_broker, prefix)
    assert (started, completed) == (("STARTED", "", ""), ("COMPLETED", "", ""))
    # Tables are read concurrently: either may be completed first.
    assert sorted(scanned) == [("TABLE_SCAN_COMPLETED", "t", "SUCCEEDED"), ("TABLE_SCAN_COMPLETED", "u", "SUCCEEDED")]
    no_splits_left(kafka_broker, prefix)


@pytest.mark.parametrize(
    "removal",
    [
        (statement, moment)
        for statement in ("DROP TABLE t", "RENAME TABLE t TO gone")
        for moment in ("before_low", "after_low", "before_high")
    ],
)
def test_table_removed_during_an_incremental_snapshot(
    removal: tuple[str, str], mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """It is reported as failed, the other table is read, no change is lost, and the name can be used again."""
    fill(database, "t", "u")
    statement, moment = removal
    before = "UPDATE t SET v = 'last change' WHERE id % 2 = 0"
    background = BackgroundStatements(database, statement)

    def act() -> None:
        database.execute(before)
        if moment == "before_high":
            background()
        else:
            database.execute(statement)

    hook = SplitHook("t", act)
    # The only reader blocks the statement; a second reader would read the other splits in the meantime.
    readers = {"snapshot_max_threads": 1} if moment == "before_high" else {}
    changes = {"table_exclude_list": r".*\.gone", **readers}
    settings = settings_of(mysql_server, kafka_broker, prefix, database, **changes)
    with CaptureThread(settings, SnapshotHooks(**{moment: hook})) as capture:
        capture.wait_snapshot()
        request_snapshot(kafka_broker, prefix, database, "t", "u")
        eventually(lambda: hook.done and signal_completed(kafka_broker, prefix), "incremental snapshot")
        database.execute("UPDATE u SET v = 'streamed'")
        database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(50))")
        database.execute("INSERT INTO t VALUES (7, 'new'), (1000, 'new')")
        database.execute("UPDATE t SET v = 'newer' WHERE id = 1000")
        capture.wait_position(mysql_server)
        request_snapshot(kafka_broker, prefix, database, "t")
        eventually(lambda: sum(note[0] == "COMPLETED" for note in notified(kafka_broker, prefix)) == 2, "the new table")

    records = records_of(kafka_broker.bootstrap, prefix, database.name, "t")
    updated = {r.json["after"]["id"] for r in records if r.value and r.json["op"] == "u"}
    assert updated == {*range(2, ROWS + 1, 2), 1000}
    assert source_rows(database, "t") == {key: rows_of_reader(records)[key] for key in (7, 1000)}
    others = records_of(kafka_broker.bootstrap, prefix, database.name, "u")
    assert (
        {row["id"]: row["v"] for row in check_changes(others).values()}
        == rows_of_reader(others)
        == source_rows(database, "u")
    )
    check_counts(kafka_broker, prefix, f"{prefix}.{database.name}.u")
    sent = notified(kafka_broker, prefix)
    assert (sent[0], sent[3]) == (("STARTED", "", ""), ("COMPLETED", "", ""))
    assert set(sent[1:3]) == {
        ("TABLE_SCAN_COMPLETED", "t", "SQL_EXCEPTION"),
        ("TABLE_SCAN_COMPLETED", "u", "SUCCEEDED"),
    }
    assert sent[5] == ("TABLE_SCAN_COMPLETED", "t", "SUCCEEDED")
    no_splits_left(kafka_broker, prefix)


def test_requested_table_dropped_before_it_is_read(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """It is removed from the queue, and the tables behind it are read."""
    fill(database, "a", "b", "c")
    hook = SplitHook("a", lambda: database.execute("DROP TABLE b"), number=0)  # type: ignore[arg-type]
    settings = settings_of(mysql_server, kafka_broker, prefix, database, snapshot_max_threads=1)
    with CaptureThread(settings, SnapshotHooks(before_low=hook)) as capture:
        capture.wait_snapshot()
        request_snapshot(kafka_broker, prefix, database, "a", "b", "c")
        eventually(
            lambda: (
                signal_completed(kafka_broker, prefix) and incremental_rows(kafka_broker, prefix, database.name, "c")
            ),
            "c",
        )
        capture.wait_position(mysql_server)
    assert incremental_rows(kafka_broker, prefix, database.name, "b") == []
    # A table is completed when the stream has passed its last split; the next table may have started by then.
    assert sorted(note for note in notified(kafka_broker, prefix) if note[0] == "TABLE_SCAN_COMPLETED") == [
        ("TABLE_SCAN_COMPLETED", "a", "SUCCEEDED"),
        ("TABLE_SCAN_COMPLETED", "b", "SQL_EXCEPTION"),
        ("TABLE_SCAN_COMPLETED", "c", "SUCCEEDED"),
    ]
