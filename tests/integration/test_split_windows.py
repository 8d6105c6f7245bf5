"""Changes in each window of a split, forced by hooks: before and after LOW, before and after HIGH."""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from pymysql import IntegrityError

from tailrace.producer.snapshot.hooks import SnapshotHooks
from tests.support.capture import CaptureThread, properties, verified_rows

if TYPE_CHECKING:
    from tailrace.producer.model.split import Split
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database

MOMENTS = ("before_low", "after_low", "before_high", "after_high")

CHANGES = {
    "insert within": ["INSERT INTO t VALUES (15, 'new'), (25, 'new')"],
    "insert above the plan": ["INSERT INTO t VALUES (5000, 'new'), (5010, 'new')"],
    "insert below": ["INSERT INTO t VALUES (-5, 'new')"],
    "update one": ["UPDATE t SET v = 'changed' WHERE id = 30"],
    "update every row": ["UPDATE t SET v = CONCAT(v, '!')"],
    "update twice in one transaction": [
        "START TRANSACTION",
        "UPDATE t SET v = 'once' WHERE id = 30",
        "UPDATE t SET v = 'twice' WHERE id = 30",
        "COMMIT",
    ],
    "delete one": ["DELETE FROM t WHERE id = 30"],
    "delete every row": ["DELETE FROM t"],
    "delete and insert again": ["DELETE FROM t WHERE id = 30", "INSERT INTO t VALUES (30, 'back')"],
    "change a key within a split": ["UPDATE t SET id = 35 WHERE id = 30"],
    "move a key to another split": ["UPDATE t SET id = 1995 WHERE id = 30", "UPDATE t SET id = 5 WHERE id = 1990"],
    "move a key above the plan and back": [
        "UPDATE t SET id = 9000 WHERE id = 30",
        "UPDATE t SET id = 30 WHERE id = 9000",
    ],
    "swap two keys": [
        "START TRANSACTION",
        "UPDATE t SET id = -1 WHERE id = 30",
        "UPDATE t SET id = 30 WHERE id = 1990",
        "UPDATE t SET id = 1990 WHERE id = -1",
        "COMMIT",
    ],
    "replace": ["REPLACE INTO t VALUES (30, 'replaced'), (31, 'fresh')"],
    "nothing that counts": [
        "UPDATE t SET v = v WHERE id = 30",
        "CREATE TABLE other (id INT PRIMARY KEY)",
        "DROP TABLE other",
    ],
    "the log rotates": ["FLUSH BINARY LOGS", "UPDATE t SET v = 'after rotation' WHERE id = 30"],
}


def _table(database: Database) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(200))")
    database.executemany("INSERT INTO t VALUES (%s, %s)", [(n * 10, f"v{n}") for n in range(1, 201)])


def _source(database: Database) -> dict[int, str]:
    return dict(database.execute("SELECT id, v FROM t"))


def _captured(broker: KafkaBroker, prefix: str, database: Database) -> dict[int, str]:
    rows = verified_rows(broker.bootstrap, prefix, database.name, "t")
    return {row["id"]: row["v"] for row in rows.values()}


@pytest.mark.parametrize("moment", MOMENTS)
def test_changes_in_a_window_are_neither_lost_nor_repeated(
    moment: str, mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """Every kind of change, one per split in turn, at the given moment."""
    _table(database)
    todo = list(CHANGES.values())

    def act(split: Split) -> None:
        if split.table.database == database.name and todo:
            for statement in todo.pop(0):
                database.execute(statement)

    settings = properties(
        mysql_server,
        kafka_broker,
        prefix,
        database.name,
        {"snapshot.max.threads": 1, "incremental.snapshot.chunk.size": 10},
    )
    with CaptureThread(settings, SnapshotHooks(**{moment: act})) as capture:
        capture.wait_snapshot()
        assert not todo, "not every change found a window"
        database.execute("UPDATE t SET v = CONCAT(v, '.')")
        capture.wait_position(mysql_server)

    assert _captured(kafka_broker, prefix, database) == _source(database)


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_in_all_windows_of_a_split(
    change: str, mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """One kind of change at all four moments of the first split, with several active readers."""
    _table(database)
    mine = random.Random(change)

    def act(split: Split) -> None:
        if split.number == 0:
            for statement in CHANGES[change]:
                # A repeated change may meet a key of its own; in a transaction the commit then keeps the rest.
                with suppress(IntegrityError):
                    database.execute(statement)
            database.execute("UPDATE t SET v = %s WHERE id IN (20, 30, 1990, 35)", (f"{mine.random()}",))

    settings = properties(mysql_server, kafka_broker, prefix, database.name, {"incremental.snapshot.chunk.size": 40})
    with CaptureThread(settings, SnapshotHooks(*[act] * 4)) as capture:
        capture.wait_snapshot()
        database.execute("UPDATE t SET v = CONCAT(v, '.')")
        capture.wait_position(mysql_server)

    assert _captured(kafka_broker, prefix, database) == _source(database)


def test_text_keys_are_ordered_by_the_collation_of_the_server(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """Random changes of case, accents and blanks of text keys while their splits are read."""
    database.execute("CREATE TABLE t (id VARCHAR(30) COLLATE utf8mb4_0900_ai_ci PRIMARY KEY, v VARCHAR(50))")
    mine = random.Random(7)
    letters = "aAbBéEzZßœ_-~ \t0"
    keys = {"".join(mine.choices(letters, k=mine.randint(1, 6))) for _ in range(500)}
    for key in keys:
        database.execute("INSERT IGNORE INTO t VALUES (%s, 'start')", (key,))

    one_at_a_time = threading.Lock()  # the readers' threads share the test's session

    def act(split: Split) -> None:
        with one_at_a_time:
            change_some(split)

    def change_some(split: Split) -> None:
        for _ in range(6):
            present = [key for (key,) in database.execute("SELECT id FROM t")]
            key = mine.choice(present)
            other = "".join(mine.choices(letters, k=mine.randint(1, 6)))
            statement, values = mine.choice(
                [
                    ("UPDATE t SET v = %s WHERE id = %s", (f"s{split.number}", key)),
                    ("DELETE FROM t WHERE id = %s", (key,)),
                    ("INSERT IGNORE INTO t VALUES (%s, 'fresh')", (other,)),
                    ("UPDATE IGNORE t SET id = %s WHERE id = %s", (other, key)),
                    ("UPDATE t SET id = %s WHERE id = %s", (key.swapcase(), key)),
                ]
            )
            database.execute(statement, values)

    settings = properties(mysql_server, kafka_broker, prefix, database.name, {"incremental.snapshot.chunk.size": 30})
    with CaptureThread(settings, SnapshotHooks(after_low=act, before_high=act)) as capture:
        capture.wait_snapshot()
        capture.wait_position(mysql_server)

    rows = verified_rows(kafka_broker.bootstrap, prefix, database.name, "t")
    assert sorted((row["id"], row["v"]) for row in rows.values()) == sorted(database.execute("SELECT id, v FROM t"))
