"""The SELECT of a split reads the rows of its range and no others, whatever the columns of the key."""

from __future__ import annotations

from contextlib import closing
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from tailrace.producer.model.split import Range
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql import split_sql
from tailrace.producer.mysql.snapshot_session import MySqlSnapshotSession

if TYPE_CHECKING:
    from pymysql.connections import Connection

    from tailrace.producer.model.codec import KeyTuple
    from tailrace.producer.model.split import KeyColumn
    from tests.support.database import Database

ROWS, SIZE = 4000, 250

SHAPES = {
    # name: (key columns, expression of each from n in 0..ROWS-1)
    "leading columns of few values": ("a INT, b VARCHAR(10), c INT", "n % 2, CONCAT('k', n % 3), n"),
    "one leading value": ("a INT, b INT, c INT", "1, n DIV 1000, n"),
    "four columns": ("a INT, b INT, c DATE, d BIGINT", "n % 2, n % 2, DATE '2024-01-01' + INTERVAL (n % 2) DAY, n"),
    "distinct leading values": ("a INT, b INT, c INT", "n, 0, 0"),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_split_scans_its_range_only(shape: str, database: Database) -> None:
    """Splits of the real planner's bounds; the server counts the index entries that it reads."""
    columns, values = SHAPES[shape]
    names = [column.split()[0] for column in columns.split(", ")]
    database.execute(f"CREATE TABLE t ({columns}, v INT, PRIMARY KEY ({', '.join(names)}))")
    database.execute("CREATE TABLE numbers (n INT PRIMARY KEY)")
    database.executemany("INSERT INTO numbers VALUES (%s)", [(n,) for n in range(ROWS)])
    database.execute(f"INSERT INTO t SELECT {values}, n FROM numbers")
    database.execute("ANALYZE TABLE t")
    table = TableId(database.name, "t")

    with closing(database.connect()) as connection:
        session = MySqlSnapshotSession(connection)
        found = session.describe(table)
        key = session.splitting_columns(found, found.primary_key)
        assert len(key) == len(names)
        read = [_entries_read(connection, table, key, span) for span in _ranges(session, table, key)]

    assert sum(rows for rows, _ in read) == ROWS
    assert len(read) == ROWS // SIZE
    wasteful = [(rows, entries) for rows, entries in read if entries > rows + 2 * len(key) + 2]
    assert wasteful == []


def _ranges(session: MySqlSnapshotSession, table: TableId, key: tuple[KeyColumn, ...]) -> list[Range]:
    bounds: list[KeyTuple | None] = [None]
    greatest = session.max_key(table, key)
    while (bound := session.next_bound(table, key, Range(bounds[-1], greatest, closed=True), SIZE)) is not None:
        bounds.append(bound)
    return [Range(lower, upper) for lower, upper in pairwise(bounds)] + [Range(bounds[-1], greatest, closed=True)]


def _entries_read(connection: Connection, table: TableId, key: tuple[KeyColumn, ...], span: Range) -> tuple[int, int]:
    """Return how many rows a split has, and how many index entries its SELECT reads."""
    with connection.cursor() as cursor:
        cursor.execute("FLUSH STATUS")
        cursor.execute(f"SELECT * FROM {table.quoted} WHERE {split_sql.predicate(key, span)}")
        rows = len(cursor.fetchall())
        cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
        return rows, sum(int(value) for _, value in cursor.fetchall())
