"""``tailrace snapshot``, ``pause`` and ``resume`` on a running producer: what it makes of their signals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from typer.testing import CliRunner

from tailrace.runtime.cli import build
from tests.embedded.supervised import free_port
from tests.support.capture import CaptureProcess, eventually
from tests.support.incremental_checks import incremental_rows
from tests.support.incremental_window import fill, settings_of

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database


class Commands:
    """The command line with the configuration of a producer."""

    def __init__(self, config: Path) -> None:
        self._config = config

    def run(self, *arguments: str) -> tuple[int, str]:
        """Return the exit code and the output of a command."""
        result = CliRunner().invoke(build(), [*arguments, "--config", str(self._config)])
        return result.exit_code, result.output

    def is_well(self) -> bool:
        """Whether the producer streams, and has no table in error."""
        code, text = self.run("status")
        return code == 0 and ": streaming, for" in text


def test_signals_by_commands(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database, tmp_path: Path
) -> None:
    fill(database, "t")
    table = f"{database.name}.t"
    settings = settings_of(mysql_server, kafka_broker, prefix, database) | {"tailrace.http.port": str(free_port())}
    with CaptureProcess(settings, tmp_path) as producer:
        commands = Commands(producer.config)
        eventually(commands.is_well, "the end of the snapshot")

        code, text = commands.run("pause")
        assert code == 1
        assert "the producer has not applied the signal: nothing to pause: no snapshot is running" in text
        assert "hint: remove the reason, and run the command again" in text
        code, text = commands.run("snapshot", table, "--where", "v = 'secret' AND SLEEP(9)")
        assert code == 1
        assert "the filter is not a predicate: the function SLEEP is not allowed" in text
        assert "secret" not in json.dumps(json.loads(commands.run("status", "--json")[1])["producer"]["status"])

        code, text = commands.run("snapshot", table, "--where", "id <= 50")
        assert (code, text.splitlines()[-1]) == (0, "applied"), text
        assert text.startswith(f"sent execute-snapshot to {prefix}-signal at offset 2, id tailrace-")
        eventually(lambda: len(incremental_rows(kafka_broker, prefix, database.name)) == 50, "the rows of the filter")
        eventually(lambda: "incremental pending" not in commands.run("status")[1], "the end of the snapshot")

        with database.connect() as session, session.cursor() as cursor:
            cursor.execute("LOCK TABLES t WRITE")
            code, text = commands.run("snapshot", table, f"{database.name}.gone")
            assert code == 0, text
            assert f"applied, except: no captured table matches {database.name}\\.gone" in text
            assert commands.run("pause")[0] == 0
            assert "1 incremental pending, paused" in commands.run("status")[1]
            cursor.execute("UNLOCK TABLES")
        assert commands.run("resume")[0] == 0
        eventually(lambda: len(incremental_rows(kafka_broker, prefix, database.name)) == 250, "all rows")

        producer.stop()
        code, text = commands.run("snapshot", table)
        assert "does not answer" in text
        assert "sent " not in text
        code, text = commands.run("snapshot", table, "--no-wait")
        assert code == 0, text
        producer.start()
        eventually(lambda: len(incremental_rows(kafka_broker, prefix, database.name)) == 450, "the rows once more")
