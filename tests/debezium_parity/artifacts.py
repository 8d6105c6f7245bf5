"""The additional files of the comparison: Kafka Connect and the Debezium MySQL connector."""

from __future__ import annotations

import os
import tarfile
import tomllib
from pathlib import Path
from typing import Final

from tailrace.spark_consumer.jars import Artifact
from tests.embedded import artifacts
from tests.embedded.artifacts import unpack_once
from tests.embedded.kafka import classpath

LIST: Final = Path(__file__).with_name("artifacts.toml")


def fetch(section: str) -> list[Path]:
    """Return the files of a section of ``artifacts.toml``; download those that are not in the cache."""
    return artifacts.fetch(section, listing=LIST)


def connect_classpath() -> str:
    """Return the Java class path of a Connect worker with an Avro converter."""
    return os.pathsep.join([*map(str, fetch("connect")), classpath("kafka"), *map(str, fetch("converter"))])


def debezium_version() -> str:
    """Return the pinned version of the connector."""
    [text] = tomllib.loads(LIST.read_text(encoding="utf-8"))["debezium"]
    return Artifact.parse(text).version


def plugin_path() -> Path:
    """Return the folder of connector plug-ins; unpack them into the cache on first use."""

    def unpack(folder: Path) -> None:
        [package] = fetch("debezium")
        with tarfile.open(package, mode="r:gz") as archive:
            archive.extractall(folder, filter="data")

    return unpack_once(f"debezium-{debezium_version()}", unpack)
