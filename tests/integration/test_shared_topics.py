"""Topics belong to one table each, from the start: a new table with the topic of another one is in error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from tests.support.capture import CaptureThread, eventually, properties
from tests.support.incremental_window import rows_of_reader
from tests.support.topics import read_topic

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database

SMALL = {"snapshot.max.threads": 1, "topic.creation.default.partitions": 1}


def test_new_table_writes_nothing_into_the_topic_of_another_one(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """Nor into a topic of the producer. It is taken up when the other table is gone."""
    database.execute("CREATE TABLE x_y (id INT PRIMARY KEY, v VARCHAR(50))")
    database.execute("INSERT INTO x_y VALUES (1, '100')")
    reserved = {"topic.transaction": f"{database.name}.tx", "skipped.operations": "none"}
    settings = properties(mysql_server, kafka_broker, prefix, database.name, {**SMALL, **reserved})
    topic = f"{prefix}.{database.name}.x_y"
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        for table in ("`x y`", "tx"):
            database.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(50))")
            database.execute(f"INSERT INTO {table} VALUES (1, '2'), (2, '2')")
            database.execute(f"DELETE FROM {table} WHERE id = 1")
            database.execute(f"TRUNCATE {table}")
        database.execute("INSERT INTO `x y` VALUES (7, 'seven')")
        database.execute("CREATE TABLE `from` (id INT PRIMARY KEY, v VARCHAR(50))")
        database.execute("RENAME TABLE `from` TO `x-y`, `x-y` TO `x$y`")
        database.execute("INSERT INTO `x$y` VALUES (8, 'eight')")
        database.execute("UPDATE x_y SET v = '101' WHERE id = 1")
        capture.wait_position(mysql_server)
        tables = capture.status.snapshot()["tables"]
        for table in ("x y", "tx", "x$y"):
            found = tables[f"{database.name}.{table}"]
            assert (found["mode"], "would serve both" in found["error"]) == ("error", True), table
        records = read_topic(kafka_broker.bootstrap, topic)
        assert rows_of_reader(records) == {1: "101"}
        assert [orjson.loads(record.value)["op"] for record in records if record.value] == ["r", "u"]

        database.execute("DROP TABLE x_y, `x$y`")
        database.execute("ALTER TABLE `x y` COMMENT 'now alone'")
        eventually(
            lambda: rows_of_reader(read_topic(kafka_broker.bootstrap, topic)).get(7) == "seven", "the table alone", 120
        )
    # While no producer runs: the changes of the one, up to its DROP, are still to be written.
    database.execute("INSERT INTO `x y` VALUES (9, 'nine')")
    database.execute("DROP TABLE `x y`")
    database.execute("CREATE TABLE x_y (id INT PRIMARY KEY, v VARCHAR(50))")
    database.execute("INSERT INTO x_y VALUES (1, '102')")
    with CaptureThread(settings) as capture:
        eventually(
            lambda: rows_of_reader(read_topic(kafka_broker.bootstrap, topic)).get(1) == "102", "the other table", 120
        )
    values = [record.value for record in read_topic(kafka_broker.bootstrap, topic) if record.value]
    ids = [row["id"] for row in (orjson.loads(value)["after"] for value in values) if row]
    # A row of the new table comes from the binlog, and again when the table is read.
    end = ids[ids.index(9) :]
    assert (end[0], set(end[1:])) == (9, {1})


def test_unicode_strategy_gives_each_table_its_own_topic(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """Of Chinese names of two characters, the default strategy makes one topic. Names: those of Debezium 3.6.1."""
    topics = {"注文": "_u6ce8_u6587", "顧客": "_u9867_u5ba2", "x_y": "x_u005fy", "x y": "x_u0020y"}
    for table in topics:
        database.execute(f"CREATE TABLE `{table}` (id INT PRIMARY KEY, v VARCHAR(50))")
        database.execute(f"INSERT INTO `{table}` VALUES (1, %s)", (table,))
    naming = {"topic.naming.strategy": "io.debezium.schema.DefaultUnicodeTopicNamingStrategy"}
    settings = properties(mysql_server, kafka_broker, prefix, database.name, {**SMALL, **naming})
    start = f"{prefix}.{database.name.replace('_', '_u005f')}."
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        database.execute("CREATE TABLE `商品` (id INT PRIMARY KEY, v VARCHAR(50))")
        for table in (*topics, "商品"):
            database.execute(f"INSERT INTO `{table}` VALUES (2, %s)", (table,))
        capture.wait_position(mysql_server)
    for table, name in topics.items():
        assert rows_of_reader(read_topic(kafka_broker.bootstrap, start + name)) == {1: table, 2: table}
    assert rows_of_reader(read_topic(kafka_broker.bootstrap, f"{start}_u5546_u54c1")) == {2: "商品"}
