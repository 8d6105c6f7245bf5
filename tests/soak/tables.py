"""The tables of a round: one for every kind of key, and the statements that change them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Final

ADDED_COLUMN: Final = "extra"
"""Is added and dropped while rows change. ALTER TABLE writes no row events, so checks do not compare it."""


@dataclass(frozen=True, slots=True)
class SoakTable:
    """A table, and how key values are made from small numbers."""

    name: str
    key_columns: tuple[str, ...]
    definition: str
    """The key columns with their types, and the key."""

    def key(self, number: int) -> tuple[Any, ...]:
        """Return the key values of a number; different numbers give different keys."""
        kind = self.name
        if kind == "by_text":
            return (f"{'äzAß_b'[number % 6]}{number:05d}",)
        if kind == "by_two":
            return (number % 17, f"k{number}")
        if kind == "by_bytes":
            return (number.to_bytes(4, "big") + b"\xff\x00",)
        if kind == "by_decimal":
            return (f"{number // 3 - 500}.{number % 3}5",)
        if kind == "by_datetime":
            return (f"2024-{number % 12 + 1:02d}-{number // 12 % 28 + 1:02d} {number // 336 % 24:02d}:00:00",)
        return (number,)

    def create(self) -> str:
        """Return the CREATE TABLE statement."""
        return f"CREATE TABLE {self.name} ({self.definition}, v VARCHAR(100), n BIGINT)"

    def where(self) -> str:
        """Return the condition on one key."""
        return " AND ".join(f"{column} = %s" for column in self.key_columns)


TABLES: Final = (
    SoakTable("by_integer", ("id",), "id INT PRIMARY KEY"),
    SoakTable("by_unsigned", ("id",), "id BIGINT UNSIGNED PRIMARY KEY"),
    SoakTable(
        "by_text", ("id",), "id VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci NOT NULL PRIMARY KEY"
    ),
    SoakTable("by_two", ("a", "b"), "a INT NOT NULL, b VARCHAR(20) NOT NULL, PRIMARY KEY (a, b)"),
    SoakTable("by_bytes", ("id",), "id VARBINARY(16) NOT NULL PRIMARY KEY"),
    SoakTable("by_decimal", ("id",), "id DECIMAL(12,2) NOT NULL PRIMARY KEY"),
    SoakTable("by_datetime", ("id",), "id DATETIME NOT NULL PRIMARY KEY"),
)


def change(cursor: Any, table: SoakTable, rng: random.Random, rows: int) -> None:
    """Run one random change of a table."""
    number = rng.randrange(rows * 2)
    key, condition = table.key(number), table.where()
    kind = rng.random()
    if kind < 0.35:
        columns = ", ".join((*table.key_columns, "v", "n"))
        marks = ", ".join(["%s"] * (len(key) + 2))
        update = "v = VALUES(v), n = VALUES(n)"
        statement = f"INSERT INTO {table.name} ({columns}) VALUES ({marks}) ON DUPLICATE KEY UPDATE {update}"
        cursor.execute(statement, (*key, f"i{rng.randrange(10**6)}", number))
    elif kind < 0.7:
        value = f"u{rng.randrange(10**6)}"
        cursor.execute(f"UPDATE {table.name} SET v = %s, n = n + 1 WHERE {condition}", (value, *key))
    elif kind < 0.9:
        cursor.execute(f"DELETE FROM {table.name} WHERE {condition}", key)
    else:
        assignments = ", ".join(f"{column} = %s" for column in table.key_columns)
        other = table.key(rng.randrange(rows * 2, rows * 3))
        cursor.execute(f"UPDATE IGNORE {table.name} SET {assignments} WHERE {condition}", (*other, *key))
