"""``tailrace init``: asks five questions and writes a pipeline file."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import typer
import yaml

from tailrace.runtime.config.files import PIPELINE_SUFFIXES
from tailrace.runtime.errors import ConfigError


def write_pipeline(file: Path) -> None:
    """Raises ConfigError if the file exists or has another suffix."""
    if file.suffix not in PIPELINE_SUFFIXES or file.exists():
        raise ConfigError([f"{file}: name a file that does not exist and ends with .yaml or .yml"])
    host, _, port = typer.prompt("MySQL server, as host:port", "127.0.0.1:3306").partition(":")
    source = {
        "type": "mysql",
        "database.hostname": host,
        "database.port": port or "3306",
        "database.user": typer.prompt("MySQL user"),
        "database.password": "${env:DATABASE_PASSWORD}",
        "database.server.id": str(random.randint(10_000, 2**31)),
        "tables": typer.prompt(r"Tables, as regular expressions such as shop\..*"),
    }
    brokers = typer.prompt("Kafka brokers, as host:port", "127.0.0.1:9092")
    folder = typer.prompt("Directory or URI for tables and checkpoint", str(file.with_suffix("").absolute()))
    pipeline = {
        "source": source,
        "sink": {"type": "delta", "sink.path": f"{folder}/tables"},
        "consumer": {"checkpointLocation": f"{folder}/checkpoint"},
        "pipeline": {"topic.prefix": file.stem, "bootstrap.servers": brokers},
    }
    file.write_text(yaml.safe_dump(pipeline, sort_keys=False), encoding="utf-8")
    sys.stdout.write(f"{file} is written. Set DATABASE_PASSWORD, then: tailrace run {file}\n")
