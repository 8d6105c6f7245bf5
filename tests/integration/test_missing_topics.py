"""Topics that are deleted while a capture exists: reported, and read again if that is configured."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from tailrace.producer.app.capture import run
from tailrace.producer.errors import StateLostError
from tailrace.runtime.errors import KafkaRequestError
from tailrace.schemas.names import state_topic, watermarks_topic
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
    assert "set tailrace.missing.topic.handling.mode to snapshot or warn" in caught.value.hint, "both are done below"

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


def test_state_that_is_deleted_while_the_producer_runs_ends_it(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """Also an idle one; the error names the topic. It waited in silence before."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    settings = properties(mysql_server, kafka_broker, prefix, database.name)
    with pytest.raises(StateLostError) as caught, CaptureThread(settings) as capture:  # noqa: PT012
        capture.wait_snapshot()
        _delete(kafka_broker, state_topic(prefix))
        eventually(lambda: not capture.running, "the end of the capture", 90)
    assert f"{prefix}.tailrace.state does not exist any more" in caught.value.message
    assert caught.value.hint == "restore the topic, or capture under another topic.prefix"


def test_state_that_was_deleted_is_no_first_start(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """The row that was deleted meanwhile would stay for ever. Readers are told only if that is configured."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    database.execute("CREATE TABLE blank (id INT PRIMARY KEY)")
    database.execute("INSERT INTO t VALUES (1), (2)")
    settings = properties(mysql_server, kafka_broker, prefix, database.name)
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
    database.execute("DELETE FROM t WHERE id = 2")
    _delete(kafka_broker, state_topic(prefix))
    for _ in range(2):  # the first of them creates the topic
        with pytest.raises(StateLostError, match="it was deleted, or another program has written them") as caught:
            run(configured(settings), threading.Event())
        assert caught.value.context == {"watermarks": True, "topics": 1}
        assert "or set tailrace.missing.state.handling.mode=snapshot: readers are told" in caught.value.hint, "as below"

    _delete(kafka_broker, watermarks_topic(prefix))
    with pytest.raises(StateLostError) as caught:
        run(configured(settings), threading.Event())
    assert caught.value.context == {"watermarks": False, "topics": 1}

    with CaptureThread({**settings, "tailrace.missing.state.handling.mode": "snapshot"}) as capture:
        capture.wait_snapshot()
    marks = [record.json for record in read_topic(kafka_broker.bootstrap, watermarks_topic(prefix))]
    created, *others = [mark for mark in marks if mark["topic"] == f"{prefix}.{database.name}.t"]
    assert (created["kind"], created["position"]["epoch"]) == ("CREATED", 1000)
    assert [mark["kind"] for mark in others][:2] == ["LOW", "HIGH"]
    assert others[0]["position"]["epoch"] == 1000
    assert not [mark for mark in marks if mark["kind"] == "CREATED" and mark["table"] == "blank"]
    with CaptureThread(settings) as capture:  # from here on it is state like any other
        database.execute("INSERT INTO t VALUES (3)")
        capture.wait_position(mysql_server)


def test_topic_of_a_table_that_is_deleted_while_the_producer_runs_is_noticed(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    topic = f"{prefix}.{database.name}.t"
    settings = properties(mysql_server, kafka_broker, prefix, database.name, {HANDLING: "fail"})
    with pytest.raises(KafkaRequestError) as caught, CaptureThread(settings) as capture:  # noqa: PT012
        capture.wait_snapshot()
        database.execute("INSERT INTO t VALUES (1)")
        capture.wait_position(mysql_server)
        _delete(kafka_broker, topic)
        database.execute("INSERT INTO t VALUES (2)")
        eventually(lambda: not capture.running, "the end of the capture", 120)
    assert topic in str(caught.value)
