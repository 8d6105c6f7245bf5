"""A transaction that the binlog has and no SELECT sees: semi-synchronous replication that waits for its replica."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from tailrace.producer.errors import SourceUnavailableError
from tailrace.producer.mysql.binlog.xa_history import BinlogHistory
from tailrace.producer.snapshot.hooks import SnapshotHooks
from tailrace.schemas.alteration import Alteration
from tailrace.schemas.names import schemas_topic
from tests.embedded.mysql import MySqlServer
from tests.support.binlog import everything, settings_of
from tests.support.capture import CaptureThread, eventually, properties, records_of, verified_rows
from tests.support.replication import run
from tests.support.topics import read_topic
from tests.support.unseen_commits import SEMI_SYNC

if TYPE_CHECKING:
    from tailrace.producer.model.split import Split
    from tests.embedded.kafka import KafkaBroker

pytestmark = [pytest.mark.mysql("8.0.33"), pytest.mark.kafka]

VERSIONS = pytest.mark.parametrize(
    "version", ["8.0.33", pytest.param("9.7", marks=[pytest.mark.long, pytest.mark.mysql("9.7")])]
)
CHUNK = 10


@VERSIONS
def test_a_split_waits_until_a_select_sees_what_the_stream_has_read(
    version: str, kafka_broker: KafkaBroker, prefix: str
) -> None:
    """The stream skips a change of a split that is not opened yet, so the SELECT of the split must see it."""
    with MySqlServer(version=version, settings=SEMI_SYNC) as server:
        run(server, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(20))")
        values = ", ".join(f"({n}, 'v{n}')" for n in range(1, 2 * CHUNK + 1))
        run(server, f"INSERT INTO d.t VALUES {values}")
        ahead = threading.Event()
        committing = threading.Thread(target=lambda: run(server, f"UPDATE d.t SET v = 'unseen' WHERE id = {2 * CHUNK}"))

        def hold_first_split(split: Split) -> None:
            if split.number == 0:
                run(server, "SET GLOBAL rpl_semi_sync_master_enabled = ON")
                committing.start()
                eventually(lambda: _stream_is_ahead(server, capture), "the stream has read what is not visible")
                ahead.set()

        changes = {"snapshot.max.threads": 1, "incremental.snapshot.chunk.size": CHUNK}
        settings = properties(server, kafka_broker, prefix, "d", changes)
        with CaptureThread(settings, SnapshotHooks(before_high=hold_first_split)) as capture:
            assert ahead.wait(300)
            # Without the wait, the snapshot would end here.
            eventually(lambda: _waits(server) or _snapshot_done(capture), "the next split waits", 60)
            assert committing.is_alive(), "the transaction was committed without its replica"
            run(server, "SET GLOBAL rpl_semi_sync_master_enabled = OFF")
            committing.join(60)
            capture.wait_snapshot()
            capture.wait_position(server)

        rows = verified_rows(kafka_broker.bootstrap, prefix, "d", "t").values()
        assert {row["id"]: row["v"] for row in rows} == dict(run(server, "SELECT id, v FROM d.t"))


@VERSIONS
def test_a_large_xa_transaction_is_read_when_it_is_committed(
    version: str, kafka_broker: KafkaBroker, prefix: str
) -> None:
    """Its rows are read again at its end, which the binlog has before the commit: it is neither lost nor an error."""
    with MySqlServer(version=version, settings=SEMI_SYNC) as server:
        run(server, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v LONGTEXT)")
        session = server.connect()
        cursor = session.cursor()
        with CaptureThread(properties(server, kafka_broker, prefix, "d")) as capture:
            capture.wait_snapshot()
            cursor.execute("XA START 'large'")
            for number in range(20):
                cursor.execute(f"INSERT INTO d.t VALUES ({number}, REPEAT('x', 1000000))")
            cursor.execute("XA END 'large'")
            run(server, "SET GLOBAL rpl_semi_sync_master_enabled = ON")
            committing = threading.Thread(target=lambda: cursor.execute("XA COMMIT 'large' ONE PHASE"))
            committing.start()
            try:
                eventually(lambda: _waits(server) or not capture.running, "the stream waits for the commit", 60)
                assert committing.is_alive(), "the transaction was committed without its replica"
                [(uuid, executed)] = run(server, "SELECT @@server_uuid, @@global.gtid_executed")
                history = BinlogHistory(settings_of(server), server_id=9, captures=everything, commit_wait_s=0)
                gtid = f"{uuid}:{int(executed.rpartition('-')[2]) + 1}"
                with pytest.raises(
                    SourceUnavailableError, match=r"(?s)its commit does not end.*look at XA COMMIT in SHOW PROC"
                ):
                    list(history.read(gtid, None))
            finally:
                run(server, "SET GLOBAL rpl_semi_sync_master_enabled = OFF")
                committing.join(60)
            capture.wait_position(server)
        session.close()

        rows = [r.json["after"] for r in records_of(kafka_broker.bootstrap, prefix, "d", "t")]
        assert [row["id"] for row in rows] == list(range(20))


@VERSIONS
def test_an_added_column_is_looked_up_when_it_is_visible(version: str, kafka_broker: KafkaBroker, prefix: str) -> None:
    """The binlog has an ALTER before the catalog: what it said would be that of the table before."""
    with MySqlServer(version=version, settings=SEMI_SYNC) as server:
        run(server, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "INSERT INTO d.t VALUES (1)")
        with CaptureThread(properties(server, kafka_broker, prefix, "d")) as capture:
            capture.wait_snapshot()
            capture.wait_position(server)
            run(server, "SET GLOBAL rpl_semi_sync_master_enabled = ON")
            committing = threading.Thread(target=lambda: run(server, "ALTER TABLE d.t ADD v INT DEFAULT 3"))
            committing.start()
            try:
                eventually(lambda: _waits(server) or _waits_for_table(server), "the stream has the ALTER", 60)
                assert committing.is_alive(), "the statement was committed without its replica"
            finally:
                run(server, "SET GLOBAL rpl_semi_sync_master_enabled = OFF")
                committing.join(60)
            capture.wait_position(server)

        records = read_topic(kafka_broker.bootstrap, schemas_topic(prefix))
        alterations = [Alteration.from_json(record.value or b"") for record in records]
        assert [change.value for each in alterations if each for change in each.changes] == [3]


def _stream_is_ahead(server: MySqlServer, capture: CaptureThread) -> bool:
    """Whether the stream has read a transaction that the server has not executed yet."""
    read = capture.status.snapshot()["stream"]["gtids"] or ""
    [(visible,)] = run(server, f"SELECT GTID_SUBSET('{read}', @@global.gtid_executed)")
    return not visible


def _waits_for_table(server: MySqlServer) -> bool:
    """Whether the catalog was read, but for the estimate of the rows, which waits for the ALTER."""
    return any(
        "metadata lock" in str(state) for (state,) in run(server, "SELECT STATE FROM information_schema.PROCESSLIST")
    )


def _waits(server: MySqlServer) -> bool:
    statements = run(server, "SELECT INFO FROM information_schema.PROCESSLIST WHERE COMMAND = 'Query'")
    return any("WAIT_FOR_EXECUTED_GTID_SET(" in str(statement) for (statement,) in statements)


def _snapshot_done(capture: CaptureThread) -> bool:
    return all(table["mode"] == "streaming" for table in capture.status.snapshot()["tables"].values())
