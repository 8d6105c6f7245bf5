"""The defaults of columns as the server inserts them.

information_schema has the text of a default: a TIMESTAMP in the time zone of the session that defined it, a binary
string up to its first NUL, other text with `?` for characters beyond three bytes. SHOW CREATE TABLE has the same gaps.
COM_FIELD_LIST sends the values themselves, in the time zone and the character set of the session.
"""
# ruff: noqa: SLF001 - the driver has no public way to this command; its version is pinned and every use is in this file.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pymysql
import structlog
from pymysql.constants import COMMAND, ER

from tailrace.producer.model.table import Column, TableId
from tailrace.producer.mysql.connection import translating_errors

if TYPE_CHECKING:
    from pymysql.connections import Connection

log = structlog.get_logger(__name__)

_TEXTS_BEFORE_LENGTH: Final = 6
"""Catalog, database, table and column, the last two with their original names."""
_FIXED_PART: Final = 12
"""Character set, length, type, flags, decimals."""


def is_exact(column: Column) -> bool:
    """Return whether the text in the catalog is the default that the server inserts, or there is no literal."""
    known = column.catalog
    if known is None or known.default is None or known.default_is_expression or known.generated:
        return True
    return column.data_type not in {"timestamp", "binary", "varbinary"} and "?" not in known.default


def with_exact_defaults(connection: Connection[Any], table: TableId, columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns with the values of those defaults that the catalog does not have exactly.

    A server without COM_FIELD_LIST leaves them as they are in the catalog.
    """
    if all(map(is_exact, columns)):
        return tuple(columns)
    with translating_errors(str(connection.host), ""):
        try:
            values = _default_values(connection, table)
        except pymysql.MySQLError as error:
            if error.args[0] != ER.UNKNOWN_COM_ERROR:
                raise
            log.warning("defaults are published as information_schema prints them", table=str(table), cause=str(error))
            return tuple(columns)
    return tuple(column if is_exact(column) else _with_value(column, values.get(column.name)) for column in columns)


def _with_value(column: Column, value: bytes | None) -> Column:
    assert column.catalog is not None
    return replace(column, catalog=replace(column.catalog, default_value=value))


def _default_values(connection: Connection[Any], table: TableId) -> dict[str, bytes | None]:
    """Return the default of every column as a result set would contain it; without meaning if there is none."""
    session: Any = connection
    session.select_db(table.database)
    session._execute_command(COMMAND.COM_FIELD_LIST, table.table.encode() + b"\0")
    found: dict[str, bytes | None] = {}
    while not (packet := session._read_packet()).is_eof_packet():
        texts = [packet.read_length_coded_string() for _ in range(_TEXTS_BEFORE_LENGTH)]
        packet.read_length_encoded_integer()
        packet.advance(_FIXED_PART)
        found[texts[4].decode()] = packet.read_length_coded_string()
    return found
