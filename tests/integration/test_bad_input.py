"""Bad input, as a user meets it: a clear message that names the remedy, exit code 1, no traceback, nothing written."""

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
from tests.support.capture import properties

if TYPE_CHECKING:
    from tests.support.database import Database


def _produce(settings: Mapping[str, str], folder: Path) -> str:
    """Run ``tailrace produce``; return what it says. It must fail, quietly and soon."""
    config = folder / "producer.json"
    config.write_text(json.dumps(dict(settings)))
    done = subprocess.run(
        [sys.executable, "-m", "producer", "produce", "--config", str(config)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("DATABASE_")},
    )
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert "Traceback" not in said
    assert "sesame" not in said, "a secret was printed"
    return said


@pytest.fixture
def settings(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> Iterator[dict[str, str]]:
    """A configuration that would work; afterwards no topic of its prefix may exist."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    database.execute("INSERT INTO t VALUES (1, 1)")
    yield properties(mysql_server, kafka_broker, prefix, database.name)
    topics = AdminClient({"bootstrap.servers": kafka_broker.bootstrap}).list_topics(timeout=60).topics
    assert [name for name in topics if name.startswith(prefix)] == []


def test_wrong_password(settings: dict[str, str], tmp_path: Path) -> None:
    """The account is refused."""
    said = _produce({**settings, "database.password": "open-sesame"}, tmp_path)

    assert "Access denied" in said
    assert "remedy" in said


def test_unreachable_source(settings: dict[str, str], tmp_path: Path) -> None:
    """Nobody listens where the source should be."""
    said = _produce({**settings, "database.port": "1"}, tmp_path)

    assert "database.hostname" in said


def test_unreachable_kafka(settings: dict[str, str], tmp_path: Path) -> None:
    """Nobody listens where Kafka should be."""
    said = _produce({**settings, "bootstrap.servers": "127.0.0.1:1"}, tmp_path)

    assert "bootstrap.servers" in said


def test_unknown_and_wrong_properties_are_told_together(settings: dict[str, str], tmp_path: Path) -> None:
    """Three faults in one message, the misspelt one with the name that was meant."""
    wrong = {"tabel.include.list": "a.b", "snapshot.max.threads": "many", "decimal.handling.mode": "exact"}
    said = _produce({**settings, **wrong}, tmp_path)

    assert "table.include.list" in said
    assert "snapshot.max.threads" in said
    assert "many" in said
    assert "decimal.handling.mode" in said
    assert "exact" in said


def test_table_without_key_is_refused_with_the_ways_out(
    settings: dict[str, str], database: Database, tmp_path: Path
) -> None:
    """A table without a key is never captured silently."""
    database.execute("CREATE TABLE keyless (a INT, b INT)")
    said = _produce(settings, tmp_path)

    assert f"{database.name}.keyless" in said
    assert "message.key.columns" in said
    assert "tailrace.tables.without.key" in said


def test_missing_grants_are_told_with_their_statements(
    settings: dict[str, str], database: Database, tmp_path: Path
) -> None:
    """An account that may only look at the table."""
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


@pytest.mark.mysql
def test_wrong_server_settings_are_told_together(kafka_broker: KafkaBroker, prefix: str, tmp_path: Path) -> None:
    """A server as it comes: every setting in the way is named with its value and the statement that mends it."""
    wrong = {
        "binlog_row_metadata": "MINIMAL",
        "binlog_row_image": "MINIMAL",
        "binlog_row_value_options": "PARTIAL_JSON",
        "gtid_mode": "OFF",
        "enforce_gtid_consistency": "OFF",
    }
    with MySqlServer(settings=wrong) as server:
        with server.connect() as session, session.cursor() as cursor:
            cursor.execute("CREATE DATABASE d")
            cursor.execute("CREATE TABLE d.t (id INT PRIMARY KEY)")
        said = _produce(properties(server, kafka_broker, prefix, "d"), tmp_path)

    for name in wrong:
        assert name in said, name
    assert "SET PERSIST binlog_row_metadata" in said


def test_names_that_fall_together(settings: dict[str, str], database: Database, tmp_path: Path) -> None:
    """Two tables whose topics would have one name."""
    database.execute("CREATE TABLE `a!b` (id INT PRIMARY KEY)")
    database.execute("CREATE TABLE `a?b` (id INT PRIMARY KEY)")
    said = _produce(settings, tmp_path)

    assert "a!b" in said
    assert "a?b" in said
