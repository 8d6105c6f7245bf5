"""Heartbeats, schema changes and transaction metadata in Kafka, compared with what Debezium wrote."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import orjson

from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.catalog import read_table
from tailrace.producer.mysql.catalog_session import MySqlCatalogSession
from tailrace.producer.mysql.connection import connect
from tailrace.producer.serialization.envelope.schema_change import TableDefinition, table_change
from tailrace.producer.streaming.schema_change_topic import SchemaChangeTopic
from tests.debezium_parity import golden
from tests.debezium_parity.statements import BEFORE_SNAPSHOT
from tests.support.binlog import settings_of
from tests.support.capture import CaptureProcess, CaptureThread, eventually, properties, records_of
from tests.support.topics import Read, read_topic

if TYPE_CHECKING:
    from pathlib import Path

    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database


def _golden(variant: str, topic: str) -> list[Any]:
    """Return the values that Debezium wrote, without schemas."""
    found = []
    for record in golden.read(variant, prefix="p"):
        if record.topic == topic and record.value is not None:
            value = orjson.loads(record.value)
            found.append(value.get("payload", value))
    return found


def test_heartbeats_without_changes(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """Key, value and partition are Debezium's; the statement runs, and its failure does not stop the stream."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    database.execute("CREATE TABLE beats (id INT PRIMARY KEY, n INT)")
    database.execute("INSERT INTO beats VALUES (1, 0)")
    topic = f"__debezium-heartbeat.{prefix}"
    settings = properties(
        mysql_server,
        kafka_broker,
        prefix,
        database.name,
        {
            "heartbeat.interval.ms": 300,
            "heartbeat.action.query": f"UPDATE {database.name}.beats SET n = n + 1",
            "table.include.list": f"{database.name}.t",
        },
    )
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        eventually(lambda: len(read_topic(kafka_broker.bootstrap, topic)) >= 4, "heartbeats")
        eventually(lambda: database.execute("SELECT n FROM beats")[0][0] >= 3, "the statement has run")
        database.execute("DROP TABLE beats")
        seen = len(read_topic(kafka_broker.bootstrap, topic))
        eventually(lambda: len(read_topic(kafka_broker.bootstrap, topic)) >= seen + 2, "more heartbeats")
    beats = read_topic(kafka_broker.bootstrap, topic)
    assert {beat.key for beat in beats} == {f'{{"serverName":"{prefix}"}}'.encode()}
    assert {beat.partition for beat in beats} == {0}
    assert all(list(beat.json) == ["ts_ms"] and not beat.headers for beat in beats)
    times = [beat.json["ts_ms"] for beat in beats]
    assert all(later - earlier >= 290 for earlier, later in pairwise(times))


def test_table_definitions_equal_those_of_debezium(mysql_server: MySqlServer, database: Database) -> None:
    """Every table of the golden records, created by the statement that Debezium wrote."""
    database.execute("SET sql_mode = '', foreign_key_checks = 0")
    session = database.connect()
    compared = 0
    for value in _golden("plain", "p"):
        if value["source"]["snapshot"] != "true" or [c["type"] for c in value["tableChanges"]] != ["CREATE"]:
            continue
        database.execute(value["ddl"])
        table = TableId(database.name, value["source"]["table"])
        created = database.execute(f"SHOW CREATE TABLE {table.quoted}")[0][1]
        assert created == value["ddl"]
        expected = value["tableChanges"][0] | {"id": f'"{table.database}"."{table.table}"'}
        ours = table_change("CREATE", table, TableDefinition(read_table(session, table), created))
        assert orjson.dumps(ours) == orjson.dumps(expected)
        compared += 1
    session.close()
    assert compared == sum(statement.startswith("CREATE TABLE") for statement in BEFORE_SNAPSHOT)


class _ChangedBetween(MySqlCatalogSession):
    """A statement alters the table after the first of two queries for its definition."""

    def __init__(self, database: Database, statements: list[str]) -> None:
        super().__init__(lambda: connect(settings_of(database.server)))
        self._database, self._statements = database, statements

    def create_statement(self, table: TableId) -> str:
        """Read it, then alter the table."""
        found = super().create_statement(table)
        if self._statements:
            self._database.execute(self._statements.pop(0))
        return found


def test_definition_of_a_table_that_changes_meanwhile(database: Database) -> None:
    """The parts of a definition are of one time, also if they come from two queries."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, e ENUM('a'))")
    table = TableId(database.name, "t")
    before = read_table(database.connect(), table)
    statements = ["ALTER TABLE t ADD COLUMN w INT", "ALTER TABLE t MODIFY e INT", "ALTER TABLE t DROP COLUMN id"]
    with closing(_ChangedBetween(database, [])) as session:
        unused: Any = None
        changes = SchemaChangeTopic(unused, session, unused, unused)
        for found in (None, before):
            session._statements = list(statements)
            described = changes._describe(table, found)

            assert described is not None
            assert described.agrees
            assert table_change("ALTER", table, described)["table"]
            database.execute("DROP TABLE t")
            database.execute("CREATE TABLE t (id INT PRIMARY KEY, e ENUM('a'), later INT)")


def _changes(broker: KafkaBroker, prefix: str) -> list[Any]:
    records = read_topic(broker.bootstrap, prefix)
    for record in records:
        assert record.partition == 0
        assert record.key == orjson.dumps({"databaseName": record.json["databaseName"]})
        assert "__debezium.context.runId" in record.headers
    return [record.json for record in records]


def test_schema_changes(mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database) -> None:
    """The definitions at the first start, then each statement on captured tables, in Debezium's form."""
    name = database.name
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(10) DEFAULT 'b')")
    settings = properties(
        mysql_server,
        kafka_broker,
        prefix,
        name,
        {"include.schema.changes": "true", "table.exclude.list": f"{name}.not_ours"},
    )
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        database.execute("ALTER TABLE t ADD COLUMN n DECIMAL(5,2) NOT NULL DEFAULT 1.5")
        capture.wait_position(mysql_server)
        database.execute("CREATE TABLE not_ours (id INT PRIMARY KEY)")
        database.execute("TRUNCATE TABLE t")
        database.execute("CREATE INDEX ix ON t (n)")
        capture.wait_position(mysql_server)
        database.execute("RENAME TABLE t TO t2")
        capture.wait_position(mysql_server)
        database.execute("CREATE TABLE t3 (id INT PRIMARY KEY)")
        capture.wait_position(mysql_server)
        database.execute("DROP TABLE t2, t3")
        capture.wait_position(mysql_server)
    values = _changes(kafka_broker, prefix)
    theirs = _golden("plain", "p")
    assert [list(value) for value in values] == [list(theirs[0])] * len(values)
    assert [list(value["source"]) for value in values] == [list(theirs[0]["source"])] * len(values)
    snapshot = [value for value in values if value["source"]["snapshot"] == "true"]
    assert [value["ddl"].split("\n")[0] for value in snapshot] == [
        "SET character_set_server=utf8mb4, collation_server=utf8mb4_0900_ai_ci",
        f"DROP TABLE IF EXISTS `{name}`.`t`",
        f"DROP DATABASE IF EXISTS `{name}`",
        f"CREATE DATABASE `{name}` CHARSET utf8mb4 COLLATE utf8mb4_0900_ai_ci",
        f"USE `{name}`",
        "CREATE TABLE `t` (",
    ]
    assert [(v["source"]["db"], v["source"]["table"]) for v in snapshot] == [
        ("", None),
        (name, "t"),
        (name, None),
        (name, None),
        (name, None),
        (name, "t"),
    ]
    logged = [value for value in values if value["source"]["snapshot"] == "false"]
    changes = [
        (v["source"]["table"], v["ddl"].split(" (")[0][:40], [(c["type"], c["id"]) for c in v["tableChanges"]])
        for v in logged
    ]
    dropped = sorted(changes[-2:], key=lambda change: change[1])
    assert [*changes[:-2], *dropped] == [
        ("t", "ALTER TABLE t ADD COLUMN n DECIMAL(5,2) ", [("ALTER", f'"{name}"."t"')]),
        ("", "CREATE INDEX ix ON t", []),
        ("t2", "RENAME TABLE t TO t2", [("ALTER", f'"{name}"."t2"')]),
        ("t3", "CREATE TABLE t3", [("CREATE", f'"{name}"."t3"')]),
        (dropped[0][0], f"DROP TABLE `{name}`.`t2`"[:40], [("DROP", f'"{name}"."t2"')]),
        (dropped[1][0], f"DROP TABLE `{name}`.`t3`"[:40], [("DROP", f'"{name}"."t3"')]),
    ]
    assert set(dropped[0][0].split(",")) == {"t2", "t3"}
    assert [c["name"] for c in logged[0]["tableChanges"][0]["table"]["columns"]] == ["id", "v", "n"]
    source = logged[0]["source"]
    shown = database.execute(f"SHOW BINLOG EVENTS IN '{source['file']}' FROM {source['pos']} LIMIT 1")
    assert "ALTER TABLE" in shown[0][5]

    database.execute("CREATE TABLE t4 (id INT PRIMARY KEY)")
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        capture.wait_position(mysql_server)
    assert [v["ddl"].split(" (")[0] for v in _changes(kafka_broker, prefix)[len(values) :]] == [
        "CREATE TABLE `t4`",
        "CREATE TABLE t4",
    ]


METADATA = {
    "provide.transaction.metadata": "true",
    "topic.creation.default.partitions": 1,
    "table.exclude.list": ".*\\.other",
}


def _check_metadata(broker: KafkaBroker, prefix: str, tables: list[str], name: str) -> dict[str, Any]:
    """Assert that every transaction has one BEGIN and one END that counts its records; return the ENDs by id."""
    ends: dict[str, Any] = {}
    begun: list[str] = []
    for record in read_topic(broker.bootstrap, f"{prefix}.transaction"):
        value = record.json
        assert record.key == orjson.dumps({"id": value["id"]})
        assert list(value) == ["status", "id", "event_count", "data_collections", "ts_ms"]
        assert not record.headers
        if value["status"] == "BEGIN":
            assert (value["event_count"], value["data_collections"]) == (None, None)
            begun.append(value["id"])
        else:
            assert value["id"] not in ends
            ends[value["id"]] = value
    assert begun == list(ends)
    blocks: dict[str, list[tuple[int, str, int]]] = {}
    for table in tables:
        for record in records_of(broker.bootstrap, prefix, name, table):
            if record.value is None or record.json["op"] == "r":
                continue
            block = record.json["transaction"]
            assert block["id"] == record.json["source"]["gtid"]
            assert record.value == orjson.dumps(record.json)
            blocks.setdefault(block["id"], []).append((block["total_order"], table, block["data_collection_order"]))
    assert set(blocks) == set(ends)
    for gtid, rows in blocks.items():
        rows.sort()
        assert [total for total, _, _ in rows] == list(range(1, ends[gtid]["event_count"] + 1))
        counts = {c["data_collection"]: c["event_count"] for c in ends[gtid]["data_collections"]}
        for table in {table for _, table, _ in rows}:
            order = [n for _, t, n in rows if t == table]
            assert order == list(range(1, counts[f"{name}.{table}"] + 1))
    return ends


def test_transaction_metadata(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """The block of each row, and the same counts as in the golden records of equal transactions."""
    for table in ("t", "u", "other"):
        database.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)")
        database.execute(f"INSERT INTO {table} VALUES (1, 1), (2, 2), (3, 3)")
    settings = properties(mysql_server, kafka_broker, prefix, database.name, METADATA)
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        database.execute("START TRANSACTION")
        database.execute("INSERT INTO t VALUES (10, 1)")
        database.execute("UPDATE t SET v = 7 WHERE id = 10")
        database.execute("INSERT INTO u VALUES (9, 9)")
        database.execute("UPDATE u SET v = 8 WHERE id = 9")
        database.execute("DELETE FROM t WHERE id = 10")
        database.execute("COMMIT")
        database.execute("UPDATE t SET id = id + 100 ORDER BY id DESC")
        database.execute("INSERT INTO other VALUES (5, 5)")
        database.execute("CREATE TABLE more (id INT PRIMARY KEY)")
        database.execute("INSERT INTO more VALUES (1)")
        capture.wait_position(mysql_server)
    ends = _check_metadata(kafka_broker, prefix, ["t", "u", "more"], database.name)
    shapes = [
        (end["event_count"], {c["data_collection"].split(".")[1]: c["event_count"] for c in end["data_collections"]})
        for end in ends.values()
    ]
    assert shapes == [(5, {"t": 3, "u": 2}), (6, {"t": 6}), (1, {"more": 1})]
    theirs = _golden("ahead", "p.transaction")
    assert list(theirs[0]) == list(next(iter(ends.values())))


def test_transaction_metadata_survives_kills(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database, tmp_path: Path
) -> None:
    """A transaction that is resumed continues its counts."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    changes = {**METADATA, "max.batch.size": 50, "snapshot.mode": "no_data"}
    settings = properties(mysql_server, kafka_broker, prefix, database.name, changes)
    with CaptureThread(settings) as capture:
        capture.wait_position(mysql_server)
    session = database.connect(autocommit=False)
    with session.cursor() as cursor:
        for n in range(6000):
            cursor.execute("INSERT INTO t VALUES (%s, 0)", (n,))
    session.commit()
    session.close()
    with CaptureProcess(settings, tmp_path) as process:
        for least in (1, 1500, 3000):
            eventually(partial(_has_rows, kafka_broker, prefix, database, least), "rows")
            process.kill()
            process.start()
        eventually(lambda: len(_rows(kafka_broker, prefix, database)) == 6000, "all rows")
        eventually(lambda: len(read_topic(kafka_broker.bootstrap, f"{prefix}.transaction")) == 2, "END")
        process.stop()
    (end,) = _check_metadata(kafka_broker, prefix, ["t"], database.name).values()
    assert end["event_count"] == 6000


def _rows(broker: KafkaBroker, prefix: str, database: Database) -> list[Read]:
    return records_of(broker.bootstrap, prefix, database.name, "t")


def _has_rows(broker: KafkaBroker, prefix: str, database: Database, least: int) -> bool:
    return len(_rows(broker, prefix, database)) >= least
