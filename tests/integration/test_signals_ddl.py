"""Tables that are dropped, renamed or emptied while they are read again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tailrace.producer.snapshot.hooks import SnapshotHooks
from tailrace.schemas.names import SPLIT_HEADER
from tests.support.capture import CaptureThread, eventually, records_of
from tests.support.incremental_checks import rows_again, settled
from tests.support.incremental_window import (
    ROWS,
    Beside,
    Once,
    ask,
    chained,
    counted,
    fill,
    kept,
    no_splits_left,
    settings_of,
    source_rows,
    told,
)

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database


@pytest.mark.parametrize("moment", ["before_low", "after_low", "before_high"])
def test_a_table_emptied_while_it_is_read_again_goes_on(
    moment: str, mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """Its record wipes what was read before, and what came after follows from the log: nothing is read anew."""
    fill(database, "t", "u")
    statements = (
        "UPDATE t SET v = 'before' WHERE id % 3 = 0",
        "TRUNCATE TABLE t",
        "INSERT INTO t SELECT id, 'fresh' FROM u WHERE id % 2 = 0",
        "UPDATE t SET v = 'after' WHERE id % 4 = 0",
        "DELETE FROM t WHERE id % 10 = 0",
    )
    beside = Beside(database, *(statements if moment != "before_high" else statements[1:]))

    def act() -> None:
        if moment == "before_high":
            beside()
        else:
            for statement in statements:
                database.execute(statement)

    settings = settings_of(mysql_server, kafka_broker, prefix, database, skipped_operations="none")
    hook = Once("t", act)
    with CaptureThread(settings, SnapshotHooks(**{moment: hook})) as capture:
        capture.wait_snapshot()
        ask(kafka_broker, prefix, database, "t", "u")
        eventually(lambda: hook.done and settled(kafka_broker, prefix), "read again")
        if moment == "before_high":
            beside.join()
        database.execute("UPDATE t SET v = CONCAT(v, '.') WHERE id < 60")
        capture.wait_position(mysql_server)

    records = records_of(kafka_broker.bootstrap, prefix, database.name, "t")
    assert [r.json["op"] for r in records if r.value and r.json["op"] == "t"] == ["t"]
    assert kept(records) == source_rows(database, "t")
    assert {row["id"]: row["v"] for row in chained(records).values()} == source_rows(database, "t")
    assert sum(SPLIT_HEADER in r.headers for r in records) == ROWS, "the table was read anew"
    counted(kafka_broker, prefix, f"{prefix}.{database.name}.t")
    started, *scanned, completed = told(kafka_broker, prefix)
    assert (started, completed) == (("STARTED", "", ""), ("COMPLETED", "", ""))
    # Tables are read beside each other: either may be done first.
    assert sorted(scanned) == [("TABLE_SCAN_COMPLETED", "t", "SUCCEEDED"), ("TABLE_SCAN_COMPLETED", "u", "SUCCEEDED")]
    no_splits_left(kafka_broker, prefix)


@pytest.mark.parametrize(
    "away",
    [
        (statement, moment)
        for statement in ("DROP TABLE t", "RENAME TABLE t TO gone")
        for moment in ("before_low", "after_low", "before_high")
    ],
)
def test_a_table_that_goes_away_while_it_is_read_again(
    away: tuple[str, str], mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """The rest of it is told as failed; the other table is read, the log loses nothing, and the name may come again."""
    fill(database, "t", "u")
    statement, moment = away
    before = "UPDATE t SET v = 'last words' WHERE id % 2 = 0"
    beside = Beside(database, statement)

    def act() -> None:
        database.execute(before)
        if moment == "before_high":
            beside()
        else:
            database.execute(statement)

    hook = Once("t", act)
    # The one reader that has read its split holds the statement up: a second one would read the rest meanwhile.
    readers = {"snapshot_max_threads": 1} if moment == "before_high" else {}
    settings = settings_of(mysql_server, kafka_broker, prefix, database, **readers)
    with CaptureThread(settings, SnapshotHooks(**{moment: hook})) as capture:
        capture.wait_snapshot()
        ask(kafka_broker, prefix, database, "t", "u")
        eventually(lambda: hook.done and settled(kafka_broker, prefix), "read again")
        database.execute("UPDATE u SET v = 'goes on'")
        database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(50))")
        database.execute("INSERT INTO t VALUES (7, 'new'), (1000, 'new')")
        database.execute("UPDATE t SET v = 'newer' WHERE id = 1000")
        capture.wait_position(mysql_server)
        ask(kafka_broker, prefix, database, "t")
        eventually(lambda: sum(note[0] == "COMPLETED" for note in told(kafka_broker, prefix)) == 2, "the new one")

    records = records_of(kafka_broker.bootstrap, prefix, database.name, "t")
    updated = {r.json["after"]["id"] for r in records if r.value and r.json["op"] == "u"}
    assert updated == {*range(2, ROWS + 1, 2), 1000}
    assert source_rows(database, "t") == {key: kept(records)[key] for key in (7, 1000)}
    others = records_of(kafka_broker.bootstrap, prefix, database.name, "u")
    assert {row["id"]: row["v"] for row in chained(others).values()} == kept(others) == source_rows(database, "u")
    counted(kafka_broker, prefix, f"{prefix}.{database.name}.u")
    said = told(kafka_broker, prefix)
    assert (said[0], said[3]) == (("STARTED", "", ""), ("COMPLETED", "", ""))
    assert set(said[1:3]) == {
        ("TABLE_SCAN_COMPLETED", "t", "SQL_EXCEPTION"),
        ("TABLE_SCAN_COMPLETED", "u", "SUCCEEDED"),
    }
    assert said[5] == ("TABLE_SCAN_COMPLETED", "t", "SUCCEEDED")
    no_splits_left(kafka_broker, prefix)


def test_a_table_gone_before_its_turn(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """It is let go, and the tables behind it are read."""
    fill(database, "a", "b", "c")
    hook = Once("a", lambda: database.execute("DROP TABLE b"), number=0)  # type: ignore[arg-type]
    settings = settings_of(mysql_server, kafka_broker, prefix, database, snapshot_max_threads=1)
    with CaptureThread(settings, SnapshotHooks(before_low=hook)) as capture:
        capture.wait_snapshot()
        ask(kafka_broker, prefix, database, "a", "b", "c")
        eventually(lambda: settled(kafka_broker, prefix) and rows_again(kafka_broker, prefix, database.name, "c"), "c")
        capture.wait_position(mysql_server)
    assert rows_again(kafka_broker, prefix, database.name, "b") == []
    # A table is done when the log has passed its last split, which may be after the next one's turn.
    assert sorted(note for note in told(kafka_broker, prefix) if note[0] == "TABLE_SCAN_COMPLETED") == [
        ("TABLE_SCAN_COMPLETED", "a", "SUCCEEDED"),
        ("TABLE_SCAN_COMPLETED", "b", "SQL_EXCEPTION"),
        ("TABLE_SCAN_COMPLETED", "c", "SUCCEEDED"),
    ]
