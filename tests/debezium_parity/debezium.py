"""The configuration of Debezium: one connector per variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tests.debezium_parity.connect import CONNECTOR_CLASS, ConnectWorker
from tests.debezium_parity.statements import DATABASE
from tests.debezium_parity.variants import REGISTRY, Variant
from tests.embedded.mysql import MySqlServer

PARTITIONS: Final = 3
"""The number of partitions of a data topic."""


def debezium_prefix(variant: Variant) -> str:
    """Return the topic prefix under which Debezium writes a variant."""
    return f"dbz_{variant.name}"


def source_properties(server: MySqlServer, *, server_id: int) -> dict[str, str]:
    """Return the properties of the source database, which both connectors share."""
    return {
        "database.hostname": server.host,
        "database.port": str(server.port),
        "database.user": server.capture_user,
        "database.password": server.capture_password,
        "database.server.id": str(server_id),
        "database.include.list": DATABASE,
    }


def connector_config(
    server: MySqlServer, variant: Variant, worker: ConnectWorker, *, server_id: int, registry: str = ""
) -> Mapping[str, str]:
    """Return the connector configuration of a variant."""
    prefix = debezium_prefix(variant)
    return {
        "connector.class": CONNECTOR_CLASS,
        "tasks.max": "1",
        "topic.prefix": prefix,
        **source_properties(server, server_id=server_id),
        "database.allowPublicKeyRetrieval": "true",
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": str(worker.directory / f"{prefix}.history"),
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": str(PARTITIONS),
        "poll.interval.ms": "50",
        **filled(variant.debezium, registry),
    }


def filled(properties: Mapping[str, str], registry: str) -> dict[str, str]:
    """Return properties with the schema registry's root URL filled in."""
    return {name: value.replace(REGISTRY, registry) for name, value in properties.items()}


def start_connectors(
    server: MySqlServer, variants: Sequence[Variant], worker: ConnectWorker, *, registry: str = ""
) -> None:
    """Start one connector per variant."""
    for index, variant in enumerate(variants):
        config = connector_config(server, variant, worker, server_id=7000 + index, registry=registry)
        worker.put(debezium_prefix(variant), config)
