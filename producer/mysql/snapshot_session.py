"""A MySQL session that plans and reads the splits of a snapshot."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from pymysql import MySQLError
from pymysql.connections import Connection

from tailrace.producer.errors import SourceError, SourceUnavailableError, TableLockedError, TableMissingError
from tailrace.producer.model.codec import KeyTuple, SnapshotEncoder, SnapshotEnvelope, SnapshotRows
from tailrace.producer.model.protocols import CanonicalText, Offset, RowTexts, SplitQuery, TableSize
from tailrace.producer.model.split import KeyColumn, Range
from tailrace.producer.model.table import CatalogTable, Column, Table, TableId, quote
from tailrace.producer.model.value_options import ValueOptions
from tailrace.producer.mysql import catalog, key_order, split_sql, watermark
from tailrace.producer.mysql.condition import condition_problem
from tailrace.producer.mysql.connection import disconnect, query
from tailrace.producer.mysql.key_order import KeyOrder, from_select
from tailrace.producer.mysql.key_rows import MySqlKeyRows
from tailrace.producer.mysql.offset import MySqlOffset, mysql_offset
from tailrace.producer.mysql.result_stream import read_rows
from tailrace.producer.mysql.types import canonical
from tailrace.runtime.errors import SchemaError
from tailrace.schemas.verification import Request

VISIBLE_S: Final = 60.0
"""How long the transactions before the end of the binlog may take to become visible."""
_HOLDERS: Final = (
    "SELECT t.PROCESSLIST_ID, l.LOCK_TYPE, l.LOCK_STATUS FROM performance_schema.metadata_locks l "
    "JOIN performance_schema.threads t ON t.THREAD_ID = l.OWNER_THREAD_ID "
    "WHERE l.OBJECT_TYPE = 'TABLE' AND l.OBJECT_SCHEMA = %s AND l.OBJECT_NAME = %s "
    "AND t.PROCESSLIST_ID <> CONNECTION_ID() ORDER BY l.LOCK_STATUS, t.PROCESSLIST_ID LIMIT 10"
)
"""The sessions that have a lock on a table, or wait for one before this session."""
_COUNTER: Final = re.compile(r"(\n\) .*?ENGINE=\w+) AUTO_INCREMENT=\d+")
"""The next value of AUTO_INCREMENT, among the options of a CREATE statement."""


class MySqlSnapshotSession:
    """Plans and reads splits over one connection."""

    def __init__(self, connection: Connection[Any]) -> None:
        self._connection = connection

    # -- locks -------------------------------------------------------------------------------------------------------

    def bound_lock_waits(self) -> None:
        """Let statements wait a second for the metadata lock of their table."""
        query(self._connection, "SET SESSION lock_wait_timeout = 1")

    @contextmanager
    def shared_lock(self, table: TableId) -> Iterator[None]:
        """Hold the metadata lock that reading takes, so that no statement inside waits for it."""
        with self.stable_definition():
            try:
                query(self._connection, f"SELECT 1 FROM {table.quoted} LIMIT 0")
            except TableMissingError as error:
                if self.exists(table):
                    raise TableLockedError("a table was replaced while it was planned", table=table) from error
                raise
            yield

    def lock_holders(self, table: TableId) -> str:
        """Ask performance_schema, which the account may not be allowed to read."""
        try:
            rows = query(self._connection, _HOLDERS, (table.database, table.table))
        except SourceUnavailableError:
            raise
        except SourceError:
            return "unknown: the account may not read performance_schema"
        return "; ".join(
            f"thread {thread} {'holds' if status == 'GRANTED' else 'waits for'} {kind}" for thread, kind, status in rows
        )

    # -- tables ------------------------------------------------------------------------------------------------------

    def wait_until_executed(self, offset: Offset, timeout_s: float) -> None:
        """Wait for its transactions: the catalog has what is executed."""
        mysql_offset(offset).wait_until_executed(self._connection, timeout_s)

    def describe(self, table: TableId) -> CatalogTable:
        """Read the definition from information_schema."""
        return catalog.read_table(self._connection, table)

    def describe_all(self, tables: Sequence[TableId]) -> Iterator[tuple[TableId, CatalogTable | SchemaError]]:
        """Read the definitions from information_schema, many with one query."""
        return catalog.read_tables(self._connection, tables)

    def exists(self, table: TableId) -> bool:
        """Look the table up in information_schema."""
        return catalog.exists(self._connection, table)

    def triggers(self, table: TableId) -> str:
        """Look them up in information_schema, which shows them to an account with the privilege TRIGGER."""
        return catalog.triggers(self._connection, table)

    def definition_text(self, table: TableId) -> str:
        """Take a metadata lock by a SELECT, then return the answer of SHOW CREATE TABLE."""
        query(self._connection, f"SELECT 1 FROM {table.quoted} LIMIT 0")
        statement = str(query(self._connection, f"SHOW CREATE TABLE {table.quoted}")[0][1])
        # It is no part of the definition, and differs from split to split.
        return _COUNTER.sub(r"\1", statement, count=1)

    @contextmanager
    def stable_definition(self) -> Iterator[None]:
        """Hold the metadata locks of a transaction: one definition is valid for all rows of a split."""
        query(self._connection, "START TRANSACTION")
        try:
            yield
        except BaseException:
            with suppress(MySQLError, OSError):  # the session may be what broke
                self._connection.rollback()
            raise
        query(self._connection, "ROLLBACK")

    def check_condition(self, table: TableId, condition: str) -> None:
        """Check that the condition is a predicate, and have the server parse it."""
        if problem := condition_problem(condition):
            raise SourceError(
                f"the condition on {table} is not a predicate: {problem}",
                hint="use operators and common functions on the columns of the table, without subqueries",
                condition=condition[:200],
            )
        query(self._connection, f"SELECT 1 FROM {table.quoted} WHERE ({condition}) LIMIT 0")

    def estimated_size(self, table: TableId) -> TableSize:
        """Read information_schema."""
        return catalog.estimated_size(self._connection, table)

    # -- keys --------------------------------------------------------------------------------------------------------

    def splitting_columns(self, found: CatalogTable, key: Sequence[str]) -> tuple[KeyColumn, ...]:
        """Return the prefix of an index whose order is known."""
        return key_order.splitting_columns(found, key)

    def key_ordering(self, columns: Sequence[KeyColumn]) -> KeyOrder:
        """Return an order that queries this session for the weights of text."""
        return KeyOrder(columns, lambda sql: query(self._connection, sql)[0])

    def require_index(self, table: TableId, columns: Sequence[KeyColumn]) -> None:
        """Have the server explain the query of the greatest key, whose type is ALL where no index has the key."""
        plan = query(self._connection, f"EXPLAIN FORMAT=TRADITIONAL {split_sql.max_key(table, columns)}")
        if "ALL" in plan[0][3:5]:  # MariaDB has no column of partitions before the type
            names = ", ".join(quote(each.column.name) for each in columns)
            raise SourceError(
                "each split would read the whole table: no index has its key in order",
                hint=f"ALTER TABLE {table.quoted} ADD INDEX ({names}) USING BTREE; if its engine has no such indexes, "
                f"ALTER TABLE {table.quoted} ENGINE=InnoDB",
                table=table,
                key=names,
            )

    def max_key(self, table: TableId, columns: Sequence[KeyColumn]) -> KeyTuple | None:
        """Read the last key of the index."""
        return self._key(columns, split_sql.max_key(table, columns))

    def min_key(self, table: TableId, columns: Sequence[KeyColumn], within: Range) -> KeyTuple | None:
        """Read the first key of a range."""
        return self._key(columns, split_sql.min_key(table, columns, within))

    def next_bound(self, table: TableId, columns: Sequence[KeyColumn], within: Range, size: int) -> KeyTuple | None:
        """Read the key at an OFFSET in the range."""
        return self._key(columns, split_sql.next_bound(table, columns, within, size))

    def bound_after(
        self, table: TableId, columns: Sequence[KeyColumn], key: KeyTuple, within: Range
    ) -> KeyTuple | None:
        """Read the first greater key of a range."""
        return self._key(columns, split_sql.bound_after(table, columns, key, within))

    def _key(self, columns: Sequence[KeyColumn], sql: str) -> KeyTuple | None:
        rows = query(self._connection, sql)
        if not rows:
            return None
        return tuple(from_select(c.column, value) for c, value in zip(columns, rows[0], strict=True))

    # -- splits ------------------------------------------------------------------------------------------------------

    def current_offset(self) -> MySqlOffset:
        """Return the end of the binlog, once what it includes is visible."""
        end = watermark.current_offset(self._connection)
        end.wait_until_executed(self._connection, VISIBLE_S)
        return end

    def low_watermark(self, barrier: Offset, timeout_s: float) -> MySqlOffset:
        """Return the executed GTID set after the wait."""
        return watermark.take_low(self._connection, mysql_offset(barrier), timeout_s)

    def high_watermark(self, low: Offset) -> MySqlOffset:
        """Return the coordinates after the SELECT."""
        return watermark.take_high(self._connection, mysql_offset(low))

    def clock_us(self) -> int:
        """Return NOW(6) of the server."""
        return int(query(self._connection, "SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)")[0][0])

    def key_rows(self, table: Table, options: ValueOptions, keys: Sequence[str]) -> MySqlKeyRows:
        """Read the definition again: the collations are in the catalog alone."""
        return MySqlKeyRows(self._connection, self.describe(table.id), table, options, keys)

    def read_rows(self, task: SplitQuery, codec: SnapshotEncoder, envelope: SnapshotEnvelope) -> Iterator[SnapshotRows]:
        """Stream the packets of the result set into the codec."""
        condition = f" AND ({task.condition})" if task.condition else ""
        sql = (
            f"SELECT {codec.select_list} FROM {task.table.quoted} "
            f"WHERE {split_sql.predicate(task.columns, task.range)}{condition}"
        )
        return read_rows(self._connection, sql, codec, envelope)

    # -- comparisons -------------------------------------------------------------------------------------------------

    def canonical_text(self, column: Column, options: ValueOptions) -> CanonicalText:
        """Return SQL."""
        return canonical.canonical_text(column, options)

    def bucket_sums(self, task: SplitQuery, texts: RowTexts, sample: int) -> list[tuple[int, int, int]]:
        """Aggregate on the server."""
        answer = query(self._connection, split_sql.bucket_sums(task, texts, sample))
        if lost := sum(int(each[2]) for each in answer):
            raise _no_text(task, lost)
        return [(int(number), int(rows), int(high) << 64 | int(low)) for number, rows, _, high, low in answer]

    def compared_rows(self, task: SplitQuery, texts: RowTexts, request: Request) -> list[tuple[str, str]]:
        """Select them on the server."""
        answer = query(self._connection, split_sql.compared_rows(task, texts, request))
        if lost := sum(key is None or content is None for key, content in answer):
            raise _no_text(task, lost)
        return [(str(key), str(content)) for key, content in answer]

    def close(self) -> None:
        """Close the connection at once."""
        disconnect(self._connection)


def _no_text(task: SplitQuery, rows: int) -> SourceError:
    return SourceError(
        "the server made no text of some rows that are to be compared",
        hint="raise max_allowed_packet of the server, to which the texts of a row must fit",
        table=str(task.table),
        rows=rows,
    )
