"""A MariaDB session that plans and reads the splits of a snapshot: its watermarks, and its catalog."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pymysql.connections import Connection

from tailrace.producer.mariadb import catalog
from tailrace.producer.mariadb.offset import MariaDbOffset, mariadb_offset, take_high, visible_end
from tailrace.producer.model.codec import KeyTuple
from tailrace.producer.model.protocols import Offset
from tailrace.producer.model.split import KeyColumn
from tailrace.producer.model.table import CatalogTable, TableId
from tailrace.producer.mysql import split_sql
from tailrace.producer.mysql.snapshot_session import VISIBLE_S, MySqlSnapshotSession
from tailrace.runtime.errors import SchemaError


class MariaDbSnapshotSession(MySqlSnapshotSession):
    """Plans and reads splits over one connection."""

    def __init__(self, connection: Connection[Any]) -> None:
        super().__init__(connection)
        self._visible: MariaDbOffset | None = None
        """The last end of the binlog that was waited for: a server that nobody writes to is not asked again."""

    def describe(self, table: TableId) -> CatalogTable:
        """Read the definition from information_schema."""
        return catalog.read_table(self._connection, table)

    def describe_all(self, tables: Sequence[TableId]) -> Iterator[tuple[TableId, CatalogTable | SchemaError]]:
        """Read the definitions from information_schema, many with one query."""
        return catalog.read_tables(self._connection, tables)

    def exists(self, table: TableId) -> bool:
        """Look the table up in information_schema."""
        return catalog.exists(self._connection, table)

    def max_key(self, table: TableId, columns: Sequence[KeyColumn]) -> KeyTuple | None:
        """Read the last key of the index; the server does not know the hint that limits the time."""
        limited = f"SET STATEMENT max_statement_time = {split_sql.MAX_KEY_MS / 1000} FOR "
        return self._key(columns, limited + split_sql.max_key(table, columns))

    def current_offset(self) -> MariaDbOffset:
        """Return the end of the binlog, once what it includes is visible."""
        self._visible = visible_end(self._connection, VISIBLE_S, self._visible)
        return self._visible

    def low_watermark(self, barrier: Offset, timeout_s: float) -> MariaDbOffset:
        """Return the GTID position of the binlog at the coordinates of the barrier, once all of it is visible."""
        self._visible = visible_end(self._connection, timeout_s, self._visible)
        return mariadb_offset(barrier).with_gtids_of(self._visible)

    def high_watermark(self, low: Offset) -> MariaDbOffset:
        """Return the coordinates after the SELECT."""
        return take_high(self._connection, mariadb_offset(low))
