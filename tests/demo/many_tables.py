"""Many tables of one database: copies of the sample tables, and a workload for all of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.demo import sample_database
from tests.demo.deployment import Source
from tests.demo.transactions import Transactions

if TYPE_CHECKING:
    from pymysql import Connection
    from pymysql.cursors import Cursor

_CUSTOMERS: Final = 500
_LINES: Final = 4
"""Order lines of an order."""
_BATCH: Final = 1_000
_TABLES_OF_A_TRANSACTION: Final = 3


@dataclass(frozen=True)
class Kind:
    """One of the sample tables; its copies have other names."""

    make: Callable[[random.Random, int], sample_database.Row]
    """Makes the row with a number."""
    key: tuple[str, ...]
    update: str
    """The columns that an update changes."""
    types: str
    """The columns in Spark's DDL."""

    def key_of(self, number: int) -> tuple[Any, ...]:
        """Return the key of the row with a number."""
        return self.make(random.Random(0), number)[: len(self.key)]


KINDS: Final = {
    "customers": Kind(
        lambda rng, number: sample_database.customer(rng, number + 1),
        ("id",),
        "credit = credit - 7.25, seen = NOW(6), newsletter = 1 - newsletter",
        "id BIGINT, email STRING, name STRING, segment STRING, credit DECIMAL(12,2), born DATE, newsletter SMALLINT,"
        " preferences STRING, notes STRING, created TIMESTAMP_NTZ, seen TIMESTAMP",
    ),
    "products": Kind(
        lambda rng, number: sample_database.product(rng, sample_database.sku(number)),
        ("sku",),
        "price = price * 1.1, on_sale = NOT on_sale, tags = 'sale'",
        "sku STRING, title STRING, description STRING, price DECIMAL(10,2), weight_g BIGINT, tags STRING,"
        " attributes STRING, on_sale BOOLEAN, released INT",
    ),
    "orders": Kind(
        lambda rng, number: sample_database.order(rng, number + 1, _CUSTOMERS),
        ("id",),
        "status = 'paid', paid = NOW(6), total = total + 0.01",
        "id BIGINT, customer_id BIGINT, status STRING, total DECIMAL(14,2), currency STRING, placed TIMESTAMP_NTZ,"
        " paid TIMESTAMP, remark STRING",
    ),
    "order_lines": Kind(
        lambda rng, number: sample_database.order_line(rng, number // _LINES + 1, number % _LINES, _CUSTOMERS),
        ("order_id", "line"),
        "quantity = quantity + 1, discount = NULL",
        "order_id BIGINT, line INT, sku STRING, quantity INT, unit_price DECIMAL(10,2), discount DOUBLE",
    ),
}


def names(count: int) -> list[str]:
    """Return the names of some tables."""
    kinds = list(KINDS)
    return [f"{kinds[number % len(kinds)]}_{number + 1:02}" for number in range(count)]


def kind_of(table: str) -> str:
    """Return the name of the sample table that a table is a copy of."""
    return table.rpartition("_")[0]


def load(session: Connection[Any], tables: Sequence[str], rows: int) -> None:
    """Create the database and its tables with some rows each."""
    rng = random.Random(7)
    with session.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {sample_database.DATABASE} CHARACTER SET utf8mb4")
        for table in tables:
            cursor.execute(
                f"CREATE TABLE {sample_database.DATABASE}.{table} ({sample_database.TABLES[kind_of(table)]})"
            )
    for table in tables:
        make = KINDS[kind_of(table)].make
        for start in range(0, rows, _BATCH):
            chosen = range(start, min(rows, start + _BATCH))
            sample_database.insert(session, table, [make(rng, number) for number in chosen])


class Changes(Transactions):
    """Changes rows of all tables, those of some tables in each transaction."""

    def __init__(self, server: Source, tables: Sequence[str], rows: int, *, rate: float) -> None:
        super().__init__(server, "demo-changes", rate=rate)
        self._tables, self._rows = tables, rows
        self._next = dict.fromkeys(tables, rows)

    def run_one(self, session: Connection[Any]) -> None:
        """Change a row of each of some tables."""
        with session.cursor() as cursor:
            for table in self._rng.sample(self._tables, min(_TABLES_OF_A_TRANSACTION, len(self._tables))):
                self.changes += self._change(cursor, table)
        session.commit()

    def _change(self, cursor: Cursor, table: str) -> int:
        """Insert, update or delete a row, or move one to a new key."""
        kind, what = KINDS[kind_of(table)], self._rng.random()
        old = kind.key_of(self._rng.randrange(self._rows))
        where = " AND ".join(f"{name} = %s" for name in kind.key)
        if what < 0.5:
            return cursor.execute(f"UPDATE {table} SET {kind.update} WHERE {where}", old)
        if what < 0.65:
            return cursor.execute(f"DELETE FROM {table} WHERE {where}", old)
        number = self._next[table]
        self._next[table] += 1
        if what < 0.75:
            moved = ", ".join(f"{name} = %s" for name in kind.key)
            return cursor.execute(f"UPDATE {table} SET {moved} WHERE {where}", (*kind.key_of(number), *old))
        row = kind.make(self._rng, number)
        return cursor.execute(f"INSERT INTO {table} VALUES ({', '.join(['%s'] * len(row))})", row)
