"""The catalog of MariaDB, where it differs from that of MySQL: kinds and types of tables, defaults, collations."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from pymysql.connections import Connection

from tailrace.producer.errors import BinlogError, DefinitionLockedError
from tailrace.producer.mariadb.declared_types import LOGGED_AS_BINARY
from tailrace.producer.mariadb.offset import require_server
from tailrace.producer.model.binlog_events import TableVersion
from tailrace.producer.model.protocols import TableFilter
from tailrace.producer.model.table import CatalogTable, Collation, Column, ColumnCatalog, TableId
from tailrace.producer.mysql import catalog
from tailrace.producer.mysql.catalog_session import MySqlCatalogSession, ReconnectingSession
from tailrace.producer.mysql.connection import binlog_position, binlog_status, excluded_databases, query
from tailrace.runtime.errors import SchemaError

T = TypeVar("T")

VERSIONED: Final = "SYSTEM VERSIONED"
_SEQUENCE: Final = "SEQUENCE"
_LOCK_WAIT_TIMEOUT: Final = 1205
_TYPES: Final = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, LOWER(DATA_TYPE) FROM information_schema.COLUMNS "
    f"WHERE DATA_TYPE IN {tuple(sorted(LOGGED_AS_BINARY))}"
)
_SYSTEM: Final = tuple(sorted(catalog.SYSTEM_DATABASES))


def list_tables(connection: Connection[Any], wanted: TableFilter) -> list[TableId]:
    """Return the wanted tables, sorted; with the system-versioned ones, whose definitions then are errors."""
    return sorted([*catalog.list_tables(connection, wanted), *filter(wanted, _versioned_tables(connection))])


def exists(connection: Connection[Any], table: TableId) -> bool:
    """Return whether the source has a table of this name now, also one that is refused."""
    return catalog.exists(connection, table) or table in _versioned_tables(connection, (table,))


def read_table(connection: Connection[Any], table: TableId) -> CatalogTable:
    """See ``mysql.catalog.read_table``."""
    found = catalog.read_table(connection, table)
    for error in _refused(connection, (table,)).values():
        raise error
    return _as_logged(found)


def read_tables(
    connection: Connection[Any], tables: Sequence[TableId]
) -> Iterator[tuple[TableId, CatalogTable | SchemaError]]:
    """See ``mysql.catalog.read_tables``; a table that the binlog does not tell rightly has an error."""
    refused = _refused(connection, tables)
    for table, found in catalog.read_tables(connection, tables):
        yield table, found if isinstance(found, SchemaError) else refused.get(table) or _as_logged(found)


def read_types_with_end(
    connection: Connection[Any], tables: Collection[TableId] | None, captures: TableFilter
) -> tuple[dict[TableId, TableVersion | SchemaError], tuple[str, int]]:
    """Return the columns of types that the binlog has as binary strings, and its end behind the reading.

    ``tables``: None: all that are captured. Raises BinlogError if the binlog lacks statements.
    """
    if options := excluded_databases(binlog_status(connection)):
        raise BinlogError(
            f"the binlog lacks statements that are run with another database in use ({options})",
            hint="exclude the table, or start the server without these options",
        )
    query(connection, "SET SESSION lock_wait_timeout = 1")
    if tables is None:
        found = _logged_as_binary(connection, query(connection, f"{_TYPES} AND TABLE_SCHEMA NOT IN {_SYSTEM}"), ())
        found = {table: each for table, each in found.items() if captures(table)}
    else:
        found = {}
        for table in tables:
            found |= _logged_as_binary(connection, _of_table(connection, _TYPES, (), table), (table,))
    return found, binlog_position(connection)[:2]


def _logged_as_binary(
    connection: Connection[Any], rows: Iterable[Sequence[Any]], tables: Iterable[TableId]
) -> dict[TableId, TableVersion | SchemaError]:
    """Return what a query for ``tables`` has found, (): for all; the catalog has no rows of those that are locked."""
    found: dict[TableId, TableVersion | SchemaError] = {}
    if any(code == _LOCK_WAIT_TIMEOUT for _, code, _ in query(connection, "SHOW WARNINGS")):
        names = query(connection, "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES")  # needs no lock
        for table in tables or (TableId(*row) for row in names):
            found[table] = DefinitionLockedError(
                f"a statement locks table {table}, perhaps: its types cannot be read",
                hint="wait until the statement has ended",
            )
    columns: dict[TableId, list[Column]] = {}
    for database, name, column, data_type in rows:
        columns.setdefault(TableId(database, name), []).append(Column(column, data_type))
    return found | {table: TableVersion(table, tuple(known), (), b"") for table, known in columns.items()}


def _refused(connection: Connection[Any], tables: Sequence[TableId]) -> dict[TableId, SchemaError]:
    """Return the errors of tables that the binlog has with rows or columns that a SELECT does not have."""
    versioned_tables, hashed = _versioned_tables(connection, tables), _hashed_tables(connection, tables)
    return {
        **{table: hidden_column(table) for table in hashed.intersection(tables)},
        **{table: versioned(table) for table in versioned_tables.intersection(tables)},
    }


def _hashed_tables(connection: Connection[Any], tables: Sequence[TableId]) -> set[TableId]:
    """Return the tables with a unique key that the server checks by a hidden column with its hash."""
    sql = (
        "SELECT DISTINCT TABLE_SCHEMA, TABLE_NAME FROM information_schema.STATISTICS "
        "WHERE NON_UNIQUE = 0 AND INDEX_TYPE = 'HASH'"
    )
    found = _of_tables(connection, sql, (), tables)
    # A table in memory has hashes as indexes.
    engine = "SELECT 1 FROM information_schema.TABLES WHERE ENGINE <> 'MEMORY'"
    return {table for table in found if _of_table(connection, engine, (), table)}


def _versioned_tables(connection: Connection[Any], tables: Sequence[TableId] = ()) -> set[TableId]:
    sql = "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE = %s"
    return _of_tables(connection, sql, (VERSIONED,), tables)


def _of_tables(
    connection: Connection[Any], sql: str, arguments: tuple[str, ...], tables: Sequence[TableId]
) -> set[TableId]:
    """Return the tables that a query names: at least those of ``tables``."""
    rows = _of_table(connection, sql, arguments, tables[0]) if len(tables) == 1 else query(connection, sql, arguments)
    return {TableId(*row) for row in rows}


def _of_table(
    connection: Connection[Any], sql: str, arguments: tuple[str, ...], table: TableId
) -> list[tuple[Any, ...]]:
    """Run a query for one table, which the server finds fast."""
    return query(connection, f"{sql} AND TABLE_SCHEMA = %s AND TABLE_NAME = %s", (*arguments, *table))


def _as_logged(found: CatalogTable) -> CatalogTable:
    """Return a definition with the defaults that the texts stand for, and the collations that do not pad."""
    table = replace(found.table, columns=tuple(_with_default(_sized(column)) for column in found.table.columns))
    collations = {name: Collation(each.name, "_nopad_" not in each.name) for name, each in found.collations.items()}
    return replace(found, table=table, collations=collations)


def _sized(column: Column) -> Column:
    """Return a VECTOR with the length of its VARBINARY, which decides how its values lie in a row image."""
    if column.data_type != "vector" or column.catalog is None:
        return column
    return replace(column, length=4 * int("".join(filter(str.isdigit, column.catalog.column_type))))


def _with_default(column: Column) -> Column:
    known = column.catalog
    if known is None or known.default is None:
        return column
    return replace(column, catalog=_with_text(known, known.default))


def _with_text(known: ColumnCatalog, text: str) -> ColumnCatalog:
    if text == "NULL":
        return replace(known, default=None, default_is_expression=False, default_value=None)
    if text.startswith("'"):
        return replace(known, default=_ESCAPE.sub(_unescaped, text[1:-1]), default_is_expression=False)
    if text[:2] == "x'":
        return replace(known, default=bytes.fromhex(text[2:-1]).decode("utf-8", "replace"), default_is_expression=False)
    return replace(known, default_is_expression=_LITERAL.fullmatch(text) is None)


_LITERAL: Final = re.compile(r"-?[0-9.]+(e-?[0-9]+)?|b'[01]*'", re.IGNORECASE)
_ESCAPE: Final = re.compile(r"''|\\(.)", re.DOTALL)
_CONTROL: Final[Mapping[str, str]] = {"n": "\n", "r": "\r", "0": "\0", "Z": "\x1a"}


def _unescaped(found: re.Match[str]) -> str:
    return "'" if found[1] is None else _CONTROL.get(found[1], found[1])


class LoggedTables:
    """Says what the binlog does not tell of a table: its kind, and types that are logged as binary strings.

    The catalog may be later than the binlog: a table that it does not have is taken as the binlog describes it.
    """

    def __init__(self, connect: Callable[[], Connection[Any]], server: str) -> None:
        """``server``: the identity of the one whose binlog is read."""
        self._session = ReconnectingSession(connect)
        self._server = server

    def _run(self, work: Callable[[Connection[Any]], T]) -> T:
        def on_same_server(connection: Connection[Any]) -> T:
            require_server(connection, self._server)
            return work(connection)

        return self._session.run(on_same_server)

    def is_sequence(self, table: TableId) -> bool:
        """Whether what has the columns of a sequence is one, or was: the server logs NEXTVAL as a row of it.

        It was one if it is dropped now: a table of these columns is less likely.
        """
        return self._kind(table) in {_SEQUENCE, ""}

    def require_readable(self, table: TableId) -> None:
        """Raise SchemaError if the rows of a table cannot be read."""
        if self._kind(table) == VERSIONED:
            raise versioned(table)

    def _kind(self, table: TableId) -> str:
        sql = "SELECT TABLE_TYPE FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
        rows = self._run(lambda c: query(c, sql, table))
        return str(rows[0][0]) if rows else ""

    def close(self) -> None:
        """Disconnect."""
        self._session.close()


def versioned(table: TableId) -> SchemaError:
    """Return the error for a table whose history is logged as rows of it."""
    return SchemaError(
        f"table {table} has system versioning: the binlog has its history as rows, and a delete as an update",
        hint=f"exclude it with table.exclude.list, or ALTER TABLE {table.quoted} DROP SYSTEM VERSIONING",
    )


def hidden_column(table: TableId) -> SchemaError:
    """Return the error for a table whose unique key is checked by a column that only the binlog has."""
    return SchemaError(
        f"table {table} has a unique key on long values: the binlog has a hidden column with its hash",
        hint="exclude it with table.exclude.list, or make the key an index of a shorter prefix",
    )


class MariaDbCatalogSession(MySqlCatalogSession):
    """Reads the catalog over a session that reconnects."""

    def describe(self, table: TableId) -> CatalogTable:
        """Read the definition from information_schema."""
        return self._session.run(lambda connection: read_table(connection, table))

    def describe_all(self, tables: Sequence[TableId]) -> Iterator[tuple[TableId, CatalogTable | SchemaError]]:
        """Read the definitions from information_schema, many with one query."""
        return iter(self._session.run(lambda connection: list(read_tables(connection, tables))))
