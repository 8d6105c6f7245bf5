"""Offsets as a connector leaves them, written by hand: what is taken over, what the log then gives, what is refused."""

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
from tailrace.producer.takeover.takeover import TakeoverOptions, TakeoverResult, existing_topics, take_over
from tailrace.schemas.names import state_topic
from tests.support.capture import CaptureThread, configured, properties, records_of
from tests.support.database import Database

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer

Place = tuple[str, int, str]


class Move(NamedTuple):
    """A source, and an offset topic to be written by hand."""

    server: MySqlServer
    broker: KafkaBroker
    database: Database
    prefix: str

    @property
    def settings(self) -> dict[str, str]:
        """The configuration of the heir."""
        left_out = {"table.exclude.list": f"{self.database.name}.left_out"}
        return properties(self.server, self.broker, self.prefix, self.database.name, left_out)

    @property
    def topic(self) -> str:
        """The offset topic."""
        return f"{self.prefix}-offsets"

    def make_topics(self, *names: str) -> None:
        """Make topics as Kafka Connect would have, several partitions each."""
        Topics(kafka_settings(configured(self.settings))).ensure(TopicSpec(name, partitions=3) for name in names)

    def put(self, topic: str, key: Any, value: Any) -> None:
        """Write one record of JSON; None is a tombstone."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        producer.produce(topic, None if value is None else orjson.dumps(value), orjson.dumps(key))
        assert producer.flush(30) == 0

    def offset(self, fields: dict[str, Any] | None, connector: str = "old", prefix: str | None = None) -> None:
        """Write an offset, as the connector's worker would."""
        self.make_topics(self.topic)
        self.put(self.topic, [connector, {"server": prefix or self.prefix}], fields)

    def take_over(self, **changes: Any) -> TakeoverResult:
        """Take over."""
        wish = {"offset_topic": self.topic, "status_topic": f"{self.prefix}-status", **changes}
        return take_over(configured(self.settings), TakeoverOptions(**wish))

    def place(self) -> Place:
        """The end of the log: file, offset, GTIDs."""
        row = self.database.execute("SHOW MASTER STATUS")[0]
        return row[0], row[1], "".join(row[4].split())

    def events(self, place: Place) -> list[tuple[int, str]]:
        """Offset and kind of each event behind a place, its GTID event left out, a payload's content in its place."""
        rows = self.database.execute("SHOW BINLOG EVENTS IN %s FROM %s", place[:2])
        return [(int(row[1]), str(row[2])) for row in rows if row[2] not in {"Gtid", "Transaction_payload"}]

    def begin(self, place: Place) -> int:
        """The offset that a connector tells within the transaction behind a place."""
        return int(self.database.execute("SHOW BINLOG EVENTS IN %s FROM %s LIMIT 2", place[:2])[1][1])


@pytest.fixture
def move(mysql_server: MySqlServer, kafka_broker: KafkaBroker, database: Database, prefix: str) -> Move:
    """A move on the shared servers, its table's topic made."""
    found = Move(mysql_server, kafka_broker, database, prefix)
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))")
    database.execute("CREATE TABLE left_out (id INT PRIMARY KEY)")
    found.make_topics(f"{prefix}.{database.name}.t")
    return found


@pytest.fixture
def compressed(kafka_broker: KafkaBroker, prefix: str) -> Iterator[Move]:
    """The same on a server that compresses its transactions."""
    from tests.embedded.mysql import MySqlServer  # noqa: PLC0415

    with MySqlServer(version="8.0.33", settings={"binlog_transaction_compression": "ON"}) as server:
        database = Database(server, "d")
        database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))")
        database.execute("CREATE TABLE left_out (id INT PRIMARY KEY)")
        found = Move(server, kafka_broker, database, prefix)
        found.make_topics(f"{prefix}.d.t")
        yield found
        database.drop()


def _transaction(database: Database) -> None:
    """Three rows events of the captured table, of 3, 2 and 2 rows; one of a table left out between them."""
    database.execute("INSERT INTO t VALUES (1, 'a'), (2, 'a')")
    with database.connect(autocommit=False) as session, session.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (11, 'b'), (12, 'b'), (13, 'b')")
        cursor.execute("SAVEPOINT s")
        cursor.execute("INSERT INTO left_out VALUES (5), (6)")
        cursor.execute("UPDATE t SET v = 'c' WHERE id < 10")
        cursor.execute("DELETE FROM t WHERE id IN (11, 12)")
        session.commit()


ALL = [("c", 11), ("c", 12), ("c", 13), ("u", 1), ("u", 2), ("d", 11), ("d", 12)]


@pytest.mark.parametrize(
    ("rows_event", "row", "left"),
    [(0, 1, 6), (0, 3, 4), (1, 1, 4), (2, 0, 4), (2, 1, 3), (3, 2, 0)],
)
def test_place_within_a_transaction(move: Move, rows_event: int, row: int, left: int) -> None:
    """Only what the connector had not done is written, whatever kind of event the next one is."""
    _within(move, rows_event, row, left)


@pytest.mark.parametrize(("rows_event", "row", "left"), [(2, 1, 3)])
def test_place_within_a_compressed_transaction(compressed: Move, rows_event: int, row: int, left: int) -> None:
    """Inner events all have one place in the log: they are counted, not placed."""
    _within(compressed, rows_event, row, left)


def _within(move: Move, rows_event: int, row: int, left: int) -> None:
    move.database.execute("INSERT INTO left_out VALUES (1)")
    before = move.place()
    _transaction(move.database)
    first = move.database.execute("SHOW BINLOG EVENTS IN %s FROM %s", before[:2])
    ends = [i for i, event in enumerate(first) if event[2] == "Xid"]
    second: Place = (before[0], int(first[ends[0] + 1][1]), "")
    # SET @@SESSION.GTID_NEXT= 'uuid:number'; the shared server may have executed transactions of others too.
    source, _, number = str(first[ends[0] + 1][5]).split("'")[1].rpartition(":")
    seen = GtidSet.parse(before[2]).with_gtid(f"{source}:{int(number) - 1}")
    events = move.events(second)
    done = [i for i, (_, kind) in enumerate(events) if kind.endswith("_rows")][rows_event]
    offset = {"file": before[0], "pos": move.begin(second), "event": done, "row": row, "ts_sec": 1700000000}
    move.offset({**offset, "gtids": str(seen)})

    adopted = move.take_over()
    with CaptureThread(move.settings) as capture:
        capture.wait_position(move.server)

    assert adopted.log.transaction.endswith(f":{number}")
    records = [r for r in records_of(move.broker.bootstrap, move.prefix, move.database.name, "t") if r.value]
    found = {(r.json["op"], orjson.loads(r.key or b"")["id"], r.json["source"]["row"]) for r in records}
    rows = [0, 1, 2, 0, 1, 0, 1]
    expected = [(op, key, at) for (op, key), at in zip(ALL, rows, strict=True)]
    assert len(records) == left
    assert found == set(expected[len(ALL) - left :])


def test_dry_run_writes_nothing_and_tells_the_same(move: Move) -> None:
    file, pos, gtids = move.place()
    move.offset({"file": file, "pos": pos, "gtids": gtids})

    tried = move.take_over(dry_run=True)

    assert str(tried.position.gtids) == gtids
    assert state_topic(move.prefix) not in existing_topics(kafka_settings(configured(move.settings)))
    assert move.take_over().log == tried.log
    assert any("was not checked" in note for note in tried.notes)


def test_command_says_what_it_did(move: Move, tmp_path: Path) -> None:
    """The operator is told the place, the tables, and what was not checked; then what is there already."""
    file, pos, gtids = move.place()
    move.offset({"file": file, "pos": pos, "gtids": gtids})
    config = tmp_path / "producer.json"
    config.write_text(json.dumps(move.settings))
    command = [
        sys.executable,
        "-m",
        "tailrace.producer",
        "takeover",
        "--config",
        str(config),
        "--offset-topic",
        move.topic,
    ]
    command += ["--status-topic", f"{move.prefix}-status"]

    first = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    second = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert first.returncode == 0, first.stderr
    assert first.stdout.splitlines()[:2] == ["connector: old", f"stopped at: {file}:{pos}, event 0, row 0"]
    assert "tables taken over: 1" in first.stdout
    assert first.stdout.endswith("stored; go on with `tailrace produce`\n")
    assert "was not checked" in first.stderr
    assert (second.returncode, second.stdout) == (1, "")
    assert "there is state of Tailrace under this prefix already" in second.stderr


def test_last_offset_counts_and_others_are_passed_over(move: Move) -> None:
    """A compacted topic keeps old values for a while; records of other connectors lie between."""
    file, pos, gtids = move.place()
    move.offset({"file": file, "pos": 4, "snapshot": "INITIAL"})
    move.offset({"lsn": 5}, connector="postgres", prefix="elsewhere")
    move.put(move.topic, ["files", {"filename": "x"}], {"position": 3})
    move.offset({"file": file, "pos": pos, "gtids": gtids})

    assert move.take_over(dry_run=True).offset.pos == pos


def test_two_connectors_of_one_prefix_need_a_name(move: Move) -> None:
    file, pos, gtids = move.place()
    for connector in ("one", "two"):
        move.offset({"file": file, "pos": pos, "gtids": gtids}, connector=connector)

    with pytest.raises(TakeoverError, match="several connectors") as caught:
        move.take_over()
    assert caught.value.context["connectors"] == "one, two"
    assert move.take_over(connector="two", dry_run=True).offset.owner.connector == "two"


def test_offset_that_is_not_there(move: Move) -> None:
    """No topic, none of this prefix, a deleted one: each is told as what it is."""
    with pytest.raises(TakeoverError, match="there is no topic"):
        move.take_over()
    move.offset({"file": "binlog.000001", "pos": 4}, prefix="elsewhere")
    with pytest.raises(TakeoverError, match="has no offset of a connector") as caught:
        move.take_over()
    assert caught.value.context["seen"] == "old (elsewhere)"
    move.offset(None)
    with pytest.raises(TakeoverError, match="was deleted"):
        move.take_over()


@pytest.mark.parametrize(
    ("task", "refused"), [("RUNNING", True), ("RESTARTING", True), ("PAUSED", False), ("FAILED", False), (None, False)]
)
def test_status_of_the_connector(move: Move, task: str | None, refused: bool) -> None:
    file, pos, gtids = move.place()
    move.offset({"file": file, "pos": pos, "gtids": gtids})
    status = f"{move.prefix}-status"
    move.make_topics(status)
    for key, state in (("status-task-old-0", task), ("status-task-old-er-0", "RUNNING"), ("status-topic-x", "RUNNING")):
        producer = Producer({"bootstrap.servers": move.broker.bootstrap})
        producer.produce(status, None if state is None else orjson.dumps({"state": state}), key.encode())
        assert producer.flush(30) == 0

    if refused:
        with pytest.raises(TakeoverError, match="was last said to be running"):
            move.take_over()
    assert move.take_over(stopped=refused, dry_run=True).notes == []


def test_another_server_is_refused(move: Move) -> None:
    """GTIDs that this server never executed, and a place that this server's log does not have."""
    file, pos, gtids = move.place()
    move.offset({"file": file, "pos": pos, "gtids": "58e3a85e-e597-11f1-8ae5-02fc00000001:1-3," + gtids})
    with pytest.raises(TakeoverError, match="has not executed transactions"):
        move.take_over()
    move.offset({"file": file, "pos": pos - 3})
    with pytest.raises(TakeoverError, match="not one between transactions"):
        move.take_over()
    move.offset({"file": "other.000001", "pos": 4})
    with pytest.raises(TakeoverError, match="no longer has the binlog file"):
        move.take_over()
    move.offset({"file": file, "pos": pos, "gtids": gtids, "event": 3})
    with pytest.raises(TakeoverError, match="is not the next one"):
        move.take_over()


def test_transaction_at_another_place_is_written_once_more(move: Move) -> None:
    """After a failover the counts of another server's log say nothing: rather twice than not at all."""
    file, pos, gtids = move.place()
    move.database.execute("INSERT INTO t VALUES (1, 'a')")
    move.offset({"file": "before.000007", "pos": 12345, "gtids": gtids, "event": 3, "row": 1})

    adopted = move.take_over(dry_run=True)

    assert (adopted.log.transaction, adopted.log.events, adopted.log.rows) == ("", 0, 0)
    assert (adopted.position.file, adopted.position.pos) == (file, pos)
    assert "another server now" in adopted.notes[-1]


def test_log_from_before_gtids(kafka_broker: KafkaBroker, prefix: str) -> None:
    """GTIDs were switched on: a place behind the last transaction without one is as good as any, before it none is."""
    from tests.embedded.mysql import MySqlServer  # noqa: PLC0415

    with MySqlServer(settings={"gtid_mode": "OFF"}) as server:
        database = Database(server, "d")
        move = Move(server, kafka_broker, database, prefix)
        database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        early = move.place()
        database.execute("INSERT INTO t VALUES (1)")
        late = move.place()
        for mode in ("OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"):
            database.execute(f"SET GLOBAL gtid_mode = '{mode}'")
        database.execute("INSERT INTO t VALUES (2)")
        last = move.place()

        move.offset({"file": early[0], "pos": early[1]})
        with pytest.raises(TakeoverError, match="transactions without a GTID follow"):
            move.take_over()
        move.offset({"file": late[0], "pos": late[1]})
        assert late[0] != last[0], "switching begins a new file"
        assert str(move.take_over(dry_run=True).position.gtids) == ""
        move.offset({"file": last[0], "pos": last[1]})
        assert str(move.take_over(dry_run=True).position.gtids) == last[2]
        database.execute("PURGE BINARY LOGS TO %s", (last[0],))
        move.offset({"file": late[0], "pos": late[1]})
        with pytest.raises(TakeoverError, match="no longer has the binlog file"):
            move.take_over()
        database.drop()


def test_purged_log_is_refused(kafka_broker: KafkaBroker, prefix: str) -> None:
    """The binlog that the connector had not read is gone."""
    from tests.embedded.mysql import MySqlServer  # noqa: PLC0415

    with MySqlServer() as server:
        database = Database(server, "d")
        move = Move(server, kafka_broker, database, prefix)
        file, pos, gtids = move.place()
        database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        database.execute("FLUSH BINARY LOGS")
        database.execute("PURGE BINARY LOGS TO %s", (move.place()[0],))
        move.offset({"file": file, "pos": pos, "gtids": gtids})

        with pytest.raises(TakeoverError, match="has purged binlog"):
            move.take_over()
        database.drop()
