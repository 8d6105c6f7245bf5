"""What an enumerator reads from the source: definitions of tables, their greatest keys, and the bounds of splits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pymysql.connections import Connection

from tailrace.producer.model.protocols import Offset
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql import catalog
from tailrace.producer.mysql import connection as database
from tailrace.producer.mysql.key_order import KeyColumn, KeyOrder
from tailrace.producer.mysql.offset import mysql_offset
from tailrace.producer.mysql.watermark import current_offset, wait_until_visible
from tailrace.producer.serialization.captured_tables import CapturedTables, splitting_columns
from tailrace.producer.snapshot.reader import BARRIER_TIMEOUT_S
from tailrace.producer.snapshot.splitter import ChunkSplitter, SplitterSettings


class TableDescription(NamedTuple):
    """What planning needs to know about a table."""

    columns: tuple[KeyColumn, ...]
    """The columns that splits are cut on; empty: the table is one split."""
    estimated_rows: int


class TablePlanner:
    """Reads over two sessions of its own: one for the enumerator's thread, one for the stream's thread."""

    def __init__(
        self, session: Connection, stream_session: Connection, tables: CapturedTables, settings: SplitterSettings
    ) -> None:
        """``tables`` reads the catalog over ``session``."""
        self._session = session
        self._stream_session = stream_session
        self._tables = tables
        self._settings = settings

    def describe(self, table: TableId) -> TableDescription:
        """Read a table's definition. Raises SchemaError if the table does not exist or has no key."""
        found = catalog.read_table(self._session, table)
        key = self._tables.key(table, found.table.columns, found.primary_key)
        return TableDescription(splitting_columns(found, key), found.rows)

    def splitter(self, table: TableId, columns: tuple[KeyColumn, ...]) -> ChunkSplitter:
        """Return what cuts the table on these columns."""
        order = KeyOrder(columns, lambda sql: self._query(sql)[0])
        return ChunkSplitter(table, order, self._query, self._settings)

    def stream_order(self, columns: tuple[KeyColumn, ...]) -> KeyOrder:
        """Return the order of keys for the stream's thread."""
        return KeyOrder(columns, lambda sql: database.query(self._stream_session, sql)[0])

    def exists(self, table: TableId) -> bool:
        """Whether the source has the table now."""
        return catalog.exists(self._session, table)

    def current_offset(self) -> Offset:
        """Return the end of the binlog of the server that is read."""
        return current_offset(self._session)

    def check_condition(self, table: TableId, condition: str) -> None:
        """Raise SourceError if the condition is not valid SQL for the table."""
        self._query(f"SELECT 1 FROM {table.quoted} WHERE ({condition}) LIMIT 0")

    def wait_until_visible(self, barrier: Offset) -> None:
        """Wait until the server shows every transaction that the stream had read at the barrier."""
        wait_until_visible(self._session, mysql_offset(barrier), BARRIER_TIMEOUT_S)

    def close(self) -> None:
        """Close both sessions."""
        try:
            self._session.close()
        finally:
            self._stream_session.close()

    def _query(self, sql: str) -> Sequence[tuple[object, ...]]:
        return database.query(self._session, sql)
