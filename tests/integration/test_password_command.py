"""A capture whose password changes while it runs."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from tests.support.capture import CaptureThread, eventually, properties, records_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database


@pytest.mark.long
def test_each_connection_asks_for_the_password(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database, tmp_path: Path
) -> None:
    """Snapshot readers and the next session connect with the password of that moment."""
    user, token = f"u{uuid.uuid4().hex[:8]}", tmp_path / "token"

    def rotate(number: int) -> None:
        database.execute(f"ALTER USER {user} IDENTIFIED WITH mysql_native_password BY 'token-{number}'")
        token.write_text(f"token-{number}\n")

    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    database.execute("INSERT INTO t VALUES (1)")
    database.execute(f"CREATE USER {user}")
    database.execute(f"GRANT SELECT, REPLICATION CLIENT, REPLICATION SLAVE, PROCESS ON *.* TO {user}")
    try:
        rotate(1)
        changes = {"database.user": user, "database.password.command": f"cat {token}"}
        settings = properties(mysql_server, kafka_broker, prefix, database.name, changes)
        del settings["database.password"]
        with CaptureThread(settings) as capture:
            capture.wait_snapshot()
            rotate(2)
            database.kill_sessions("user = %s", (user,))
            database.execute("INSERT INTO t VALUES (2)")
            eventually(lambda: capture.status.snapshot()["stream"]["disconnects"] == 1, "the connection is lost")
            capture.wait_position(mysql_server)
        written = [r.json["after"]["id"] for r in records_of(kafka_broker.bootstrap, prefix, database.name, "t")]
        assert written == [1, 2]
    finally:
        database.execute(f"DROP USER {user}")
