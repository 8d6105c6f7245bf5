"""Two servers of one cluster: the second one replicates from the first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tests.embedded.mysql import MySqlServer
from tests.support.capture import eventually

REPLICA_SETTINGS = {
    "server_id": 2,
    # The replica cuts the same rows into other events.
    "binlog_row_event_max_size": 1024,
    "slave_net_timeout": 5,
}


class Cluster(NamedTuple):
    """A primary and its replica."""

    primary: MySqlServer
    replica: MySqlServer

    def wait_replicated(self) -> None:
        """Wait until the replica has executed all that the primary has."""
        [(executed,)] = run(self.primary, "SELECT @@global.gtid_executed")
        [(answer,)] = run(self.replica, f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{executed}', 120)")
        assert answer == 0, "the replica does not follow"

    def wait_received(self) -> None:
        """Wait until the replica has received all that the primary has executed; it need not have applied it."""
        [(executed,)] = run(self.primary, "SELECT @@global.gtid_executed")
        eventually(lambda: self._received(executed), "the replica's relay log")

    def _received(self, executed: str) -> bool:
        [(received,)] = run(
            self.replica, "SELECT RECEIVED_TRANSACTION_SET FROM performance_schema.replication_connection_status"
        )
        [(has_all,)] = run(self.replica, f"SELECT GTID_SUBSET('{executed}', '{received}')")
        return bool(has_all)


def run(server: MySqlServer, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements as root; return the rows of the last one."""
    rows: list[tuple[Any, ...]] = []
    with server.connect() as session, session.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
            rows = list(cursor.fetchall())
    return rows


@contextmanager
def replicating_servers(server: type[MySqlServer] = MySqlServer) -> Iterator[Cluster]:
    """Start two servers, the second one as a replica that takes over every change into its own binlog."""
    with server() as primary, server(settings=REPLICA_SETTINGS) as replica:
        follow(replica, primary)
        yield Cluster(primary, replica)


def follow(replica: MySqlServer, primary: MySqlServer) -> None:
    """Let a server replicate from another one, from where its own transactions end."""
    has_public_keys = not primary.version.startswith("5.7.")
    run(
        replica,
        f"CHANGE MASTER TO MASTER_HOST='{primary.host}', MASTER_PORT={primary.port}, "
        f"MASTER_USER='{primary.user}', MASTER_PASSWORD='{primary.password}', MASTER_AUTO_POSITION=1, "
        f"{'GET_MASTER_PUBLIC_KEY=1, ' if has_public_keys else ''}MASTER_CONNECT_RETRY=1",
        "START SLAVE",
    )
