"""What only the oracle fetches: Kafka Connect beyond the broker's own jars, and the Debezium MySQL connector."""

from __future__ import annotations

import os
import tarfile
import tomllib
from pathlib import Path
from typing import Final

from tests.embedded import artifacts
from tests.embedded.artifacts import Artifact, unpack_once
from tests.embedded.kafka import classpath

LIST: Final = Path(__file__).with_name("artifacts.toml")


def fetch(section: str) -> list[Path]:
    """Return the files of one section of this folder's list, transferring those that the cache lacks."""
    return artifacts.fetch(section, listing=LIST)


def connect_classpath() -> str:
    """Return the Java class path of a Connect worker, an Avro converter on it."""
    return os.pathsep.join([*map(str, fetch("connect")), classpath("kafka"), *map(str, fetch("converter"))])


def debezium_version() -> str:
    """Return the version of the connector that is pinned, as its records say it."""
    [text] = tomllib.loads(LIST.read_text(encoding="utf-8"))["debezium"]
    return Artifact.parse(text).version


def plugin_path() -> Path:
    """Return the folder of connector plug-ins, unpacked into the cache the first time."""

    def unpack(folder: Path) -> None:
        [package] = fetch("debezium")
        with tarfile.open(package, mode="r:gz") as archive:
            archive.extractall(folder, filter="data")

    return unpack_once(f"debezium-{debezium_version()}", unpack)
