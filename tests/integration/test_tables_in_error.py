"""A fault of one table: it is in error, the others go on, and it is equal to the source when it has been read again."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.producer.snapshot import splitter
from tailrace.producer.snapshot.hooks import SnapshotHooks
from tailrace.schemas.names import watermarks_topic
from tests.support.capture import CaptureThread, eventually, properties, records_of
from tests.support.incremental_checks import signal, state_of
from tests.support.incremental_window import request_snapshot
from tests.support.topics import read_topic

if TYPE_CHECKING:
    from tailrace.producer.model.split import Split
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database

SIGNALS = {"signal.enabled.channels": "kafka", "signal.poll.interval.ms": 50, "snapshot.max.threads": 1}


@pytest.fixture(params=["1", pytest.param("0", marks=pytest.mark.long)], ids=["extension", "python"])
def native(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without the compiled extension."""
    monkeypatch.setenv("TAILRACE_NATIVE", request.param)


class Tables:
    """Tables of rows 1 to 9, whose columns besides the key are ``v`` and one that the faults are in."""

    def __init__(self, broker: KafkaBroker, prefix: str, database: Database) -> None:
        self.broker, self.prefix, self.database = broker, prefix, database
        self.names: list[str] = []

    def create(self, name: str, column: str) -> None:
        """Create a table and its rows."""
        self.names.append(name)
        self.database.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT, c {column})")
        self.database.execute(f"INSERT INTO {name} (id, v) VALUES {', '.join(f'({n}, {n})' for n in range(1, 10))}")

    def different(self) -> dict[str, object]:
        """Return the tables whose rows differ from the source, as a reader has them that heeds CREATED."""
        found: dict[str, object] = {}
        for name in self.names:
            source = dict(self.database.execute(f"SELECT id, v FROM {name}"))
            if (rows := self._rows(name)) != source:
                found[name] = rows, source
        return found

    def wait_equal(self) -> None:
        """Wait until a reader has what the source has."""
        eventually(lambda: not self.different(), "equal tables", 120)

    def _rows(self, name: str) -> dict[int, int]:
        topic = f"{self.prefix}.{self.database.name}.{name}"
        marks = [record.json for record in read_topic(self.broker.bootstrap, watermarks_topic(self.prefix))]
        created = [
            _position(mark["position"]) for mark in marks if mark["kind"] == "CREATED" and mark["topic"] == topic
        ]
        rows: dict[int, tuple[tuple[str, int], int]] = {}
        for record in records_of(self.broker.bootstrap, self.prefix, self.database.name, name):
            change = record.json
            if change is None:
                continue
            if change["after"] is None:
                rows.pop(change["before"]["id"], None)
            else:
                rows[change["after"]["id"]] = _position(change["source"]), change["after"]["v"]
        return {key: v for key, (at, v) in rows.items() if not created or at >= max(created)}

    def state(self, name: str) -> dict[str, Any]:
        """Return what the state has of a table."""
        return state_of(self.broker, self.prefix, f"table/{self.database.name}.{name}") or {}

    def request(self, *names: str) -> None:
        """Send a signal to read tables."""
        request_snapshot(self.broker, self.prefix, self.database, *names)


def _position(position: dict[str, Any]) -> tuple[str, int]:
    return position["file"], position["pos"]


def _modes(capture: CaptureThread) -> dict[str, str]:
    tables = capture.status.snapshot()["tables"]
    return {name.partition(".")[2]: str(status["mode"]) for name, status in tables.items()}


def _in_error(capture: CaptureThread) -> set[str]:
    return {name for name, mode in _modes(capture).items() if mode == "error"}


@pytest.mark.usefixtures("native")
def test_faults_in_the_stream(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """A value, a record that client or broker refuse, a lost key, a partial row, a mask; also after a restart."""
    tables = Tables(kafka_broker, prefix, database)
    columns = {"dated": "DATE", "large": "LONGBLOB", "refused": "LONGBLOB", "parts": "JSON"}
    for name in ("well", "dated", "large", "refused", "keyless", "parts", "commented", "stated", "masked"):
        tables.create(name, columns.get(name, "INT"))
    changes = {
        "topic.creation.default.max.message.bytes": 500_000,
        "producer.override.batch.size": 500_000,
        "column.mask.with.3.chars": r".*\.masked\.secret",
    }
    settings = properties(mysql_server, kafka_broker, prefix, database.name, {**SIGNALS, **changes})
    faulty = {"dated", "large", "refused", "keyless", "parts", "stated", "masked"}
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        with database.connect() as session, session.cursor() as cursor:
            cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES'")
            cursor.execute("UPDATE dated SET c = '2024-02-31', v = 100 WHERE id = 1")
            cursor.execute("UPDATE well SET v = 100 WHERE id = 1")
            cursor.execute("UPDATE large SET c = REPEAT('x', 3000000) WHERE id = 1")
            cursor.execute("UPDATE well SET v = 100 WHERE id = 2")
            cursor.execute("UPDATE refused SET c = %s WHERE id = 1", (os.urandom(600_000),))
            cursor.execute("UPDATE well SET v = 100 WHERE id = 3")
            cursor.execute("ALTER TABLE keyless DROP PRIMARY KEY")
            cursor.execute("UPDATE keyless SET v = 100 WHERE id = 1")
            cursor.execute("ALTER TABLE masked ADD secret INT")
            cursor.execute("UPDATE masked SET v = 100 WHERE id = 1")
            cursor.execute("""UPDATE parts SET c = '{"a": "a longer text", "b": "another longer text"}'""")
            cursor.execute("SET binlog_row_value_options = PARTIAL_JSON")
            cursor.execute("UPDATE parts SET c = JSON_SET(c, '$.a', 'b'), v = 100 WHERE id = 1")
            cursor.execute("SET binlog_row_value_options = '', binlog_format = STATEMENT")
            cursor.execute("UPDATE stated SET v = 100 WHERE id = 1")
            cursor.execute("SET binlog_format = ROW")
            cursor.execute(f"ALTER TABLE commented COMMENT 'c' /* {'x' * 1_200_000} */")
            cursor.execute("UPDATE commented SET v = 100 WHERE id = 1")
        for name in tables.names:
            database.execute(f"DELETE FROM {name} WHERE id = 9")
            database.execute(f"INSERT INTO {name} (id, v) VALUES (10, 10)")
        capture.wait_position(mysql_server)
        assert _in_error(capture) == faulty
        status = capture.status.snapshot()["tables"]
        for name in faulty:
            found = status[f"{database.name}.{name}"]
            assert found["error"], name
            assert {"file", "pos"} <= found["failed_at"].keys(), name
            assert found["changes_skipped"] >= 2, name
            assert tables.state(name)["fault"]["at"] == found["failed_at"], name
        assert tables.different().keys() == faulty
    for name in tables.names:
        database.execute(f"DELETE FROM {name} WHERE id = 8")
    with CaptureThread(settings) as capture:
        capture.wait_position(mysql_server)
        assert _in_error(capture) == faulty
        assert tables.different().keys() == faulty
        for name in tables.names:
            database.execute(f"UPDATE {name} SET c = NULL, v = v + 1000")
        database.execute("ALTER TABLE keyless ADD PRIMARY KEY (id)")
        database.execute("ALTER TABLE masked DROP secret")
        database.execute("ALTER TABLE dated COMMENT 'corrected'")
        tables.request("large", "refused", "parts", "stated")
        for name in tables.names:
            database.execute(f"DELETE FROM {name} WHERE id = 7")
            database.execute(f"INSERT INTO {name} (id, v) VALUES (11, 11)")
        tables.wait_equal()
        eventually(lambda: not _in_error(capture), "no table in error")
    assert tables.different() == {}
    assert "fault" not in tables.state("large")


def test_faults_in_an_initial_snapshot(
    mysql_server: MySqlServer,
    kafka_broker: KafkaBroker,
    prefix: str,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows that cannot be written, an index without order, a key that changes.

    Another configuration is enough to try again.
    """
    monkeypatch.setattr(splitter, "_MOST_SCANS", 2)
    tables = Tables(kafka_broker, prefix, database)
    columns = {"first": "INT", "dated": "DATE", "hashed": "INT", "large": "LONGBLOB", "rekeyed": "INT"}
    for name, column in columns.items():
        tables.create(name, column)
    database.execute("ALTER TABLE hashed ENGINE=MEMORY")

    def change_key(split: Split) -> None:
        if split.table.table == "rekeyed" and split.number == 1 and not split.incremental:
            database.execute("ALTER TABLE rekeyed DROP PRIMARY KEY, ADD PRIMARY KEY (v, id)")

    with database.connect() as session, session.cursor() as cursor:
        cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES'")
        cursor.execute("UPDATE dated SET c = '2024-02-31' WHERE id = 8")
        cursor.execute("UPDATE large SET c = REPEAT('x', 3000000) WHERE id = 8")
    small = {**SIGNALS, "incremental.snapshot.chunk.size": 3}
    settings = properties(mysql_server, kafka_broker, prefix, database.name, small)
    with CaptureThread(settings, SnapshotHooks(before_low=change_key)) as capture:
        expected = dict.fromkeys(columns, "error") | {"first": "streaming", "rekeyed": "streaming"}
        eventually(
            lambda: _modes(capture) == expected and tables.different().keys() == {"dated", "hashed", "large"},
            "the others",
        )
        found = capture.status.snapshot()["tables"][f"{database.name}.hashed"]
        assert "each split would read the whole table" in found["error"]
        database.execute("ALTER TABLE hashed ADD INDEX (id) USING BTREE")
        expected["hashed"] = "streaming"
        eventually(lambda: _modes(capture) == expected, "the table that has got an index")
        database.execute("UPDATE first SET v = 100 WHERE id = 1")
        database.execute("DELETE FROM dated WHERE id = 1")
        database.execute("DELETE FROM large WHERE id = 1")
        capture.wait_position(mysql_server)
        assert tables.different().keys() == {"dated", "large"}
        assert "split" in tables.state("dated")["fault"]["at"]
        database.execute("DELETE FROM large WHERE id = 8")
        tables.request("large")
        eventually(lambda: _modes(capture) == {**expected, "large": "streaming"}, "the table that was asked for")
    with CaptureThread({**settings, "event.converting.failure.handling.mode": "warn"}) as capture:
        tables.wait_equal()
        capture.wait_snapshot()


def test_faults_in_an_incremental_snapshot(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """A row that cannot be written ends the reading of its table alone; a table in error is read as a whole.

    No signal ends that reading before.
    """
    tables = Tables(kafka_broker, prefix, database)
    for name, column in {"dated": "DATE", "well": "INT"}.items():
        tables.create(name, column)
    with database.connect() as session, session.cursor() as cursor:
        cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES'")
        cursor.execute("UPDATE dated SET c = '2024-02-31' WHERE id = 8")
    changes = {**SIGNALS, "snapshot.mode": "no_data", "incremental.snapshot.chunk.size": 3}
    settings = properties(mysql_server, kafka_broker, prefix, database.name, changes)
    signals: list[int] = []

    def processed() -> int:
        return int((state_of(kafka_broker, prefix, "signals") or {})["kafka"])

    def stop(split: Split) -> None:
        if signals and split.table.table == "dated" and split.number == 1:
            signals.append(processed())
            signal(kafka_broker, prefix, "stop-snapshot")
            eventually(lambda: processed() > signals[-1], "the stop is processed")

    with CaptureThread(settings, SnapshotHooks(before_low=stop)) as capture:
        capture.wait_snapshot()
        tables.request("dated", "well")
        eventually(
            lambda: _in_error(capture) == {"dated"} and not tables.different().keys() - {"dated"}, "one in error"
        )
        database.execute("DELETE FROM dated WHERE id IN (1, 8)")
        database.execute("UPDATE well SET v = 100 WHERE id = 1")
        signals.append(0)
        tables.request("dated")
        tables.wait_equal()
        capture.wait_snapshot()
    assert len(signals) == 2


def test_lost_privileges(mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database) -> None:
    """A table that the account may not read is in error, at a start and in a snapshot, until it may."""
    tables = Tables(kafka_broker, prefix, database)
    for name in ("well", "hidden", "denied", "partly", "reading"):
        tables.create(name, "INT")
    user = f"narrow_{uuid.uuid4().hex[:8]}"
    database.execute(f"CREATE USER {user} IDENTIFIED BY 'narrow'")
    database.execute(f"GRANT PROCESS, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {user}")
    for name in tables.names:
        database.execute(f"GRANT SELECT ON `{database.name}`.`{name}` TO {user}")

    def revoke(split: Split) -> None:
        if split.table.table == "reading" and split.number == 1:
            database.execute(f"REVOKE SELECT ON `{database.name}`.`reading` FROM {user}")

    account = {"database.user": user, "database.password": "narrow", "incremental.snapshot.chunk.size": 3}
    settings = properties(mysql_server, kafka_broker, prefix, database.name, {**SIGNALS, **account})
    with CaptureThread(settings, SnapshotHooks(before_low=revoke)) as capture:
        eventually(lambda: not tables.different().keys() - {"reading"}, "the others")
        eventually(lambda: _in_error(capture) == {"reading"}, "the table that a reader may not read")
    for name in ("hidden", "denied", "partly"):
        database.execute(f"REVOKE SELECT ON `{database.name}`.`{name}` FROM {user}")
    database.execute(f"GRANT INSERT ON `{database.name}`.denied TO {user}")
    database.execute(f"GRANT SELECT (id) ON `{database.name}`.partly TO {user}")
    for name in tables.names:
        database.execute(f"DELETE FROM {name} WHERE id = 9")
    lost = {"hidden", "denied", "partly", "reading"}
    with CaptureThread(settings) as capture:
        capture.wait_position(mysql_server)
        assert _in_error(capture) == lost
        assert tables.different().keys() == lost
        for name in tables.names:
            database.execute(f"DELETE FROM {name} WHERE id = 8")
        database.execute(f"GRANT SELECT ON `{database.name}`.hidden TO {user}")
        eventually(lambda: _in_error(capture) == lost - {"hidden"}, "the table that the account may read is taken up")
        database.execute(f"GRANT INSERT ON `{database.name}`.hidden TO {user}")
        capture.wait_position(mysql_server)
        assert capture.status.snapshot()["stream"]["disconnects"] == 0, (
            "a GRANT that helps no table began a new session"
        )
        database.execute(f"GRANT SELECT ON *.* TO {user}")
        tables.wait_equal()
        eventually(lambda: not _in_error(capture), "no table in error")
    database.execute(f"DROP USER {user}")
