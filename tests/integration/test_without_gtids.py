"""A server without GTIDs: the offset is file and position. ``test_engine_commits.py`` has what a snapshot waits for."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.producer.errors import BinlogError, PrerequisiteError, TakeoverError
from tailrace.producer.model.binlog_events import Event, RowsEvent, TransactionBegin, TransactionCommit, anonymous_name
from tailrace.producer.model.protocols import Offset
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql import watermark
from tailrace.producer.mysql.binlog.xa_history import BinlogHistory
from tailrace.producer.mysql.binlog.xa_stream import TransactionPurgedError
from tailrace.producer.mysql.connection import connect
from tailrace.producer.mysql.file_offset import FileOffset
from tailrace.producer.mysql.source import MySqlSource
from tailrace.producer.snapshot.hooks import SnapshotHooks
from tailrace.producer.takeover.debezium_offset import ConnectorOffset, ConnectorPartition
from tailrace.producer.takeover.resume_position import resolve_resume_position
from tailrace.schemas.names import watermarks_topic
from tests.embedded.mysql import MySqlServer
from tests.support.background_writes import writing
from tests.support.binlog import account_settings, everything, settings_of
from tests.support.capture import CaptureProcess, CaptureThread, eventually, properties, records_of, verified_rows
from tests.support.database import Database
from tests.support.incremental_checks import verified_incremental
from tests.support.replication import run
from tests.support.topics import read_topic
from tests.support.unseen_commits import SEMI_SYNC, WITHOUT_GTIDS, held, release

if TYPE_CHECKING:
    from pathlib import Path

    from tailrace.producer.model.split import Split
    from tests.embedded.kafka import KafkaBroker

VERSION = "8.0.33"
VERSIONS = ("8.0.15", VERSION)
CHUNK = 10
KILLS = 8
pytestmark = pytest.mark.mysql(*VERSIONS)


@pytest.fixture(scope="module")
def server() -> Iterator[MySqlServer]:
    """A server whose commits wait for a replica that does not exist, when that is switched on."""
    with MySqlServer(version=VERSION, settings={**WITHOUT_GTIDS, **SEMI_SYNC}) as started:
        run(started, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v INT)")
        run(started, "INSERT INTO d.t VALUES (1, 0), (2, 0)")
        yield started


def source_of(server: MySqlServer, server_id: int = 4711) -> MySqlSource:
    """Return a source as root."""
    return MySqlSource(settings_of(server), server_id=server_id)


def events_from(source: MySqlSource, start: Offset, transactions: int) -> list[Event]:
    """Return the events of the next transactions."""
    events: list[Event] = []

    def complete() -> bool:
        events.extend(stream.poll(0.2))
        return sum(isinstance(event, TransactionCommit) for event in events) >= transactions

    with closing(source.open_stream(start, everything)) as stream:
        eventually(complete, "the transactions")
    return events


def test_the_position_resumes_on_its_server_only(server: MySqlServer) -> None:
    """Server, file, length and the last transaction are checked; another server is refused with what to do."""
    source = source_of(server)
    begin = source.start_offset()
    run(server, "UPDATE d.t SET v = v + 1 WHERE id = 2", "UPDATE d.t SET v = v + 1 WHERE id = 2")
    events = events_from(source, begin, 2)
    commits = [event for event in events if isinstance(event, TransactionCommit)]
    first, last = commits[:2]
    stored = begin.after(first)
    assert isinstance(stored, FileOffset)
    assert first.gtid.startswith("file=binlog.0")

    assert source.resume_offset(stored, started=(), required=(), last=first) == stored
    rest = events_from(source, stored, 1)
    assert next(e for e in rest if isinstance(e, TransactionCommit)) == last

    for wrong, complaint in (
        (stored._replace(server_uuid="0" * 36), "point database.hostname at the former server"),
        (stored._replace(file="binlog.000999"), r"no longer has the binlog file[\s\S]*; keep binlog files longer"),
        (stored._replace(pos=1 << 30), r"ends before what was read[\s\S]*; set sync_binlog=1"),
        (stored._replace(pos=stored.pos + 1), "no event begins"),
    ):
        with pytest.raises(BinlogError, match=complaint) as refused:
            source.resume_offset(wrong, started=(), required=())
        assert "with snapshot.mode=when_needed" in refused.value.hint
    with pytest.raises(BinlogError, match="ends before what was read"):
        source.resume_offset(stored, started=(), required=[stored._replace(pos=1 << 30)])
    with pytest.raises(BinlogError, match="another transaction"):
        source.resume_offset(stored, started=(), required=(), last=first._replace(ts=first.ts - 1))
    begin_of_first = next(event for event in events if isinstance(event, TransactionBegin))
    other = first._replace(gtid=anonymous_name(begin_of_first.file, begin_of_first.pos))
    with pytest.raises(BinlogError, match="another transaction"):
        source.resume_offset(stored, started=(), required=(), last=other)
    run(server, "FLUSH BINARY LOGS")
    at_end = begin.after(last)
    moved = source.resume_offset(at_end, started=(), required=(), last=last)
    assert (moved.coordinates[0], moved.pos, moved.epoch) == (at_end.coordinates[0] + 1, 4, at_end.epoch)


def test_the_modes_do_not_mix(server: MySqlServer) -> None:
    """A stored set of GTIDs is of no use without them; a stored position would miss a failover with them."""
    source = source_of(server)
    begin = source.start_offset()
    with closing(connect(settings_of(server))) as session:
        end = watermark.current_offset(session)
    stored = source.read_offset({**end.to_json(), "gtids": f"{end.server_uuid}:1-5"})
    with pytest.raises(BinlogError, match=r"is not ON[\s\S]*hint: set gtid_mode = ON if nothing was written"):
        source.resume_offset(stored, started=(), required=())
    with closing(connect(settings_of(server))) as session:
        connector = ConnectorOffset(
            ConnectorPartition("p", ""), "binlog.000001", 4, gtids="", events=0, rows=0, ts=0, counts={}
        )
        with pytest.raises(TakeoverError, match=r"is not ON[\s\S]*hint: set gtid_mode=ON while the connector runs"):
            resolve_resume_position(connector, source, session)
    assert source.read_offset(begin.to_json()) == begin
    assert begin.to_json()["gtids"] is None


def test_the_account_must_see_transactions(server: MySqlServer) -> None:
    """A weaker barrier is not taken silently: without PROCESS nothing is read."""
    run(
        server,
        "CREATE USER blind IDENTIFIED BY 'b'",
        "GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO blind",
    )
    source = MySqlSource(account_settings(server.host, server.port, "blind", "b"), server_id=4712)
    with pytest.raises(PrerequisiteError, match=r"GRANT PROCESS ON \*\.\* TO 'blind'@'%'"):
        source.check([TableId("d", "t")])
    assert any("cannot go on on another one" in note for note in source_of(server).check([TableId("d", "t")]))


def test_an_xa_transaction_is_read_by_its_position(server: MySqlServer) -> None:
    """Its rows are read again from its BEGIN, whose position is its name."""
    source = source_of(server)
    session = server.connect()
    cursor = session.cursor()
    for statement in ("XA START 'a'", "UPDATE d.t SET v = v + 10 WHERE id = 2", "XA END 'a'", "XA PREPARE 'a'"):
        cursor.execute(statement)
    begin = source.start_offset()
    cursor.execute("XA COMMIT 'a'")
    session.close()
    events = events_from(source, begin, 1)
    assert len([event for event in events if isinstance(event, RowsEvent)]) == 1
    history = BinlogHistory(settings_of(server), server_id=4713, captures=everything)
    with pytest.raises(TransactionPurgedError, match=r"no longer has the binlog file binlog\.000000"):
        list(history.read(anonymous_name("binlog.000000", 4), None))


def test_a_server_on_its_way_to_gtids_is_read_by_position(server: MySqlServer) -> None:
    """In the modes between OFF and ON transactions have GTIDs, and the server does not read by them."""
    source = source_of(server)
    begin = source.start_offset()
    try:
        run(server, "SET GLOBAL enforce_gtid_consistency = ON", "SET GLOBAL gtid_mode = OFF_PERMISSIVE")
        run(server, "SET GLOBAL gtid_mode = ON_PERMISSIVE", "UPDATE d.t SET v = v + 1 WHERE id = 2")
        assert run(server, "SELECT @@global.gtid_executed")[0][0]
        [commit] = [event for event in events_from(source, begin, 1) if isinstance(event, TransactionCommit)]
        stored = begin.after(commit)
        assert commit.gtid.startswith("file=binlog.0")
        assert source.resume_offset(stored, started=(), required=(), last=commit) == stored
        history = BinlogHistory(settings_of(server), server_id=4713, captures=everything)
        rows = [event for events in history.read(commit.gtid, None) for event in events]
        assert [type(event) for event in rows] == [RowsEvent]
    finally:
        run(server, "SET GLOBAL gtid_mode = OFF_PERMISSIVE", "SET GLOBAL gtid_mode = OFF")
    moved = source.resume_offset(stored, started=(), required=(), last=commit)
    assert moved.coordinates == (stored.coordinates[0] + 1, 4)


@pytest.mark.kafka
def test_rows_and_changes(server: MySqlServer, kafka_broker: KafkaBroker, prefix: str) -> None:
    """Snapshot, changes and a restart: each change once, and ``gtid`` is null as from Debezium."""
    check_rows_and_changes(server, kafka_broker, prefix)


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.parametrize("version", [VERSIONS[0], pytest.param("9.7", marks=pytest.mark.mysql("9.7"))])
def test_rows_and_changes_of_other_servers(version: str, kafka_broker: KafkaBroker, prefix: str) -> None:
    """The same."""
    with MySqlServer(version=version, settings=WITHOUT_GTIDS) as other:
        check_rows_and_changes(other, kafka_broker, prefix)


def check_rows_and_changes(server: MySqlServer, broker: KafkaBroker, prefix: str) -> None:
    """Capture a database of its own twice."""
    run(server, "CREATE DATABASE c", "CREATE TABLE c.t (id INT PRIMARY KEY, v INT)")
    run(server, "INSERT INTO c.t VALUES (1, 0), (2, 0), (3, 0)")
    with CaptureThread(properties(server, broker, prefix, "c", {"provide.transaction.metadata": "true"})) as capture:
        capture.wait_snapshot()
        run(server, "UPDATE c.t SET v = 1 WHERE id = 1")
        eventually(lambda: len(records_of(broker.bootstrap, prefix, "c", "t")) == 4, "the change")
        stream = capture.status.snapshot()["stream"]
        assert (stream["gtids"], stream["barrier"]) == (None, "innodb_trx")
    run(server, "UPDATE c.t SET v = 2 WHERE id = 1", "FLUSH BINARY LOGS", "DELETE FROM c.t WHERE id = 2")
    # Without the metadata, the compiled extension writes the changes.
    with CaptureThread(properties(server, broker, prefix, "c")):
        eventually(lambda: len(records_of(broker.bootstrap, prefix, "c", "t")) >= 7, "all changes")
    records = records_of(broker.bootstrap, prefix, "c", "t")
    seen = [(record.json["op"], record.json["source"]["gtid"]) for record in records if record.value]
    assert seen == [("r", None)] * 3 + [("u", None), ("u", None), ("d", None)]
    assert records[3].json["transaction"]["id"].startswith("file=binlog.0")


@pytest.mark.kafka
@pytest.mark.long
def test_a_split_waits_until_a_select_sees_what_the_binlog_has(kafka_broker: KafkaBroker, prefix: str) -> None:
    """The stream skips a change of a split that is not opened yet, so the SELECT of the split must see it."""
    with MySqlServer(version=VERSION, settings={**WITHOUT_GTIDS, **SEMI_SYNC}) as server:
        run(server, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(20))")
        values = ", ".join(f"({n}, 'v{n}')" for n in range(1, 2 * CHUNK + 1))
        run(server, f"INSERT INTO d.t VALUES {values}")
        threads: list[threading.Thread] = []
        ahead = threading.Event()

        def hold_first_split(split: Split) -> None:
            if split.number == 0:
                change = f"UPDATE d.t SET v = 'unseen' WHERE id = {2 * CHUNK}"
                threads.append(held(server, lambda: run(server, change)))
                [(file, pos, *_)] = run(server, "SHOW MASTER STATUS")
                eventually(lambda: _has_read(capture, file, pos), "the stream has read what is not visible")
                ahead.set()

        changes = {"snapshot.max.threads": 1, "incremental.snapshot.chunk.size": CHUNK}
        settings = properties(server, kafka_broker, prefix, "d", changes)
        with CaptureThread(settings, SnapshotHooks(before_high=hold_first_split)) as capture:
            assert ahead.wait(300)
            # Without the wait, the snapshot would end here.
            eventually(lambda: _lists(server) or _snapshot_done(capture), "the next split waits", 60)
            assert threads[0].is_alive(), "the transaction was committed without its replica"
            release(server, *threads)
            capture.wait_snapshot()
            [(file, pos, *_)] = run(server, "SHOW MASTER STATUS")
            eventually(lambda: _has_read(capture, file, pos), "the end of the binlog")

        rows = verified_rows(kafka_broker.bootstrap, prefix, "d", "t").values()
        assert {row["id"]: row["v"] for row in rows} == dict(run(server, "SELECT id, v FROM d.t"))


def _has_read(capture: CaptureThread, file: str, pos: int) -> bool:
    stream = capture.status.snapshot()["stream"]
    return (stream["file"] or "", stream["pos"] or 0) >= (file, pos)


def _lists(server: MySqlServer) -> bool:
    """Whether a session reads InnoDB's list; to read it here would keep InnoDB from renewing it."""
    return bool(run(server, "SELECT IS_USED_LOCK('tailrace innodb_trx') IS NOT NULL")[0][0])


def _snapshot_done(capture: CaptureThread) -> bool:
    return all(table["mode"] == "streaming" for table in capture.status.snapshot()["tables"].values())


@pytest.mark.kafka
@pytest.mark.long
def test_kills_under_writers(kafka_broker: KafkaBroker, prefix: str, tmp_path: Path) -> None:
    """No change is lost or doubled, though each transaction is in the binlog for a while before it is visible."""
    settings = {**WITHOUT_GTIDS, "binlog_group_commit_sync_delay": 20_000}
    with MySqlServer(version=VERSION, settings=settings) as server:
        database = Database(server, "d")
        database.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
        database.execute("CREATE TABLE s (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32), data TEXT)")
        numbers = "WITH RECURSIVE c AS (SELECT 0 n UNION ALL SELECT n + 1 FROM c WHERE n < 599) SELECT n, 0 FROM c"
        database.execute(f"INSERT INTO t {numbers}")
        chosen = random.Random(1)

        def change(cursor: Any, number: int) -> None:
            row = chosen.randrange(900)
            written = f"INSERT INTO t VALUES ({row}, {number}) ON DUPLICATE KEY UPDATE v = {number}"
            cursor.execute(written if number % 3 else f"DELETE FROM t WHERE id = {row}")

        def progress(records: int) -> None:
            written = records_of(kafka_broker.bootstrap, prefix, "d", "t")
            more = len(written) + records
            eventually(lambda: len(records_of(kafka_broker.bootstrap, prefix, "d", "t")) > more, "progress")

        signal = '{"data-collections": ["d.t"], "type": "INCREMENTAL"}'
        options = {"incremental.snapshot.chunk.size": 10, "signal.data.collection": "d.s"}
        options |= {"signal.enabled.channels": "source"}
        with CaptureProcess(properties(server, kafka_broker, prefix, "d", options), tmp_path) as producer:
            with ExitStack() as writers:
                for _ in range(3):
                    writers.enter_context(writing(database, change, pause_s=0))
                for number in range(KILLS):
                    progress(100)
                    if number == 4:
                        database.execute(f"INSERT INTO s VALUES ('{number}', 'execute-snapshot', '{signal}')")
                        progress(200)
                    producer.kill()
                    producer.start()
            [(rows,)] = run(server, "SELECT COUNT(*) FROM d.t")
            database.execute("INSERT INTO t VALUES (5000, 1)")
            last = '"id":5000'
            eventually(
                lambda: any(last in str(r.value) for r in records_of(kafka_broker.bootstrap, prefix, "d", "t")),
                "the end",
            )
            eventually(lambda: _complete(kafka_broker, prefix), "all certificates")
        rows_now = {row["id"]: row["v"] for row in verified_incremental(kafka_broker, prefix, "d").values()}
        assert len(rows_now) == rows + 1
        assert rows_now == dict(run(server, "SELECT id, v FROM d.t"))


def _complete(broker: KafkaBroker, prefix: str) -> bool:
    """Whether the incremental snapshot has read its last split, and each split has its certificate."""
    marks = [record.json for record in read_topic(broker.bootstrap, watermarks_topic(prefix))]
    lows, ends = ({mark["split"] for mark in marks if mark["kind"] == kind} for kind in ("LOW", "END"))
    last = any(mark.get("incremental") and (mark["closed"] or mark["upper"] is None) for mark in marks)
    return last and lows == ends
