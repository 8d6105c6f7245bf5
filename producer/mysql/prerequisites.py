"""Prerequisites of a MySQL server, checked before a record is written: one function per check, all problems at once.

A problem names the setting, its value, and the statement that corrects it. A note is a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pymysql.constants import ER

from tailrace.producer.errors import PrerequisiteError, SourceError
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.connection import account, excluded_databases, query
from tailrace.producer.mysql.text.server_version import version_number
from tailrace.producer.mysql.xa_commits import commits_early, sees_commits

if TYPE_CHECKING:
    from pymysql.connections import Connection

SETTINGS: Final = (
    "log_bin",
    "binlog_format",
    "binlog_row_image",
    "binlog_row_metadata",
    "binlog_row_value_options",
    "enforce_gtid_consistency",
    "gtid_mode",
    "innodb_flush_log_at_trx_commit",
    "innodb_native_foreign_keys",
    "log_slave_updates",
    "log_replica_updates",
    "server_id",
    "sync_binlog",
    "version",
)


@dataclass(frozen=True, slots=True)
class CheckedSource:
    """The input of the checks."""

    session: Connection[Any]
    tables: Sequence[TableId]
    server_id: int
    """The id of the binlog reader."""
    settings: dict[str, str]
    """Global variables of the server, as far as it has those that are asked for."""


def check(
    connection: Connection[Any], tables: Sequence[TableId], *, server_id: int, checks: Checks | None = None
) -> tuple[str, ...]:
    """Run every check; return the notes. Raises PrerequisiteError with all problems.

    ``checks`` replaces those of MySQL; another member of the family passes its own.
    """
    settings, required, advised = checks or MYSQL
    names = ", ".join(f"'{name}'" for name in settings)
    rows = query(connection, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
    source = CheckedSource(connection, tables, server_id, {str(name): str(value) for name, value in rows})
    right_server, *others = required
    # Another server may not know what the others ask.
    problems = list(right_server(source)) or [problem for rule in others for problem in rule(source)]
    if problems:
        raise PrerequisiteError(problems)
    return tuple(note for rule in advised for note in rule(source))


def server_is_supported(source: CheckedSource) -> Iterator[str]:
    """MySQL since 5.7.20, not MariaDB: sessions of older servers have no transaction_isolation."""
    version = source.settings.get("version", "")
    for name, why in _NO_BINLOG.items():
        if name.lower() in version.lower():
            yield f"the server is {version}: {why}"
            return
    if "mariadb" in version.lower():
        yield f"the server is {version}: it is not MySQL; set connector.class=mariadb"
        return
    number = version_number(version)
    if number < _OLDEST or _EIGHT <= number < _FIRST_EIGHT:
        yield f"the server is MySQL {version}, which is too old; upgrade to 8.0.14 or newer, or to 5.7.20 or newer"


_OLDEST: Final = 50_720
_EIGHT: Final = 80_000
_FIRST_EIGHT: Final = 80_001


def _is_57(source: CheckedSource) -> bool:
    return version_number(source.settings.get("version", "")) < _EIGHT


def _set(source: CheckedSource, setting: str) -> str:
    """Return what sets a global variable for good."""
    return f"SET GLOBAL {setting}, and set it in the option file" if _is_57(source) else f"SET PERSIST {setting}"


_NO_BINLOG: Final = {
    "TiDB": "TiDB has no binlog of MySQL; its TiCDC writes Debezium events",
    "Vitess": "the proxy of Vitess sends no binlog; set database.hostname to the MySQL server of each shard",
}
"""What speaks the protocol only, and why it cannot be captured."""


def binlog_is_written(source: CheckedSource) -> Iterator[str]:
    """The binlog is on."""
    if source.settings.get("log_bin") != "ON":
        yield "log_bin is OFF: there is no binlog; start the server with log_bin=binlog and server_id=1"


COMPLETE_ROWS: Final = (
    ("binlog_format", "ROW", "changes are logged as statements"),
    ("binlog_row_image", "FULL", "rows are logged without some of their columns"),
)
"""Settings, what they must be, and why."""


def binlog_has_complete_rows(source: CheckedSource) -> Iterator[str]:
    """Rows are logged as images, with every column."""
    for name, expected, why in COMPLETE_ROWS:
        seen = source.settings.get(name, expected)
        if seen.upper() != expected:
            value = f"{name} = '{expected}'"
            yield f"{name} is {seen}: {why}; {_set(source, value)}"
    options = source.settings.get("binlog_row_value_options", "")
    if options:
        yield (
            f"binlog_row_value_options is {options}: JSON values are logged in parts; "
            "SET PERSIST binlog_row_value_options = ''"
        )


def transactions_are_seen(source: CheckedSource) -> Iterator[str]:
    """What a SELECT sees is told by GTIDs, or by InnoDB's list of transactions (``engine_commits.py``)."""
    if _has_gtids(source):
        consistency = source.settings.get("enforce_gtid_consistency", "OFF")
        if consistency != "ON":
            yield f"enforce_gtid_consistency is {consistency}; {_set(source, 'enforce_gtid_consistency = ON')}"
        return
    mode = source.settings.get("gtid_mode", "OFF")
    switch_on = f"{_set(source, 'gtid_mode = ON')} (step by step: OFF_PERMISSIVE, ON_PERMISSIVE, ON)"
    if not sees_commits(source.session):
        name = account(source.session)
        yield (
            f"gtid_mode is {mode}, and the account {name} lacks PROCESS, which then shows what a snapshot waits for; "
            f"{switch_on}, or GRANT PROCESS ON *.* TO {name}"
        )
    for (engine,) in query(source.session, OTHER_ENGINES):
        yield (
            f"gtid_mode is {mode}, and the server has the transactional engine {engine}: when its commits become "
            f"visible is known by GTIDs only; {switch_on}, or start the server without the engine"
        )


def _has_gtids(source: CheckedSource) -> bool:
    return source.settings.get("gtid_mode", "OFF") == "ON"


OTHER_ENGINES: Final = (
    "SELECT ENGINE FROM information_schema.ENGINES WHERE TRANSACTIONS = 'YES' AND SUPPORT IN ('YES', 'DEFAULT') "
    # That of MariaDB's sequences has no stored rows.
    "AND ENGINE NOT IN ('InnoDB', 'SEQUENCE')"
)


def server_id_is_unique(source: CheckedSource) -> Iterator[str]:
    """The server disconnects a binlog reader when another one connects with the same id."""
    if int(source.settings.get("server_id", "0")) == 0:
        yield f"server_id of the server is 0: it sends its binlog to nobody; {_set(source, 'server_id = 1')}"
    yield from server_id_in_use(source, "SHOW SLAVE HOSTS", "SHOW REPLICAS")


def server_id_in_use(source: CheckedSource, old: str, new: str) -> Iterator[str]:
    """Compare the id with that of the server, and those of its replicas, which a statement of either name returns."""
    own = int(source.settings.get("server_id", "0"))
    if own == source.server_id:
        yield f"database.server.id is {own}, which is the server's own server_id; choose another number"
    replicas = if_granted(source.session, old, new)
    if any(int(row[0]) == source.server_id for row in replicas or ()):
        yield f"database.server.id is {source.server_id}, which a connected replica uses; choose another number"


def account_may_read(source: CheckedSource) -> Iterator[str]:
    """Grants, checked by using them: so roles, proxies and partial revokes count as in the server."""
    name = account(source.session)
    for statements, grant, purpose in (
        (("SHOW MASTER STATUS", "SHOW BINARY LOG STATUS"), "REPLICATION CLIENT", "to read the position of the binlog"),
        (("SHOW SLAVE HOSTS", "SHOW REPLICAS"), "REPLICATION SLAVE", "to read the binlog"),
    ):
        if if_granted(source.session, *statements) is None:
            yield f"the account {name} lacks {grant}, {purpose}; GRANT {grant} ON *.* TO {name}"


def zone_is_utc(source: CheckedSource) -> Iterator[str]:
    """TIMESTAMP columns are read in the time zone of the session and logged in UTC."""
    seen = query(source.session, "SELECT @@session.time_zone")[0][0]
    if seen != "+00:00":
        yield f"the time_zone of the session is {seen}, not +00:00; allow the account to set it"


def replica_logs_applied_changes(source: CheckedSource) -> Iterator[str]:
    """By default the binlog of a replica lacks the changes of its source."""
    logs = source.settings.get("log_replica_updates", source.settings.get("log_slave_updates", "ON"))
    if logs == "ON":
        return
    if _replicates(source):
        yield (
            "log_replica_updates is OFF on a replica: the changes it applies are not in its binlog; "
            "start the server with log_replica_updates=ON"
        )


def statements_are_logged(source: CheckedSource) -> Iterator[str]:
    """Without full metadata each statement that changes a table must be in the binlog.

    binlog_do_db and binlog_ignore_db judge a statement by the database in use, and rows by their own.
    """
    metadata = source.settings.get("binlog_row_metadata", _NO_METADATA)
    options = excluded_databases(if_granted(source.session, "SHOW MASTER STATUS", "SHOW BINARY LOG STATUS") or ())
    if metadata.upper() != "FULL" and options:
        fix = "start the server without these options"
        if not _is_57(source):
            fix = "SET PERSIST binlog_row_metadata = 'FULL'"
        yield (
            f"binlog_row_metadata is {metadata}, and the binlog lacks statements that are run with another database in "
            f"use ({options}), so the names of columns are not known; {fix}"
        )


def binlog_has_the_databases(source: CheckedSource) -> Iterator[str]:
    """binlog_do_db and binlog_ignore_db exclude changes from the binlog."""
    rows = if_granted(source.session, "SHOW MASTER STATUS", "SHOW BINARY LOG STATUS")
    if not rows:
        return
    logged, ignored = ({name for name in str(names or "").split(",") if name} for names in rows[0][2:4])
    for database in sorted({table.database for table in source.tables}):
        if (logged and database not in logged) or database in ignored:
            options = f"binlog_do_db: {','.join(sorted(logged))}, binlog_ignore_db: {','.join(sorted(ignored))}"
            yield f"changes of database {database} are not logged ({options}); start the server without these options"


def cascades_are_not_logged(source: CheckedSource) -> Iterator[str]:
    """The engine does not log rows that it changes by CASCADE and SET NULL; since MySQL 9.6 the server changes them.

    A replica applies what its source has logged, and adds nothing.
    """
    if source.settings.get("innodb_native_foreign_keys", "ON") == "OFF" and not _replicates(source):
        return
    captured = set(source.tables)
    rows = query(
        source.session,
        "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, CONSTRAINT_NAME, UPDATE_RULE, DELETE_RULE "
        "FROM information_schema.REFERENTIAL_CONSTRAINTS",
    )
    for database, table, name, on_update, on_delete in rows:
        rules = {on_update, on_delete} & {"CASCADE", "SET NULL"}
        if rules and TableId(database, table) in captured:
            yield (
                f"foreign key {name} of {database}.{table} has {' and '.join(sorted(rules))}: "
                "the server does not log the rows that it changes this way"
            )


DURABLE: Final = (
    ("sync_binlog", "a crash of the host can remove transactions from the binlog that were read already"),
    ("innodb_flush_log_at_trx_commit", "a crash of the host can undo transactions that were read already"),
)
"""Settings that must be 1, and why."""


def binlog_is_durable(source: CheckedSource) -> Iterator[str]:
    """A crash may remove transactions that were sent to binlog readers; their GTIDs are then given to others."""
    for name, why in DURABLE:
        seen = source.settings.get(name, "1")
        if seen != "1":
            yield f"{name} is {seen}: {why}; {_set(source, f'{name} = 1')}"


def xa_commits_are_seen(source: CheckedSource) -> Iterator[str]:
    """A snapshot waits for the XA commits that an older server counts as executed before their rows are visible."""
    version = source.settings.get("version", "")
    if commits_early(version) and not sees_commits(source.session):
        name = account(source.session)
        yield (
            f"the account {name} lacks PROCESS, which MySQL {version} needs to show when the rows of XA "
            "transactions become visible: no snapshot is taken once such transactions are used; "
            f"GRANT PROCESS ON *.* TO {name}"
        )


def positions_have_gtids(source: CheckedSource) -> Iterator[str]:
    """A position is of one server; only GTIDs are the same on another one."""
    if not _has_gtids(source):
        yield (
            f"gtid_mode is {source.settings.get('gtid_mode', 'OFF')}: the offset is file and position in the binlog of "
            "this server, and the capture cannot go on on another one; a snapshot waits for InnoDB's transactions "
            "(innodb_trx) instead of gtid_executed"
        )


def definitions_are_proven(source: CheckedSource) -> Iterator[str]:
    """Without full metadata the log has no names, labels and keys."""
    seen = source.settings.get("binlog_row_metadata", _NO_METADATA)
    if seen.upper() != "FULL":
        avoid = "MySQL 8.0 can avoid it" if _is_57(source) else "SET PERSIST binlog_row_metadata = 'FULL' avoids it"
        yield (
            f"binlog_row_metadata is {seen}: the names of columns come from the catalog; a table that is altered again "
            f"before its rows are read is read as a whole; {avoid}"
        )


_NO_METADATA: Final = "not known to the server"

Check = Callable[[CheckedSource], Iterator[str]]

REQUIRED: Final[tuple[Check, ...]] = (
    server_is_supported,
    binlog_is_written,
    binlog_has_complete_rows,
    transactions_are_seen,
    server_id_is_unique,
    account_may_read,
    zone_is_utc,
    replica_logs_applied_changes,
    binlog_has_the_databases,
    statements_are_logged,
)
ADVISED: Final[tuple[Check, ...]] = (
    cascades_are_not_logged,
    binlog_is_durable,
    xa_commits_are_seen,
    positions_have_gtids,
    definitions_are_proven,
)


def _replicates(source: CheckedSource) -> bool:
    """Return whether the server is a replica, as far as the account may know."""
    return bool(if_granted(source.session, "SHOW SLAVE STATUS", "SHOW REPLICA STATUS"))


class Checks(NamedTuple):
    """The checks of one kind of server."""

    settings: Sequence[str]
    """The global variables that they look at."""
    required: Sequence[Check]
    """The first one says whether it is a server of this kind."""
    advised: Sequence[Check]
    """They yield notes."""


MYSQL: Final = Checks(SETTINGS, REQUIRED, ADVISED)


def if_granted(session: Connection[Any], old: str, new: str) -> list[tuple[Any, ...]] | None:
    """Run a statement by one of its names; None if the account may not."""
    try:
        return _either(session, old, new)
    except SourceError as error:
        if error.context.get("code") != ER.SPECIFIC_ACCESS_DENIED_ERROR:
            raise
        return None


def _either(session: Connection[Any], old: str, new: str) -> list[tuple[Any, ...]]:
    """Run a statement by its name up to 8.0, or by its name in newer servers."""
    try:
        return query(session, old)
    except SourceError as error:
        if error.context.get("code") != ER.PARSE_ERROR:
            raise
        return query(session, new)
