"""``tailrace debug codec`` against a real server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.embedded.kafka import KafkaBroker
from tests.support.capture import properties
from tests.support.database import Database
from tests.unit.test_codegen import documented_example


def test_documented_example_is_printed(
    database: Database, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """For the CREATE TABLE of the page; a table that does not exist is an error without output."""
    database.execute(
        "CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(40) CHARACTER SET utf8mb4, added DATE NOT NULL)"
    )
    config = tmp_path / "producer.json"
    config.write_text(json.dumps(properties(database.server, kafka_broker, prefix, database.name)))

    def run(table: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-m",
            "tailrace.producer",
            "debug",
            "codec",
            "--table",
            table,
            "--config",
            str(config),
        ]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    printed = run(f"{database.name}.items")
    missing = run(f"{database.name}.nothing")
    malformed = run("items")

    assert printed.stdout == documented_example(), printed.stderr
    assert (printed.returncode, missing.returncode, malformed.returncode) == (0, 1, 1)
    assert (missing.stdout, malformed.stdout) == ("", "")
    assert "does not exist" in missing.stderr
    assert "'items' is not of the form db.table" in malformed.stderr
