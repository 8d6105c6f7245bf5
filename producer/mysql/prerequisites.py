"""Prerequisites: everything the source must have before a record is written, one function per matter, all told at once.

A fault says what is wrong, the value seen, and the statement that mends it. What only deserves a warning is a note.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pymysql.constants import ER

from tailrace.producer.errors import PrerequisiteError, SourceError
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.collation import CHARSETS, canonical
from tailrace.producer.mysql.connection import query

if TYPE_CHECKING:
    from pymysql.connections import Connection

_SETTINGS: Final = (
    "log_bin",
    "binlog_format",
    "binlog_row_image",
    "binlog_row_metadata",
    "binlog_row_value_options",
    "binlog_transaction_compression",
    "enforce_gtid_consistency",
    "gtid_mode",
    "log_slave_updates",
    "log_replica_updates",
    "server_id",
    "version",
)


@dataclass(frozen=True, slots=True)
class CheckedSource:
    """What the checks look at."""

    session: Connection[Any]
    tables: Sequence[TableId]
    server_id: int
    """Ours, as a reader of the log."""
    settings: dict[str, str]
    """The server's global variables, those of ``_SETTINGS`` that it has."""

    @property
    def account(self) -> str:
        """The account of the session as SQL."""
        user, _, host = str(query(self.session, "SELECT CURRENT_USER()")[0][0]).rpartition("@")
        return f"'{user}'@'{host}'"


def check(connection: Connection[Any], tables: Sequence[TableId], *, server_id: int) -> tuple[str, ...]:
    """Run every check; return the notes. Raises PrerequisiteError with all faults where there is any."""
    names = ", ".join(f"'{name}'" for name in _SETTINGS)
    rows = query(connection, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
    source = CheckedSource(connection, tables, server_id, {str(name): str(value) for name, value in rows})
    faults = [fault for one in FAULTS for fault in one(source)]
    if faults:
        raise PrerequisiteError(faults)
    return tuple(note for one in NOTES for note in one(source))


def server_is_known(source: CheckedSource) -> Iterator[str]:
    """MySQL from 8.0.1 on: older servers and MariaDB do not log what rows need to be read."""
    version = source.settings.get("version", "")
    if "mariadb" in version.lower():
        yield f"the server is {version}: MariaDB's log is not supported; use MySQL 8.0 or newer"
        return
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    if numbers < (8, 0, 1):
        yield f"the server is MySQL {version}, which cannot log column names and signs; upgrade to 8.0.14 or newer"


def log_is_written(source: CheckedSource) -> Iterator[str]:
    """The binary log itself."""
    if source.settings.get("log_bin") != "ON":
        yield "log_bin is OFF: there is no binary log; start the server with log_bin=binlog and server_id=1"


def log_has_whole_rows(source: CheckedSource) -> Iterator[str]:
    """Rows as images, with every column, its name and its sign."""
    for name, wanted, why in (
        ("binlog_format", "ROW", "changes are logged as statements"),
        ("binlog_row_image", "FULL", "rows are logged without some of their columns"),
        ("binlog_row_metadata", "FULL", "rows are logged without names, signs and character sets of their columns"),
    ):
        seen = source.settings.get(name)
        if seen is not None and seen.upper() != wanted:
            yield f"{name} is {seen}: {why}; SET PERSIST {name} = '{wanted}'"
    options = source.settings.get("binlog_row_value_options", "")
    if options:
        yield (
            f"binlog_row_value_options is {options}: JSON values are logged in parts; "
            "SET PERSIST binlog_row_value_options = ''"
        )


def transactions_have_gtids(source: CheckedSource) -> Iterator[str]:
    """GTIDs: what has been seen is a set of them, and they tell what a SELECT can see."""
    mode = source.settings.get("gtid_mode", "OFF")
    consistency = source.settings.get("enforce_gtid_consistency", "OFF")
    if consistency != "ON":
        yield f"enforce_gtid_consistency is {consistency}; SET PERSIST enforce_gtid_consistency = ON"
    if mode != "ON":
        yield (
            f"gtid_mode is {mode}: transactions have no GTIDs; SET PERSIST gtid_mode = ON "
            "(step by step: OFF_PERMISSIVE, ON_PERMISSIVE, ON)"
        )


def server_id_is_ours(source: CheckedSource) -> Iterator[str]:
    """Two readers of one log with the same id: the server drops the first when the second comes."""
    own = int(source.settings.get("server_id", "0"))
    if own == 0:
        yield "server_id of the server is 0: it sends its log to nobody; SET PERSIST server_id = 1"
    if own == source.server_id:
        yield f"database.server.id is {own}, which is the server's own server_id; choose another number"
    try:
        replicas = _either(source.session, "SHOW SLAVE HOSTS", "SHOW REPLICAS")
    except SourceError:
        return  # the missing grant is told by its own check
    if any(int(row[0]) == source.server_id for row in replicas):
        yield f"database.server.id is {source.server_id}, which a connected replica uses; choose another number"


def account_may_read(source: CheckedSource) -> Iterator[str]:
    """Grants, found out by doing what needs them: roles, proxies and partial revokes all count as the server counts."""
    account = source.account
    for statements, grant, purpose in (
        (("SHOW MASTER STATUS", "SHOW BINARY LOG STATUS"), "REPLICATION CLIENT", "to see the position of the log"),
        (("SHOW SLAVE HOSTS", "SHOW REPLICAS"), "REPLICATION SLAVE", "to read the log"),
    ):
        try:
            _either(source.session, *statements)
        except SourceError as error:
            if error.context.get("code") != ER.SPECIFIC_ACCESS_DENIED_ERROR:
                raise
            yield f"the account {account} lacks {grant}, {purpose}; GRANT {grant} ON *.* TO {account}"
    for table in source.tables:
        try:
            query(source.session, f"SELECT * FROM {table.quoted} LIMIT 0")
        except SourceError as error:
            answer = error.context.get("answer")
            yield f"table {table} cannot be read ({answer}); GRANT SELECT ON {table.quoted} TO {account}"


def zone_is_utc(source: CheckedSource) -> Iterator[str]:
    """TIMESTAMP columns are read in the session's zone and logged in UTC."""
    seen = query(source.session, "SELECT @@session.time_zone")[0][0]
    if seen != "+00:00":
        yield f"the session's time_zone is {seen} and not +00:00; allow the account to set it"


def replica_logs_what_it_applies(source: CheckedSource) -> Iterator[str]:
    """A replica's log lacks its source's changes unless told otherwise."""
    logs = source.settings.get("log_replica_updates", source.settings.get("log_slave_updates", "ON"))
    if logs == "ON":
        return
    try:
        replicates = _either(source.session, "SHOW SLAVE STATUS", "SHOW REPLICA STATUS")
    except SourceError:
        return  # the missing grant is told by its own check
    if replicates:
        yield "log_replica_updates is OFF on a replica: what it applies is not in its log; start the server with it ON"


def log_has_the_databases(source: CheckedSource) -> Iterator[str]:
    """binlog_do_db and binlog_ignore_db leave changes out of the log."""
    try:
        rows = _either(source.session, "SHOW MASTER STATUS", "SHOW BINARY LOG STATUS")
    except SourceError:
        return  # the missing grant is told by its own check
    if not rows:
        return
    logged, ignored = ({name for name in str(names or "").split(",") if name} for names in rows[0][2:4])
    for database in sorted({table.database for table in source.tables}):
        if (logged and database not in logged) or database in ignored:
            options = f"binlog_do_db: {','.join(sorted(logged))}, binlog_ignore_db: {','.join(sorted(ignored))}"
            yield f"changes of database {database} are not logged ({options}); start the server without these options"


def charsets_are_known(source: CheckedSource) -> Iterator[str]:
    """Text is only captured in character sets whose characters we know."""
    wanted = set(source.tables)
    rows = query(
        source.session,
        "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, CHARACTER_SET_NAME FROM information_schema.COLUMNS "
        "WHERE CHARACTER_SET_NAME IS NOT NULL",
    )
    for database, table, column, charset in rows:
        if canonical(charset) not in CHARSETS and TableId(database, table) in wanted:
            yield (
                f"column {database}.{table}.{column} has the character set {charset}, which is not known; "
                f"ALTER TABLE {TableId(database, table).quoted} CONVERT TO CHARACTER SET utf8mb4"
            )


def cascades_are_not_logged(source: CheckedSource) -> Iterator[str]:
    """The engine changes rows by CASCADE and SET NULL below the log: those changes reach no reader of it."""
    wanted = set(source.tables)
    rows = query(
        source.session,
        "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, CONSTRAINT_NAME, UPDATE_RULE, DELETE_RULE "
        "FROM information_schema.REFERENTIAL_CONSTRAINTS",
    )
    for database, table, name, on_update, on_delete in rows:
        rules = {on_update, on_delete} & {"CASCADE", "SET NULL"}
        if rules and TableId(database, table) in wanted:
            yield (
                f"foreign key {name} of {database}.{table} has {' and '.join(sorted(rules))}: "
                "the server does not log the rows that it changes by it"
            )


def compression_costs(source: CheckedSource) -> Iterator[str]:
    """Compressed transactions are opened; each is held in memory whole."""
    if source.settings.get("binlog_transaction_compression") == "ON":
        yield "binlog_transaction_compression is ON: each transaction is held in memory while it is read"


Check = Callable[[CheckedSource], Iterator[str]]

FAULTS: Final[tuple[Check, ...]] = (
    server_is_known,
    log_is_written,
    log_has_whole_rows,
    transactions_have_gtids,
    server_id_is_ours,
    account_may_read,
    zone_is_utc,
    replica_logs_what_it_applies,
    log_has_the_databases,
    charsets_are_known,
)
NOTES: Final[tuple[Check, ...]] = (cascades_are_not_logged, compression_costs)


def _either(session: Connection[Any], old: str, new: str) -> list[tuple[Any, ...]]:
    """Run a statement by its name up to 8.0, or by the one it has since."""
    try:
        return query(session, old)
    except SourceError as error:
        if error.context.get("code") != ER.PARSE_ERROR:
            raise
        return query(session, new)
