"""A database that the real producer has captured: a snapshot under load, changes, a new column. Read-only for tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.embedded.kafka import KafkaBroker
from tests.support.background_writes import writing
from tests.support.capture import CaptureThread, eventually, properties
from tests.support.database import Database

Key = tuple[Any, ...]
Rows = dict[Key, dict[str, Any]]

ROWS: Final = 120
"""Rows of the first table before the snapshot."""

KEYS: Final = {"customers": ("id",), "orders": ("customer", "number"), "notes": ("code",), "unused": ("id",)}
"""Table to its key columns."""

SPARK_TYPES: Final = {
    "customers": "id BIGINT, name STRING, balance DECIMAL(12,2), born DATE, seen TIMESTAMP_NTZ, joined TIMESTAMP, "
    "active SMALLINT, photo BINARY, kind STRING, score DOUBLE, level INT",
    "orders": "customer INT, number INT, state STRING, total BIGINT",
    "notes": "code STRING, text STRING",
    "unused": "id INT, v INT",
}
"""Table to its columns, as a sink has them at the end."""

_CREATE: Final = (
    """
    CREATE TABLE customers (
        id BIGINT PRIMARY KEY, name VARCHAR(50), balance DECIMAL(12,2), born DATE, seen DATETIME(6),
        joined TIMESTAMP(6) NULL, active TINYINT NOT NULL, photo VARBINARY(20), kind ENUM('new', 'good'), score DOUBLE
    )
    """,
    "CREATE TABLE orders (customer INT, number INT, state VARCHAR(20), total BIGINT, PRIMARY KEY (customer, number))",
    "CREATE TABLE notes (code VARCHAR(30) PRIMARY KEY, text TEXT)",
    "CREATE TABLE unused (id INT PRIMARY KEY, v INT)",
)


@dataclass(frozen=True)
class CapturedSource:
    """What is in Kafka, and the rows that the tables have."""

    broker: KafkaBroker
    prefix: str
    database: str
    tables: dict[str, Rows]

    def topic(self, table: str) -> str:
        """Return the topic of a table."""
        return f"{self.prefix}.{self.database}.{table}"


def captured(
    database: Database, broker: KafkaBroker, prefix: str, changes: Mapping[str, object] | None = None
) -> CapturedSource:
    """Fill the tables, capture them while they change, and return the result; the producer has ended then.

    ``changes``: properties of the producer for another server than MySQL with GTIDs.
    """
    database.execute("SET time_zone = '+00:00'")
    for statement in _CREATE:
        database.execute(statement)
    database.executemany(
        "INSERT INTO customers VALUES (%s, %s, %s, '1990-02-03', '2024-01-02 03:04:05.000006', %s, 1, %s, 'new', 0.5)",
        [(n, f"Zoë {n}", f"{n}.25", "2024-05-06 07:08:09.5", bytes([n % 256, 0, 255])) for n in range(ROWS)],
    )
    database.executemany(
        "INSERT INTO orders VALUES (%s, %s, 'open', %s)", [(n // 3, n % 3, n << 33) for n in range(60)]
    )
    database.executemany("INSERT INTO notes VALUES (%s, %s)", [(f"k{n}", None) for n in range(60)])
    settings = properties(database.server, broker, prefix, database.name, changes)
    with CaptureThread(settings) as capture:
        with writing(database, _change, pause_s=0.02):
            capture.wait_snapshot()
        for number in range(10_000, 10_030):
            with database.connect() as session, session.cursor() as cursor:
                _change(cursor, number)
        database.execute("ALTER TABLE customers ADD level INT DEFAULT 3")
        database.execute("UPDATE customers SET level = id, name = NULL WHERE id % 7 = 0")
        database.execute("DELETE FROM customers WHERE id % 11 = 0")
        database.execute("UPDATE notes SET code = CONCAT(code, '/ü'), text = 'moved' WHERE code LIKE 'k1%'")
    with CaptureThread({**settings, "tailrace.stop.at": "latest"}) as capture:
        eventually(lambda: not capture.running, "the end of the binlog")
    tables = {table: _rows(database, table, key) for table, key in KEYS.items()}
    assert len(tables["customers"]) > ROWS // 2
    return CapturedSource(broker, prefix, database.name, tables)


def _change(cursor: Any, number: int) -> None:
    """Insert, update and delete; also a row that is inserted again, and a changed key."""
    at = number * 37 % ROWS
    cursor.execute("UPDATE customers SET balance = %s, active = 0, kind = 'good' WHERE id = %s", (number, at))
    cursor.execute("REPLACE INTO customers (id, name, active) VALUES (%s, 'again', 5)", (at + 1,))
    cursor.execute("DELETE FROM customers WHERE id = %s", (at + 2,))
    cursor.execute("INSERT INTO customers (id, name, active) VALUES (%s, 'late', 2)", (1_000 + number,))
    cursor.execute("INSERT INTO orders VALUES (%s, 0, 'new', NULL)", (100_000 + number,))
    cursor.execute("UPDATE orders SET customer = customer + 500000 WHERE customer = %s", (number % 40,))
    cursor.execute("UPDATE notes SET text = %s WHERE code = %s", (f"text {number} ✓", f"k{number % 60}"))


def _rows(database: Database, table: str, key: tuple[str, ...]) -> Rows:
    columns = [row[0] for row in database.execute(f"SHOW COLUMNS FROM {table}")]
    found = [dict(zip(columns, row, strict=True)) for row in database.execute(f"SELECT * FROM {table}")]
    return {tuple(row[name] for name in key): row for row in found}
