"""The log stream on a real server: what arrives, where it stands, and what ends it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from producer.binlog.events import Begin, Commit, Progress, Rows, Statement
from producer.binlog.stream import BinlogStream
from producer.database.connection import connect, executed_gtids, log_position
from producer.database.gtid import GtidSet
from producer.database.table import TableId
from schemas.errors import LogError, SchemaError, SourceError, SourceUnavailableError
from tests.embedded.mysql import MySqlServer
from tests.support.database import Database
from tests.support.log import (
    DEADLINE_S,
    executed,
    follow,
    images,
    only,
    open_stream,
    read_until,
    settings_of,
)


@pytest.fixture(scope="module")
def own_server() -> Iterator[MySqlServer]:
    """A server that tests of this module may reconfigure, restart and purge."""
    with MySqlServer() as server:
        yield server


@pytest.fixture
def own_database(own_server: MySqlServer) -> Iterator[Database]:
    """A fresh database on the module's own server."""
    own_server.start()
    fresh = Database(own_server, f"own_{time.monotonic_ns()}")
    yield fresh
    fresh.drop()


@pytest.mark.parametrize("ssl_mode", ["disabled", "required"])
def test_stream_yields_transactions_whole_and_in_order(database: Database, ssl_mode: str) -> None:
    """Inserts, an update and a delete in transactions, with and without TLS."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(10))")
    start = executed(database.server)
    session = database.connect(autocommit=False)
    with session.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        cursor.execute("UPDATE t SET v = 'c' WHERE id = 2")
        session.commit()
        cursor.execute("DELETE FROM t WHERE id = 1")
        session.commit()
    thread = session.thread_id()  # type: ignore[no-untyped-call]
    session.close()

    events = [e for e in follow(database.server, start, ssl_mode=ssl_mode) if not isinstance(e, Progress)]

    assert [type(e).__name__ for e in events] == ["Begin", "Rows", "Rows", "Commit", "Begin", "Rows", "Commit"]
    assert [e.op for e in only(Rows, events)] == ["c", "u", "d"]
    assert [images(e) for e in only(Rows, events)] == [
        b"\0\x01\0\0\0\x01a" + b"\0\x02\0\0\0\x01b",
        b"\0\x02\0\0\0\x01b" + b"\0\x02\0\0\0\x01c",
        b"\0\x01\0\0\0\x01a",
    ]
    begins, commits = only(Begin, events), only(Commit, events)
    assert [b.gtid for b in begins] == [c.gtid for c in commits]
    assert {b.thread for b in begins} == {thread}
    assert all(abs(b.commit_ts_us - time.time_ns() // 1000) < 60_000_000 for b in begins)
    assert {b.server_id for b in begins} == {1}
    assert only(Rows, events)[0].table.id == TableId(database.name, "t")
    assert only(Rows, events)[0].table is only(Rows, events)[2].table


def test_positions_equal_those_the_server_lists(database: Database) -> None:
    """Across a rotation, begin and end of every event are where SHOW BINLOG EVENTS has them."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT)")
    start = executed(database.server)
    for number in range(4):
        database.execute(f"INSERT INTO t VALUES ({number}, REPEAT('x', 3000))")
        if number == 1:
            database.execute("FLUSH BINARY LOGS")
    database.execute("ALTER TABLE t ADD COLUMN w INT")

    events = follow(database.server, start)

    listed: dict[tuple[str, int], tuple[str, int]] = {}
    # Other tests' statements in these files are in other character sets.
    with database.connect(charset="latin1") as session, session.cursor() as cursor:
        for file in {e.file for e in events}:
            cursor.execute(f"SHOW BINLOG EVENTS IN '{file}'")
            listed |= {(row[0], row[1]): (row[2], row[4]) for row in cursor.fetchall()}
    assert len({e.file for e in only(Rows, events)}) == 2
    for begin in only(Begin, events):
        assert listed[begin.file, begin.pos][0] == "Gtid"
        assert listed[begin.file, listed[begin.file, begin.pos][1]] == ("Query", begin.end)
    for rows in only(Rows, events):
        assert listed[rows.file, rows.pos] == ("Write_rows", rows.end)
    for commit in only(Commit, events):
        assert ("Xid", commit.end) in listed.values()
    [statement] = only(Statement, events)
    assert listed[statement.file, statement.pos][0] == "Gtid"
    file, pos, _ = log_position(connect(settings_of(database.server)))
    assert (events[-1].file, events[-1].end) == (file, pos)


def test_place_reached_is_the_servers_even_when_everything_before_was_skipped(database: Database) -> None:
    """Start at the end: only heartbeats and file headers arrive, and the place is still the log's end."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    database.execute("INSERT INTO t VALUES (1)")
    file, pos, gtids = log_position(connect(settings_of(database.server)))
    stream = open_stream(database.server, GtidSet.parse(gtids))
    deadline = time.monotonic() + DEADLINE_S
    events = []
    while (stream.file, stream.pos) != (file, pos):
        assert time.monotonic() < deadline
        events += stream.poll(0.5)
    stream.close()

    assert {type(e) for e in events} == {Progress}
    assert (events[-1].file, events[-1].end) == (file, pos)


def test_unwanted_tables_give_only_their_transactions(database: Database) -> None:
    """The GTID set must advance on every transaction, also where nothing is captured."""
    database.execute("CREATE TABLE wanted (id INT PRIMARY KEY)")
    database.execute("CREATE TABLE other (id INT PRIMARY KEY)")
    start = executed(database.server)
    database.execute("INSERT INTO other VALUES (1)")
    database.execute("INSERT INTO wanted VALUES (1)")
    database.execute("DELETE FROM other")

    events = follow(database.server, start, wanted=lambda t: t == TableId(database.name, "wanted"))

    assert [type(e).__name__ for e in events if not isinstance(e, Progress)] == [
        *("Begin", "Commit"),
        *("Begin", "Rows", "Commit"),
        *("Begin", "Commit"),
    ]


def test_start_in_the_past_repeats_exactly_what_is_not_in_the_set(database: Database) -> None:
    """Ten transactions; the set has some in the middle too: those do not come again."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    start = executed(database.server)
    for number in range(10):
        database.execute(f"INSERT INTO t VALUES ({number})")
    gtids = [c.gtid for c in only(Commit, follow(database.server, start))]
    assert len(gtids) == 10
    some = start
    for gtid in (*gtids[:4], gtids[6]):
        some = some.with_gtid(gtid)

    events = follow(database.server, some)

    assert [c.gtid for c in only(Commit, events)] == [*gtids[4:6], *gtids[7:]]
    assert [images(r)[1] for r in only(Rows, events)] == [4, 5, 7, 8, 9]


def test_empty_start_asks_for_the_whole_log() -> None:
    """An empty set is a set: nothing has been seen, all that the log has is sent."""
    with MySqlServer() as server:
        database = Database(server, "fresh")
        database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        database.execute("INSERT INTO t VALUES (1)")

        events = [e for e in follow(server, GtidSet({})) if not isinstance(e, Progress)]

    assert [type(e).__name__ for e in events[-5:]] == ["Statement", "Statement", "Begin", "Rows", "Commit"]


def test_empty_transaction_advances_the_set(database: Database) -> None:
    """A GTID without rows, as replicas with filters make them."""
    start = executed(database.server)
    database.execute("SET gtid_next = 'aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee:7'")
    try:
        database.execute("BEGIN")
        database.execute("COMMIT")
    finally:
        database.execute("SET gtid_next = 'AUTOMATIC'")

    events = follow(database.server, start)

    assert [e.gtid for e in events if isinstance(e, Begin | Commit)] == ["aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee:7"] * 2


def test_statements_come_in_their_clients_character_set(database: Database) -> None:
    """DDL with text outside ASCII from a utf8mb4 and from a latin1 client."""
    start = executed(database.server)
    database.execute("CREATE TABLE `tæ` (id INT COMMENT '漢字')")
    latin = database.connect(charset="latin1")
    with latin.cursor() as cursor:
        cursor.execute("ALTER TABLE `tæ` ADD COLUMN `ö` INT")
    latin.close()

    statements = only(Statement, follow(database.server, start))

    assert [(s.database, s.sql, s.within) for s in statements] == [
        (database.name, "CREATE TABLE `tæ` (id INT COMMENT '漢字')", False),
        (database.name, "ALTER TABLE `tæ` ADD COLUMN `ö` INT", False),
    ]
    assert len({s.gtid for s in statements}) == 2


@pytest.mark.parametrize("megabytes", [15.9, 16, 20, 33])
def test_rows_larger_than_a_packet_are_joined(database: Database, megabytes: float) -> None:
    """Events of 16 MB and more come in several packets."""
    size = int(megabytes * 2**20)
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v LONGBLOB)")
    start = executed(database.server)
    value = b"0123456789abcdef" * (size // 16)
    database.execute(f"INSERT INTO t VALUES (1, REPEAT('0123456789abcdef', {size // 16}))")
    database.execute("INSERT INTO t VALUES (2, 'after')")

    big, small = only(Rows, follow(database.server, start))

    assert images(big) == b"\0\x01\0\0\0" + len(value).to_bytes(4, "little") + value
    assert images(small) == b"\0\x02\0\0\0\x05\0\0\0after"
    assert big.end - big.pos == len(images(big)) + 19 + 10 + 2 + 4


def test_definition_changes_between_rows(database: Database) -> None:
    """Each rows event comes with the definition that held when it was logged."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    start = executed(database.server)
    database.execute("INSERT INTO t VALUES (1)")
    database.execute("ALTER TABLE t ADD COLUMN v VARCHAR(300) CHARACTER SET latin1 FIRST")
    database.execute("INSERT INTO t VALUES ('a', 2)")
    database.execute("DROP TABLE t")
    database.execute("CREATE TABLE t (`x y` DATE)")
    database.execute("INSERT INTO t VALUES ('2024-01-02')")

    tables = [r.table for r in only(Rows, follow(database.server, start))]

    assert [[c.name for c in t.columns] for t in tables] == [["id"], ["v", "id"], ["x y"]]
    assert [t.primary_key for t in tables] == [("id",), ("id",), ()]
    assert len({t.fingerprint for t in tables}) == 3


def test_wide_table_with_an_odd_name(database: Database) -> None:
    """More than 250 columns change the form of the count; names may hold nearly anything."""
    names = [f"c{n}" for n in range(300)]
    table = "o`dd.na me-漢🎉"[:-1]
    columns = ", ".join(f"{n} TINYINT" for n in names)
    quoted = table.replace("`", "``")
    database.execute(f"CREATE TABLE `{quoted}` ({columns})")
    start = executed(database.server)
    database.execute(f"INSERT INTO `{quoted}` (c0, c299) VALUES (1, 2)")
    database.execute(f"UPDATE `{quoted}` SET c1 = 3")

    insert, update = only(Rows, follow(database.server, start))

    assert insert.table.id == TableId(database.name, table)
    assert [c.name for c in insert.table.columns] == names
    assert images(insert)[-2:] == b"\x01\x02"
    assert images(update)[-3:] == b"\x01\x03\x02"


def test_table_ids_that_repeat_after_a_restart_are_told_apart(own_database: Database) -> None:
    """Ids start anew with the server: one id, two tables, in one stream."""
    server = own_database.server
    own_database.execute("CREATE TABLE a (id INT PRIMARY KEY)")
    own_database.execute("CREATE TABLE b (name VARCHAR(5) PRIMARY KEY)")
    start = executed(server)
    ids: list[dict[int, str]] = []
    for table, value in (("a", "1"), ("b", "'x'")):
        server.restart()
        with server.connect(database=own_database.name) as session, session.cursor() as cursor:
            cursor.execute(f"INSERT INTO {table} VALUES ({value})")
            file = log_position(session)[0]
            cursor.execute(f"SHOW BINLOG EVENTS IN '{file}'")
            maps = [row[5] for row in cursor.fetchall() if row[2] == "Table_map"]
            ids.append({int(text.split()[1]): table for text in maps})
    own_database.__init__(server, f"again_{time.monotonic_ns()}")  # type: ignore[misc]

    rows = only(Rows, follow(server, start))

    assert ids[0].keys() & ids[1].keys(), "the server gave other ids: the test shows nothing"
    assert [(r.table.id.table, r.table.columns[0].name) for r in rows] == [("a", "id"), ("b", "name")]


def test_other_engines_end_their_transactions_by_a_statement(database: Database) -> None:
    """MyISAM: COMMIT comes as text, and a rollback cannot take it back."""
    database.execute("CREATE TABLE m (id INT PRIMARY KEY) ENGINE=MyISAM")
    start = executed(database.server)
    database.execute("INSERT INTO m VALUES (1)")

    events = [e for e in follow(database.server, start) if not isinstance(e, Progress)]

    assert [type(e).__name__ for e in events] == ["Begin", "Rows", "Commit"]


def test_savepoints_leave_only_what_stands(database: Database) -> None:
    """A rollback to a savepoint takes its rows out before they are logged; the SAVEPOINT itself is logged."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    start = executed(database.server)
    session = database.connect(autocommit=False)
    with session.cursor() as cursor:
        for sql in (
            "INSERT INTO t VALUES (1)",
            "SAVEPOINT here",
            "INSERT INTO t VALUES (2)",
            "ROLLBACK TO here",
            "SAVEPOINT there",
            "INSERT INTO t VALUES (3)",
        ):
            cursor.execute(sql)
        session.commit()
    session.close()

    events = [e for e in follow(database.server, start) if not isinstance(e, Progress)]

    assert [type(e).__name__ for e in events] == ["Begin", "Rows", "Rows", "Commit"]
    assert [images(r)[1] for r in only(Rows, events)] == [1, 3]


def test_rows_carry_their_statement_where_the_server_logs_it(database: Database) -> None:
    """binlog_rows_query_log_events is a session's choice: one statement has it, the next has not."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    start = executed(database.server)
    session = database.connect(autocommit=False)
    with session.cursor() as cursor:
        cursor.execute("SET binlog_rows_query_log_events = ON")
        cursor.execute("INSERT INTO t VALUES (1) /* é */")
        cursor.execute("SET binlog_rows_query_log_events = OFF")
        cursor.execute("INSERT INTO t VALUES (2)")
        session.commit()
    session.close()

    assert [r.query for r in only(Rows, follow(database.server, start))] == ["INSERT INTO t VALUES (1) /* é */", None]


@pytest.mark.parametrize(
    ("session_setting", "kind", "named"),
    [
        ("binlog_format = STATEMENT", LogError, "binlog_format=ROW"),
        ("binlog_row_image = MINIMAL", SchemaError, "binlog_row_image=FULL"),
        ("binlog_row_value_options = PARTIAL_JSON", LogError, "binlog_row_value_options=''"),
    ],
)
def test_what_a_session_hides_from_the_log_stops_the_stream(
    database: Database, session_setting: str, kind: type[Exception], named: str
) -> None:
    """Any session may change how it logs; for captured tables that is told with its remedy."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, j JSON, v INT)")
    database.execute("""INSERT INTO t VALUES (1, '{"a": "a longer text", "b": "another longer text"}', 1)""")
    database.execute("CREATE TABLE other LIKE t")
    database.execute("INSERT INTO other SELECT * FROM t")
    stream = open_stream(
        database.server, start := executed(database.server), wanted=lambda t: t == TableId(database.name, "t")
    )
    try:
        with database.connect() as session, session.cursor() as cursor:
            cursor.execute(f"SET {session_setting}")
            if "VALUE" not in session_setting.upper():  # an event of that kind does not even tell its table
                cursor.execute("UPDATE other SET v = 2 WHERE id = 1")
                harmless = executed(database.server)
                assert len(only(Commit, read_until(stream, start, harmless))) == 1
            cursor.execute("UPDATE t SET v = 2, j = JSON_SET(j, '$.a', 'b') WHERE id = 1")
        with pytest.raises(kind) as caught:
            poll_until_it_fails(stream)
    finally:
        stream.close()

    assert named in str(caught.value)


def test_rows_without_full_metadata_are_refused(own_database: Database) -> None:
    """binlog_row_metadata=MINIMAL hides names and signs: nothing may be guessed."""
    own_database.execute("CREATE TABLE t (id INT UNSIGNED PRIMARY KEY)")
    start = executed(own_database.server)
    own_database.execute("SET GLOBAL binlog_row_metadata = MINIMAL")
    try:
        own_database.execute("INSERT INTO t VALUES (1)")
    finally:
        own_database.execute("SET GLOBAL binlog_row_metadata = FULL")

    with pytest.raises(SchemaError, match="binlog_row_metadata=FULL"):
        follow(own_database.server, start)


def test_checksums_may_change_from_file_to_file(own_database: Database) -> None:
    """CRC32, then NONE, then CRC32: every file says itself which it has."""
    own_database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    start = executed(own_database.server)
    live = open_stream(own_database.server, start, server_id=4713)
    try:
        for number, checksum in enumerate(("CRC32", "NONE", "CRC32", "NONE")):
            own_database.execute(f"SET GLOBAL binlog_checksum = {checksum}")
            own_database.execute(f"INSERT INTO t VALUES ({number})")
        now = executed(own_database.server)

        assert [images(r)[1] for r in only(Rows, read_until(live, start, now))] == [0, 1, 2, 3]
        assert [images(r)[1] for r in only(Rows, follow(own_database.server, start))] == [0, 1, 2, 3]
    finally:
        live.close()
        own_database.execute("SET GLOBAL binlog_checksum = CRC32")


def test_two_phase_xa_on_a_captured_table_is_refused(database: Database) -> None:
    """Rows are logged at PREPARE, before it is known that they stand."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    database.execute("CREATE TABLE other (id INT PRIMARY KEY)")
    start = executed(database.server)
    for sql in (
        "XA START 'o'",
        "INSERT INTO other VALUES (1)",
        "XA END 'o'",
        "XA PREPARE 'o'",
        "XA COMMIT 'o'",
        "XA START 'p'",
        "INSERT INTO t VALUES (1)",
        "XA END 'p'",
        "XA COMMIT 'p' ONE PHASE",
    ):
        database.execute(sql)

    events = [
        e
        for e in follow(database.server, start, wanted=lambda t: t == TableId(database.name, "t"))
        if not isinstance(e, Progress)
    ]
    prepared = executed(database.server)
    for sql in ("XA START 'q'", "INSERT INTO t VALUES (2)", "XA END 'q'", "XA PREPARE 'q'", "XA COMMIT 'q'"):
        database.execute(sql)

    assert [type(e).__name__ for e in events] == ["Begin", "Commit"] * 2 + ["Begin", "Rows", "Commit"]
    with pytest.raises(LogError, match="XA PREPARE"):
        follow(database.server, prepared)


def test_first_form_of_rows_events_is_read() -> None:
    """log_bin_use_v1_row_events=ON, as old replicas ask for."""
    with MySqlServer(settings={"log_bin_use_v1_row_events": "ON"}) as server:
        database = Database(server, "v1")
        database.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
        start = executed(server)
        database.execute("INSERT INTO t VALUES (1, 2)")
        database.execute("UPDATE t SET v = 3")
        database.execute("DELETE FROM t")

        rows = only(Rows, follow(server, start))

    assert [(r.op, images(r)) for r in rows] == [
        ("c", b"\0\x01\0\0\0\x02\0\0\0"),
        ("u", b"\0\x01\0\0\0\x02\0\0\0\0\x01\0\0\0\x03\0\0\0"),
        ("d", b"\0\x01\0\0\0\x03\0\0\0"),
    ]


def test_wake_ends_a_waiting_poll(database: Database) -> None:
    """Another thread wakes the reader out of a long wait."""
    stream = open_stream(database.server, executed(database.server))
    try:
        while stream.poll(0.0):
            pass
        began = time.monotonic()
        timer = threading.Timer(0.3, stream.wake)
        timer.start()
        while time.monotonic() - began < 0.3 and stream.poll(20.0):
            pass
        timer.join()
        assert time.monotonic() - began < 15
        stream.wake()
        assert stream.poll(20.0) == [] or stream.poll(20.0) == []
        assert time.monotonic() - began < 15
    finally:
        stream.close()
        stream.wake()


def test_killed_connection_is_a_lost_source(database: Database) -> None:
    """KILL of the dump thread: the caller starts again from its own set."""
    stream = open_stream(database.server, executed(database.server))
    try:
        stream.poll(1.0)
        [thread] = [
            row[0]
            for row in database.execute(
                "SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"
            )
        ]
        database.execute(f"KILL {thread}")
        with pytest.raises(SourceUnavailableError):
            poll_until_it_fails(stream)
    finally:
        stream.close()


def poll_until_it_fails(stream: BinlogStream) -> None:
    """Poll until an error or the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        stream.poll(1.0)


def test_second_reader_with_the_same_id_puts_the_first_out(database: Database) -> None:
    """The server allows one dump per id: the first is told what to change, or just loses its connection."""
    now = executed(database.server)
    first = open_stream(database.server, now)
    first.poll(1.0)
    second = open_stream(database.server, now)
    try:
        with pytest.raises((LogError, SourceUnavailableError)):
            poll_until_it_fails(first)
    finally:
        first.close()
        second.close()


def test_stopped_server_is_a_silent_source() -> None:
    """The server hangs without closing anything: silence is a failure."""
    with MySqlServer() as server:
        stream = open_stream(server, executed(server), silence_s=2.0)
        try:
            stream.poll(1.0)
            os.kill(server.pid, signal.SIGSTOP)
            with pytest.raises(SourceUnavailableError, match="silent"):
                poll_until_it_fails(stream)
        finally:
            os.kill(server.pid, signal.SIGCONT)
            stream.close()


def test_shut_down_server_is_a_lost_source() -> None:
    """An orderly shutdown while the log is followed."""
    with MySqlServer() as server:
        stream = open_stream(server, executed(server))
        try:
            stream.poll(1.0)
            server.kill()
            with pytest.raises(SourceUnavailableError):
                poll_until_it_fails(stream)
            with pytest.raises(SourceUnavailableError):
                open_stream(server, GtidSet({}))
        finally:
            stream.close()


def test_purged_position_is_told_with_its_remedy(own_database: Database) -> None:
    """Start before what the log still has."""
    start = executed(own_database.server)
    own_database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    own_database.execute("INSERT INTO t VALUES (1)")
    own_database.execute("FLUSH BINARY LOGS")
    file = str(own_database.execute("SHOW MASTER STATUS")[0][0])
    own_database.execute(f"PURGE BINARY LOGS TO '{file}'")

    with pytest.raises(LogError) as caught:
        follow(own_database.server, start)

    assert caught.value.facts["code"] == 1236
    assert "new snapshot" in caught.value.hint


def test_account_without_the_grant_is_told_so(own_database: Database) -> None:
    """REPLICATION SLAVE is missing."""
    own_database.execute("CREATE USER IF NOT EXISTS poor IDENTIFIED BY 'p'")
    server = own_database.server
    poor = replace(settings_of(server), user="poor", password="p")
    stream = BinlogStream(poor, start=executed(server), server_id=9, wanted=lambda _: True)
    try:
        stream.open()
        with pytest.raises(SourceError) as caught:
            poll_until_it_fails(stream)
    finally:
        stream.close()

    assert "REPLICATION SLAVE" in caught.value.hint
    assert not isinstance(caught.value, SourceUnavailableError)


def test_visible_gtids_and_place_agree(database: Database) -> None:
    """The set that the stream has seen equals what the server says it has executed."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT)")
    start = executed(database.server)
    for _ in range(50):
        database.execute("INSERT INTO t VALUES ()")
    session = connect(settings_of(database.server))
    target = GtidSet.parse(executed_gtids(session))
    session.close()
    seen = start
    for event in follow(database.server, start):
        if isinstance(event, Commit):
            seen = seen.with_gtid(event.gtid)

    assert seen == target
