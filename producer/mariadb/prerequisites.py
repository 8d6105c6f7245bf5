"""Prerequisites of a MariaDB server; see ``mysql.prerequisites``, whose other checks count too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tailrace.producer.model.table import TableId
from tailrace.producer.mysql import prerequisites
from tailrace.producer.mysql.connection import account, query
from tailrace.producer.mysql.prerequisites import Check, CheckedSource, Checks, if_granted
from tailrace.producer.mysql.text.server_version import version_number
from tailrace.producer.mysql.xa_commits import sees_commits

_OLDEST: Final = 100_600


def server_is_mariadb(source: CheckedSource) -> Iterator[str]:
    """MariaDB since 10.6."""
    version = source.settings.get("version", "")
    if "mariadb" not in version.lower():
        yield f"the server is {version}, not MariaDB; remove connector.class, or set it to the connector of MySQL"
    elif version_number(version) < _OLDEST:
        yield f"the server is {version}: it is too old; upgrade to MariaDB 10.6 or newer"


def server_is_not_in_a_cluster(source: CheckedSource) -> Iterator[str]:
    """Each member of a Galera cluster has a binlog of its own."""
    if source.settings.get("wsrep_on", "OFF") == "ON":
        yield "wsrep_on is ON: the servers of a Galera cluster are not supported; read from a replica of the cluster"


def binlog_has_complete_rows(source: CheckedSource) -> Iterator[str]:
    """Rows are logged as images, with every column, its name and its sign."""
    own = (
        ("binlog_row_metadata", "FULL", "rows are logged without names, signs and character sets of their columns"),
        ("binlog_alter_two_phase", "OFF", "an ALTER is logged before it takes effect"),
    )
    for name, expected, why in (*prerequisites.COMPLETE_ROWS, *own):
        seen = source.settings.get(name, expected)
        if seen.upper() != expected:
            yield f"{name} is {seen}: {why}; SET GLOBAL {name} = '{expected}', and set it in the option file"


def server_id_is_unique(source: CheckedSource) -> Iterator[str]:
    """The server disconnects a binlog reader when another one connects with the same id."""
    yield from prerequisites.server_id_in_use(source, "SHOW SLAVE HOSTS", "SHOW REPLICA HOSTS")


def account_may_read_positions(source: CheckedSource) -> Iterator[str]:
    """Checked by use; the stream itself says whether REPLICATION SLAVE is missing, which no statement uses."""
    if if_granted(source.session, "SHOW MASTER STATUS", "SHOW BINLOG STATUS") is None:
        name = account(source.session)
        yield (
            f"the account {name} lacks BINLOG MONITOR, to read the position of the binlog; "
            f"GRANT BINLOG MONITOR, REPLICATION SLAVE ON *.* TO {name}"
        )


def replica_logs_applied_changes(source: CheckedSource) -> Iterator[str]:
    """By default the binlog of a replica lacks the changes of its source.

    Without a grant to ask whether the server is a replica, what it has ever applied counts.
    """
    if source.settings.get("log_slave_updates", "ON") == "ON":
        return
    replicas = if_granted(source.session, "SHOW ALL SLAVES STATUS", "SHOW ALL REPLICAS STATUS")
    if replicas is None and query(source.session, "SELECT @@global.gtid_slave_pos")[0][0]:
        name = account(source.session)
        yield (
            "log_slave_updates is OFF, and the server is or was a replica: changes that it applies are not in its "
            f"binlog; start the server with log_slave_updates=ON, or GRANT SLAVE MONITOR ON *.* TO {name}, if it is "
            "none any more"
        )
    if replicas:
        yield (
            "log_slave_updates is OFF on a replica: the changes it applies are not in its binlog; "
            "start the server with log_slave_updates=ON"
        )


def commits_are_seen(source: CheckedSource) -> Iterator[str]:
    """What a SELECT sees is told by InnoDB's list of transactions, which does not have those of other engines."""
    if not sees_commits(source.session):
        name = account(source.session)
        yield f"the account {name} lacks PROCESS, which shows what a snapshot waits for; GRANT PROCESS ON *.* TO {name}"
    if not query(source.session, f"SELECT 1 FROM ({prerequisites.OTHER_ENGINES}) e LIMIT 1"):
        return
    captured = set(source.tables)
    for database, table, engine in query(source.session, _OF_OTHER_ENGINES):
        if TableId(database, table) in captured:
            yield (
                f"table {database}.{table} has the transactional engine {engine}: when its commits become visible is "
                f"not known; exclude it with table.exclude.list, or ALTER TABLE {TableId(database, table).quoted} "
                "ENGINE=InnoDB"
            )


_OF_OTHER_ENGINES: Final = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, ENGINE FROM information_schema.TABLES "
    f"WHERE ENGINE IN ({prerequisites.OTHER_ENGINES})"
)


def binlog_is_durable(source: CheckedSource) -> Iterator[str]:
    """A crash may remove transactions that were sent to binlog readers; their GTIDs are then given to others."""
    for name, why in prerequisites.DURABLE:
        seen = source.settings.get(name, "1")
        if seen != "1":
            yield f"{name} is {seen}: {why}; SET GLOBAL {name} = 1, and set it in the option file"


REQUIRED: Final[tuple[Check, ...]] = (
    server_is_mariadb,
    server_is_not_in_a_cluster,
    prerequisites.binlog_is_written,
    binlog_has_complete_rows,
    server_id_is_unique,
    account_may_read_positions,
    commits_are_seen,
    prerequisites.zone_is_utc,
    replica_logs_applied_changes,
    prerequisites.binlog_has_the_databases,
)
ADVISED: Final[tuple[Check, ...]] = (
    prerequisites.cascades_are_not_logged,
    binlog_is_durable,
)
MARIADB: Final = Checks((*prerequisites.SETTINGS, "binlog_alter_two_phase", "wsrep_on"), REQUIRED, ADVISED)
