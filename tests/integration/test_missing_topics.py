"""Topics that are deleted while a capture exists: reported, and read again if that is configured."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from tailrace.producer.app.capture import run
from tailrace.runtime.errors import KafkaRequestError
from tailrace.schemas.names import watermarks_topic
from tests.support.capture import CaptureThread, configured, eventually, properties
from tests.support.topics import read_topic

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database

HANDLING = "tailrace.missing.topic.handling.mode"


def _delete(broker: KafkaBroker, *topics: str) -> None:
    admin = broker.admin()
    for result in admin.delete_topics(list(topics)).values():
        result.result(60)
    eventually(lambda: not set(topics) & set(admin.list_topics(timeout=60).topics), "the end of the topics")


def test_deleted_topic_is_reported_and_filled_by_a_snapshot(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """The modes fail, warn and snapshot, one start after another."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    database.execute("INSERT INTO t VALUES (1), (2)")
    topic, name = f"{prefix}.{database.name}.t", f"{database.name}.t"
    settings = properties(mysql_server, kafka_broker, prefix, database.name)
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()

    _delete(kafka_broker, topic, watermarks_topic(prefix))
    with pytest.raises(KafkaRequestError) as caught:
        run(configured({**settings, HANDLING: "fail"}), threading.Event())
    assert topic in str(caught.value)

    with capture_logs() as logs, CaptureThread(settings) as capture:
        database.execute("INSERT INTO t VALUES (3)")
        capture.wait_position(mysql_server)
    errors = {str(entry.get("topic")): entry for entry in logs if entry["log_level"] == "error"}
    assert errors[topic]["table"] == name
    assert errors[topic]["written_up_to"]["gtids"]
    assert [record.json["op"] for record in read_topic(kafka_broker.bootstrap, topic)] == ["c"]

    _delete(kafka_broker, topic)
    with CaptureThread({**settings, HANDLING: "snapshot"}):
        eventually(lambda: len(read_topic(kafka_broker.bootstrap, topic)) == 3, "all rows")
    assert {record.json["op"] for record in read_topic(kafka_broker.bootstrap, topic)} == {"r"}
