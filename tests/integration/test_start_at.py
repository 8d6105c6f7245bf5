"""tailrace.start.at: the first start of a prefix begins at an older place of the binlog."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tailrace.producer.app.capture import run
from tailrace.producer.errors import BinlogError
from tailrace.producer.ops.status import Status
from tailrace.runtime.errors import ConfigError
from tests.support.capture import CaptureThread, configured, eventually, properties, records_of
from tests.support.database import Database
from tests.support.incremental_checks import notifications, signal, signal_completed, state_of
from tests.support.mariadb import family
from tests.support.upsert_reader import consumer_rows

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer

MARIADB = {"connector.class": "io.debezium.connector.mariadb.MariaDbConnector"}


def _capture(
    database: Database, broker: KafkaBroker, prefix: str, start_at: str, **changes: str
) -> list[tuple[str, dict[str, Any] | None]]:
    """Capture up to the end of the binlog; return op and row of all records of table t."""
    given = {"snapshot.mode": "no_data", "tailrace.start.at": start_at, "tailrace.stop.at": "latest", **changes}
    settings = properties(database.server, broker, prefix, database.name, given)
    with CaptureThread(settings) as capture:
        eventually(lambda: not capture.running, "the end of the binlog")
    return _records(broker, prefix, database)


def _records(broker: KafkaBroker, prefix: str, database: Database) -> list[tuple[str, dict[str, Any] | None]]:
    records = [r.json for r in records_of(broker.bootstrap, prefix, database.name, "t") if r.value]
    return [(record["op"], record["after"]) for record in records]


def _history(database: Database) -> None:
    """Create the table, change it and its definition, twice."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    database.execute("INSERT INTO t VALUES (1, 10), (2, 20)")
    database.execute("ALTER TABLE t ADD w INT DEFAULT 5")
    database.execute("UPDATE t SET v = 11 WHERE id = 1")
    database.execute("FLUSH BINARY LOGS")
    database.execute("DELETE FROM t WHERE id = 2")


HISTORY = [
    ("c", {"id": 1, "v": 10}),
    ("c", {"id": 2, "v": 20}),
    ("u", {"id": 1, "v": 11, "w": 5}),
    ("d", None),
]
"""Rows as they were: with the definition of that time."""


def test_gtid_set_and_restart(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """What the set has is left out. A later start resumes, whatever the property is then."""
    [[before]] = database.execute("SELECT @@global.gtid_executed")
    _history(database)
    assert _capture(database, kafka_broker, prefix, before) == HISTORY
    database.execute("INSERT INTO t VALUES (3, 30, 31)")
    later = [*HISTORY, ("c", {"id": 3, "v": 30, "w": 31})]
    assert _capture(database, kafka_broker, prefix, "earliest") == later


def test_initial_snapshot_of_tables_whose_history_is_read(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """Their rows are read, and what is older is not written behind them."""
    [[before]] = database.execute("SELECT @@global.gtid_executed")
    _history(database)
    found = _capture(database, kafka_broker, prefix, before, **{"snapshot.mode": "initial"})
    rows: dict[int, Any] = {}
    for op, row in found:
        if row is not None:
            rows[row["id"]] = row
        elif op == "d":
            rows.pop(2, None)
    assert rows == {1: {"id": 1, "v": 11, "w": 5}}


class KilledError(Exception):
    """The process ends here."""


def _kill(_status: Status) -> None:
    raise KilledError


def test_signal_sets_the_position(
    own_server: MySqlServer,
    kafka_broker: KafkaBroker,
    prefix: str,
    own_database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Back and forth, in a new epoch each time; what a consumer has in the end is what the table has.

    It goes back once, also if the process ends behind the signal, and is no failure.
    """
    [[before]] = own_database.execute("SELECT @@global.gtid_executed")
    _history(own_database)
    changes = {
        "snapshot.mode": "no_data",
        "signal.enabled.channels": "kafka",
        "signal.poll.interval.ms": 100,
        "notification.enabled.channels": "sink",
        "notification.sink.topic.name": f"{prefix}-notes",
    }
    settings = properties(own_server, kafka_broker, prefix, own_database.name, changes)

    def epoch() -> int:
        stored = state_of(kafka_broker, prefix, "offset")
        return 0 if stored is None else int(stored["position"]["epoch"])

    def moves() -> list[tuple[str, int, int]]:
        notes = notifications(kafka_broker, f"{prefix}-notes", "Binlog Position")
        ends = [[orjson.loads(note["additional_data"][f"position_{end}"]) for end in ("from", "to")] for note in notes]
        return [(note["type"], first["epoch"], last["epoch"]) for note, (first, last) in zip(notes, ends, strict=True)]

    with monkeypatch.context() as patch, pytest.raises(KilledError), CaptureThread(settings) as capture:  # noqa: PT012
        patch.setattr(Status, "moved", _kill)
        capture.wait_snapshot()
        own_database.execute("INSERT INTO t VALUES (3, 30, 31)")
        capture.wait_position(own_server)
        for wrong in ({}, {"gtid_set": "yesterday"}, {"binlog_filename": "binlog.000001", "binlog_position": 4}):
            signal(kafka_broker, prefix, "set-binlog-position", wrong)
        signal(kafka_broker, prefix, "set-binlog-position", {"gtid_set": before})
        eventually(lambda: not capture.running, "the end of the process")
    assert (epoch(), moves()) == (1, [])
    with CaptureThread(settings) as capture:
        eventually(lambda: epoch() == 2, "the stream goes back")
        capture.wait_position(own_server)
        assert state_of(kafka_broker, prefix, "moved") is None
        eventually(lambda: state_of(kafka_broker, prefix, "replay") is None, "the stream has passed what it had read")
        eventually(lambda: signal_completed(kafka_broker, prefix), "the table that was altered is read")
    assert moves() == [("MOVED", 1, 2)]
    third = ("c", {"id": 3, "v": 30, "w": 31})
    read = [("r", {"id": 1, "v": 11, "w": 5}), ("r", {"id": 3, "v": 30, "w": 31})]
    assert _records(kafka_broker, prefix, own_database) == [third, *HISTORY, third, *read]
    rows = consumer_rows(kafka_broker, prefix, f"{own_database.name}.t")
    assert {row["id"]: row["v"] for row in rows.values()} == dict(own_database.execute("SELECT id, v FROM t"))

    own_database.execute("INSERT INTO t VALUES (4, 40, 41)")
    [[skipped]] = own_database.execute("SELECT @@global.gtid_executed")
    own_database.execute("INSERT INTO t VALUES (5, 50, 51)")
    signal(kafka_broker, prefix, "set-binlog-position", {"gtid_set": skipped})
    with CaptureThread(settings) as capture:
        eventually(lambda: epoch() == 3, "the stream goes ahead")
        capture.wait_position(own_server)
        stream = capture.status.snapshot()["stream"]
    assert (stream["moves"], stream["disconnects"]) == (1, 0)
    assert moves() == [("MOVED", 1, 2), ("MOVED", 2, 3)]
    fifth = ("c", {"id": 5, "v": 50, "w": 51})
    fourth = ("c", {"id": 4, "v": 40, "w": 41})
    # How far the stream was when it got the signal is not known.
    assert _records(kafka_broker, prefix, own_database)[8:] in ([fifth], [fourth, fifth], [fourth, fifth, fifth])


def test_places_that_the_binlog_does_not_have(
    own_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, own_database: Database
) -> None:
    """They are refused before anything is written; earliest is what there is."""
    _history(own_database)
    (file,) = own_database.execute("SHOW BINARY LOGS")[-1][:1]
    [[executed, server]] = own_database.execute("SELECT @@global.gtid_executed, @@server_uuid")
    own_database.execute("PURGE BINARY LOGS TO %s", (file,))
    wrong = {
        f"{server}:1": "has purged binlog files",
        f"{executed.rpartition('-')[0]}-900000": "has not executed",
        f"{file}:4": "name a GTID set",
        "yesterday": "is no GTID set",
    }
    for text, message in wrong.items():
        with pytest.raises(ConfigError, match=f"{message}.*; earliest is the oldest place"):
            _capture(own_database, kafka_broker, prefix, text)
    with pytest.raises(ConfigError, match=r"tailrace\.start\.at"):
        _capture(own_database, kafka_broker, prefix, "2026-01-31T06:00:00Z")
    assert not [t for t in kafka_broker.admin().list_topics(timeout=60).topics if t.startswith(f"{prefix}.d")]
    assert _capture(own_database, kafka_broker, prefix, "earliest") == HISTORY[-1:]


@pytest.mark.long
def test_file_and_position_without_gtids(kafka_broker: KafkaBroker, prefix: str) -> None:
    """A transaction must begin there. A GTID set means nothing."""
    from tests.embedded.mysql import MySqlServer  # noqa: PLC0415

    with MySqlServer(settings={"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}) as server:
        database = Database(server, "shop")
        file, pos = database.execute("SHOW MASTER STATUS")[0][:2]
        _history(database)
        for text, message in {
            f"{file}:0": "begins at position 4",
            f"{file}:{pos + 1}": "no event begins",
            f"{file}:{pos + 100_000}": "ends before",
            "binlog.000900:4": "no longer has the binlog file",
            "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5": "is a GTID set",
        }.items():
            with pytest.raises(ConfigError, match=message):
                _capture(database, kafka_broker, prefix, text)
        assert _capture(database, kafka_broker, prefix, f"{file}:{pos}") == HISTORY
        end, size = database.execute("SHOW MASTER STATUS")[0][:2]
        assert _capture(database, kafka_broker, f"{prefix}f", f"{end}:{size}") == []
        assert _capture(database, kafka_broker, f"{prefix}e", "earliest") == HISTORY

        channel = {"snapshot.mode": "no_data", "signal.enabled.channels": "kafka", "signal.poll.interval.ms": "100"}
        read = ("r", {"id": 1, "v": 11, "w": 5})
        with CaptureThread(properties(server, kafka_broker, f"{prefix}s", database.name, channel)) as capture:
            capture.wait_snapshot()
            data = {"binlog_filename": file, "binlog_position": pos}
            signal(kafka_broker, f"{prefix}s", "set-binlog-position", data)
            expected = [*HISTORY, read]
            eventually(lambda: _records(kafka_broker, f"{prefix}s", database) == expected, "all is written again", 60)


@pytest.mark.long
def test_transactions_from_before_there_were_gtids(kafka_broker: KafkaBroker, prefix: str) -> None:
    """The server would leave them out without a word."""
    from tests.embedded.mysql import MySqlServer  # noqa: PLC0415

    with MySqlServer(settings={"gtid_mode": "OFF", "enforce_gtid_consistency": "ON"}) as server:
        database = Database(server, "shop")
        _history(database)
        for mode in ("OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"):
            database.execute(f"SET GLOBAL gtid_mode = {mode}")
        database.execute("INSERT INTO t VALUES (6, 60, 61)")
        [[first]] = database.execute("SELECT @@global.gtid_executed")
        with pytest.raises(ConfigError, match=r"transactions without GTIDs follow.*: name a GTID set"):
            _capture(database, kafka_broker, prefix, "earliest")
        database.execute("INSERT INTO t VALUES (7, 70, 71)")
        seventh = ("c", {"id": 7, "v": 70, "w": 71})
        assert _capture(database, kafka_broker, f"{prefix}e", first) == [seventh]

        for mode in ("ON_PERMISSIVE", "OFF_PERMISSIVE"):
            database.execute(f"SET GLOBAL gtid_mode = {mode}")
        settings = {"snapshot.mode": "no_data"}
        changes = properties(server, kafka_broker, f"{prefix}e", database.name, settings)
        with pytest.raises(BinlogError, match="gtid_mode of the source is not ON"):
            run(configured(changes), threading.Event())
        database.execute("INSERT INTO t VALUES (8, 80, 81)")
        for mode in ("ON_PERMISSIVE", "ON"):
            database.execute(f"SET GLOBAL gtid_mode = {mode}")
        with pytest.raises(BinlogError, match="was not ON for a while") as refused:
            run(configured(changes), threading.Event())
        assert "with snapshot.mode=when_needed" in refused.value.hint
        with CaptureThread({**changes, "snapshot.mode": "when_needed"}):
            eventually(lambda: len(consumer_rows(kafka_broker, f"{prefix}e", "shop.t")) == 4, "1, 6, 7 and 8")


@pytest.mark.long
@pytest.mark.mariadb
def test_mariadb(kafka_broker: KafkaBroker, prefix: str) -> None:
    """A GTID position, and the oldest file."""
    from tests.embedded.mariadb import SOURCE, MariaDbServer  # noqa: PLC0415

    with MariaDbServer(settings=SOURCE) as server:
        database = Database(family(server), "shop")
        [[before]] = database.execute("SELECT @@global.gtid_binlog_pos")
        _history(database)
        assert _capture(database, kafka_broker, prefix, before, **MARIADB) == HISTORY
        assert _capture(database, kafka_broker, f"{prefix}e", "earliest", **MARIADB) == HISTORY
        with pytest.raises(ConfigError, match="name a GTID set"):
            _capture(database, kafka_broker, f"{prefix}f", "binlog.000001:4", **MARIADB)

        [[last]] = database.execute("SELECT @@global.gtid_binlog_pos")
        number = int(last.rpartition("-")[2])
        database.execute("SET SESSION server_id = 2")
        database.execute("INSERT INTO t VALUES (6, 60, 61)")
        database.execute("INSERT INTO t VALUES (7, 70, 71)")
        with pytest.raises(ConfigError, match=f"0-2-{number}"):  # written by the server before
            _capture(database, kafka_broker, f"{prefix}g", f"0-2-{number}", **MARIADB)
        seventh = ("c", {"id": 7, "v": 70, "w": 71})
        assert _capture(database, kafka_broker, f"{prefix}g", f"0-2-{number + 1}", **MARIADB) == [seventh]

        channel = {"signal.enabled.channels": "kafka", "signal.poll.interval.ms": "100"}
        settings = properties(
            database.server, kafka_broker, f"{prefix}s", "shop", {**MARIADB, "snapshot.mode": "no_data", **channel}
        )
        first, sixth = ("r", {"id": 1, "v": 11, "w": 5}), ("c", {"id": 6, "v": 60, "w": 61})
        read = [first, ("r", sixth[1]), ("r", seventh[1])]
        with CaptureThread(settings) as capture:
            capture.wait_snapshot()
            signal(kafka_broker, f"{prefix}s", "set-binlog-position", {"gtid_set": before})
            expected = [*HISTORY, sixth, seventh, *read]
            eventually(lambda: _records(kafka_broker, f"{prefix}s", database) == expected, "all is written again", 60)
