"""Tables that are truncated, dropped, renamed or altered during their snapshot, and after it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

from tailrace.producer.errors import SourceError
from tailrace.producer.snapshot.hooks import SnapshotHooks
from tailrace.runtime.errors import SchemaError
from tailrace.schemas.names import SPLIT_HEADER, watermarks_topic
from tests.support.capture import CaptureThread, eventually, properties, records_of, verified_rows
from tests.support.incremental_checks import pending_requests, state_of
from tests.support.incremental_window import fill, no_splits_left, rows_of_reader, source_rows
from tests.support.reference_model import ends_of
from tests.support.topics import Read, read_topic
from tests.support.upsert_reader import consumer_rows

if TYPE_CHECKING:
    from tailrace.producer.model.split import Split
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database

SMALL = {
    "snapshot.max.threads": 1,
    "incremental.snapshot.chunk.size": 20,
    "topic.creation.default.partitions": 1,
}
STOPS = {"event.processing.failure.handling.mode": "fail"}


def _once(table: str, number: int, act: Callable[[], None]) -> Callable[[Split], None]:
    """Return a hook that acts when one split is read for the first time."""
    todo = [act]

    def hook(split: Split) -> None:
        if split.table.table == table and split.number == number and todo:
            todo.pop()()

    return hook


def test_truncate_after_the_snapshot(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """If truncate events are configured: one record without key and row, at the position of the statement."""
    fill(database, "t")
    settings = properties(mysql_server, kafka_broker, prefix, database.name, {**SMALL, "skipped.operations": "none"})
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        database.execute("TRUNCATE TABLE t")
        database.execute("INSERT INTO t VALUES (7, 'after')")
        capture.wait_position(mysql_server)
    records = records_of(kafka_broker.bootstrap, prefix, database.name, "t")
    (truncated,) = (r for r in records if r.value is not None and r.json["op"] == "t")
    envelope = truncated.json
    assert truncated.key is None
    assert list(envelope) == ["before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns"]
    assert (envelope["before"], envelope["after"], envelope["transaction"]) == (None, None, None)
    source = envelope["source"]
    assert (source["db"], source["table"], source["snapshot"]) == (database.name, "t", "false")
    assert (source["row"], source["thread"], source["query"]) == (0, None, None)
    assert source["ts_us"] % 1000 == 0
    assert source["gtid"]
    shown = database.execute(f"SHOW BINLOG EVENTS IN '{source['file']}' FROM {source['pos']} LIMIT 1")
    assert "TRUNCATE" in shown[0][5]
    assert rows_of_reader(records) == source_rows(database, "t") == {7: "after"}


def test_truncate_is_skipped_by_default(
    mysql_server: MySqlServer,
    kafka_broker: KafkaBroker,
    prefix: str,
    database: Database,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The topic keeps the rows, a warning says so, and later changes are right."""
    fill(database, "t")
    with CaptureThread(properties(mysql_server, kafka_broker, prefix, database.name, SMALL)) as capture:
        capture.wait_snapshot()
        database.execute("TRUNCATE TABLE t")
        database.execute("INSERT INTO t VALUES (7, 'after')")
        capture.wait_position(mysql_server)
    rows = rows_of_reader(records_of(kafka_broker.bootstrap, prefix, database.name, "t"), truncates=False)
    assert rows == {**{n: f"t{n}" for n in range(1, 201)}, 7: "after"}
    assert "a statement removed rows without row events" in capsys.readouterr().out


@pytest.mark.parametrize("moment", ["before_low", "after_low"])
def test_truncate_during_the_snapshot_restarts_the_snapshot(
    moment: str, mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """Rows read before and after the statement may precede its record in the topic: none of them may count."""
    fill(database, "t", "u")

    def empty() -> None:
        database.execute("UPDATE t SET v = 'changed before'")
        database.execute("TRUNCATE TABLE t")
        database.executemany("INSERT INTO t VALUES (%s, 'fresh')", [(n,) for n in range(50, 300, 3)])
        database.execute("UPDATE t SET v = 'changed after' WHERE id % 2 = 0")

    settings = properties(mysql_server, kafka_broker, prefix, database.name, {**SMALL, "skipped.operations": "none"})
    with CaptureThread(settings, SnapshotHooks(**{moment: _once("t", 3, empty)})) as capture:
        eventually(lambda: _count(kafka_broker, prefix, database, "t", "t"), "truncate event")
        capture.wait_snapshot()
        database.execute("DELETE FROM t WHERE id % 5 = 0")
        capture.wait_position(mysql_server)
    records = records_of(kafka_broker.bootstrap, prefix, database.name, "t")
    assert rows_of_reader(records) == source_rows(database, "t")
    assert _count(kafka_broker, prefix, database, "t", "t") == 1
    _every_split_has_its_end(kafka_broker, prefix, f"{prefix}.{database.name}.t", records)
    assert {r["id"] for r in verified_rows(kafka_broker.bootstrap, prefix, database.name, "u").values()} == set(
        source_rows(database, "u")
    )


def test_skipped_truncate_during_the_snapshot(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """The topic keeps rows that were read before; every row of the source is right."""
    fill(database, "t")

    def empty() -> None:
        database.execute("TRUNCATE TABLE t")
        database.executemany("INSERT INTO t VALUES (%s, 'fresh')", [(n,) for n in range(50, 300, 3)])

    settings = properties(mysql_server, kafka_broker, prefix, database.name, SMALL)
    with CaptureThread(settings, SnapshotHooks(before_low=_once("t", 3, empty))) as capture:
        capture.wait_snapshot()
        database.execute("UPDATE t SET v = CONCAT(v, '.')")
        capture.wait_position(mysql_server)
    rows = rows_of_reader(records_of(kafka_broker.bootstrap, prefix, database.name, "t"), truncates=False)
    source = source_rows(database, "t")
    assert {key: rows[key] for key in source} == source
    assert set(rows) - set(source) <= set(range(1, 201))


GOES = {
    "dropped": ["DROP TABLE b"],
    "renamed": ["RENAME TABLE b TO elsewhere"],
    "renamed by ALTER": ["ALTER TABLE b RENAME TO elsewhere"],
    "dropped and made again": ["DROP TABLE b", "CREATE TABLE b (id INT PRIMARY KEY, v VARCHAR(50))"],
}


@pytest.mark.parametrize(
    ("goes", "before"),
    [
        ("dropped", ("a", 0)),
        ("dropped", ("b", 0)),
        ("dropped", ("b", 3)),
        ("renamed", ("b", 9)),
        ("renamed by ALTER", ("b", 3)),
        ("dropped and made again", ("a", 0)),
        ("dropped and made again", ("b", 3)),
    ],
    ids=str,
)
def test_a_missing_table_does_not_block_the_others(
    goes: str,
    before: tuple[str, int],
    kafka_broker: KafkaBroker,
    prefix: str,
    database: Database,
) -> None:
    """Its splits are abandoned; a table that gets its name later only streams."""
    fill(database, "a", "b", "c")

    def go() -> None:
        database.execute("UPDATE b SET v = 'held or dropped'")
        for statement in GOES[goes]:
            database.execute(statement)

    elsewhere = {"table.exclude.list": r".*\.elsewhere"}
    settings = properties(database.server, kafka_broker, prefix, database.name, {**SMALL, **elsewhere})
    with CaptureThread(settings, SnapshotHooks(before_low=_once(*before, go))) as capture:
        capture.wait_snapshot()
        database.execute("CREATE TABLE IF NOT EXISTS b (id INT PRIMARY KEY, v VARCHAR(50))")
        database.execute("INSERT INTO b VALUES (1, 'again'), (500, 'again')")
        database.execute("UPDATE a SET v = CONCAT(v, '.')")
        capture.wait_position(database.server)
    for table in "ac":
        verified = verified_rows(kafka_broker.bootstrap, prefix, database.name, table).values()
        assert {row["id"]: row["v"] for row in verified} == source_rows(database, table)
    records = records_of(kafka_broker.bootstrap, prefix, database.name, "b")
    rows = consumer_rows(kafka_broker, prefix, f"{database.name}.b").values()
    assert {row["id"]: row["v"] for row in rows} == source_rows(database, "b")
    _every_split_has_its_end(kafka_broker, prefix, f"{prefix}.{database.name}.b", records)
    with CaptureThread(settings) as capture:  # the stored state can be resumed
        database.execute("INSERT INTO c VALUES (1000, 'later')")
        capture.wait_snapshot()
        capture.wait_position(database.server)
    no_splits_left(kafka_broker, prefix)


def test_a_snapshot_completes_without_a_missing_table(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """With initial_only the capture stops, and does not wait for splits that cannot be read."""
    fill(database, "a", "b")
    settings = properties(mysql_server, kafka_broker, prefix, database.name, {**SMALL, "snapshot.mode": "initial_only"})
    with CaptureThread(settings, SnapshotHooks(before_low=_once("b", 2, lambda: _drop(database)))) as capture:
        eventually(lambda: not capture._thread.is_alive(), "the capture has stopped")
    rows = verified_rows(kafka_broker.bootstrap, prefix, database.name, "a").values()
    assert {row["id"] for row in rows} == set(range(1, 201))


def _drop(database: Database) -> None:
    database.execute("DROP TABLE b")


def test_a_key_change_during_the_snapshot_is_an_error(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """The splits were planned on another key, so changes can no longer be assigned to them."""
    fill(database, "t")

    def change() -> None:
        database.execute("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (v)")

    settings = properties(mysql_server, kafka_broker, prefix, database.name, {**SMALL, **STOPS})
    with (
        pytest.raises((SchemaError, SourceError), match="changed during its snapshot"),
        CaptureThread(settings, SnapshotHooks(before_low=_once("t", 3, change))) as capture,
    ):
        capture.wait_snapshot()


@pytest.mark.parametrize("stops", [True, False])
def test_a_key_change_that_the_stream_has_not_reached_yet(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database, *, stops: bool
) -> None:
    """A plan on the new key must not decide on changes with the old key, of a version met before the plan.

    The table is in error until the stream has passed the statement, not in and out of it; then all of it is read.
    """
    fill(database, "a", "b", "t")
    held = threading.Event()

    def hold() -> None:
        database.execute("INSERT INTO t VALUES (1001, 'odd')")
        capture.wait_position(mysql_server)
        database.execute("UPDATE a SET v = 'held' WHERE id < 10")
        held.set()
        eventually(
            lambda: (state_of(kafka_broker, prefix, f"table/{database.name}.t") or {}).get("mode"),
            "snapshot of t started",
        )

    def alter() -> None:
        assert held.wait(300)
        database.execute("UPDATE t SET v = CONCAT(v, '/2')")
        database.execute("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (v)")

    hooks = [_once("a", 0, hold), _once("b", 0, alter)]

    def act(split: Split) -> None:
        for hook in hooks:
            hook(split)

    changes = {**SMALL, **(STOPS if stops else {}), "snapshot.max.threads": 2}
    settings = properties(mysql_server, kafka_broker, prefix, database.name, changes)
    found = rf"{database.name}.t have the key \(id\) here, and the table has the key \(v\) by a later statement"
    with (
        pytest.raises(SchemaError, match=found) if stops else nullcontext(),
        CaptureThread(settings, SnapshotHooks(before_low=act)) as capture,
    ):
        eventually(held.is_set, "the first split")
        eventually(lambda: capture.status.snapshot()["stream"]["disconnects"], "the change ends the session")
        capture.wait_position(mysql_server)
        eventually(
            lambda: "fault" not in (state_of(kafka_broker, prefix, f"table/{database.name}.t") or {"fault": 1}),
            "all of t is read",
        )
        capture.wait_snapshot()
        assert capture.status.snapshot()["stream"]["disconnects"] == 1
        records = records_of(kafka_broker.bootstrap, prefix, database.name, "t")
        assert {bytes(record.key or b"")[:5] for record in records} == {b'{"v":'}
        rows = consumer_rows(kafka_broker, prefix, f"{database.name}.t")
        assert {row["id"]: row["v"] for row in rows.values()} == dict(database.execute("SELECT id, v FROM t"))


def test_a_column_added_during_the_snapshot(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """Each split has the definition of the time when it is read; a wider key has the same order."""
    fill(database, "t")

    def change() -> None:
        database.execute("ALTER TABLE t ADD COLUMN n INT DEFAULT 5, MODIFY id BIGINT NOT NULL")

    settings = properties(mysql_server, kafka_broker, prefix, database.name, SMALL)
    with CaptureThread(settings, SnapshotHooks(before_low=_once("t", 3, change))) as capture:
        capture.wait_snapshot()
        database.execute("UPDATE t SET v = CONCAT(v, '.'), n = id")
        capture.wait_position(mysql_server)
    records = records_of(kafka_broker.bootstrap, prefix, database.name, "t")
    last = {r.key: r.json["after"] for r in records if r.value is not None}
    assert {row["id"]: row["n"] for row in last.values()} == {n: n for n in range(1, 201)}


def _count(broker: KafkaBroker, prefix: str, database: Database, table: str, op: str) -> int:
    records = records_of(broker.bootstrap, prefix, database.name, table)
    return sum(1 for record in records if record.value is not None and record.json["op"] == op)


def _every_split_has_its_end(broker: KafkaBroker, prefix: str, topic: str, records: list[Read]) -> None:
    """Assert that every split has its END with the right counts: consumers wait for it."""
    counted: dict[str, list[int]] = {}
    for record in records:
        split = record.headers.get(SPLIT_HEADER)
        if split is not None and record.value is not None:
            counted.setdefault(split.decode(), [0, 0])[record.json["op"] != "r"] += 1
    ends = {
        end.split: [end.rows, end.backfill]
        for end in ends_of(read_topic(broker.bootstrap, watermarks_topic(prefix)), topic)
    }
    assert {split: ends.get(split) for split in counted} == counted


def test_a_restart_does_not_continue_in_another_order(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """'_' is before letters in one collation and after them in the other; each start refuses until it is restored."""
    before, after = (
        "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4 COLLATE " + name
        for name in ("utf8mb4_general_ci", "utf8mb4_0900_ai_ci")
    )
    database.execute("CREATE TABLE t (id VARCHAR(20) PRIMARY KEY, v INT)")
    database.execute(before)
    keys = [f"{letter}{between}{letter}" for letter in "abcdefghij" for between in "_nm"]
    for number, key in enumerate(keys):
        database.execute("INSERT INTO t VALUES (%s, %s)", (key, number))
    settings = properties(
        mysql_server, kafka_broker, prefix, database.name, {**SMALL, **STOPS, "incremental.snapshot.chunk.size": 8}
    )

    def change() -> None:
        database.execute(after)

    hooks = SnapshotHooks(before_low=_once("t", 2, change))
    for start in ("first", "second"):
        with (
            pytest.raises((SchemaError, SourceError), match="its collation changed during its snapshot") as raised,
            CaptureThread(settings, hooks if start == "first" else None) as capture,
        ):
            capture.wait_snapshot()
    assert "was: id varchar utf8mb4 utf8mb4_general_ci" in str(raised.value)
    assert "now: id varchar utf8mb4 utf8mb4_0900_ai_ci" in str(raised.value)
    assert "hint: restore the definition of the key until the snapshot is complete" in str(raised.value), "as below"
    database.execute(before)
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
    rows = verified_rows(kafka_broker.bootstrap, prefix, database.name, "t").values()
    assert sorted(row["id"] for row in rows) == sorted(keys)


@pytest.mark.skipif(
    os.environ.get("TAILRACE_METADATA") == "MINIMAL",
    reason="nothing has the names of the columns of a table that is gone",
)
def test_a_table_that_is_gone_streams_up_to_its_drop(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """Changes made while the producer was down are written, also if a new table has the name after a second start."""
    fill(database, "a", "b")
    settings = properties(mysql_server, kafka_broker, prefix, database.name, SMALL)
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        capture.wait_position(database.server)
    database.execute("UPDATE b SET v = 'before the drop'")
    [(changed,)] = database.execute("SELECT COUNT(*) FROM b")
    database.execute("DROP TABLE b")
    with CaptureThread({**settings, "snapshot.mode": "initial_only"}) as capture:  # it ends before it reads the changes
        eventually(lambda: not capture._thread.is_alive(), "the capture has stopped")
    database.execute("CREATE TABLE b (id INT PRIMARY KEY, v VARCHAR(50))")
    database.execute("INSERT INTO b VALUES (1, 'of the new table')")
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        capture.wait_position(database.server)

    assert changed
    assert _count(kafka_broker, prefix, database, "b", "u") == changed
    rows = consumer_rows(kafka_broker, prefix, f"{database.name}.b").values()
    assert {row["id"]: row["v"] for row in rows} == source_rows(database, "b") == {1: "of the new table"}


@pytest.mark.long
def test_rows_that_left_with_their_partition_are_removed_by_readers(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """tailrace.snapshot.altered.tables: each table is read again, and what its topic has from before is gone."""
    parts = "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (100))"
    columns = "(id INT PRIMARY KEY, v VARCHAR(50))"
    for table in "tde":
        database.execute(f"CREATE TABLE {table} {columns} {parts}")
    database.execute(f"CREATE TABLE x {columns}")
    for table in "tdex":
        database.execute(f"INSERT INTO {table} VALUES (1, '{table}'), (2, '{table}')")
    for table in "tde":
        database.execute(f"INSERT INTO {table} VALUES (50, 'stays')")
    changes = {**SMALL, "tailrace.snapshot.altered.tables": "true"}
    with CaptureThread(properties(mysql_server, kafka_broker, prefix, database.name, changes)) as capture:
        capture.wait_snapshot()
        database.execute("ALTER TABLE t TRUNCATE PARTITION p0")
        database.execute("ALTER TABLE d DROP PARTITION p0")
        database.execute("ALTER TABLE e EXCHANGE PARTITION p0 WITH TABLE x")
        for table in "tdex":
            database.execute(f"INSERT INTO {table} VALUES (9, 'after')")
        capture.wait_position(mysql_server)
        eventually(lambda: not pending_requests(kafka_broker, prefix), "the tables are read")
    for table in "tdex":
        rows = consumer_rows(kafka_broker, prefix, f"{database.name}.{table}").values()
        assert {row["id"]: row["v"] for row in rows} == source_rows(database, table), table
