"""A MariaDB session that plans and reads the splits of a snapshot: its watermarks, and its catalog."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tailrace.producer.mariadb import catalog
from tailrace.producer.mariadb.offset import MariaDbOffset, current_offset, mariadb_offset, take_high
from tailrace.producer.model.protocols import Offset
from tailrace.producer.model.table import CatalogTable, TableId
from tailrace.producer.mysql.snapshot_session import VISIBLE_S, MySqlSnapshotSession
from tailrace.runtime.errors import SchemaError


class MariaDbSnapshotSession(MySqlSnapshotSession):
    """Plans and reads splits over one connection."""

    def describe(self, table: TableId) -> CatalogTable:
        """Read the definition from information_schema."""
        return catalog.read_table(self._connection, table)

    def describe_all(self, tables: Sequence[TableId]) -> Iterator[tuple[TableId, CatalogTable | SchemaError]]:
        """Read the definitions from information_schema, many with one query."""
        return catalog.read_tables(self._connection, tables)

    def current_offset(self) -> MariaDbOffset:
        """Return the end of the binlog, once what it includes is visible."""
        end = current_offset(self._connection)
        end.wait_until_executed(self._connection, VISIBLE_S)
        return end

    def low_watermark(self, barrier: Offset, timeout_s: float) -> MariaDbOffset:
        """Return the GTID position of the binlog, once all of it is committed."""
        return mariadb_offset(barrier).visible(self._connection, timeout_s)

    def high_watermark(self, low: Offset) -> MariaDbOffset:
        """Return the coordinates after the SELECT."""
        return take_high(self._connection, mariadb_offset(low))
