"""Catalog: what information_schema says of tables, by exact names; one read gives all that capture needs of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tailrace.producer.model.table import CatalogTable, Collation, Column, ColumnCatalog, Table, TableId
from tailrace.producer.mysql.collation import CHARSETS, canonical
from tailrace.producer.mysql.column_defaults import with_exact_defaults
from tailrace.producer.mysql.connection import query
from tailrace.producer.mysql.types.base import CatalogRow, ColumnType
from tailrace.producer.mysql.types.registry import CATALOG_NAMES, family_of
from tailrace.producer.mysql.types.text import TextType
from tailrace.runtime.errors import SchemaError

if TYPE_CHECKING:
    from pymysql.connections import Connection

SYSTEM_DATABASES: Final = frozenset({"mysql", "information_schema", "performance_schema", "sys"})


def list_tables(connection: Connection[Any], wanted: Callable[[TableId], bool]) -> list[TableId]:
    """Return the base tables that are wanted, sorted; the server's own databases are never among them."""
    rows = query(
        connection,
        "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE = 'BASE TABLE'",
    )
    found = (TableId(database, table) for database, table in rows if database.lower() not in SYSTEM_DATABASES)
    return sorted(table for table in found if wanted(table))


def read_table(connection: Connection[Any], table: TableId) -> CatalogTable:
    """Return the definition of a table now. Raises SchemaError where it does not exist or has a type not known."""
    columns = _columns(connection, table)
    if not columns:
        raise SchemaError(
            f"table {table} does not exist, or the account may not see it",
            hint=f"create it, or GRANT SELECT ON {table.quoted} to the account",
        )
    primary, unique, prefixes = _keys(connection, table, {c.name for c, _ in columns if not c.nullable})
    rows = query(
        connection,
        f"SELECT TABLE_ROWS FROM information_schema.TABLES WHERE {_EXACT}",
        (*table, *table),
    )
    return CatalogTable(
        table=Table(
            table, with_exact_defaults(connection, table, [column for column, _ in columns]), primary or unique
        ),
        primary_key=primary,
        unique_key=unique,
        prefix_columns=prefixes,
        collations={column.name: collation for column, collation in columns if collation is not None},
        rows=int(rows[0][0] or 0) if rows else 0,
    )


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


def _columns(connection: Connection[Any], table: TableId) -> list[tuple[Column, Collation | None]]:
    pads = _pad_attributes(connection)
    generation = "GENERATION_EXPRESSION"
    rows = query(
        connection,
        "SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, CHARACTER_OCTET_LENGTH, CHARACTER_MAXIMUM_LENGTH, "
        "NUMERIC_PRECISION, NUMERIC_SCALE, DATETIME_PRECISION, CHARACTER_SET_NAME, COLLATION_NAME, COLUMN_DEFAULT, "
        f"COLUMN_COMMENT, EXTRA, {generation} FROM information_schema.COLUMNS WHERE {_EXACT} ORDER BY ORDINAL_POSITION",
        (*table, *table),
    )
    return [_column(table, row, pads) for row in rows]


def _column(table: TableId, row: tuple[Any, ...], pads: Mapping[str, bool]) -> tuple[Column, Collation | None]:
    name, native_type, column_type, nullable, octets, characters, digits, scale, fsp, charset, collation = row[:11]
    default, comment, extra, generation = row[11:]
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
    return described, Collation(collation, pads.get(collation, True), int(characters))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _default_is_expression(default: Any, extra: str, family: type[ColumnType]) -> bool:
    if default is None:
        return False
    if "DEFAULT_GENERATED" in extra:
        return True
    # Before 8.0.13 the only expression is the current time, which is told by its word alone.
    return family.allows_current_timestamp and _text(default).upper().startswith("CURRENT_TIMESTAMP")


def _keys(
    connection: Connection[Any], table: TableId, required: set[str]
) -> tuple[tuple[str, ...], tuple[str, ...], frozenset[str]]:
    """Return (primary key, first usable unique key, prefix columns of the primary key).

    SHOW KEYS has the server's own order of keys: what is first here is also what the log names as the key of a table
    without a primary key.
    """
    indexes: dict[str, list[tuple[str | None, int | None]]] = {}
    for _, not_unique, index, _, column, _, _, prefix, *_ in query(connection, f"SHOW KEYS FROM {table.quoted}"):
        if not int(not_unique):
            indexes.setdefault(index, []).append((column, prefix))
    primary = indexes.pop("PRIMARY", [])
    usable = [
        tuple(column for column, _ in parts if column is not None)
        for parts in indexes.values()
        if all(column in required and prefix is None for column, prefix in parts)
    ]
    return (
        tuple(column for column, _ in primary if column is not None),
        usable[0] if usable else (),
        frozenset(column for column, prefix in primary if column is not None and prefix is not None),
    )


def _pad_attributes(connection: Connection[Any]) -> dict[str, bool]:
    """Return for each collation whether it pads; empty on servers that do not say (all of theirs pad but binary)."""
    has = query(
        connection,
        "SELECT 1 FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = 'information_schema' "
        "AND TABLE_NAME = 'COLLATIONS' AND COLUMN_NAME = 'PAD_ATTRIBUTE'",
    )
    if not has:
        return {}
    rows = query(connection, "SELECT COLLATION_NAME, PAD_ATTRIBUTE FROM information_schema.COLLATIONS")
    return {collation: pad != "NO PAD" for collation, pad in rows}
