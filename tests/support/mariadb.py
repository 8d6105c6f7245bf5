"""A MariaDB source under test: its configuration, and what its capture has done."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tests.support.capture import CaptureThread, eventually, properties
from tests.support.database import Database

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mariadb import MariaDbServer
    from tests.embedded.mysql import MySqlServer


def family(server: MariaDbServer) -> MySqlServer:
    """Return a server as one of the family: only what both have is used."""
    return cast("MySqlServer", server)


def source_settings(server: MariaDbServer, broker: KafkaBroker, prefix: str, database: str) -> dict[str, str]:
    """Return the properties of a capture."""
    changes = {"connector.class": "io.debezium.connector.mariadb.MariaDbConnector"}
    return properties(family(server), broker, prefix, database, changes)


def wait_position(capture: CaptureThread, database: Database) -> None:
    """Wait until everything that the server has committed so far is committed in Kafka."""
    [(text,)] = database.execute("SELECT @@global.gtid_binlog_pos")
    wanted = set(text.split(","))
    eventually(
        lambda: wanted <= set((capture.status.snapshot()["stream"]["gtids"] or "").split(",")), f"binlog up to {text}"
    )


def modes(capture: CaptureThread) -> dict[str, str]:
    """Return the mode of each table by its name."""
    tables = capture.status.snapshot()["tables"]
    return {name.rpartition(".")[2]: str(table["mode"]) for name, table in sorted(tables.items())}
