"""A takeover from a real Debezium connector: the servers, the load, and what its topic must contain afterwards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import orjson
from confluent_kafka import KafkaException

from tailrace.producer.app.connection_settings import kafka_settings, mysql_source
from tailrace.producer.config import ProducerConfig
from tailrace.producer.errors import TakeoverError
from tailrace.producer.takeover.connect_offsets import find_offset, find_offset_in_file
from tailrace.producer.takeover.debezium_offset import ConnectorOffset
from tailrace.producer.takeover.takeover import TakeoverOptions, TakeoverResult, take_over
from tests.debezium_parity.connect import CONNECTOR_CLASS, ConnectWorker
from tests.embedded.kafka import KafkaBroker
from tests.embedded.mysql import MySqlServer
from tests.support.background_writes import writing
from tests.support.capture import CaptureThread, configured, eventually
from tests.support.connect import DistributedWorker
from tests.support.database import Database
from tests.support.reference_model import final_rows
from tests.support.topics import Read, read_topic

ROWS = 3_000
CONNECTOR = "old-scenario"


def take_over_with(config: ProducerConfig, options: TakeoverOptions) -> TakeoverResult:
    """Take over as the command does."""
    return take_over(config, options, kafka=kafka_settings(config), source=mysql_source(config))


class TakeoverScenario(NamedTuple):
    """What one takeover needs: the servers, a worker with the connector, and the configuration of Tailrace."""

    server: MySqlServer
    broker: KafkaBroker
    database: Database
    worker: ConnectWorker
    settings: Mapping[str, str]
    changes: Mapping[str, str] = {}
    """Properties of both the connector and Tailrace."""

    @property
    def prefix(self) -> str:
        """The topic prefix that both use."""
        return self.settings["topic.prefix"]

    @property
    def topic(self) -> str:
        """The topic of the table."""
        return f"{self.prefix}.{self.database.name}.t"

    @property
    def tailrace_settings(self) -> Mapping[str, str]:
        """The configuration of Tailrace."""
        return {**self.settings, **self.changes}

    def fill(self) -> None:
        """Create the tables, before the connector starts."""
        self.database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(200))")
        self.database.execute("CREATE TABLE silent (id INT PRIMARY KEY)")
        self.database.executemany("INSERT INTO t VALUES (%s, %s)", [(n, f"v{n}") for n in range(1, ROWS + 1)])

    def start(self) -> None:
        """Start the connector; wait until its snapshot is done and changes stream."""
        self.worker.put(CONNECTOR, self._connector())
        eventually(self._streams, "Debezium's stream of changes")

    def stop_within_an_event(self) -> None:
        """Stop the connector under load, repeatedly, until it has done some rows of an event but not all."""
        self.stop()
        while not self.offset().rows:
            self.resume()
            written = len(self.records())
            eventually(lambda: len(self.records()) > written + 100, "more of Debezium's records")  # noqa: B023
            self.stop()

    def stop(self) -> None:
        """Stop the connector through its worker, or together with a standalone worker."""
        if isinstance(self.worker, DistributedWorker):
            self.worker.stop_connector(CONNECTOR)
        else:
            self.worker.stop()

    def resume(self) -> None:
        """Resume the connector from its offset."""
        if isinstance(self.worker, DistributedWorker):
            self.worker.resume(CONNECTOR)
        else:
            self.worker.start()
            self.worker.put(CONNECTOR, self._connector())

    def _streams(self) -> bool:
        self.worker.check(CONNECTOR)
        return self.exists(self.topic) and any(r.value is not None and r.json["op"] != "r" for r in self.records())

    def exists(self, topic: str) -> bool:
        """Return whether a topic exists and has records."""
        try:
            return bool(read_topic(self.broker.bootstrap, topic))
        except (KeyError, KafkaException):  # it does not exist, or has no leader yet
            return False

    def raw(self) -> list[Read]:
        """Return the records of the table's topic."""
        return read_topic(self.broker.bootstrap, self.topic)

    def records(self) -> list[Read]:
        """Return the records of the table's topic without their schemas."""
        return [r._replace(key=_payload(r.key), value=_payload(r.value)) for r in self.raw()]

    def offset(self) -> ConnectorOffset:
        """Return the last offset that the worker has stored."""
        if isinstance(self.worker, DistributedWorker):
            kafka = kafka_settings(configured(self.tailrace_settings))
            return find_offset(kafka, self.worker.offset_topic, prefix=self.prefix, connector=CONNECTOR)
        return find_offset_in_file(self.worker.offset_file, prefix=self.prefix, connector=CONNECTOR)

    def flushed(self) -> bool:
        """Return whether the worker has stored an offset after the connector's snapshot."""
        try:
            self.offset()
        except TakeoverError:
            return False
        return True

    def take_over(self, **changes: Any) -> TakeoverResult:
        """Take over the topics of the connector."""
        where: dict[str, Any] = {}
        if isinstance(self.worker, DistributedWorker):
            where |= {"offset_topic": self.worker.offset_topic, "status_topic": self.worker.status_topic}
        else:
            where["offset_file"] = self.worker.offset_file
        return take_over_with(configured(self.tailrace_settings), TakeoverOptions(**{**where, **changes}))

    def writer(self) -> AbstractContextManager[None]:
        """Change rows continuously within the block."""
        return writing(self.database, _change, pause_s=0.03)

    def run_tailrace(self, still_written: int = 300) -> None:
        """Run Tailrace in the connector's topics while rows are changed."""
        with CaptureThread(self.tailrace_settings) as capture:
            with self.writer():
                before = len(self.records())
                eventually(lambda: len(self.records()) > before + still_written, "Tailrace's records")
            capture.wait_position(self.server)

    def require_equal(self) -> list[Read]:
        """Assert that a reader of the topic ends with the rows of the source; return repeated records."""
        records = self.records()
        found = {row["id"]: row["v"] for row in final_rows(records).values()}
        expected = dict(self.database.execute("SELECT id, v FROM t"))
        wrong = {
            key: (found.get(key), expected.get(key)) for key in found | expected if found.get(key) != expected.get(key)
        }
        assert not wrong, f"rows of the topic and of the source: {wrong}"
        assert not any(r.json["op"] == "r" and is_ours(r) for r in records if r.value is not None)
        return _check_chain(records)

    def _connector(self) -> dict[str, str]:
        json_converter = "org.apache.kafka.connect.json.JsonConverter"
        return {
            "connector.class": CONNECTOR_CLASS,
            "tasks.max": "1",
            "topic.prefix": self.prefix,
            "database.hostname": self.server.host,
            "database.port": str(self.server.port),
            "database.user": self.server.capture_user,
            "database.password": self.server.capture_password,
            "database.server.id": "77",
            "database.include.list": self.database.name,
            "database.allowPublicKeyRetrieval": "true",
            "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
            "schema.history.internal.file.filename": str(self.worker.directory / "history"),
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
            **self.changes,
        }


def _payload(data: bytes | None) -> bytes | None:
    """Return the payload of a record with schema; any other record as it is."""
    if data is None:
        return None
    value = orjson.loads(data)
    return orjson.dumps(value["payload"]) if value.keys() == {"schema", "payload"} else data


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


def is_ours(record: Read) -> bool:
    """Return whether Tailrace wrote a change."""
    return bool(record.json["source"]["version"].startswith("tailrace"))


def is_at_most_one_changed_key(repeats: Sequence[Read]) -> bool:
    """Return whether no record is repeated, but for a changed key in the row at which the connector stopped."""
    rows = {(r.json["source"]["gtid"], r.json["source"]["pos"], r.json["source"]["row"]) for r in repeats}
    return len(rows) <= 1 and {r.json["op"] for r in repeats} <= {"d", "c"}


def identity(record: Read) -> tuple[object, ...]:
    """The identity of a change: its row in the binlog, and which half of a key change it is."""
    source = record.json["source"]
    return (source["gtid"], source["file"], source["pos"], source["row"], record.json["op"], record.key)


def _check_chain(records: Sequence[Read]) -> list[Read]:
    """Assert that the records of each key form a chain without exact repeats; return the repeats."""
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
                known = seen.setdefault(identity(record), change)
                if known is not change:
                    assert (known["before"], known["after"]) == (change["before"], change["after"])
                    repeats.append(record)
                    continue
                assert change["before"] == states_.get(key), f"a gap before {record}"
            states_[key] = change["after"]
    return repeats
