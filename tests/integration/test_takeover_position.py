"""Connector offsets written by hand: which are taken over, what is written then, and which are rejected."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
import pytest
from confluent_kafka import Producer

from tailrace.producer.app.connection_settings import kafka_settings
from tailrace.producer.errors import TakeoverError
from tailrace.producer.kafka.topics import Topics, TopicSpec
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.resume import GTID_EVENTS
from tailrace.producer.takeover.takeover import TakeoverOptions, TakeoverResult
from tailrace.schemas.names import state_topic
from tests.support.capture import CaptureThread, configured, properties, records_of
from tests.support.database import Database
from tests.support.takeover_scenario import take_over_with

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer

Position = tuple[str, int, str]


class TakeoverSource(NamedTuple):
    """A source, and an offset topic to be written by hand."""

    server: MySqlServer
    broker: KafkaBroker
    database: Database
    prefix: str

    @property
    def settings(self) -> dict[str, str]:
        """The configuration of Tailrace."""
        excluded = {"table.exclude.list": f"{self.database.name}.excluded"}
        return properties(self.server, self.broker, self.prefix, self.database.name, excluded)

    @property
    def topic(self) -> str:
        """The offset topic."""
        return f"{self.prefix}-offsets"

    def make_topics(self, *names: str) -> None:
        """Create topics with several partitions, as Kafka Connect does."""
        Topics(kafka_settings(configured(self.settings))).ensure(TopicSpec(name, partitions=3) for name in names)

    def put(self, topic: str, key: Any, value: Any) -> None:
        """Write one record of JSON; None is a tombstone."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        producer.produce(topic, None if value is None else orjson.dumps(value), orjson.dumps(key))
        assert producer.flush(30) == 0

    def offset(self, fields: dict[str, Any] | None, connector: str = "old", prefix: str | None = None) -> None:
        """Write an offset as the worker of a connector does."""
        self.make_topics(self.topic)
        self.put(self.topic, [connector, {"server": prefix or self.prefix}], fields)

    def take_over(self, **changes: Any) -> TakeoverResult:
        """Take over."""
        options = {"offset_topic": self.topic, "status_topic": f"{self.prefix}-status", **changes}
        return take_over_with(configured(self.settings), TakeoverOptions(**options))

    def position(self) -> Position:
        """The end of the binlog: file, position, GTIDs."""
        row = self.database.execute("SHOW MASTER STATUS")[0]
        return row[0], row[1], "".join(row[4].split())

    def events(self, position: Position) -> list[tuple[int, str]]:
        """Position and type of each event after a position, without GTID and payload events."""
        rows = self.database.execute("SHOW BINLOG EVENTS IN %s FROM %s", position[:2])
        return [(int(row[1]), str(row[2])) for row in rows if row[2] not in GTID_EVENTS | {"Transaction_payload"}]

    def begin(self, position: Position) -> int:
        """The position that a connector stores within the transaction that follows a position."""
        return int(self.database.execute("SHOW BINLOG EVENTS IN %s FROM %s LIMIT 2", position[:2])[1][1])


@pytest.fixture
def scenario(mysql_server: MySqlServer, kafka_broker: KafkaBroker, database: Database, prefix: str) -> TakeoverSource:
    """A takeover on the shared servers; the topic of its table exists."""
    found = TakeoverSource(mysql_server, kafka_broker, database, prefix)
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))")
    database.execute("CREATE TABLE excluded (id INT PRIMARY KEY)")
    found.make_topics(f"{prefix}.{database.name}.t")
    return found


@pytest.fixture
def compressed(kafka_broker: KafkaBroker, prefix: str) -> Iterator[TakeoverSource]:
    """The same on a server with compressed transactions."""
    from tests.embedded.mysql import MySqlServer  # noqa: PLC0415

    with MySqlServer(version="8.0.33", settings={"binlog_transaction_compression": "ON"}) as server:
        database = Database(server, "d")
        database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))")
        database.execute("CREATE TABLE excluded (id INT PRIMARY KEY)")
        found = TakeoverSource(server, kafka_broker, database, prefix)
        found.make_topics(f"{prefix}.d.t")
        yield found
        database.drop()


def _transaction(database: Database) -> None:
    """Rows events of the captured table, of 3, 2, 2 and 2 rows, the last changes keys; one of an excluded table."""
    database.execute("INSERT INTO t VALUES (1, 'a'), (2, 'a')")
    with database.connect(autocommit=False) as session, session.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (11, 'b'), (12, 'b'), (13, 'b')")
        cursor.execute("SAVEPOINT s")
        cursor.execute("INSERT INTO excluded VALUES (5), (6)")
        cursor.execute("UPDATE t SET v = 'c' WHERE id < 10")
        cursor.execute("DELETE FROM t WHERE id IN (11, 12)")
        cursor.execute("UPDATE t SET id = id + 100 WHERE id < 10")
        session.commit()


ALL = [
    *(("c", 11, 0), ("c", 12, 1), ("c", 13, 2), ("u", 1, 0), ("u", 2, 1), ("d", 11, 0), ("d", 12, 1)),
    *(("d", 1, 0), ("c", 101, 0), ("d", 2, 1), ("c", 102, 1)),
]
"""The records of the transaction: operation, key, row."""


@pytest.mark.parametrize(
    ("rows_event", "row", "left"),
    [(0, 1, 10), (0, 3, 8), (1, 1, 8), (2, 0, 8), (2, 1, 7), (3, 2, 4), (4, 0, 4)],
)
def test_position_within_a_transaction(scenario: TakeoverSource, rows_event: int, row: int, left: int) -> None:
    """Only what the connector had not done is written, whatever the type of the next event."""
    _within(scenario, rows_event, row, left)


@pytest.mark.parametrize(("row", "left"), [(1, 4), (2, 2)])
def test_position_at_a_changed_key(scenario: TakeoverSource, row: int, left: int) -> None:
    """The delete and the insert have one offset: the connector may have stopped between them."""
    _within(scenario, 4, row, left)


@pytest.mark.parametrize(("rows_event", "row", "left"), [(2, 1, 7)])
def test_position_within_a_compressed_transaction(
    compressed: TakeoverSource, rows_event: int, row: int, left: int
) -> None:
    """All inner events have one position in the binlog, so they are counted."""
    _within(compressed, rows_event, row, left)


def _within(scenario: TakeoverSource, rows_event: int, row: int, left: int) -> None:
    scenario.database.execute("INSERT INTO excluded VALUES (1)")
    before = scenario.position()
    _transaction(scenario.database)
    first = scenario.database.execute("SHOW BINLOG EVENTS IN %s FROM %s", before[:2])
    ends = [i for i, event in enumerate(first) if event[2] == "Xid"]
    second: Position = (before[0], int(first[ends[0] + 1][1]), "")
    # SET @@SESSION.GTID_NEXT= 'uuid:number'; the shared server may have executed transactions of others too.
    source, _, number = str(first[ends[0] + 1][5]).split("'")[1].rpartition(":")
    seen = GtidSet.parse(before[2]).with_gtid(f"{source}:{int(number) - 1}")
    events = scenario.events(second)
    done = [i for i, (_, kind) in enumerate(events) if kind.endswith("_rows")][rows_event]
    offset = {"file": before[0], "pos": scenario.begin(second), "event": done, "row": row, "ts_sec": 1700000000}
    scenario.offset({**offset, "gtids": str(seen)})

    result = scenario.take_over()
    with CaptureThread(scenario.settings) as capture:
        capture.wait_position(scenario.server)

    assert result.stored_offset.transactions[0].gtid.endswith(f":{number}")
    records = [
        r for r in records_of(scenario.broker.bootstrap, scenario.prefix, scenario.database.name, "t") if r.value
    ]
    found = {(r.json["op"], orjson.loads(r.key or b"")["id"], r.json["source"]["row"]) for r in records}
    assert len(records) == left
    assert found == set(ALL[len(ALL) - left :])


def test_dry_run_writes_nothing_and_returns_the_same(scenario: TakeoverSource) -> None:
    file, pos, gtids = scenario.position()
    scenario.offset({"file": file, "pos": pos, "gtids": gtids})

    tried = scenario.take_over(dry_run=True)

    assert str(tried.position.gtids) == gtids
    assert Topics(kafka_settings(configured(scenario.settings))).missing([state_topic(scenario.prefix)])
    assert scenario.take_over().stored_offset == tried.stored_offset
    assert any("was not checked" in note for note in tried.notes)


def test_command_reports_the_result(scenario: TakeoverSource, tmp_path: Path) -> None:
    """It prints the position, the tables and what was not checked; a second run reports the existing state."""
    file, pos, gtids = scenario.position()
    scenario.offset({"file": file, "pos": pos, "gtids": gtids})
    config = tmp_path / "producer.json"
    config.write_text(json.dumps(scenario.settings))
    command = [sys.executable, "-m", "tailrace.producer", "takeover", "--config", str(config)]
    command += ["--offset-topic", scenario.topic]
    command += ["--status-topic", f"{scenario.prefix}-status"]

    first = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    second = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert first.returncode == 0, first.stderr
    assert first.stdout.splitlines()[:2] == ["connector: old", f"stopped at: {file}:{pos}, event 0, row 0"]
    assert "tables taken over: 1" in first.stdout
    assert first.stdout.endswith("stored; continue with `tailrace produce`\n")
    assert "was not checked" in first.stderr
    assert (second.returncode, second.stdout) == (1, "")
    assert "Tailrace has state under this prefix already" in second.stderr


def test_last_offset_is_used_and_others_are_ignored(scenario: TakeoverSource) -> None:
    """A compacted topic keeps old values for a while, among records of other connectors."""
    file, pos, gtids = scenario.position()
    scenario.offset({"file": file, "pos": 4, "snapshot": "INITIAL"})
    scenario.offset({"lsn": 5}, connector="postgres", prefix="elsewhere")
    scenario.put(scenario.topic, ["files", {"filename": "x"}], {"position": 3})
    scenario.offset({"file": file, "pos": pos, "gtids": gtids})

    assert scenario.take_over(dry_run=True).connector_offset.pos == pos


def test_two_connectors_of_one_prefix_need_a_name(scenario: TakeoverSource) -> None:
    file, pos, gtids = scenario.position()
    for connector in ("one", "two"):
        scenario.offset({"file": file, "pos": pos, "gtids": gtids}, connector=connector)

    with pytest.raises(
        TakeoverError, match=r"(?s)several connectors.*hint: pass the name of one as --connector"
    ) as caught:
        scenario.take_over()
    assert caught.value.context["connectors"] == "one, two"
    assert scenario.take_over(connector="two", dry_run=True).connector_offset.partition.connector == "two"


def test_missing_offset(scenario: TakeoverSource) -> None:
    """No topic, none of this prefix, a deleted offset: each has its own error."""
    with pytest.raises(TakeoverError, match=r"(?s)does not exist.*hint: pass the worker.s offset.storage.topic as"):
        scenario.take_over()
    scenario.offset({"file": "binlog.000001", "pos": 4}, prefix="elsewhere")
    with pytest.raises(
        TakeoverError, match=r"(?s)has no offset of a connector.*hint: take topic.prefix from"
    ) as caught:
        scenario.take_over()
    assert caught.value.context["seen"] == "old (elsewhere)"
    scenario.offset(None)
    with pytest.raises(TakeoverError, match=r"(?s)was deleted.*hint: start `tailrace produce` without a takeover"):
        scenario.take_over()


@pytest.mark.parametrize(
    ("task", "rejected"), [("RUNNING", True), ("RESTARTING", True), ("PAUSED", False), ("FAILED", False), (None, False)]
)
def test_status_of_the_connector(scenario: TakeoverSource, task: str | None, rejected: bool) -> None:
    file, pos, gtids = scenario.position()
    scenario.offset({"file": file, "pos": pos, "gtids": gtids})
    status = f"{scenario.prefix}-status"
    scenario.make_topics(status)
    for key, state in (("status-task-old-0", task), ("status-task-old-er-0", "RUNNING"), ("status-topic-x", "RUNNING")):
        producer = Producer({"bootstrap.servers": scenario.broker.bootstrap})
        producer.produce(status, None if state is None else orjson.dumps({"state": state}), key.encode())
        assert producer.flush(30) == 0

    if rejected:
        with pytest.raises(
            TakeoverError, match=r"(?s)is running.*hint: stop it .PUT /connectors/<name>/stop.* pass --stopped"
        ):
            scenario.take_over()
    notes = scenario.take_over(stopped=rejected, dry_run=True).notes
    assert not any("is stopped" in note for note in notes)


def test_another_server_is_rejected(scenario: TakeoverSource) -> None:
    """GTIDs that this server never executed, and a position that its binlog does not have."""
    file, pos, gtids = scenario.position()
    scenario.offset({"file": file, "pos": pos, "gtids": "58e3a85e-e597-11f1-8ae5-02fc00000001:1-3," + gtids})
    with pytest.raises(TakeoverError, match=r"(?s)has not executed transactions.*hint: point database.hostname at"):
        scenario.take_over()
    scenario.offset({"file": file, "pos": pos - 3})
    with pytest.raises(TakeoverError, match=r"(?s)not between transactions.*hint: check that database.hostname is the"):
        scenario.take_over()
    scenario.offset({"file": "other.000001", "pos": 4})
    with pytest.raises(TakeoverError, match=r"(?s)no longer has the binlog file.*hint: start `tailrace produce` under"):
        scenario.take_over()
    scenario.offset({"file": file, "pos": pos, "gtids": gtids, "event": 3})
    with pytest.raises(
        TakeoverError, match=r"(?s)is not the next one.*hint: check that database.hostname is the server"
    ):
        scenario.take_over()


def test_transaction_at_another_position_is_written_once_more(scenario: TakeoverSource) -> None:
    """After a failover the counts of another server mean nothing: the transaction is repeated rather than lost."""
    file, pos, gtids = scenario.position()
    scenario.database.execute("INSERT INTO t VALUES (1, 'a')")
    scenario.offset({"file": "before.000007", "pos": 12345, "gtids": gtids, "event": 3, "row": 1})

    result = scenario.take_over(dry_run=True)

    assert result.stored_offset.transactions == ()
    assert (result.position.file, result.position.pos) == (file, pos)
    assert "another server now" in result.notes[-1]


def test_binlog_from_before_gtids(kafka_broker: KafkaBroker, prefix: str) -> None:
    """After GTIDs were enabled, positions after the last transaction without one are valid; earlier ones are not."""
    from tests.embedded.mysql import MySqlServer  # noqa: PLC0415

    with MySqlServer(settings={"gtid_mode": "OFF"}) as server:
        database = Database(server, "d")
        scenario = TakeoverSource(server, kafka_broker, database, prefix)
        database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        early = scenario.position()
        database.execute("INSERT INTO t VALUES (1)")
        late = scenario.position()
        for mode in ("OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"):
            database.execute(f"SET GLOBAL gtid_mode = '{mode}'")
        database.execute("INSERT INTO t VALUES (2)")
        last = scenario.position()

        scenario.offset({"file": early[0], "pos": early[1]})
        with pytest.raises(TakeoverError, match=r"(?s)transactions without a GTID follow.*hint: start the conn"):
            scenario.take_over()
        scenario.offset({"file": late[0], "pos": late[1]})
        assert late[0] != last[0], "enabling GTIDs starts a new file"
        assert str(scenario.take_over(dry_run=True).position.gtids) == ""
        scenario.offset({"file": last[0], "pos": last[1]})
        assert str(scenario.take_over(dry_run=True).position.gtids) == last[2]
        database.execute("PURGE BINARY LOGS TO %s", (last[0],))
        scenario.offset({"file": late[0], "pos": late[1]})
        with pytest.raises(
            TakeoverError, match=r"(?s)no longer has the binlog file.*hint: start `tailrace produce` under"
        ):
            scenario.take_over()
        database.drop()


def test_purged_binlog_is_rejected(kafka_broker: KafkaBroker, prefix: str) -> None:
    """The server no longer has binlog that the connector had not read."""
    from tests.embedded.mysql import MySqlServer  # noqa: PLC0415

    with MySqlServer() as server:
        database = Database(server, "d")
        scenario = TakeoverSource(server, kafka_broker, database, prefix)
        file, pos, gtids = scenario.position()
        database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        database.execute("FLUSH BINARY LOGS")
        database.execute("PURGE BINARY LOGS TO %s", (scenario.position()[0],))
        scenario.offset({"file": file, "pos": pos, "gtids": gtids})

        with pytest.raises(TakeoverError, match=r"(?s)has purged binlog.*hint: start `tailrace produce` under another"):
            scenario.take_over()
        database.drop()
