"""Changes of key values and of table schemas during an incremental snapshot."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.producer.snapshot.hooks import SnapshotHooks
from tests.support.capture import CaptureThread, eventually, records_of
from tests.support.incremental_checks import incremental_rows, is_incremental, signal_completed, state_of
from tests.support.incremental_window import (
    AT,
    CHUNK,
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
from tests.support.reference_model import final_rows

if TYPE_CHECKING:
    from tailrace.producer.model.split import Split
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database


@pytest.mark.parametrize("moment", ["before_low", "after_low", "before_high", "after_high"])
def test_changed_keys_during_an_incremental_snapshot(
    moment: str, mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """Keys move between this split, a completed one, a later one, and beyond both ends, in both directions."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(50))")
    database.executemany("INSERT INTO t VALUES (%s, %s)", [(n * 10, f"t{n}") for n in range(1, ROWS + 1)])
    width = CHUNK * 10  # key range of one split
    here, read, unread = AT * width + 20, 20, (AT + 4) * width + 20

    def act() -> None:
        at = here
        for target in (read, unread, 100_000, -100):
            database.execute(f"UPDATE t SET id = {target + 3}, v = CONCAT(v, ' out') WHERE id = {at}")
            for back, source in ((at + 4, read), (at + 5, unread)):
                database.execute(f"UPDATE t SET id = {back}, v = CONCAT(v, ' in') WHERE id = {source + at % 100}")
            at += 10
            read_, unread_ = read + 60 + at % width, unread + 60 + at % width
            database.execute(f"UPDATE t SET id = id + 100001 WHERE id = {read_}")
            database.execute(f"UPDATE t SET id = {read_} + 1 WHERE id = {unread_}")
            database.execute(f"UPDATE t SET id = {unread_} + 2 WHERE id = {read_} + 1")
        database.execute(f"UPDATE t SET id = {here} WHERE id = 100003")
        database.execute(f"UPDATE t SET id = id + 1 WHERE id BETWEEN {here} AND {here + 190} ORDER BY id DESC")
        database.execute(
            f"UPDATE IGNORE t SET id = id - {width} WHERE id BETWEEN {here + 3} AND {here + 400} AND id % 3 = 1"
        )

    hook = SplitHook("t", act)
    settings = settings_of(mysql_server, kafka_broker, prefix, database)
    with CaptureThread(settings, SnapshotHooks(**{moment: hook})) as capture:
        capture.wait_snapshot()
        request_snapshot(kafka_broker, prefix, database, "t")
        eventually(lambda: hook.done and signal_completed(kafka_broker, prefix), "incremental snapshot")
        database.execute("UPDATE t SET id = id + 7 WHERE id > 1500 ORDER BY id DESC")
        capture.wait_position(mysql_server)

    records = records_of(kafka_broker.bootstrap, prefix, database.name, "t")
    assert {row["id"]: row["v"] for row in check_changes(records).values()} == source_rows(database, "t")
    assert {row["id"]: row["v"] for row in final_rows(records).values()} == source_rows(database, "t")
    check_counts(kafka_broker, prefix, f"{prefix}.{database.name}.t")
    assert notified(kafka_broker, prefix)[1:] == [("TABLE_SCAN_COMPLETED", "t", "SUCCEEDED"), ("COMPLETED", "", "")]


@pytest.mark.parametrize("moment", ["before_low", "after_low", "before_high"])
def test_column_added_during_an_incremental_snapshot(
    moment: str, mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """Also before the key: each split and each change has the table schema of its time; the snapshot continues."""
    fill(database, "t")
    alter, update = "ALTER TABLE t ADD COLUMN n INT DEFAULT 5 FIRST", "UPDATE t SET n = id WHERE id % 2 = 0"
    background = BackgroundStatements(database, alter, update)

    def act() -> None:
        database.execute("UPDATE t SET v = CONCAT(v, '.')")
        if moment == "before_high":
            background()
        else:
            database.execute(alter)
            database.execute(update)

    hook = SplitHook("t", act)
    settings = settings_of(mysql_server, kafka_broker, prefix, database)
    with CaptureThread(settings, SnapshotHooks(**{moment: hook})) as capture:
        capture.wait_snapshot()
        request_snapshot(kafka_broker, prefix, database, "t")
        eventually(lambda: hook.done and signal_completed(kafka_broker, prefix), "incremental snapshot")
        if moment == "before_high":
            background.join()
        database.execute("UPDATE t SET v = CONCAT(v, '!'), n = -id")
        capture.wait_position(mysql_server)

    records = records_of(kafka_broker.bootstrap, prefix, database.name, "t")
    expected = {key: (value, n) for key, value, n in database.execute("SELECT id, v, n FROM t")}
    for rows in (check_changes(records, same_columns=False), final_rows(records)):
        assert {row["id"]: (row["v"], row["n"]) for row in rows.values()} == expected
    assert {r.json["after"]["id"] for r in records if is_incremental(r)} == set(range(1, ROWS + 1))
    check_counts(kafka_broker, prefix, f"{prefix}.{database.name}.t")
    assert notified(kafka_broker, prefix)[1:] == [("TABLE_SCAN_COMPLETED", "t", "SUCCEEDED"), ("COMPLETED", "", "")]


NEW_KEY = "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (v)"
UPDATE_KEYS = "UPDATE t SET v = CONCAT(v, '/2') WHERE id % 2 = 0"


def _verify_key_change(
    broker: KafkaBroker, prefix: str, database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check that the snapshot was cancelled with a message, and that each change has the key of its time."""
    records = records_of(broker.bootstrap, prefix, database.name, "t")
    output = capsys.readouterr().out
    assert "the key of its table changed" in output or "changed during its snapshot" in output
    created = {r.json["after"]["v"] for r in records if r.value and r.json["op"] == "c"}
    deleted = {r.json["before"]["v"] for r in records if r.value and r.json["op"] == "d"}
    assert created == {f"t{n}/2" for n in range(2, ROWS + 1, 2)} | {f"t{n}/2/3" for n in range(2, ROWS + 1, 2)}
    assert deleted == {f"t{n}" for n in range(2, ROWS + 1, 2)} | {f"t{n}/2" for n in range(2, ROWS + 1, 2)}
    rows = final_rows(records)
    by_new_key = {row["v"]: row["id"] for key, row in rows.items() if b'"v"' in key}
    expected = {v: i for i, v in source_rows(database, "t").items() if i % 2 == 0}
    assert {v: i for v, i in by_new_key.items() if i % 2 == 0} == expected
    assert ("TABLE_SCAN_COMPLETED", "t", "SQL_EXCEPTION") in notified(broker, prefix)


@pytest.mark.parametrize("reader_first", [True, False])
def test_primary_key_changed_during_an_incremental_snapshot(  # noqa: PLR0917 - fixtures
    reader_first: bool,
    mysql_server: MySqlServer,
    kafka_broker: KafkaBroker,
    prefix: str,
    database: Database,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Reader or stream, the first to see it cancels the snapshot; no change is lost; a new request succeeds."""
    fill(database, "t", "u")

    def act() -> None:
        database.execute(NEW_KEY)
        database.execute(UPDATE_KEYS)
        if not reader_first:
            eventually(lambda: state_of(kafka_broker, prefix, f"table/{database.name}.t") == initial, "cancelled")

    initial: dict[str, Any] = {}
    hook = SplitHook("t", act)
    settings = settings_of(mysql_server, kafka_broker, prefix, database)
    with CaptureThread(settings, SnapshotHooks(before_low=hook)) as capture:
        capture.wait_snapshot()
        initial.update(state_of(kafka_broker, prefix, f"table/{database.name}.t") or {})
        request_snapshot(kafka_broker, prefix, database, "t", "u")
        eventually(lambda: hook.done and signal_completed(kafka_broker, prefix), "incremental snapshot")
        database.execute("UPDATE t SET v = CONCAT(v, '/3') WHERE id % 2 = 0")
        capture.wait_position(mysql_server)
    _verify_key_change(kafka_broker, prefix, database, capsys)
    assert len({r.key for r in incremental_rows(kafka_broker, prefix, database.name, "u")}) == ROWS
    with CaptureThread(settings) as capture:
        before = len(incremental_rows(kafka_broker, prefix, database.name))
        request_snapshot(kafka_broker, prefix, database, "t")
        eventually(
            lambda: len(incremental_rows(kafka_broker, prefix, database.name)) == before + ROWS, "snapshot with new key"
        )
        eventually(lambda: signal_completed(kafka_broker, prefix), "ended")
    rows = {
        r.json["after"]["v"]: r.json["after"]["id"]
        for r in incremental_rows(kafka_broker, prefix, database.name)[before:]
    }
    assert rows == {v: i for i, v in source_rows(database, "t").items()}
    no_splits_left(kafka_broker, prefix)


def test_primary_key_changed_ahead_of_the_stream(
    mysql_server: MySqlServer,
    kafka_broker: KafkaBroker,
    prefix: str,
    database: Database,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A plan with the new key must not be applied to changes with the old key, whose table version is known."""
    fill(database, "a", "b", "t")
    blocked = threading.Event()

    def block() -> None:
        with database.connect() as session, session.cursor() as cursor:
            cursor.execute("UPDATE a SET v = 'blocked' WHERE id < 10")
        blocked.set()
        eventually(
            lambda: (state_of(kafka_broker, prefix, f"table/{database.name}.t") or {})["mode"] == "incremental", "t"
        )

    def alter() -> None:
        assert blocked.wait(300)
        database.execute(UPDATE_KEYS)
        database.execute(NEW_KEY)

    hooks = [SplitHook("a", block, number=0), SplitHook("b", alter, number=0)]

    def act(split: Split) -> None:
        for hook in hooks:
            hook(split)

    settings = settings_of(mysql_server, kafka_broker, prefix, database)
    with CaptureThread(settings, SnapshotHooks(before_low=act)) as capture:
        capture.wait_snapshot()
        database.execute("UPDATE t SET v = v WHERE id < 0")
        database.execute("INSERT INTO t VALUES (1001, 'odd')")
        capture.wait_position(mysql_server)
        request_snapshot(kafka_broker, prefix, database, "a", "b", "t")
        eventually(
            lambda: all(hook.done for hook in hooks) and signal_completed(kafka_broker, prefix), "incremental snapshot"
        )
        capture.wait_position(mysql_server)
    records = records_of(kafka_broker.bootstrap, prefix, database.name, "t")
    updated = {r.json["after"]["v"] for r in records if r.value and r.json["op"] == "u"}
    assert updated == {f"t{n}/2" for n in range(2, ROWS + 1, 2)}
    assert "the key of its table changed" in capsys.readouterr().out
    assert ("TABLE_SCAN_COMPLETED", "t", "SQL_EXCEPTION") in notified(kafka_broker, prefix)


def test_snapshot_cancelled_while_another_reader_is_active(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """The rows that it has selected must not come after changes that they do not include."""
    fill(database, "t")
    selected = threading.Event()

    def fail() -> None:
        assert selected.wait(300)
        raise ValueError("cannot be read")

    def wait() -> None:
        database.execute("UPDATE t SET v = 'newer'")
        selected.set()
        with suppress(AssertionError):  # the changes are held until this reader ends
            eventually(lambda: _updates(kafka_broker, prefix, database), "changes in the topic", deadline_s=3)

    failing, waiting = SplitHook("t", fail, number=AT), SplitHook("t", wait, number=AT + 1)
    settings = settings_of(mysql_server, kafka_broker, prefix, database)
    with CaptureThread(settings, SnapshotHooks(before_low=failing, before_high=waiting)) as capture:
        capture.wait_snapshot()
        request_snapshot(kafka_broker, prefix, database, "t")
        eventually(lambda: waiting.done and signal_completed(kafka_broker, prefix), "cancelled")
        capture.wait_position(mysql_server)

    records = records_of(kafka_broker.bootstrap, prefix, database.name, "t")
    assert {row["id"]: row["v"] for row in check_changes(records).values()} == source_rows(database, "t")
    assert rows_of_reader(records) == source_rows(database, "t")
    assert ("TABLE_SCAN_COMPLETED", "t", "SQL_EXCEPTION") in notified(kafka_broker, prefix)


def _updates(broker: KafkaBroker, prefix: str, database: Database) -> bool:
    return any(r.value and r.json["op"] == "u" for r in records_of(broker.bootstrap, prefix, database.name, "t"))
