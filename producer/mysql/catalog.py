"""Catalog: what information_schema says of tables, by exact names; one read gives all that capture needs of a table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tailrace.producer.errors import (
    BinlogError,
    DefinitionLockedError,
    TableAccessError,
    TableDefinitionError,
    TableLockedError,
    TableMissingError,
)
from tailrace.producer.model.binlog_events import TableVersion
from tailrace.producer.model.protocols import TableSize
from tailrace.producer.model.table import CatalogTable, Collation, Column, ColumnCatalog, Table, TableId
from tailrace.producer.mysql.column_defaults import with_exact_defaults
from tailrace.producer.mysql.connection import (
    account,
    binlog_position,
    binlog_status,
    excluded_databases,
    query,
    server_version,
)
from tailrace.producer.mysql.text.collation import CHARSETS, canonical
from tailrace.producer.mysql.text.server_version import version_number
from tailrace.producer.mysql.types.base import CatalogRow, ColumnType
from tailrace.producer.mysql.types.registry import CATALOG_NAMES, family_of
from tailrace.producer.mysql.types.text import TextType
from tailrace.runtime.errors import SchemaError

if TYPE_CHECKING:
    from pymysql.connections import Connection

FULL_METADATA: Final = "SET GLOBAL binlog_row_metadata=FULL avoids it (since MySQL 8.0)"
_WITHOUT_DICTIONARY: Final = 80_000
SYSTEM_DATABASES: Final = frozenset({"mysql", "information_schema", "performance_schema", "sys"})


class _DefinitionChangedError(Exception):
    """The columns and the keys of a table were read before and after a statement that altered it."""


def list_tables(connection: Connection[Any], wanted: Callable[[TableId], bool]) -> list[TableId]:
    """Return the base tables that are wanted, sorted; the server's own databases are never among them."""
    rows = query(
        connection,
        "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE = 'BASE TABLE'",
    )
    found = (TableId(database, table) for database, table in rows if database.lower() not in SYSTEM_DATABASES)
    return sorted(table for table in found if wanted(table))


def read_with_end(
    connection: Connection[Any], tables: Collection[TableId] | None, captures: Callable[[TableId], bool]
) -> tuple[dict[TableId, TableVersion | SchemaError], tuple[str, int]]:
    """Return tables as the log would describe them, None: all that are captured, and its end behind the reading.

    Defaults are as in the catalog, since exact ones wait for statements that lock tables; where another part of a
    definition needs to, it is DefinitionLockedError soon. Raises BinlogError if the log lacks statements.
    """
    if options := excluded_databases(binlog_status(connection)):
        raise BinlogError(
            f"the log lacks statements that are run with another database in use ({options})",
            hint="SET GLOBAL binlog_row_metadata=FULL (since MySQL 8.0), or start the server without these options",
        )
    query(connection, "SET SESSION lock_wait_timeout = 1")
    if tables is None:
        tables = list_tables(connection, captures)
    found = {table: _as_logged(each) for table, each in read_tables(connection, sorted(tables), waits=False)}
    return found, binlog_position(connection)[:2]


_FOUR_BYTES: Final = frozenset({"utf8mb4", "utf16", "utf16le", "utf32", "gb18030"})


def _as_logged(found: CatalogTable | SchemaError) -> TableVersion | SchemaError:
    """Return a definition as a TABLE_MAP event with FULL metadata has it."""
    if isinstance(found, SchemaError):
        return found
    columns = []
    for column in found.table.columns:
        if column.charset in _FOUR_BYTES and any("?" in label for label in column.enum_values):
            return TableDefinitionError(
                f"the labels of column {column.name} are not known: the catalog has ? for characters of four bytes",
                hint="SET GLOBAL binlog_row_metadata=FULL (since MySQL 8.0), choose other labels, or exclude the table",
            )
        has_digits = column.data_type != "float"
        columns.append(
            replace(
                column,
                catalog=None,
                precision=column.precision if has_digits else 0,
                scale=column.scale if has_digits else 0,
            )
        )
    return TableVersion(found.table.id, tuple(columns), found.primary_key or found.unique_key, b"")


def read_table(connection: Connection[Any], table: TableId) -> CatalogTable:
    """Return the definition of a table now.

    Raises SchemaError if it does not exist, or has a column of an unknown type; TableAccessError if the account may not
    read it, whether it exists or not.
    """
    for _, found in read_tables(connection, (table,)):
        if isinstance(found, SchemaError):
            raise found
        return found
    _require_readable(connection, table)
    raise SchemaError(f"table {table} does not exist", hint="create it, or exclude it")


def estimated_size(connection: Connection[Any], table: TableId) -> TableSize:
    """Return the server's estimate; waits for a statement that locks the table."""
    sql = f"SELECT TABLE_ROWS, AVG_ROW_LENGTH FROM information_schema.TABLES WHERE {_EXACT}"
    rows = query(connection, sql, (*table, *table))
    return TableSize(*(int(value or 0) for value in rows[0])) if rows else TableSize(0, 0)


def read_tables(
    connection: Connection[Any], tables: Sequence[TableId], *, waits: bool = True
) -> Iterator[tuple[TableId, CatalogTable | SchemaError]]:
    """Yield the definition of each table that exists and that the account may see, in the given order.

    A table with a column of an unknown type, or that the account may not read, has an error instead. The number of
    queries does not depend on the number of tables, but on that of batches. Three kinds of tables have one query more:
    those without a primary key and with several unique keys on the same columns, those with defaults that the catalog
    does not have exactly, and those with privileges on columns. ``waits``: see ``read_with_end``.
    """
    for batch in _batches(tables):
        try:
            rows = [_grouped(connection, each, batch) for each in (_COLUMNS, _COLUMN_GRANTS, _KEYS)]
        except TableLockedError as error:  # MySQL 5.7 waits for each table
            if waits:
                raise
            if len(batch) == 1:
                yield batch[0], _locked(error)
            else:
                for table in batch:
                    yield from read_tables(connection, (table,), waits=False)
        else:
            yield from _read_batch(connection, batch, rows, waits=waits)


def _read_batch(
    connection: Connection[Any],
    batch: Sequence[TableId],
    rows: Sequence[Mapping[TableId, list[tuple[Any, ...]]]],
    *,
    waits: bool,
) -> Iterator[tuple[TableId, CatalogTable | SchemaError]]:
    columns, granted, keys = rows
    pads = _pad_attributes(connection, {row[_COLLATION] for each in columns.values() for row in each} - {None})
    for table in batch:
        try:
            if table in columns:
                # Without a privilege on a column the catalog does not show it.
                if table in granted or any("select" not in _text(row[_PRIVILEGES]) for row in columns[table]):
                    _require_readable(connection, table)
                yield table, _definition(connection, table, columns[table], keys.get(table, []), pads, exact=waits)
            elif _leaves_out_locked(connection):
                query(connection, f"SELECT 1 FROM {table.quoted} LIMIT 0")
                raise _left_out(table)
        except TableMissingError:
            continue  # dropped meanwhile
        except _DefinitionChangedError:
            yield from read_tables(connection, (table,), waits=waits)
        except TableLockedError as error:
            if waits:
                raise
            yield table, _locked(error)
        except SchemaError as error:
            if table in columns:  # one that the catalog does not show may not be read
                yield table, error


def _leaves_out_locked(connection: Connection[Any]) -> bool:
    """Return whether a query of the catalog leaves out a table that is locked for too long, with a warning: MySQL 5.7.

    Invariant: what such a server does not tell of a table is not taken for absent, neither the table nor its indexes.
    """
    return version_number(server_version(connection)) < _WITHOUT_DICTIONARY


def _left_out(table: TableId) -> TableLockedError:
    return TableLockedError(
        f"the catalog does not have all of {table}, which a statement has locked",
        hint="wait until the statement has ended",
    )


def _locked(error: TableLockedError) -> DefinitionLockedError:
    return DefinitionLockedError(error.message, hint=error.hint, **error.context)


def _require_readable(connection: Connection[Any], table: TableId) -> None:
    """Raise TableAccessError if the account may not read a table: a SELECT decides, so roles and the like count."""
    try:
        query(connection, f"SELECT * FROM {table.quoted} LIMIT 0")
    except TableMissingError:
        return
    except TableAccessError as error:
        raise TableAccessError(
            f"table {table} cannot be read ({error.context.get('answer')})",
            hint=f"GRANT SELECT ON {table.quoted} TO {account(connection)}",
        ) from error


def triggers(connection: Connection[Any], table: TableId) -> str:
    """Return why a change of a table may change others by triggers; '' if it has none."""
    named = (table.database, table.table)
    if query(
        connection,
        "SELECT 1 FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA = %s AND EVENT_OBJECT_TABLE = %s LIMIT 1",
        named,
    ):
        return f"{table} has triggers"
    own = account(connection)
    revoked = query(connection, "SHOW GLOBAL VARIABLES WHERE Variable_name = 'partial_revokes' AND Value = 'ON'")
    if revoked or not query(connection, _SEES_TRIGGERS, (own, own, table.database, own, *named)):
        return f"the triggers of {table} are not known; GRANT TRIGGER ON {table.quoted} TO {own}"
    return ""


_SEES_TRIGGERS: Final = (
    "SELECT 1 FROM information_schema.USER_PRIVILEGES WHERE PRIVILEGE_TYPE = 'TRIGGER' AND GRANTEE = %s "
    "UNION ALL SELECT 1 FROM information_schema.SCHEMA_PRIVILEGES "
    "WHERE PRIVILEGE_TYPE = 'TRIGGER' AND GRANTEE = %s AND REPLACE(TABLE_SCHEMA, '\\\\', '') = %s "
    "UNION ALL SELECT 1 FROM information_schema.TABLE_PRIVILEGES "
    "WHERE PRIVILEGE_TYPE = 'TRIGGER' AND GRANTEE = %s AND TABLE_SCHEMA = %s AND TABLE_NAME = %s"
)
"""Roles are not looked into: their triggers count as not known."""


def exists(connection: Connection[Any], table: TableId) -> bool:
    """Return whether the source has a base table of this name now."""
    rows = query(
        connection,
        f"SELECT 1 FROM information_schema.TABLES WHERE TABLE_TYPE = 'BASE TABLE' AND {_EXACT}",
        (*table, *table),
    )
    return bool(rows)


_EXACT: Final = (
    "TABLE_SCHEMA = %s AND TABLE_NAME = %s "  # finds it fast
    # Exact: the catalog's own collation may hold A and a, or e and é, to be one name.
    "AND CAST(TABLE_SCHEMA AS BINARY) = CAST(%s AS BINARY) AND CAST(TABLE_NAME AS BINARY) = CAST(%s AS BINARY)"
)


_BATCH: Final = 500
"""Tables of one query."""

_COLUMNS: Final = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, CHARACTER_OCTET_LENGTH, "
    "NUMERIC_PRECISION, NUMERIC_SCALE, DATETIME_PRECISION, CHARACTER_SET_NAME, "
    "COLLATION_NAME, COLUMN_DEFAULT, COLUMN_COMMENT, EXTRA, GENERATION_EXPRESSION, PRIVILEGES, "
    "COLUMN_KEY, ORDINAL_POSITION "
    "FROM information_schema.COLUMNS WHERE {}"
)
_COLLATION: Final = 9
_PRIVILEGES: Final = 14
_KEY: Final = 15
"""Their indexes in a row of that, without database and table."""
_KEYS: Final = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX, COLUMN_NAME, SUB_PART "
    "FROM information_schema.STATISTICS WHERE NON_UNIQUE = 0 AND {}"
)
_COLUMN_GRANTS: Final = "SELECT DISTINCT TABLE_SCHEMA, TABLE_NAME FROM information_schema.COLUMN_PRIVILEGES WHERE {}"


def _batches(tables: Sequence[TableId]) -> Iterator[Sequence[TableId]]:
    return (tables[start : start + _BATCH] for start in range(0, len(tables), _BATCH))


def _grouped(connection: Connection[Any], sql: str, tables: Sequence[TableId]) -> dict[TableId, list[tuple[Any, ...]]]:
    """Run a query whose rows begin with database and table; return the rest of the rows of these tables."""
    databases, names = sorted({table.database for table in tables}), sorted({table.table for table in tables})
    where = f"TABLE_SCHEMA IN ({_marks(databases)}) AND TABLE_NAME IN ({_marks(names)})"
    wanted = set(tables)
    found: dict[TableId, list[tuple[Any, ...]]] = {}
    for database, name, *rest in query(connection, sql.format(where), (*databases, *names)):
        # The catalog's own collation may take A and a, or e and é, for one name.
        table = TableId(database, name)
        if table in wanted:
            found.setdefault(table, []).append(tuple(rest))
    return found


def _marks(values: Sequence[str]) -> str:
    return ", ".join(["%s"] * len(values))


def _definition(
    connection: Connection[Any],
    table: TableId,
    columns: Sequence[tuple[Any, ...]],
    keys: Sequence[tuple[Any, ...]],
    pads: Mapping[str, bool],
    *,
    exact: bool,
) -> CatalogTable:
    ordered = sorted(columns, key=lambda row: int(row[-1]))
    described = [_column(table, row[:-1], pads) for row in ordered]
    indexes: dict[str, list[tuple[str | None, int | None]]] = {}
    for index, _, column, prefix in sorted(keys, key=lambda row: (row[0], int(row[1]))):
        indexes.setdefault(index, []).append((column, prefix))
    primary = indexes.pop("PRIMARY", [])
    required = {column.name for column, _ in described if not column.nullable}
    unique = {
        index: tuple(column for column, _ in parts if column is not None)
        for index, parts in indexes.items()
        if all(column in required and prefix is None for column, prefix in parts)
    }
    unique_keys = tuple(unique.values())
    # The binlog names the first one in the server's own order as the key, and the server marks its columns.
    marked = {row[0] for row in ordered if _text(row[_KEY]) == "PRI"}
    if marked and not keys and _leaves_out_locked(connection):
        raise _left_out(table)
    if not primary and len(unique) > 1:
        unique = {index: names for index, names in unique.items() if marked == set(names)} or unique
    if not primary and len(unique) > 1:
        # Of keys on the same columns only this statement has the order; it waits for one that locks the table.
        order = dict.fromkeys(str(row[2]) for row in query(connection, f"SHOW KEYS FROM {table.quoted}"))
        unique = {index: unique[index] for index in order if index in unique}
    primary_key = tuple(column for column, _ in primary if column is not None)
    if not {column.name for column, _ in described}.issuperset(primary_key):
        raise _DefinitionChangedError
    unique_key = next(iter(unique.values()), ())
    found = [column for column, _ in described]
    return CatalogTable(
        table=Table(
            table,
            with_exact_defaults(connection, table, found) if exact else tuple(found),
            primary_key or unique_key,
        ),
        primary_key=primary_key,
        unique_key=unique_key,
        unique_keys=unique_keys,
        prefix_columns=frozenset(column for column, prefix in primary if column is not None and prefix is not None),
        collations={column.name: collation for column, collation in described if collation is not None},
        is_key_logged=bool(primary_key or unique_key) and marked == set(primary_key or unique_key),
    )


def _column(table: TableId, row: tuple[Any, ...], pads: Mapping[str, bool]) -> tuple[Column, Collation | None]:
    name, native_type, column_type, nullable, octets, digits, scale, fsp, charset, collation = row[:10]
    default, comment, extra, generation = row[10:14]
    column_type, extra = _text(column_type), _text(extra)
    native_type = _text(native_type).lower()
    data_type = CATALOG_NAMES.get(native_type)
    if data_type is None:
        raise SchemaError(
            f"column {name} of {table} has a type that is not known",
            hint="exclude the table, or change the column's type",
            type=column_type,
        )
    charset = canonical(charset or "binary")
    if charset not in CHARSETS:
        raise SchemaError(
            f"column {name} of {table} has a character set that is not known",
            hint="convert the column to utf8mb4",
            charset=charset,
        )
    octets, digits, scale, fsp = (int(size or 0) for size in (octets, digits, scale, fsp))
    family = family_of(data_type)
    column = family.from_catalog(
        CatalogRow(name, nullable == "YES", data_type, native_type, column_type, octets, digits, scale, fsp, charset)
    )
    described = replace(
        column,
        catalog=ColumnCatalog(
            column_type=column_type,
            collation=collation,
            default=None if default is None else _text(default),
            default_is_expression=_default_is_expression(default, extra, family),
            generated=bool(generation),
            auto_increment="auto_increment" in extra,
            comment=_text(comment),
            extra=extra,
        ),
    )
    if family is not TextType or collation is None:
        return described, None
    return described, Collation(collation, pads.get(collation, True))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _default_is_expression(default: Any, extra: str, family: type[ColumnType]) -> bool:
    if default is None:
        return False
    if "DEFAULT_GENERATED" in extra:
        return True
    # Before 8.0.13 the only expression is the current time, which is told by its word alone.
    return family.allows_current_timestamp and _text(default).upper().startswith("CURRENT_TIMESTAMP")


def _pad_attributes(connection: Connection[Any], collations: Set[str]) -> dict[str, bool]:
    """Return for each collation whether it pads; empty on servers that do not say (all of theirs pad but binary)."""
    if not collations:
        return {}
    names = sorted(collations)
    rows = query(connection, f"SHOW COLLATION WHERE `Collation` IN ({_marks(names)})", names)
    return {row[0]: row[6] != "NO PAD" for row in rows if len(row) > 6}
