"""The tables of a round: one for every kind of key, and the statements that change their rows."""

from __future__ import annotations

import random
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import Any, Final

import orjson
import pymysql
from pymysql.constants import ER

ADDED_COLUMN: Final = "extra"
"""Is added and dropped while rows change. ALTER TABLE writes no row events, so checks do not compare it."""

RENAMED_COLUMNS: Final = ("w", "w2")
"""The two names of a column that is renamed back and forth."""

COPIES: Final = "new|gho"
FORMER: Final = "old|del"
"""Last parts of the names of tables during an online schema change."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SoakTable:
    """A table, and how key values are made from small numbers."""

    name: str
    key_columns: tuple[str, ...]
    definition: str
    """The key columns with their types, and the key."""
    longer_key: str = ""
    """The definition of the key column after it became longer; empty if it cannot."""

    def key(self, number: int) -> tuple[Any, ...]:
        """Return the key values of a number; different numbers give different keys."""
        kind = self.name
        if kind == "by_text":
            return (f"{'äzAß_b'[number % 6]}{number:05d}",)
        if kind == "by_padded":
            return (f"{'aéZ.'[number % 4]}{number}",)
        if kind in {"by_two", "by_unique"}:
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
        return (
            f"CREATE TABLE {self.name} ({self.definition}, v VARCHAR(100), n INT, d DATETIME, "
            f"{RENAMED_COLUMNS[0]} VARCHAR(20) DEFAULT 'w0')"
        )

    def where(self) -> str:
        """Return the condition on one key."""
        return " AND ".join(f"{column} = %s" for column in self.key_columns)


TABLES: Final = (
    SoakTable("by_integer", ("id",), "id INT PRIMARY KEY", "id BIGINT NOT NULL"),
    SoakTable("by_unsigned", ("id",), "id BIGINT UNSIGNED PRIMARY KEY"),
    SoakTable(
        "by_text",
        ("id",),
        "id VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci NOT NULL PRIMARY KEY",
        "id VARCHAR(60) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci NOT NULL",
    ),
    SoakTable("by_two", ("a", "b"), "a INT NOT NULL, b VARCHAR(20) NOT NULL, PRIMARY KEY (a, b)"),
    # The binlog does not describe a unique index that replaces a primary key.
    SoakTable("by_unique", ("a", "b"), "a INT NOT NULL, b VARCHAR(20) NOT NULL, UNIQUE KEY (a, b)"),
    SoakTable("by_padded", ("id",), "id CHAR(20) CHARACTER SET latin1 COLLATE latin1_swedish_ci NOT NULL PRIMARY KEY"),
    SoakTable("by_bytes", ("id",), "id VARBINARY(16) NOT NULL PRIMARY KEY"),
    SoakTable("by_decimal", ("id",), "id DECIMAL(12,2) NOT NULL PRIMARY KEY"),
    SoakTable("by_datetime", ("id",), "id DATETIME NOT NULL PRIMARY KEY"),
)

KEYS: Final[Mapping[str, tuple[str, ...]]] = {table.name: table.key_columns for table in TABLES}

_DATES: Final = frozenset({("by_datetime", "id")})
_DATE_COLUMN: Final = "d"
_MICROSECONDS_FROM: Final = 10**14
"""A time of this century is greater in microseconds and less in milliseconds."""


@cache
def base_name(table: str) -> str:
    """Return the table whose copy an online schema change has made, or the name itself."""
    for name in KEYS:
        if re.fullmatch(f"_{name}_({COPIES}|{FORMER})", table):
            return name
    return table


@cache
def key_columns(table: str) -> tuple[str, ...]:
    """Return the key columns of any table of a round."""
    return KEYS.get(base_name(table), ("id",))


def from_source(values: Mapping[str, Any]) -> Row:
    """Return the compared columns of a row with the values of a driver: those of SELECT or of the binlog."""
    return {_name(name): _plain(value) for name, value in values.items() if name != ADDED_COLUMN}


def from_topic(table: str, values: Mapping[str, Any]) -> Row:
    """Return the compared columns of a row with the values of a record."""
    row = {_name(name): value for name, value in values.items() if name != ADDED_COLUMN}
    for column, value in list(row.items()):
        if column == _DATE_COLUMN or (base_name(table), column) in _DATES:
            row[column] = value * 1000 if value is not None and abs(value) < _MICROSECONDS_FROM else value
    return row


def key_text(table: str, row: Mapping[str, Any]) -> str:
    """Return the key of a row that ``from_source`` or ``from_topic`` gave."""
    return orjson.dumps([row[column] for column in key_columns(table)]).decode()


def _name(column: str) -> str:
    return RENAMED_COLUMNS[0] if column in RENAMED_COLUMNS else column


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        since = value.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return value


def change(cursor: Any, table: SoakTable, rng: random.Random, rows: int) -> None:
    """Run one random change of a table."""
    number = rng.randrange(rows * 2)
    key, condition = table.key(number), table.where()
    kind = rng.random()
    if kind < 0.35:
        columns = ", ".join((*table.key_columns, "v", "n", "d"))
        marks = ", ".join(["%s"] * (len(key) + 3))
        update = "v = VALUES(v), n = VALUES(n), d = VALUES(d)"
        statement = f"INSERT INTO {table.name} ({columns}) VALUES ({marks}) ON DUPLICATE KEY UPDATE {update}"
        cursor.execute(statement, (*key, f"i{rng.randrange(10**6)}", number, _random_time(rng)))
    elif kind < 0.65:
        value = f"u{rng.randrange(10**6)}"
        cursor.execute(f"UPDATE {table.name} SET v = %s, n = n + 1 WHERE {condition}", (value, *key))
    elif kind < 0.7:
        column = rng.choice(RENAMED_COLUMNS)
        statement = f"UPDATE {table.name} SET {column} = %s, d = %s WHERE {condition}"
        try:
            cursor.execute(statement, (f"w{rng.randrange(10**6)}", _random_time(rng), *key))
        except pymysql.err.OperationalError as error:
            # The column has the other name: an error of the statement, not of the transaction.
            if error.args[0] != ER.BAD_FIELD_ERROR:
                raise
    elif kind < 0.9:
        cursor.execute(f"DELETE FROM {table.name} WHERE {condition}", key)
    else:
        assignments = ", ".join(f"{column} = %s" for column in table.key_columns)
        other = table.key(rng.randrange(rows * 2, rows * 3))
        cursor.execute(f"UPDATE IGNORE {table.name} SET {assignments} WHERE {condition}", (*other, *key))


def _random_time(rng: random.Random) -> str | None:
    if rng.random() < 0.1:
        return None
    return f"2025-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d} 12:34:56.{rng.randrange(10**6):06d}"
