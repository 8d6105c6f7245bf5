"""The notification channel webhook of a running producer."""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from tests.embedded.supervised import free_port
from tests.support.capture import CaptureProcess, eventually, properties, records_of
from tests.support.webhook_server import WebhookServer

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database


def test_a_table_in_error_is_posted_and_nothing_waits_for_the_server(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database, tmp_path: Path
) -> None:
    for table in ("well", "dated"):
        database.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, c DATE)")
        database.execute(f"INSERT INTO {table} VALUES (1, NULL), (2, NULL)")
    port = free_port()
    with WebhookServer(held=True) as server:
        changes = {
            "tailrace.http.port": port,
            "notification.enabled.channels": "webhook",
            "tailrace.notification.webhook.url": server.url,
        }
        settings = properties(mysql_server, kafka_broker, prefix, database.name, changes)
        with CaptureProcess(settings, tmp_path) as producer:
            eventually(lambda: len(records_of(kafka_broker.bootstrap, prefix, database.name, "well")) == 2, "the rows")
            with database.connect() as session, session.cursor() as cursor:
                cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES'")
                cursor.execute("UPDATE dated SET c = '2024-02-31' WHERE id = 1")
                cursor.execute("INSERT INTO well VALUES (3, NULL)")
            eventually(lambda: len(records_of(kafka_broker.bootstrap, prefix, database.name, "well")) == 3, "a change")
            assert server.bodies == []
            server.release.set()
            eventually(lambda: any(body["class"] == "TableInError" for body in server.bodies), "the table in error")
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
                metrics = answer.read().decode()
            assert producer.stop() == 0
            assert server.url not in producer.log.read_text()

    [event] = [body for body in server.bodies if body["class"] == "TableInError"]
    assert (event["server"], event["table"]) == (prefix, f"{database.name}.dated")
    assert event["reason"]
    assert "2024-02-31" not in str(event)
    assert "tailrace snapshot" in event["remedy"]
    assert {"file", "pos"} <= event["details"].keys()
    assert "Initial Snapshot COMPLETED" in {body["class"] for body in server.bodies}
    assert f'tailrace_webhook_failed_total{{server="{prefix}"}} 0.0' in metrics


def test_the_error_that_ends_the_producer_is_posted(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE keyless (a INT)")
    with WebhookServer() as server:
        changes = {
            "notification.enabled.channels": "webhook",
            "tailrace.notification.webhook.url": server.url,
            "tailrace.notification.webhook.format": "slack",
        }
        with CaptureProcess(
            properties(mysql_server, kafka_broker, prefix, database.name, changes), tmp_path
        ) as producer:
            assert producer.wait() == 78

    [body] = server.bodies
    assert body["text"].startswith(f"{prefix}: Stopped PrerequisiteError\n1 prerequisite is not met")
    assert f"{database.name}.keyless" in body["text"]
