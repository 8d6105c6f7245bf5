"""The SELECT of a split reads the rows of its range and no others, whatever the columns of the key."""

from __future__ import annotations

import re
from contextlib import closing
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from tailrace.producer.errors import SourceError
from tailrace.producer.model.split import Range
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql import split_sql
from tailrace.producer.mysql.snapshot_session import MySqlSnapshotSession
from tailrace.producer.snapshot.splitter import ChunkSplitter, SplitterSettings

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


@pytest.mark.parametrize("statement", ["ADD INDEX", "ENGINE=InnoDB"])
def test_a_table_that_each_split_would_scan_is_refused(statement: str, database: Database) -> None:
    """Unless its splits are few; one of the statements in the message makes it readable."""
    engine = "MEMORY" if statement == "ADD INDEX" else "ARCHIVE"
    database.execute(f"CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY) ENGINE={engine}")
    database.executemany("INSERT INTO t VALUES (%s)", [(n,) for n in range(1, ROWS + 1)])
    table = TableId(database.name, "t")

    with closing(database.connect()) as connection:
        session = MySqlSnapshotSession(connection)
        found, size = session.describe(table), session.estimated_size(table)
        key = session.splitting_columns(found, found.primary_key)
        few, many = (
            ChunkSplitter(session, table, key, SplitterSettings(rows, 1 << 30, 100.0, 0.05))
            for rows in (ROWS // 100, ROWS // 100 - 1)
        )
        assert few.max_key(size) == (ROWS,)
        with pytest.raises(SourceError, match="each split would read the whole table") as caught:
            many.max_key(size)
        assert caught.value.context["key"] == "`id`"
        [remedy] = [part for part in re.findall(r"ALTER TABLE [^;,]+", str(caught.value.hint)) if statement in part]
        database.execute(remedy)
        assert many.max_key(size) == (ROWS,)


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
