"""``tailrace check``: the source, Kafka and the schema registry, each although another one is at fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from tailrace.producer.kafka.client import KafkaSettings
from tailrace.runtime.cli import build
from tests.embedded.registry import SchemaRegistry
from tests.embedded.supervised import free_port
from tests.support.capture import properties

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database


@pytest.fixture
def settings(mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database) -> dict[str, str]:
    """A configuration that is right."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    return properties(mysql_server, kafka_broker, prefix, database.name)


def checked(settings: dict[str, str], folder: Path, **changes: str) -> tuple[int, str]:
    """Return the exit code and the output of the command."""
    config = folder / "shop.json"
    config.write_text(json.dumps(settings | {name.replace("__", "."): text for name, text in changes.items()}))
    result = CliRunner().invoke(build(), ["check", "--config", str(config)])
    return result.exit_code, result.output


def test_every_server_is_checked(
    settings: dict[str, str], database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, text = checked(settings, tmp_path)
    assert code == 0, text
    assert "ready to capture 1 table(s)" in text

    monkeypatch.setattr(KafkaSettings, "request_timeout_s", 3.0)
    nowhere = f"127.0.0.1:{free_port()}"
    code, text = checked(settings, tmp_path, bootstrap__servers=nowhere)
    assert code == 75
    assert nowhere in text
    assert "bootstrap.servers" in text
    assert "ready to capture" not in text

    code, text = checked(settings, tmp_path, bootstrap__servers=nowhere, database__port=nowhere.partition(":")[2])
    assert code == 75
    assert sum(line.startswith("error: ") for line in text.splitlines()) == 2
    assert "database.hostname" in text

    database.execute("CREATE TABLE keyless (a INT)")
    signals = {"signal.enabled.channels": "kafka", "signal.kafka.bootstrap.servers": nowhere}
    code, text = checked(settings | signals, tmp_path)
    assert code == 78
    assert nowhere in text
    assert f"{database.name}.keyless" in text


def test_the_schema_registry_is_checked(settings: dict[str, str], tmp_path: Path) -> None:
    avro = {
        f"{side}.converter{name}": text
        for side in ("key", "value")
        for name, text in (("", "io.confluent.connect.avro.AvroConverter"), (".schema.registry.url", "{url}"))
    }

    def answers(url: str) -> tuple[int, str]:
        return checked(settings | {name: text.format(url=url) for name, text in avro.items()}, tmp_path)

    with SchemaRegistry() as registry:
        assert answers(registry.url)[0] == 0
        code, text = answers(f"http://{registry.host}:{registry.port}")
        assert code == 1
        assert "what answers is no schema registry" in text
    code, text = answers(registry.url)
    assert code == 75
    assert text.count("the schema registry did not respond") == 1
