"""A topic gets another partition while its table is read: the watermarks say so, and a key keeps to one partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka.cimpl import NewPartitions

from tailrace.producer.snapshot.hooks import SnapshotHooks
from tailrace.schemas.names import watermarks_topic
from tailrace.schemas.watermark import Watermark, WatermarkKind
from tests.embedded import supervised
from tests.support.capture import CaptureThread, properties
from tests.support.topics import Read, read_topic

if TYPE_CHECKING:
    from tailrace.producer.model.split import Split
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database


def test_rows_and_changes_of_a_split_are_divided_among_the_partitions_that_its_low_watermark_names(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """The stream has written to the topic before, so its client knows one partition, and would for minutes."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    database.executemany("INSERT INTO t VALUES (%s, 0)", [(n,) for n in range(1, 41)])
    topic = f"{prefix}.{database.name}.t"

    def records(op: str) -> list[Read]:
        return [each for each in read_topic(kafka_broker.bootstrap, topic) if each.json and each.json["op"] == op]

    def act(split: Split) -> None:
        if split.number != 1:
            return
        database.execute("UPDATE t SET v = 1 WHERE id = 1")
        supervised.wait_until(lambda: bool(records("u")), what="the change of the first split", deadline_s=120)
        admin = kafka_broker.admin()  # a reference: its requests end with it
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(60)
        supervised.wait_until(
            lambda: len(admin.list_topics(topic, timeout=60).topics[topic].partitions) == 2,
            what="the partition",
            deadline_s=60,
        )

    more = {"snapshot.max.threads": 1, "incremental.snapshot.chunk.size": 10}
    settings = properties(mysql_server, kafka_broker, prefix, database.name, more)
    with CaptureThread(settings, SnapshotHooks(before_low=act)) as capture:
        capture.wait_snapshot()
        database.execute("UPDATE t SET v = 2 WHERE id > 10")
        database.execute("CREATE TABLE made (id INT PRIMARY KEY)")
        database.execute("INSERT INTO made VALUES (1)")
        capture.wait_position(mysql_server)

    marks = read_topic(kafka_broker.bootstrap, watermarks_topic(prefix))
    found = [Watermark.from_json(each.value) for each in marks if each.value]
    low = {mark.number: mark.partitions for mark in found if mark.kind is WatermarkKind.LOW and not mark.lower_open}
    assert low == {0: 1, 1: 2, 2: 2, 3: 2}
    assert [mark.partitions for mark in found if mark.kind is WatermarkKind.CREATED] == [1]
    rows = {each.key: each.partition for each in records("r") if each.json["after"]["id"] > 10}
    changes = {each.key: each.partition for each in records("u") if each.json["after"]["id"] > 10}
    assert len(rows) == 30
    assert rows == changes
    assert set(rows.values()) == {0, 1}
