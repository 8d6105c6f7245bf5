"""Keys that move, and definitions that change, while the table is read again."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.producer.snapshot.hooks import SnapshotHooks
from tests.support.capture import CaptureThread, eventually, records_of
from tests.support.incremental_checks import is_again, rows_again, settled, state_of
from tests.support.incremental_window import (
    AT,
    CHUNK,
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
from tests.support.reference_model import final_rows

if TYPE_CHECKING:
    from tailrace.producer.model.split import Split
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database


@pytest.mark.parametrize("moment", ["before_low", "after_low", "before_high", "after_high"])
def test_keys_that_move_while_a_table_is_read_again(
    moment: str, mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """Between this split, one that is read, one that is not, below and above all keys; back again too."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(50))")
    database.executemany("INSERT INTO t VALUES (%s, %s)", [(n * 10, f"t{n}") for n in range(1, ROWS + 1)])
    width = CHUNK * 10  # what one split holds
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

    hook = Once("t", act)
    settings = settings_of(mysql_server, kafka_broker, prefix, database)
    with CaptureThread(settings, SnapshotHooks(**{moment: hook})) as capture:
        capture.wait_snapshot()
        ask(kafka_broker, prefix, database, "t")
        eventually(lambda: hook.done and settled(kafka_broker, prefix), "read again")
        database.execute("UPDATE t SET id = id + 7 WHERE id > 1500 ORDER BY id DESC")
        capture.wait_position(mysql_server)

    records = records_of(kafka_broker.bootstrap, prefix, database.name, "t")
    assert {row["id"]: row["v"] for row in chained(records).values()} == source_rows(database, "t")
    assert {row["id"]: row["v"] for row in final_rows(records).values()} == source_rows(database, "t")
    counted(kafka_broker, prefix, f"{prefix}.{database.name}.t")
    assert told(kafka_broker, prefix)[1:] == [("TABLE_SCAN_COMPLETED", "t", "SUCCEEDED"), ("COMPLETED", "", "")]


@pytest.mark.parametrize("moment", ["before_low", "after_low", "before_high"])
def test_a_column_added_while_a_table_is_read_again(
    moment: str, mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """Even before the key: each split and each change has the definition of its time, and the reading goes on."""
    fill(database, "t")
    alter, update = "ALTER TABLE t ADD COLUMN n INT DEFAULT 5 FIRST", "UPDATE t SET n = id WHERE id % 2 = 0"
    beside = Beside(database, alter, update)

    def act() -> None:
        database.execute("UPDATE t SET v = CONCAT(v, '.')")
        if moment == "before_high":
            beside()
        else:
            database.execute(alter)
            database.execute(update)

    hook = Once("t", act)
    settings = settings_of(mysql_server, kafka_broker, prefix, database)
    with CaptureThread(settings, SnapshotHooks(**{moment: hook})) as capture:
        capture.wait_snapshot()
        ask(kafka_broker, prefix, database, "t")
        eventually(lambda: hook.done and settled(kafka_broker, prefix), "read again")
        if moment == "before_high":
            beside.join()
        database.execute("UPDATE t SET v = CONCAT(v, '!'), n = -id")
        capture.wait_position(mysql_server)

    records = records_of(kafka_broker.bootstrap, prefix, database.name, "t")
    wanted = {key: (value, n) for key, value, n in database.execute("SELECT id, v, n FROM t")}
    for rows in (chained(records, same_columns=False), final_rows(records)):
        assert {row["id"]: (row["v"], row["n"]) for row in rows.values()} == wanted
    assert {r.json["after"]["id"] for r in records if is_again(r)} == set(range(1, ROWS + 1))
    counted(kafka_broker, prefix, f"{prefix}.{database.name}.t")
    assert told(kafka_broker, prefix)[1:] == [("TABLE_SCAN_COMPLETED", "t", "SUCCEEDED"), ("COMPLETED", "", "")]


NEW_KEY = "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (v)"
MARKED = "UPDATE t SET v = CONCAT(v, '/2') WHERE id % 2 = 0"


def _key_changed_rightly(
    broker: KafkaBroker, prefix: str, database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check that the reading was given up with a message, and that the log has every change by its key of the time."""
    records = records_of(broker.bootstrap, prefix, database.name, "t")
    said = capsys.readouterr().out
    assert "the key of its table changed" in said or "changed during its snapshot" in said
    came = {r.json["after"]["v"] for r in records if r.value and r.json["op"] == "c"}
    gone = {r.json["before"]["v"] for r in records if r.value and r.json["op"] == "d"}
    assert came == {f"t{n}/2" for n in range(2, ROWS + 1, 2)} | {f"t{n}/2/3" for n in range(2, ROWS + 1, 2)}
    assert gone == {f"t{n}" for n in range(2, ROWS + 1, 2)} | {f"t{n}/2" for n in range(2, ROWS + 1, 2)}
    rows = final_rows(records)
    by_new_key = {row["v"]: row["id"] for key, row in rows.items() if b'"v"' in key}
    wanted = {v: i for i, v in source_rows(database, "t").items() if i % 2 == 0}
    assert {v: i for v, i in by_new_key.items() if i % 2 == 0} == wanted
    assert ("TABLE_SCAN_COMPLETED", "t", "SQL_EXCEPTION") in told(broker, prefix)


@pytest.mark.parametrize("reader_first", [True, False])
def test_the_key_is_altered_while_a_table_is_read_again(  # noqa: PLR0917 - fixtures
    reader_first: bool,
    mysql_server: MySqlServer,
    kafka_broker: KafkaBroker,
    prefix: str,
    database: Database,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whoever meets it first gives the reading up; no change is lost, and the table can be asked for once more."""
    fill(database, "t", "u")

    def act() -> None:
        database.execute(NEW_KEY)
        database.execute(MARKED)
        if not reader_first:
            eventually(lambda: state_of(kafka_broker, prefix, f"table/{database.name}.t") == followed, "given up")

    followed: dict[str, Any] = {}
    hook = Once("t", act)
    settings = settings_of(mysql_server, kafka_broker, prefix, database)
    with CaptureThread(settings, SnapshotHooks(before_low=hook)) as capture:
        capture.wait_snapshot()
        followed.update(state_of(kafka_broker, prefix, f"table/{database.name}.t") or {})
        ask(kafka_broker, prefix, database, "t", "u")
        eventually(lambda: hook.done and settled(kafka_broker, prefix), "read again")
        database.execute("UPDATE t SET v = CONCAT(v, '/3') WHERE id % 2 = 0")
        capture.wait_position(mysql_server)
    _key_changed_rightly(kafka_broker, prefix, database, capsys)
    assert len({r.key for r in rows_again(kafka_broker, prefix, database.name, "u")}) == ROWS
    with CaptureThread(settings) as capture:
        before = len(rows_again(kafka_broker, prefix, database.name))
        ask(kafka_broker, prefix, database, "t")
        eventually(lambda: len(rows_again(kafka_broker, prefix, database.name)) == before + ROWS, "with the new key")
        eventually(lambda: settled(kafka_broker, prefix), "ended")
    rows = {
        r.json["after"]["v"]: r.json["after"]["id"] for r in rows_again(kafka_broker, prefix, database.name)[before:]
    }
    assert rows == {v: i for i, v in source_rows(database, "t").items()}
    no_splits_left(kafka_broker, prefix)


def test_the_key_was_altered_where_the_log_is_not_yet(
    mysql_server: MySqlServer,
    kafka_broker: KafkaBroker,
    prefix: str,
    database: Database,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A plan by the new key must not judge changes by the old one, of a version that the log reader has met before."""
    fill(database, "a", "b", "t")
    held = threading.Event()

    def hold() -> None:
        with database.connect() as session, session.cursor() as cursor:
            cursor.execute("UPDATE a SET v = 'held' WHERE id < 10")
        held.set()
        eventually(
            lambda: (state_of(kafka_broker, prefix, f"table/{database.name}.t") or {})["mode"] == "incremental", "t"
        )

    def alter() -> None:
        assert held.wait(60)
        database.execute(MARKED)
        database.execute(NEW_KEY)

    hooks = [Once("a", hold, number=0), Once("b", alter, number=0)]

    def act(split: Split) -> None:
        for hook in hooks:
            hook(split)

    settings = settings_of(mysql_server, kafka_broker, prefix, database)
    with CaptureThread(settings, SnapshotHooks(before_low=act)) as capture:
        capture.wait_snapshot()
        database.execute("UPDATE t SET v = v WHERE id < 0")
        database.execute("INSERT INTO t VALUES (1001, 'odd')")
        capture.wait_position(mysql_server)
        ask(kafka_broker, prefix, database, "a", "b", "t")
        eventually(lambda: all(hook.done for hook in hooks) and settled(kafka_broker, prefix), "read again")
        capture.wait_position(mysql_server)
    records = records_of(kafka_broker.bootstrap, prefix, database.name, "t")
    updated = {r.json["after"]["v"] for r in records if r.value and r.json["op"] == "u"}
    assert updated == {f"t{n}/2" for n in range(2, ROWS + 1, 2)}
    assert "the key of its table changed" in capsys.readouterr().out
    assert ("TABLE_SCAN_COMPLETED", "t", "SQL_EXCEPTION") in told(kafka_broker, prefix)


def test_a_reader_at_work_when_its_table_is_given_up(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """The rows that it has selected must not come behind changes that they lack."""
    fill(database, "t")
    selected = threading.Event()

    def fail() -> None:
        assert selected.wait(60)
        raise ValueError("cannot be read")

    def linger() -> None:
        database.execute("UPDATE t SET v = 'newer'")
        selected.set()
        with suppress(AssertionError):  # the changes are held until this reader ends: they must not show up
            eventually(lambda: _updates(kafka_broker, prefix, database), "changes in the topic", deadline_s=3)

    failing, lingering = Once("t", fail, number=AT), Once("t", linger, number=AT + 1)
    settings = settings_of(mysql_server, kafka_broker, prefix, database)
    with CaptureThread(settings, SnapshotHooks(before_low=failing, before_high=lingering)) as capture:
        capture.wait_snapshot()
        ask(kafka_broker, prefix, database, "t")
        eventually(lambda: lingering.done and settled(kafka_broker, prefix), "given up")
        capture.wait_position(mysql_server)

    records = records_of(kafka_broker.bootstrap, prefix, database.name, "t")
    assert {row["id"]: row["v"] for row in chained(records).values()} == source_rows(database, "t")
    assert kept(records) == source_rows(database, "t")
    assert ("TABLE_SCAN_COMPLETED", "t", "SQL_EXCEPTION") in told(kafka_broker, prefix)


def _updates(broker: KafkaBroker, prefix: str, database: Database) -> bool:
    return any(r.value and r.json["op"] == "u" for r in records_of(broker.bootstrap, prefix, database.name, "t"))
