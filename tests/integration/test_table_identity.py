"""A name is not an identity: readers of the topic have no row of a former table of that name.

Each way in which a table goes and comes back, with a restart between, or while a snapshot runs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

from tailrace.producer.snapshot.hooks import SnapshotHooks
from tailrace.schemas.names import state_topic
from tests.support.capture import CaptureThread, eventually, properties
from tests.support.incremental_checks import signal_completed
from tests.support.incremental_window import SplitHook, fill, request_snapshot, settings_of, source_rows
from tests.support.topics import read_topic
from tests.support.upsert_reader import consumer_rows

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database

SMALL: Final = {"snapshot.max.threads": 1, "topic.creation.default.partitions": 1}
COLUMNS: Final = "(id INT PRIMARY KEY, v INT)"
CREATE: Final = f"CREATE TABLE t {COLUMNS}"
LAST: Final = "INSERT INTO t VALUES (3, 3)"

CREATE_IN_T: Final = f"CREATE TABLE t.t {COLUMNS}"
DROP_CREATE: Final = ("DROP TABLE t", CREATE)
NONE: Final[tuple[str, ...]] = ()
CASES: Final = {
    "dropped, created while down": (("DROP TABLE t",), (CREATE, LAST)),
    "created, its first row after a start": (DROP_CREATE, NONE, (LAST,)),
    "all while down": (NONE, (*DROP_CREATE, LAST)),
    "all while it runs": ((*DROP_CREATE, LAST),),
    "twice": (DROP_CREATE, (*DROP_CREATE, "INSERT INTO t VALUES (5, 5)"), ("DELETE FROM t", LAST)),
    "renamed back while down": (("RENAME TABLE t TO away_t",), ("RENAME TABLE away_t TO t", "DELETE FROM t", LAST)),
    "renamed back while it runs": (
        ("RENAME TABLE t TO away_t", "DELETE FROM away_t", "RENAME TABLE away_t TO t", LAST),
    ),
    "renamed back after a start": (
        NONE,
        ("RENAME TABLE t TO away_t", "DELETE FROM away_t"),
        NONE,
        ("RENAME TABLE away_t TO t",),
        (LAST,),
    ),
    "replaced by RENAME": ((f"CREATE TABLE new_t {COLUMNS}", "RENAME TABLE t TO old_t, new_t TO t", LAST),),
    "replaced by RENAME while down": (
        (f"CREATE TABLE new_t {COLUMNS}",),
        ("RENAME TABLE t TO old_t, new_t TO t", LAST),
    ),
    "created if it does not exist": (
        ("DROP TABLE t",),
        NONE,
        (f"CREATE TABLE IF NOT EXISTS t {COLUMNS}",),
        NONE,
        (LAST,),
    ),
    "excluded and included again": (NONE, NONE, ("DELETE FROM t",), (LAST,)),
    "database dropped": (("DROP DATABASE t",), ("CREATE DATABASE t", CREATE_IN_T, "INSERT INTO t.t VALUES (3, 3)")),
    "renamed to itself": (("ALTER TABLE t RENAME TO t", LAST),),
    "never created again": (NONE, ("DROP TABLE t",)),
}
"""Statements while the capture runs, while it is down, while it runs again, and so on; t is the table of the case."""
NOT_CERTAINLY_NEW: Final = (
    "renamed back while it runs",
    "renamed back after a start",
    "replaced by RENAME while down",
    "created if it does not exist",
    "excluded and included again",
)


@pytest.mark.parametrize("mode", ["initial", "no_data"])
def test_rows_of_the_former_table_go(
    mode: str, mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """All cases at once, each with a table of its own, of which the topic has the rows 1 and 2."""
    name = database.name
    tables = {case: f"{name}.t{number}" for number, case in enumerate(CASES)}
    tables["database dropped"] = f"{name}_t.{name}_t"
    database.execute(f"CREATE DATABASE {name}_t")
    included = {**SMALL, "snapshot.mode": mode, "database.include.list": f"{name},{name}_t"}
    settings = properties(mysql_server, kafka_broker, prefix, name, included)
    excluded = {**settings, "table.exclude.list": tables["excluded and included again"]}
    for table in tables.values():
        database.execute(f"CREATE TABLE {table} {COLUMNS}")

    def run(phase: int) -> None:
        for case, phases in CASES.items():
            for statement in phases[phase] if phase < len(phases) else NONE:
                database.execute(_of(statement, tables[case].partition(".")[2]))

    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        for table in tables.values():
            database.execute(f"INSERT INTO {table} VALUES (1, 1), (2, 2)")
        capture.wait_position(mysql_server)
        run(0)
        capture.wait_position(mysql_server)
    for phase, changed in ((1, excluded), (3, settings)):
        run(phase)
        with CaptureThread(changed) as capture:
            capture.wait_position(mysql_server)
            run(phase + 1)
            capture.wait_position(mysql_server)
            if phase == 3:
                database.execute(f"UPDATE {tables['excluded and included again']} SET v = 3")
                capture.wait_position(mysql_server)
                _await_no_requests(kafka_broker, prefix)

    found = {case: _rows(kafka_broker, prefix, table) for case, table in tables.items()}
    expected = {**{case: {3: 3} for case in CASES}, "never created again": {1: 1, 2: 2}}
    expected["renamed to itself"] = {1: 1, 2: 2, 3: 3}  # the same table
    if mode == "no_data":  # rows that are not read do not follow, and only a CREATE tells that there are none
        for case in NOT_CERTAINLY_NEW:
            expected[case] |= {1: 1, 2: 2}
    assert found == expected
    former = {f"former/{table}" for table in tables.values()} & _state(kafka_broker, prefix)
    kept = {"never created again"} if mode == "initial" else {"never created again", "created if it does not exist"}
    assert former == {f"former/{tables[case]}" for case in kept}
    database.execute(f"DROP DATABASE {name}_t")


@pytest.mark.parametrize("incremental", [True, False])
def test_table_is_recreated_while_a_snapshot_reads_it(
    incremental: bool, mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """The readers never find it missing; what they have written of the former table must go, and no row of the new one.

    The statements run when the split has its place in the log, and has not read: its rows are those of the new table.
    """
    fill(database, "t")

    def recreate() -> None:
        for statement in ("DROP TABLE t", "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(50))"):
            database.execute(statement)
        database.execute("INSERT INTO t VALUES (7, 'new'), (70, 'new'), (1000, 'new')")

    hook = SplitHook("t", recreate, incremental=incremental)
    settings = settings_of(mysql_server, kafka_broker, prefix, database, snapshot_max_threads=1)
    with CaptureThread(settings, SnapshotHooks(before_low=hook)) as capture:
        capture.wait_snapshot()
        if incremental:
            request_snapshot(kafka_broker, prefix, database, "t")
            eventually(lambda: hook.done and signal_completed(kafka_broker, prefix), "incremental snapshot")
        capture.wait_position(mysql_server)
        _await_no_requests(kafka_broker, prefix)
    rows = consumer_rows(kafka_broker, prefix, f"{database.name}.t").values()
    found = {row["id"]: row["v"] for row in rows}
    assert found == source_rows(database, "t") == {7: "new", 70: "new", 1000: "new"}


def test_second_table_is_dropped_while_a_snapshot_reads_it(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """The stream holds a change of the second table, so it does not come to the statement that ends that one."""
    fill(database, "t", "other")

    def replace() -> None:
        database.execute("DROP TABLE t")
        database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(50))")
        capture.wait_position(mysql_server)
        database.execute("INSERT INTO t VALUES (70, 'new')")
        database.execute("DROP TABLE t")

    hook = SplitHook("t", replace, incremental=False)
    settings = settings_of(mysql_server, kafka_broker, prefix, database, snapshot_max_threads=1)
    with CaptureThread(settings, SnapshotHooks(before_low=hook)) as capture:
        eventually(lambda: hook.done, "the split")
        capture.wait_position(mysql_server)
        capture.wait_snapshot()
    rows = consumer_rows(kafka_broker, prefix, f"{database.name}.other").values()
    assert {row["id"]: row["v"] for row in rows} == source_rows(database, "other")


def _of(statement: str, table: str) -> str:
    """Return a statement on ``t``, ``away_t`` and so on for the table of a case."""
    return re.sub(r"\b((?:away|new|old)_)?t\b", rf"\g<1>{table}", statement)


def _rows(broker: KafkaBroker, prefix: str, table: str) -> dict[int, int]:
    rows = consumer_rows(broker, prefix, table).values()
    return {row["id"]: row["v"] for row in rows}


def _state(broker: KafkaBroker, prefix: str) -> set[str]:
    """Return the keys of the state."""
    last = {record.key or b"": record.value for record in read_topic(broker.bootstrap, state_topic(prefix))}
    return {key.decode() for key, value in last.items() if value is not None}


def _await_no_requests(broker: KafkaBroker, prefix: str) -> None:
    eventually(lambda: not any(key.startswith("request/") for key in _state(broker, prefix)), "every table read")
