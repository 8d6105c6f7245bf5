"""``tailrace status`` of a running producer: a table in error, a process that hangs, one that has ended."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.embedded.supervised import free_port
from tests.support.capture import CaptureProcess, eventually, properties

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database


def shown(config: Path) -> tuple[int, str]:
    """Return the exit code and the output of the command."""
    command = [sys.executable, "-m", "tailrace.producer", "status", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def test_status_of_a_running_producer(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database, tmp_path: Path
) -> None:
    for table in ("well", "dated"):
        database.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, c DATE)")
        database.execute(f"INSERT INTO {table} VALUES (1, NULL), (2, NULL)")
    port = free_port()
    changes = {"tailrace.http.port": port}
    with CaptureProcess(properties(mysql_server, kafka_broker, prefix, database.name, changes), tmp_path) as producer:
        eventually(lambda: shown(producer.config)[0] == 0, "a producer that is well")
        eventually(lambda: "streaming, for" in shown(producer.config)[1], "the end of the snapshot")
        with database.connect() as session, session.cursor() as cursor:
            cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES'")
            cursor.execute("UPDATE dated SET c = '2024-02-31' WHERE id = 1")
        eventually(lambda: shown(producer.config)[0] == 3, "a table in error")
        lines = [" ".join(line.split()) for line in shown(producer.config)[1].splitlines()]
        at = lines.index("TABLE STATE SPLITS ROWS READ RECORDS")
        assert lines[at + 1].startswith(f"{database.name}.dated error 1/1 2 0")
        assert lines[at + 2].startswith("reason: ")
        assert "2024-02-31" not in lines[at + 2]
        assert "first change: file " in lines[at + 2]
        assert lines[at + 4].startswith(f"{database.name}.well streaming 1/1 2 0")
        assert any(line.startswith("until purge ") and line.endswith((" d", " h")) for line in lines)

        producer.signal_group(signal.SIGSTOP)
        code, text = shown(producer.config)
        producer.signal_group(signal.SIGCONT)
        assert code == 69, text
        assert f"producer {prefix} at 127.0.0.1:{port}: does not answer: timed out" in text
        assert producer.stop() == 0
        assert "Connection refused" in shown(producer.config)[1]
