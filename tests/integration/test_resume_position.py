"""The stored offset against the binlog files of a real server: the same numbering, another one, a lost end."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.producer.app.capture import run
from tailrace.producer.errors import BinlogError, SourceBehindError, SourceUnavailableError
from tailrace.producer.model.binlog_events import PreparedTransactionEnded
from tailrace.producer.mysql.binlog.xa_history import BinlogHistory
from tailrace.producer.mysql.connection import connect
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.offset import MySqlOffset
from tailrace.producer.mysql.resume import read_history, resume_offset
from tailrace.producer.mysql.source import MySqlSource
from tailrace.producer.mysql.watermark import current_offset
from tests.embedded.mysql import MySqlServer
from tests.support.binlog import everything, settings_of
from tests.support.capture import CaptureThread, configured, eventually, properties, records_of
from tests.support.database import Database
from tests.support.upsert_reader import consumer_rows

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker

OTHER = "58e3a85e-e597-11f1-8ae5-02fc00000001"


def _end(database: Database) -> MySqlOffset:
    with connect(settings_of(database.server)) as session:
        return current_offset(session)


def _resume(database: Database, stored: MySqlOffset, *started: str) -> MySqlOffset:
    with connect(settings_of(database.server)) as session:
        return resume_offset(session, read_history(session), stored, started=started)


def test_coordinates_are_kept_while_the_numbering_continues(own_database: Database) -> None:
    own_database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    end = _end(own_database)
    assert _resume(own_database, end) == end
    own_database.execute("INSERT INTO t VALUES (1)")
    assert _resume(own_database, end) == end, "a transaction follows"
    own_database.execute("FLUSH BINARY LOGS")
    assert _resume(own_database, end) == end, "a file follows"
    moved = _end(own_database)
    own_database.execute("PURGE BINARY LOGS TO %s", (moved.file,))
    assert _resume(own_database, moved._replace(file=end.file, pos=end.pos)).epoch == 1, "all that is purged was read"


@pytest.mark.parametrize("change", ["another server", "a greater file", "a greater position", "a done transaction"])
def test_coordinates_that_are_not_valid_begin_an_epoch(own_database: Database, change: str) -> None:
    """A copy in place keeps the server's UUID, and so does a reset."""
    begin = _end(own_database)
    own_database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    end = _end(own_database)
    number = int(end.file.rpartition(".")[2])
    stored = {
        "another server": end._replace(server_uuid=OTHER),
        "a greater file": end._replace(file=f"binlog.{number + 1:06}"),
        "a greater position": end._replace(pos=end.pos + 1_000_000),
        "a done transaction": end._replace(pos=begin.pos, file=begin.file),
    }[change]

    found = _resume(own_database, stored)

    [(oldest, *_)] = own_database.execute("SHOW BINARY LOGS")[:1]
    assert found == MySqlOffset(2, oldest, 4, end.gtids, end.server_uuid)


def test_file_that_lost_its_end_is_an_error(own_database: Database) -> None:
    """After a crash the server begins another file."""
    end = _end(own_database)
    own_database.execute("FLUSH BINARY LOGS")

    with pytest.raises(BinlogError, match="shorter than what was read") as caught:
        _resume(own_database, end._replace(pos=end.pos + 1_000_000))
    assert caught.value.context["file"] == end.file
    assert "when_needed; set sync_binlog=1 and innodb_flush_log_at_trx_commit=1" in caught.value.hint


def test_missing_transactions_are_named(own_database: Database) -> None:
    """Those of this cluster may still come; those of another one do not."""
    own_database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    end = _end(own_database)
    future = f"{end.server_uuid}:1000"

    with pytest.raises(SourceBehindError, match="has not executed") as behind:
        _resume(own_database, end._replace(gtids=end.gtids.with_gtid(future)))
    assert behind.value.context["missing"] == future
    with pytest.raises(SourceBehindError, match="partly written") as started:
        _resume(own_database, end, future)
    assert started.value.context["partly_written"] == future
    assert "point database.hostname at a server of the same cluster" in started.value.hint
    with pytest.raises(BinlogError) as foreign:
        _resume(own_database, end._replace(gtids=GtidSet.parse(f"{OTHER}:1-5").union(end.gtids)))
    assert foreign.value.context["missing"] == f"{OTHER}:1-5"


def test_binlog_connection_to_another_server_is_closed(own_database: Database) -> None:
    source = MySqlSource(settings_of(own_database.server), server_id=4719)

    with pytest.raises(SourceUnavailableError, match="reached another server") as caught:
        source.open_stream(_end(own_database)._replace(server_uuid=OTHER), lambda _: True, ())
    assert caught.value.context["expected"] == OTHER
    assert caught.value.hint == "check that database.hostname names one server at a time"


def test_transactions_are_not_searched_on_another_server(own_database: Database) -> None:
    """A failover between two connections: the other server has them in other files, and was not restored."""
    before = _end(own_database)
    own_database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    end = _end(own_database)
    settings = settings_of(own_database.server)
    last = str(end.gtids.minus(before.gtids))

    other = BinlogHistory(replace(settings, server_uuid=OTHER), server_id=4719, captures=everything)
    ended = PreparedTransactionEnded("X'00',X'',1", True, end.file, end.pos, end.pos, 0, 1)
    for search in (lambda: other.end_of(last), lambda: list(other.find(ended))):
        with pytest.raises(SourceUnavailableError, match="reached another server"):
            search()
    found = BinlogHistory(replace(settings, server_uuid=end.server_uuid), server_id=4719, captures=everything).end_of(
        last
    )
    assert found is not None
    assert (found.file, found.end) == (end.file, end.pos)


def test_reset_of_the_binlog_begins_an_epoch(
    own_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, own_database: Database
) -> None:
    """Later changes sort after earlier ones, although their file has a smaller number."""
    own_database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    own_database.execute("FLUSH BINARY LOGS")
    settings = properties(own_server, kafka_broker, prefix, own_database.name)
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        own_database.execute("INSERT INTO t VALUES (1)")
        capture.wait_position(own_server)
    [(executed,)] = own_database.execute("SELECT @@global.gtid_executed")
    own_database.execute("RESET MASTER")
    own_database.execute("SET GLOBAL gtid_purged = %s", (executed,))
    with CaptureThread(settings) as capture:
        own_database.execute("INSERT INTO t VALUES (2)")
        capture.wait_position(own_server)

    records = records_of(kafka_broker.bootstrap, prefix, own_database.name, "t")
    epochs = {r.json["after"]["id"]: int(r.headers["tailrace.event"].split(b".")[0]) for r in records}
    assert epochs == {1: 1, 2: 2}


@pytest.mark.mysql
def test_source_that_was_restored_and_has_caught_up_in_numbers_is_noticed(
    kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """Its GTIDs, binlog files and the size of its transactions are those that were read; their rows are not."""
    with MySqlServer() as server:
        Database(server, "restored").execute("CREATE TABLE t (id INT PRIMARY KEY)")
        server.stop()
        shutil.copytree(server.directory / "data", tmp_path / "copy")
        server.start()
        settings = properties(server, kafka_broker, prefix, "restored")
        with CaptureThread(settings) as capture:
            capture.wait_snapshot()
            _insert(server, range(10))
            capture.wait_position(server)
        with CaptureThread(settings) as capture:  # the same history
            capture.wait_snapshot()
        server.stop()
        shutil.rmtree(server.directory / "data")
        shutil.copytree(tmp_path / "copy", server.directory / "data")
        server.start()
        _insert(server, range(100, 120))

        with pytest.raises(BinlogError, match="restored from an older copy") as caught:
            run(configured(settings), threading.Event())
        assert caught.value.context["read"] != caught.value.context["found"]
        assert "or with snapshot.mode=when_needed: changes that were read" in caught.value.hint
        with CaptureThread({**settings, "snapshot.mode": "when_needed"}) as capture:
            eventually(lambda: _ids(kafka_broker, prefix) == set(range(100, 120)), "the rows of the copy alone", 120)
            capture.wait_snapshot()


def _insert(server: MySqlServer, ids: range) -> None:
    """Insert one row after another, each in a transaction."""
    with server.connect(database="restored") as session, session.cursor() as cursor:
        for number in ids:
            cursor.execute("INSERT INTO t VALUES (%s)", (number,))


def _ids(broker: KafkaBroker, prefix: str) -> set[int]:
    return {row["id"] for row in consumer_rows(broker, prefix, "restored.t").values()}
