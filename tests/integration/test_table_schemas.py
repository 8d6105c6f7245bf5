"""The schema of each record: the header that names it, and the records of the schemas topic."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import orjson
import pytest

from tailrace.producer.app import builder
from tailrace.producer.snapshot.hooks import SnapshotHooks
from tailrace.schemas.alteration import Alteration
from tailrace.schemas.names import SCHEMA_HEADER, schemas_topic
from tailrace.schemas.table import TableSchema
from tests.support.capture import CaptureThread, properties, records_of
from tests.support.topics import Read, read_topic

if TYPE_CHECKING:
    from tailrace.producer.model.split import Split
    from tailrace.schemas.sequence import Sequence
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database

AT = datetime(2026, 11, 22, 3, 4, 5, tzinfo=UTC)
UNITS = {"io.debezium.time.Timestamp": 1_000, "io.debezium.time.MicroTimestamp": 1_000_000}


def test_each_record_is_decoded_with_the_schema_that_its_header_names(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """The unit of a column changes during the snapshot, and twice in the stream; the topic has all operations."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, at DATETIME(3) NOT NULL)")
    database.execute(
        "INSERT INTO t WITH RECURSIVE n AS (SELECT 1 i UNION ALL SELECT i + 1 FROM n WHERE i < 60)"
        f" SELECT i, '{AT:%F %T}' + INTERVAL i SECOND FROM n"
    )
    settings = properties(
        mysql_server,
        kafka_broker,
        prefix,
        database.name,
        {"snapshot.max.threads": 1, "incremental.snapshot.chunk.size": 20, "skipped.operations": "none"},
    )

    def alter(split: Split) -> None:
        if split.number == 1:
            database.execute("ALTER TABLE t MODIFY at DATETIME(6) NOT NULL")

    with CaptureThread(settings, SnapshotHooks(before_low=alter)) as capture:
        capture.wait_snapshot()
        database.execute("UPDATE t SET id = 1001 WHERE id = 1")
        for fsp, number in ((3, 2), (6, 3), (0, 4)):
            database.execute(f"ALTER TABLE t MODIFY at DATETIME({fsp}) NOT NULL")
            database.execute(f"INSERT INTO t VALUES ({1000 + number}, '{AT + timedelta(seconds=number):%F %T}')")
            database.execute(f"DELETE FROM t WHERE id = {number}")
        capture.wait_position(mysql_server)
    with CaptureThread(settings) as capture:
        database.execute("TRUNCATE TABLE t")
        capture.wait_position(mysql_server)
    records = records_of(kafka_broker.bootstrap, prefix, database.name, "t")
    published = _published(kafka_broker, prefix)
    schemas = {schema.fingerprint: schema for schema, _ in published}

    assert {SCHEMA_HEADER} <= set.intersection(*(set(record.headers) for record in records))
    assert [(op, sum(_op(r) == op for r in records)) for op in "rcudt-"] == [
        ("r", 60), ("c", 4), ("u", 0), ("d", 4), ("t", 1), ("-", 4)
    ]  # fmt: skip
    units = set()
    for record in records:
        schema = schemas[record.headers[SCHEMA_HEADER].decode()]
        assert schema.topic == record.topic
        row = None if record.value is None else record.json["after"] or record.json["before"]
        if row is not None:
            (at,) = (column.schema.name for column in schema.columns if column.name == "at")
            assert at is not None
            units.add(at)
            seconds = row["at"] / UNITS[at] - AT.timestamp()
            assert seconds == row["id"] % 1000, record
    assert units == set(UNITS)

    alterations = _alterations(kafka_broker, prefix)
    assert [(change.kind.value, change.column) for each in alterations for change in each.changes] == [
        ("convert", "at"),  # the stream does not know the definition before it
        ("convert", "at"),
        ("convert", "at"),
    ]
    latest, _ = max(published, key=lambda each: each[1])
    assert latest.columns[1].schema.name == "io.debezium.time.Timestamp"


def test_keys_do_not_follow_the_catalog(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """A unique index that is the key is replaced while the producer is down, and the default of another key changes.

    One of the tables has no change before that.
    """
    database.execute("CREATE TABLE t (a INT NOT NULL, b INT NOT NULL, UNIQUE u1 (a))")
    database.execute("INSERT INTO t VALUES (1, 10)")
    database.execute("CREATE TABLE still (a INT NOT NULL, b INT NOT NULL, UNIQUE u1 (a))")
    database.execute("INSERT INTO still VALUES (1, 10)")
    database.execute("CREATE TABLE d (id INT NOT NULL DEFAULT 7 PRIMARY KEY, n INT)")
    database.execute("INSERT INTO d VALUES (1, 1)")
    settings = properties(mysql_server, kafka_broker, prefix, database.name, {"key.converter.schemas.enable": "true"})
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        database.execute("INSERT INTO t VALUES (2, 20)")
        capture.wait_position(mysql_server)
    database.execute("INSERT INTO t VALUES (3, 30)")
    database.execute("ALTER TABLE t DROP KEY u1, ADD UNIQUE u2 (b)")
    database.execute("INSERT INTO t VALUES (4, 40)")
    database.execute("UPDATE still SET b = 11")
    database.execute("ALTER TABLE still DROP KEY u1, ADD UNIQUE u2 (b)")
    database.execute("INSERT INTO still VALUES (2, 20)")
    database.execute("UPDATE d SET n = 2")
    database.execute("ALTER TABLE d MODIFY id INT NOT NULL, MODIFY n BIGINT")
    database.execute("UPDATE d SET n = 3")
    with CaptureThread(settings) as capture:
        capture.wait_position(mysql_server)
        database.execute("DROP INDEX u2 ON t")
        database.execute("CREATE UNIQUE INDEX u3 ON t (a)")
        database.execute("INSERT INTO t VALUES (5, 50)")
        capture.wait_position(mysql_server)

    records = records_of(kafka_broker.bootstrap, prefix, database.name, "t")
    keys = {record.json["after"]["a"]: orjson.loads(record.key or b"")["payload"] for record in records}
    assert keys == {1: {"a": 1}, 2: {"a": 2}, 3: {"a": 3}, 4: {"b": 40}, 5: {"a": 5}}
    records = records_of(kafka_broker.bootstrap, prefix, database.name, "still")
    assert [orjson.loads(record.key or b"")["payload"] for record in records] == [{"a": 1}, {"a": 1}, {"b": 20}]
    records = records_of(kafka_broker.bootstrap, prefix, database.name, "d")
    assert sorted(record.json["after"]["n"] for record in records) == [1, 2, 3]
    (key,) = {record.key for record in records}
    assert orjson.loads(key or b"")["schema"]["fields"][0]["default"] == 7


def test_an_index_that_is_replaced_during_the_first_start(
    mysql_server: MySqlServer,
    kafka_broker: KafkaBroker,
    prefix: str,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stream does not have the statement, which precedes its first position."""
    database.execute("CREATE TABLE t (a INT NOT NULL, b INT NOT NULL, UNIQUE u1 (a))")
    database.execute("INSERT INTO t VALUES (1, 10)")

    def alter(*_: object) -> None:
        """Between the check of the tables and the choice of the first position."""
        database.execute("ALTER TABLE t DROP KEY u1, ADD UNIQUE u2 (b)")

    monkeypatch.setattr(builder, "ensure_signal_topics", alter)
    with CaptureThread(properties(mysql_server, kafka_broker, prefix, database.name)) as capture:
        capture.wait_snapshot()
        database.execute("UPDATE t SET a = 2")
        capture.wait_position(mysql_server)

    records = records_of(kafka_broker.bootstrap, prefix, database.name, "t")
    assert [orjson.loads(record.key or b"") for record in records] == [{"b": 10}, {"b": 10}]


def _published(broker: KafkaBroker, prefix: str) -> list[tuple[TableSchema, Sequence]]:
    found = []
    for record in read_topic(broker.bootstrap, schemas_topic(prefix)):
        assert record.value is not None
        if Alteration.from_json(record.value) is not None:
            continue
        schema, sequence = TableSchema.from_json(record.value)
        assert record.key == schema.record_key()
        found.append((schema, sequence))
    return found


def _alterations(broker: KafkaBroker, prefix: str) -> list[Alteration]:
    values = [record.value or b"" for record in read_topic(broker.bootstrap, schemas_topic(prefix))]
    return [found for found in map(Alteration.from_json, values) if found is not None]


def _op(record: Read) -> str:
    return "-" if record.value is None else str(record.json["op"])
