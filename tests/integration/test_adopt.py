"""Moving house under load: a real Debezium connector writes, ends in some way, and Tailrace goes on in its topics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
import pytest
from confluent_kafka import KafkaException, Producer

from producer.adopt.connect_topics import find_offset
from producer.adopt.offset import ConnectorOffset
from producer.adopt.takeover import Adopted, Wish, adopt
from producer.capture.settings import kafka_settings
from producer.database.gtid import GtidSet
from producer.kafka import state as states
from producer.kafka.topics import Topics, TopicSpec
from schemas.errors import AdoptError
from schemas.names import state_topic
from tests.oracle.connect import CONNECTOR_CLASS
from tests.support.capture import CaptureThread, configured, eventually, properties
from tests.support.connect import DistributedWorker
from tests.support.oracle import final_rows
from tests.support.topics import Read, read_topic
from tests.support.writer import writing

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database

ROWS = 3_000
NAME = "old-house"

pytestmark = pytest.mark.long


class House(NamedTuple):
    """What one move needs: the servers, a worker with the connector, and the configuration of its heir."""

    server: MySqlServer
    broker: KafkaBroker
    database: Database
    worker: DistributedWorker
    settings: Mapping[str, str]

    @property
    def prefix(self) -> str:
        """The topic prefix that both write under."""
        return self.settings["topic.prefix"]

    def start(self) -> None:
        """Start the connector; wait until its snapshot is done and changes stream."""
        self.worker.put(NAME, _connector(self))
        eventually(self._streams, "Debezium's stream of changes")

    def _streams(self) -> bool:
        self.worker.check(NAME)
        return _exists(self, f"{self.prefix}.{self.database.name}.t") and any(
            r.value is not None and r.json["op"] != "r" for r in self.records()
        )

    def records(self) -> list[Read]:
        """Return what is in the table's topic."""
        return read_topic(self.broker.bootstrap, f"{self.prefix}.{self.database.name}.t")

    def offset(self) -> ConnectorOffset:
        """Return where the connector was when its worker last said so."""
        kafka = kafka_settings(configured(self.settings))
        return find_offset(kafka, self.worker.offset_topic, prefix=self.prefix, connector=NAME)

    def adopt(self, **changes: Any) -> Adopted:
        """Take the connector's topics over."""
        wish = {"offset_topic": self.worker.offset_topic, "status_topic": self.worker.status_topic, **changes}
        return adopt(configured(self.settings), Wish(**wish))


def _exists(house: House, topic: str) -> bool:
    try:
        return bool(read_topic(house.broker.bootstrap, topic))
    except (KeyError, KafkaException):  # not there, or without a leader yet
        return False


def _connector(house: House) -> dict[str, str]:
    json_converter = "org.apache.kafka.connect.json.JsonConverter"
    return {
        "connector.class": CONNECTOR_CLASS,
        "tasks.max": "1",
        "topic.prefix": house.prefix,
        "database.hostname": house.server.host,
        "database.port": str(house.server.port),
        "database.user": house.server.capture_user,
        "database.password": house.server.capture_password,
        "database.server.id": "77",
        "database.include.list": house.database.name,
        "database.allowPublicKeyRetrieval": "true",
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": str(house.worker.directory / "history"),
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": "3",
        "key.converter": json_converter,
        "key.converter.schemas.enable": "false",
        "value.converter": json_converter,
        "value.converter.schemas.enable": "false",
        # Small batches end within transactions and within events.
        "max.batch.size": "64",
        "max.queue.size": "128",
        "poll.interval.ms": "20",
    }


@pytest.fixture
def house(mysql_server: MySqlServer, kafka_broker: KafkaBroker, database: Database, prefix: str) -> Iterator[House]:
    """A filled table and a worker, the connector not yet started."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(200))")
    database.execute("CREATE TABLE silent (id INT PRIMARY KEY)")
    database.executemany("INSERT INTO t VALUES (%s, %s)", [(n, f"v{n}") for n in range(1, ROWS + 1)])
    settings = properties(mysql_server, kafka_broker, prefix, database.name)
    with DistributedWorker(kafka_broker.bootstrap, f"connect-{prefix}") as worker:
        yield House(mysql_server, kafka_broker, database, worker, settings)


def _change(cursor: Any, n: int) -> None:
    """Several statements of many rows each."""
    at = n * 7919 % ROWS
    cursor.execute("UPDATE t SET v = %s WHERE id BETWEEN %s AND %s", (f"n{n}", at, at + 60))
    cursor.execute("INSERT INTO t VALUES (%s, 'a'), (%s, 'b')", (ROWS * 10 + n, ROWS * 40 + n))
    cursor.execute("SAVEPOINT here")
    cursor.execute("DELETE FROM t WHERE id BETWEEN %s AND %s", (at + 61, at + 63))
    cursor.execute("UPDATE t SET id = %s WHERE id = %s", (ROWS * 20 + n, at + 5))
    cursor.execute("UPDATE t SET v = CONCAT(v, '+') WHERE id BETWEEN %s AND %s", (at + 70, at + 120))
    cursor.execute("REPLACE INTO t VALUES (%s, %s)", (at + 62, f"again{n}"))


def _writer(database: Database) -> AbstractContextManager[None]:
    return writing(database, _change, pause_s=0.03)


def _is_ours(record: Read) -> bool:
    return bool(record.json["source"]["version"].startswith("tailrace"))


def _identity(record: Read) -> tuple[object, ...]:
    """What one change is known by: its row in the log, and its half where its key changed."""
    source = record.json["source"]
    return (source["gtid"], source["file"], source["pos"], source["row"], record.json["op"], record.key)


def _check_chain(records: Sequence[Read]) -> list[Read]:
    """Assert that each key's records form a chain once exact repeats are left out; return the repeats."""
    repeats: list[Read] = []
    states_: dict[bytes, object] = {}
    seen: dict[tuple[object, ...], Any] = {}
    by_key: dict[bytes, list[Read]] = defaultdict(list)
    for record in records:
        assert record.key is not None
        by_key[record.key].append(record)
    for key, story in by_key.items():
        for record in story:
            if record.value is None:
                continue
            change = record.json
            if change["op"] != "r":
                known = seen.setdefault(_identity(record), change)
                if known is not change:
                    assert (known["before"], known["after"]) == (change["before"], change["after"])
                    repeats.append(record)
                    continue
                assert change["before"] == states_.get(key), f"a gap before {record}"
            states_[key] = change["after"]
    return repeats


def _go_on(house: House, still_written: int = 300) -> None:
    """Run Tailrace in the connector's topics while changes go on."""
    with CaptureThread(house.settings) as capture:
        with _writer(house.database):
            before = len(house.records())
            eventually(lambda: len(house.records()) > before + still_written, "Tailrace's records")
        capture.wait_position(house.server)


def _require_equal(house: House) -> list[Read]:
    """Assert that a reader of the topic ends with the source's rows; return the records doubled on the way."""
    records = house.records()
    found = {row["id"]: row["v"] for row in final_rows(records).values()}
    assert found == dict(house.database.execute("SELECT id, v FROM t"))
    assert not any(r.json["op"] == "r" and _is_ours(r) for r in records if r.value is not None)
    return _check_chain(records)


def test_stopped_within_a_transaction_and_nothing_is_doubled(house: House) -> None:
    """An orderly stop under load, in the middle of a rows event: event and row are taken over to the row."""
    with _writer(house.database):
        house.start()
        with pytest.raises(AdoptError, match="was last said to be running"):
            house.adopt()
        house.worker.stop_connector(NAME)
        while not house.offset().rows:
            house.worker.resume(NAME)
            written = len(house.records())
            eventually(lambda: len(house.records()) > written + 100, "more of Debezium's records")  # noqa: B023
            house.worker.stop_connector(NAME)
    last = len(house.records())

    tried = house.adopt(dry_run=True)
    assert not _exists(house, state_topic(house.prefix))
    _check_without_gtids(house, tried)
    done = house.adopt()
    with pytest.raises(AdoptError, match="there is state of Tailrace"):
        house.adopt()

    assert done.log == tried.log
    assert done.log.rows == done.offset.rows > 0
    assert [table.table for table in done.adopted] == ["t"]
    assert [table.table for table in done.unread] == ["silent"]
    assert len(house.records()) == last
    _go_on(house)
    assert _require_equal(house) == []


def _check_without_gtids(house: House, known: Adopted) -> None:
    """Assert that the same offset without GTIDs, as from before they were on, leads to the same place."""
    topic = f"{house.worker.group}-old-offsets"
    fields = {
        "file": known.offset.file,
        "pos": known.offset.pos,
        "event": known.offset.events,
        "row": known.offset.rows,
    }
    Topics(kafka_settings(configured(house.settings))).ensure([TopicSpec(topic)])
    producer = Producer({"bootstrap.servers": house.broker.bootstrap})
    producer.produce(topic, orjson.dumps(fields), orjson.dumps([NAME, {"server": house.prefix}]))
    assert producer.flush(30) == 0

    found = house.adopt(dry_run=True, offset_topic=topic)

    assert found.log == known.log


def test_killed_under_load_and_only_what_was_not_flushed_is_doubled(house: House) -> None:
    """SIGKILL of the worker: its status still says RUNNING, and its last records are beyond its last offset."""
    with _writer(house.database):
        house.start()
        written = len(house.records())
        eventually(lambda: len(house.records()) > written + 500, "more of Debezium's records")
        house.worker.kill()
        theirs = [r for r in house.records() if r.value is not None and r.json["op"] != "r"]
        offset = house.offset()
        with pytest.raises(AdoptError, match="--stopped"):
            house.adopt()
        done = house.adopt(stopped=True)
        assert done.offset == offset

    _go_on(house)

    repeated = {_identity(r) for r in _require_equal(house)}
    flushed = GtidSet.parse(offset.gtids)
    in_order = sorted(
        theirs, key=lambda r: (r.json["source"]["file"], r.json["source"]["pos"], r.json["source"]["row"])
    )
    beyond = [_identity(r) for r in in_order if not flushed.has(r.json["source"]["gtid"])]
    # Of the transaction the offset is within, what was done is not repeated; of the rest, all is.
    assert set(beyond[len(beyond) - len(repeated) :]) == repeated
    assert repeated
    if not offset.within:
        assert set(beyond) == repeated


def test_forced_over_existing_state(house: House) -> None:
    """--force replaces what Tailrace had stored, its tables included, in one transaction."""
    with _writer(house.database):
        house.start()
    house.worker.stop_connector(NAME)
    with CaptureThread({**house.settings, "snapshot.mode": "no_data"}) as capture:
        capture.wait_position(house.server)
    kafka = kafka_settings(configured(house.settings))

    done = house.adopt(force=True)

    stored = states.read(kafka, state_topic(house.prefix))
    assert stored.log == done.log
    assert {name: table.phase for name, table in stored.tables.items()} == {str(table): "log" for table in done.adopted}
    _go_on(house)
    assert _require_equal(house) == []
