"""Runs ``tailrace produce`` as a user does: one process with a configuration file per variant."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.debezium_parity.debezium import PARTITIONS, filled, source_properties
from tests.debezium_parity.variants import Variant
from tests.embedded import supervised
from tests.embedded.java import EmbeddedServerError
from tests.embedded.kafka import KafkaBroker
from tests.embedded.mysql import MySqlServer

TAILRACE: Final = Path(sys.executable).with_name("tailrace")


def tailrace_prefix(variant: Variant) -> str:
    """Return the topic prefix under which Tailrace writes a variant."""
    return f"tlr_{variant.name}"


def producer_config(
    server: MySqlServer, broker: KafkaBroker, variant: Variant, *, server_id: int, registry: str = ""
) -> Mapping[str, str]:
    """Return the configuration of a variant's producer."""
    return {
        "topic.prefix": tailrace_prefix(variant),
        **source_properties(server, server_id=server_id),
        "bootstrap.servers": broker.bootstrap,
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": str(PARTITIONS),
        "include.schema.changes": "true",
        "tailrace.log.format": "json",
        "tailrace.tables.without.key": "full-row",
        "event.converting.failure.handling.mode": "warn",
        **filled(variant.tailrace, registry),
    }


class Producer:
    """A running ``tailrace produce``."""

    def __init__(self, config: Mapping[str, str], folder: Path) -> None:
        name = config["topic.prefix"]
        path = folder / f"{name}.json"
        path.write_text(json.dumps(dict(config)), encoding="utf-8")
        self.log_file = folder / f"{name}.log"
        with self.log_file.open("wb") as log:
            command: list[str | Path] = [TAILRACE, "produce", "--config", path]
            self._process: subprocess.Popen[bytes] = supervised.spawn(command, output=log, cwd=folder)

    def check(self) -> None:
        """Raise an error if the producer has ended."""
        if self._process.poll() is not None:
            log = self.log_file.read_text(encoding="utf-8", errors="replace")
            raise EmbeddedServerError("the producer ended", hint="read its log", log=log[-3000:])

    def snapshot_completed(self) -> bool:
        """Return whether the snapshot is complete."""
        return b'"all splits of the initial snapshot are read"' in self.log_file.read_bytes()

    def stop(self) -> None:
        """Stop the producer gracefully."""
        supervised.end(self._process, grace_s=20)
