"""Bad input: a clear message with a hint, an exit code, no traceback, nothing written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient

from tests.embedded.kafka import KafkaBroker
from tests.embedded.mysql import MySqlServer
from tests.support.capture import CaptureProcess, eventually, properties

if TYPE_CHECKING:
    from tests.support.database import Database


def _produce(settings: Mapping[str, str], folder: Path, code: int = 78) -> str:
    """Run ``tailrace produce`` and return its output. It must end soon with ``code``, without a traceback."""
    config = folder / "producer.json"
    config.write_text(json.dumps(dict(settings)))
    done = subprocess.run(
        [sys.executable, "-m", "tailrace.producer", "produce", "--config", str(config)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("DATABASE_")},
    )
    said = done.stdout + done.stderr
    assert done.returncode == code, said
    assert "Traceback" not in said
    assert "sesame" not in said, "a secret was printed"
    return said


@pytest.fixture
def settings(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> Iterator[dict[str, str]]:
    """A valid configuration. After the test, no topic with its prefix may exist."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    database.execute("INSERT INTO t VALUES (1, 1)")
    yield properties(mysql_server, kafka_broker, prefix, database.name)
    topics = AdminClient({"bootstrap.servers": kafka_broker.bootstrap}).list_topics(timeout=60).topics
    assert [name for name in topics if name.startswith(prefix)] == []


def test_wrong_password(settings: dict[str, str], tmp_path: Path) -> None:
    """The server rejects the account."""
    said = _produce({**settings, "database.password": "open-sesame"}, tmp_path, 1)

    assert "Access denied" in said
    assert json.loads(said.splitlines()[-1])["error"]["hint"]


def test_a_producer_that_ends_ends_what_waits_for_it(tmp_path: Path) -> None:
    """Each wait of a test is for a producer that runs: one that is dead is told at once, with what it said."""
    with CaptureProcess({}, tmp_path), pytest.raises(AssertionError, match=r"ended with code 78:\n[^$]*topic\.prefix"):
        eventually(lambda: False, "what only a running producer does")


def test_unreachable_source(settings: dict[str, str], tmp_path: Path) -> None:
    """No server listens on the port of the database."""
    said = _produce({**settings, "database.port": "1"}, tmp_path, 75)

    assert "database.hostname" in said


@pytest.mark.long
def test_unreachable_kafka(settings: dict[str, str], tmp_path: Path) -> None:
    """No server listens on the port of Kafka."""
    said = _produce({**settings, "bootstrap.servers": "127.0.0.1:1"}, tmp_path, 75)

    assert "bootstrap.servers" in said


def test_unknown_and_wrong_properties_are_reported_together(settings: dict[str, str], tmp_path: Path) -> None:
    """Three problems in one message, with a suggestion for the misspelled name."""
    wrong = {"tabel.include.list": "a.b", "snapshot.max.threads": "many", "decimal.handling.mode": "exact"}
    said = _produce({**settings, **wrong}, tmp_path)

    assert "table.include.list" in said
    assert "snapshot.max.threads" in said
    assert "many" in said
    assert "decimal.handling.mode" in said
    assert "exact" in said


def test_table_without_key_is_rejected_with_the_alternatives(
    settings: dict[str, str], database: Database, tmp_path: Path
) -> None:
    """A table without a key is never captured silently."""
    database.execute("CREATE TABLE keyless (a INT, b INT)")
    said = _produce(settings, tmp_path)

    assert f"{database.name}.keyless" in said
    assert "message.key.columns" in said
    assert "tailrace.tables.without.key" in said


def test_missing_grants_are_reported_with_statements(
    settings: dict[str, str], database: Database, tmp_path: Path
) -> None:
    """An account that may only read the table."""
    user = f"u{database.name[-8:]}"
    database.execute(f"CREATE USER {user} IDENTIFIED WITH mysql_native_password BY 'sesame'")
    try:
        database.execute(f"GRANT SELECT ON `{database.name}`.* TO {user}")
        said = _produce({**settings, "database.user": user, "database.password": "sesame"}, tmp_path)
    finally:
        database.execute(f"DROP USER {user}")

    assert "REPLICATION SLAVE" in said
    assert "REPLICATION CLIENT" in said
    assert "GRANT" in said


def test_wrong_server_settings_are_reported_together(kafka_broker: KafkaBroker, prefix: str, tmp_path: Path) -> None:
    """Every wrong server variable is reported with its value and the statement that corrects it."""
    wrong = {
        "binlog_format": "STATEMENT",
        "binlog_row_image": "MINIMAL",
        "binlog_row_value_options": "PARTIAL_JSON",
    }
    with MySqlServer(settings=wrong) as server:
        with server.connect() as session, session.cursor() as cursor:
            cursor.execute("CREATE DATABASE d")
            cursor.execute("CREATE TABLE d.t (id INT PRIMARY KEY)")
        said = _produce(properties(server, kafka_broker, prefix, "d"), tmp_path)

    for name in wrong:
        assert name in said, name
    assert "SET PERSIST binlog_row_image" in said


def test_table_names_with_one_topic_name(settings: dict[str, str], database: Database, tmp_path: Path) -> None:
    """Two tables whose topics would have the same name."""
    database.execute("CREATE TABLE `a!b` (id INT PRIMARY KEY)")
    database.execute("CREATE TABLE `a?b` (id INT PRIMARY KEY)")
    said = _produce(settings, tmp_path)

    assert "a!b" in said
    assert "a?b" in said
