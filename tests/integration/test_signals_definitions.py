"""Tables that are dropped, renamed, emptied or altered, and keys that move, while the table is read again."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from producer.snapshot.hooks import SnapshotHooks
from schemas.names import AGAIN_HEADER, SPLIT_HEADER, state_topic
from tests.support.again import ends_again, is_again, notifications, rows_again, settled, signal, state_of
from tests.support.capture import CaptureThread, eventually, properties, records_of
from tests.support.oracle import final_rows
from tests.support.topics import Read, read_topic

if TYPE_CHECKING:
    from producer.split.split import Split
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database

ROWS = 200
CHUNK = 20
AT = 3
"""Number of the split in whose window things happen."""


def _settings(
    server: MySqlServer, broker: KafkaBroker, prefix: str, database: Database, **changes: object
) -> dict[str, str]:
    wanted = {
        "incremental.snapshot.chunk.size": CHUNK,
        "topic.creation.default.partitions": 1,
        "signal.poll.interval.ms": 50,
        "signal.enabled.channels": "kafka",
        "notification.enabled.channels": "sink",
        "notification.sink.topic.name": _notes_topic(prefix),
        **{name.replace("_", "."): value for name, value in changes.items()},
    }
    return properties(server, broker, prefix, database.name, wanted)


def _notes_topic(prefix: str) -> str:
    return f"{prefix}.notes"


def _fill(database: Database, *tables: str) -> None:
    for table in tables:
        database.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(50))")
        database.executemany(f"INSERT INTO {table} VALUES (%s, %s)", [(n, f"{table}{n}") for n in range(1, ROWS + 1)])


def _source(database: Database, table: str) -> dict[int, str]:
    return dict(database.execute(f"SELECT id, v FROM {table}"))


def _ask(broker: KafkaBroker, prefix: str, database: Database, *tables: str) -> None:
    names = [f"{database.name}.{table}" for table in tables]
    signal(broker, prefix, "execute-snapshot", {"data-collections": names}, "asked")


class _Once:
    """A hook that acts in the window of one split that is read again, the first time it is read."""

    def __init__(self, table: str, act: Callable[[], None], number: int = AT) -> None:
        self._table, self._number, self._act = table, number, act
        self._lock = threading.Lock()
        self.done = False

    def __call__(self, split: Split) -> None:
        with self._lock:
            if not split.again or (split.table.table, split.number) != (self._table, self._number) or self.done:
                return
            self.done = True
        self._act()


def _chained(records: Sequence[Read], *, same_columns: bool = True) -> dict[bytes, dict[str, Any]]:
    """Check that without the rows read again each key's changes follow from one another; return the rows they give.

    The table's first snapshot was over before its first change.
    """
    rows: dict[bytes, dict[str, Any]] = {}
    for record in records:
        if record.value is None or is_again(record):
            continue
        change = record.json
        if change["op"] == "t":
            rows.clear()
            continue
        assert record.key is not None
        before, known = change["before"], rows.pop(record.key, None)
        if not same_columns and before is not None and known is not None:
            before = {name: before[name] for name in known}
        assert before == known, f"{change['op']} of {record.key!r} at {record.offset}: from {before}, not {known}"
        if change["after"] is not None:
            rows[record.key] = change["after"]
    return rows


def _kept(records: Sequence[Read]) -> dict[int, str]:
    """Return the table that a reader has who takes all records in order, rows read again as well."""
    rows: dict[int, str] = {}
    for record in records:
        if record.value is None:
            continue
        change = record.json
        if change["op"] == "t":
            rows.clear()
        elif change["after"] is None:
            rows.pop(change["before"]["id"], None)
        else:
            rows[change["after"]["id"]] = change["after"]["v"]
    return rows


def _counted(broker: KafkaBroker, prefix: str, topic: str) -> None:
    """Check that each END of a split read again counts what bears its id."""
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for record in read_topic(broker.bootstrap, topic):
        split = record.headers.get(AGAIN_HEADER)
        if split is not None and record.value is not None:
            found[split.decode()][record.json["op"] != "r"] += 1
    ends = [end for end in ends_again(broker, prefix) if end.topic == topic]
    assert {end.split: [end.rows, end.backfill] for end in ends if end.rows or end.backfill} == dict(found)


def _told(broker: KafkaBroker, prefix: str) -> list[tuple[str, str, str]]:
    """Return what was told of the incremental snapshot, but for its progress: type, table, status."""
    return [
        (
            note["type"],
            note["additional_data"].get("scanned_collection", "").rpartition(".")[2],
            note["additional_data"].get("status", ""),
        )
        for note in notifications(broker, _notes_topic(prefix))
        if note["type"] != "IN_PROGRESS"
    ]


def _no_splits_left(broker: KafkaBroker, prefix: str) -> None:
    state = {r.key: r.value for r in read_topic(broker.bootstrap, state_topic(prefix))}
    assert not [key for key, value in state.items() if key is not None and key.startswith(b"split/") and value]


class _Beside:
    """Statements in a session of their own, begun while a reader keeps them waiting."""

    def __init__(self, database: Database, *statements: str) -> None:
        self._database, self._statements = database, statements
        self._thread = threading.Thread(target=self._run)

    def __call__(self) -> None:
        self._thread.start()
        with self._database.connect() as watcher, watcher.cursor() as cursor:
            eventually(lambda: self._waits(cursor), "the statement waits")

    def _waits(self, cursor: Any) -> bool:
        cursor.execute(
            "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'Waiting for table metadata lock' "
            "AND db = %s",
            (self._database.name,),
        )
        return bool(cursor.fetchone()[0])

    def _run(self) -> None:
        with self._database.connect() as session, session.cursor() as cursor:
            for statement in self._statements:
                cursor.execute(statement)

    def join(self) -> None:
        """Wait until all is executed."""
        self._thread.join(timeout=60)
        assert not self._thread.is_alive()


@pytest.mark.parametrize("moment", ["before_low", "after_low", "before_high"])
def test_a_table_emptied_while_it_is_read_again_goes_on(
    moment: str, mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """Its record wipes what was read before, and what came after follows from the log: nothing is read anew."""
    _fill(database, "t", "u")
    statements = (
        "UPDATE t SET v = 'before' WHERE id % 3 = 0",
        "TRUNCATE TABLE t",
        "INSERT INTO t SELECT id, 'fresh' FROM u WHERE id % 2 = 0",
        "UPDATE t SET v = 'after' WHERE id % 4 = 0",
        "DELETE FROM t WHERE id % 10 = 0",
    )
    beside = _Beside(database, *(statements if moment != "before_high" else statements[1:]))

    def act() -> None:
        if moment == "before_high":
            beside()
        else:
            for statement in statements:
                database.execute(statement)

    settings = _settings(mysql_server, kafka_broker, prefix, database, skipped_operations="none")
    hook = _Once("t", act)
    with CaptureThread(settings, SnapshotHooks(**{moment: hook})) as capture:
        capture.wait_snapshot()
        _ask(kafka_broker, prefix, database, "t", "u")
        eventually(lambda: hook.done and settled(kafka_broker, prefix), "read again")
        if moment == "before_high":
            beside.join()
        database.execute("UPDATE t SET v = CONCAT(v, '.') WHERE id < 60")
        capture.wait_position(mysql_server)

    records = records_of(kafka_broker.bootstrap, prefix, database.name, "t")
    assert [r.json["op"] for r in records if r.value and r.json["op"] == "t"] == ["t"]
    assert _kept(records) == _source(database, "t")
    assert {row["id"]: row["v"] for row in _chained(records).values()} == _source(database, "t")
    assert sum(SPLIT_HEADER in r.headers for r in records) == ROWS, "the table was read anew"
    _counted(kafka_broker, prefix, f"{prefix}.{database.name}.t")
    assert _told(kafka_broker, prefix) == [
        ("STARTED", "", ""),
        ("TABLE_SCAN_COMPLETED", "t", "SUCCEEDED"),
        ("TABLE_SCAN_COMPLETED", "u", "SUCCEEDED"),
        ("COMPLETED", "", ""),
    ]
    _no_splits_left(kafka_broker, prefix)


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
    _fill(database, "t", "u")
    statement, moment = away
    before = "UPDATE t SET v = 'last words' WHERE id % 2 = 0"
    beside = _Beside(database, statement)

    def act() -> None:
        database.execute(before)
        if moment == "before_high":
            beside()
        else:
            database.execute(statement)

    hook = _Once("t", act)
    settings = _settings(mysql_server, kafka_broker, prefix, database)
    with CaptureThread(settings, SnapshotHooks(**{moment: hook})) as capture:
        capture.wait_snapshot()
        _ask(kafka_broker, prefix, database, "t", "u")
        eventually(lambda: hook.done and settled(kafka_broker, prefix), "read again")
        database.execute("UPDATE u SET v = 'goes on'")
        database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(50))")
        database.execute("INSERT INTO t VALUES (7, 'new'), (1000, 'new')")
        database.execute("UPDATE t SET v = 'newer' WHERE id = 1000")
        capture.wait_position(mysql_server)
        _ask(kafka_broker, prefix, database, "t")
        eventually(lambda: sum(note[0] == "COMPLETED" for note in _told(kafka_broker, prefix)) == 2, "the new one")

    records = records_of(kafka_broker.bootstrap, prefix, database.name, "t")
    updated = {r.json["after"]["id"] for r in records if r.value and r.json["op"] == "u"}
    assert updated == {*range(2, ROWS + 1, 2), 1000}
    assert _source(database, "t") == {key: _kept(records)[key] for key in (7, 1000)}
    others = records_of(kafka_broker.bootstrap, prefix, database.name, "u")
    assert {row["id"]: row["v"] for row in _chained(others).values()} == _kept(others) == _source(database, "u")
    _counted(kafka_broker, prefix, f"{prefix}.{database.name}.u")
    told = _told(kafka_broker, prefix)
    assert (told[0], told[3]) == (("STARTED", "", ""), ("COMPLETED", "", ""))
    assert set(told[1:3]) == {
        ("TABLE_SCAN_COMPLETED", "t", "SQL_EXCEPTION"),
        ("TABLE_SCAN_COMPLETED", "u", "SUCCEEDED"),
    }
    assert told[5] == ("TABLE_SCAN_COMPLETED", "t", "SUCCEEDED")
    _no_splits_left(kafka_broker, prefix)


def test_a_table_gone_before_its_turn(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """It is let go, and the tables behind it are read."""
    _fill(database, "a", "b", "c")
    hook = _Once("a", lambda: database.execute("DROP TABLE b"), number=0)  # type: ignore[arg-type]
    settings = _settings(mysql_server, kafka_broker, prefix, database, snapshot_max_threads=1)
    with CaptureThread(settings, SnapshotHooks(before_low=hook)) as capture:
        capture.wait_snapshot()
        _ask(kafka_broker, prefix, database, "a", "b", "c")
        eventually(lambda: settled(kafka_broker, prefix) and rows_again(kafka_broker, prefix, database.name, "c"), "c")
        capture.wait_position(mysql_server)
    assert rows_again(kafka_broker, prefix, database.name, "b") == []
    assert [note for note in _told(kafka_broker, prefix) if note[0] == "TABLE_SCAN_COMPLETED"] == [
        ("TABLE_SCAN_COMPLETED", "a", "SUCCEEDED"),
        ("TABLE_SCAN_COMPLETED", "b", "SQL_EXCEPTION"),
        ("TABLE_SCAN_COMPLETED", "c", "SUCCEEDED"),
    ]


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

    hook = _Once("t", act)
    settings = _settings(mysql_server, kafka_broker, prefix, database)
    with CaptureThread(settings, SnapshotHooks(**{moment: hook})) as capture:
        capture.wait_snapshot()
        _ask(kafka_broker, prefix, database, "t")
        eventually(lambda: hook.done and settled(kafka_broker, prefix), "read again")
        database.execute("UPDATE t SET id = id + 7 WHERE id > 1500 ORDER BY id DESC")
        capture.wait_position(mysql_server)

    records = records_of(kafka_broker.bootstrap, prefix, database.name, "t")
    assert {row["id"]: row["v"] for row in _chained(records).values()} == _source(database, "t")
    assert {row["id"]: row["v"] for row in final_rows(records).values()} == _source(database, "t")
    _counted(kafka_broker, prefix, f"{prefix}.{database.name}.t")
    assert _told(kafka_broker, prefix)[1:] == [("TABLE_SCAN_COMPLETED", "t", "SUCCEEDED"), ("COMPLETED", "", "")]


@pytest.mark.parametrize("moment", ["before_low", "after_low", "before_high"])
def test_a_column_added_while_a_table_is_read_again(
    moment: str, mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """Even before the key: each split and each change has the definition of its time, and the reading goes on."""
    _fill(database, "t")
    alter, update = "ALTER TABLE t ADD COLUMN n INT DEFAULT 5 FIRST", "UPDATE t SET n = id WHERE id % 2 = 0"
    beside = _Beside(database, alter, update)

    def act() -> None:
        database.execute("UPDATE t SET v = CONCAT(v, '.')")
        if moment == "before_high":
            beside()
        else:
            database.execute(alter)
            database.execute(update)

    hook = _Once("t", act)
    settings = _settings(mysql_server, kafka_broker, prefix, database)
    with CaptureThread(settings, SnapshotHooks(**{moment: hook})) as capture:
        capture.wait_snapshot()
        _ask(kafka_broker, prefix, database, "t")
        eventually(lambda: hook.done and settled(kafka_broker, prefix), "read again")
        if moment == "before_high":
            beside.join()
        database.execute("UPDATE t SET v = CONCAT(v, '!'), n = -id")
        capture.wait_position(mysql_server)

    records = records_of(kafka_broker.bootstrap, prefix, database.name, "t")
    wanted = {key: (value, n) for key, value, n in database.execute("SELECT id, v, n FROM t")}
    for rows in (_chained(records, same_columns=False), final_rows(records)):
        assert {row["id"]: (row["v"], row["n"]) for row in rows.values()} == wanted
    assert {r.json["after"]["id"] for r in records if is_again(r)} == set(range(1, ROWS + 1))
    _counted(kafka_broker, prefix, f"{prefix}.{database.name}.t")
    assert _told(kafka_broker, prefix)[1:] == [("TABLE_SCAN_COMPLETED", "t", "SUCCEEDED"), ("COMPLETED", "", "")]


NEW_KEY = "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (v)"
MARKED = "UPDATE t SET v = CONCAT(v, '/2') WHERE id % 2 = 0"


def _key_changed_rightly(
    broker: KafkaBroker, prefix: str, database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check that the reading was given up with a message, and that the log has every change by its key of the time."""
    records = records_of(broker.bootstrap, prefix, database.name, "t")
    said = capsys.readouterr().out
    assert "its key changed" in said or "changed while its snapshot was under way" in said
    came = {r.json["after"]["v"] for r in records if r.value and r.json["op"] == "c"}
    gone = {r.json["before"]["v"] for r in records if r.value and r.json["op"] == "d"}
    assert came == {f"t{n}/2" for n in range(2, ROWS + 1, 2)} | {f"t{n}/2/3" for n in range(2, ROWS + 1, 2)}
    assert gone == {f"t{n}" for n in range(2, ROWS + 1, 2)} | {f"t{n}/2" for n in range(2, ROWS + 1, 2)}
    rows = final_rows(records)
    by_new_key = {row["v"]: row["id"] for key, row in rows.items() if b'"v"' in key}
    wanted = {v: i for i, v in _source(database, "t").items() if i % 2 == 0}
    assert {v: i for v, i in by_new_key.items() if i % 2 == 0} == wanted
    assert ("TABLE_SCAN_COMPLETED", "t", "SQL_EXCEPTION") in _told(broker, prefix)


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
    _fill(database, "t", "u")

    def act() -> None:
        database.execute(NEW_KEY)
        database.execute(MARKED)
        if not reader_first:
            eventually(lambda: state_of(kafka_broker, prefix, f"table/{database.name}.t") == followed, "given up")

    followed: dict[str, Any] = {}
    hook = _Once("t", act)
    settings = _settings(mysql_server, kafka_broker, prefix, database)
    with CaptureThread(settings, SnapshotHooks(before_low=hook)) as capture:
        capture.wait_snapshot()
        followed.update(state_of(kafka_broker, prefix, f"table/{database.name}.t") or {})
        _ask(kafka_broker, prefix, database, "t", "u")
        eventually(lambda: hook.done and settled(kafka_broker, prefix), "read again")
        database.execute("UPDATE t SET v = CONCAT(v, '/3') WHERE id % 2 = 0")
        capture.wait_position(mysql_server)
    _key_changed_rightly(kafka_broker, prefix, database, capsys)
    assert len({r.key for r in rows_again(kafka_broker, prefix, database.name, "u")}) == ROWS
    with CaptureThread(settings) as capture:
        before = len(rows_again(kafka_broker, prefix, database.name))
        _ask(kafka_broker, prefix, database, "t")
        eventually(lambda: len(rows_again(kafka_broker, prefix, database.name)) == before + ROWS, "with the new key")
        eventually(lambda: settled(kafka_broker, prefix), "ended")
    rows = {
        r.json["after"]["v"]: r.json["after"]["id"] for r in rows_again(kafka_broker, prefix, database.name)[before:]
    }
    assert rows == {v: i for i, v in _source(database, "t").items()}
    _no_splits_left(kafka_broker, prefix)


def test_the_key_was_altered_where_the_log_is_not_yet(
    mysql_server: MySqlServer,
    kafka_broker: KafkaBroker,
    prefix: str,
    database: Database,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A plan by the new key must not judge changes by the old one, of a version that the log reader has met before."""
    _fill(database, "a", "b", "t")
    held = threading.Event()

    def hold() -> None:
        with database.connect() as session, session.cursor() as cursor:
            cursor.execute("UPDATE a SET v = 'held' WHERE id < 10")
        held.set()
        eventually(lambda: (state_of(kafka_broker, prefix, f"table/{database.name}.t") or {})["phase"] == "again", "t")

    def alter() -> None:
        assert held.wait(60)
        database.execute(MARKED)
        database.execute(NEW_KEY)

    hooks = [_Once("a", hold, number=0), _Once("b", alter, number=0)]

    def act(split: Split) -> None:
        for hook in hooks:
            hook(split)

    settings = _settings(mysql_server, kafka_broker, prefix, database)
    with CaptureThread(settings, SnapshotHooks(before_low=act)) as capture:
        capture.wait_snapshot()
        database.execute("UPDATE t SET v = v WHERE id < 0")
        database.execute("INSERT INTO t VALUES (1001, 'odd')")
        capture.wait_position(mysql_server)
        _ask(kafka_broker, prefix, database, "a", "b", "t")
        eventually(lambda: all(hook.done for hook in hooks) and settled(kafka_broker, prefix), "read again")
        capture.wait_position(mysql_server)
    records = records_of(kafka_broker.bootstrap, prefix, database.name, "t")
    updated = {r.json["after"]["v"] for r in records if r.value and r.json["op"] == "u"}
    assert updated == {f"t{n}/2" for n in range(2, ROWS + 1, 2)}
    assert "its key changed" in capsys.readouterr().out
    assert ("TABLE_SCAN_COMPLETED", "t", "SQL_EXCEPTION") in _told(kafka_broker, prefix)


def test_a_reader_at_work_when_its_table_is_given_up(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """The rows that it has selected must not come behind changes that they lack."""
    _fill(database, "t")
    selected = threading.Event()

    def fail() -> None:
        assert selected.wait(60)
        raise ValueError("cannot be read")

    def linger() -> None:
        database.execute("UPDATE t SET v = 'newer'")
        selected.set()
        with suppress(AssertionError):  # the changes are held until this reader ends: they must not show up
            eventually(lambda: _updates(kafka_broker, prefix, database), "changes in the topic", deadline_s=3)

    failing, lingering = _Once("t", fail, number=AT), _Once("t", linger, number=AT + 1)
    settings = _settings(mysql_server, kafka_broker, prefix, database)
    with CaptureThread(settings, SnapshotHooks(before_low=failing, before_high=lingering)) as capture:
        capture.wait_snapshot()
        _ask(kafka_broker, prefix, database, "t")
        eventually(lambda: lingering.done and settled(kafka_broker, prefix), "given up")
        capture.wait_position(mysql_server)

    records = records_of(kafka_broker.bootstrap, prefix, database.name, "t")
    assert {row["id"]: row["v"] for row in _chained(records).values()} == _source(database, "t")
    assert _kept(records) == _source(database, "t")
    assert ("TABLE_SCAN_COMPLETED", "t", "SQL_EXCEPTION") in _told(kafka_broker, prefix)


def _updates(broker: KafkaBroker, prefix: str, database: Database) -> bool:
    return any(r.value and r.json["op"] == "u" for r in records_of(broker.bootstrap, prefix, database.name, "t"))
