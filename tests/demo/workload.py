"""The workload: transactions of a shop that change rows during the snapshot and while changes stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.demo import sample_database
from tests.demo.deployment import Source
from tests.demo.transactions import Transactions

if TYPE_CHECKING:
    from pymysql import Connection
    from pymysql.cursors import Cursor

_ROLLBACK_SHARE: Final = 0.02
"""Share of transactions that are rolled back. None of their changes may reach the sink."""


class Workload(Transactions):
    """Runs transactions of the shop; some of them are rolled back."""

    def __init__(self, server: Source, sizes: sample_database.Sizes, *, rate: float) -> None:
        super().__init__(server, "demo-workload", rate=rate)
        self._sizes = sizes
        self._next_product = 0
        self._next_customer = 0
        shares = {
            self._new_order: 5,
            self._update_orders: 4,
            self._change_customers: 2,
            self._delete_order: 2,
            self._change_products: 1,
            self._update_keys: 1,
        }
        self._steps = [step for step, share in shares.items() for _ in range(share)]
        self.transactions = 0

    def run_one(self, session: Connection[Any]) -> None:
        """Run a step, and roll a small share of them back."""
        with session.cursor() as cursor:
            if not self._next_customer:
                self._find_free_keys(cursor)
            changes = self._rng.choice(self._steps)(cursor)
        if self._rng.random() < _ROLLBACK_SHARE:
            session.rollback()
        else:
            session.commit()
            self.transactions += 1
            self.changes += changes

    def _find_free_keys(self, cursor: Cursor) -> None:
        """Start after the existing keys: the workload may run more than once on a database."""
        cursor.execute("SELECT MAX(id) FROM customers")
        [(customer,)] = cursor.fetchall()
        cursor.execute(
            "SELECT MAX(CAST(SUBSTRING_INDEX(TRIM(TRAILING 'x' FROM sku), '-', -1) AS UNSIGNED)) FROM products"
        )
        [(product,)] = cursor.fetchall()
        self._next_customer = max(10_000_000, customer + 1)
        self._next_product = product + 1

    def _new_order(self, cursor: Cursor) -> int:
        """Insert an order with its lines. The server assigns the key."""
        rng, sizes = self._rng, self._sizes
        row = sample_database.order(rng, None, sizes.customers)
        cursor.execute(f"INSERT INTO orders VALUES ({', '.join(['%s'] * len(row))})", row)
        key = cursor.lastrowid
        lines = [sample_database.order_line(rng, key, 1 + n, sizes.products) for n in range(rng.randrange(1, 7))]
        cursor.executemany("INSERT INTO order_lines VALUES (%s, %s, %s, %s, %s, %s)", lines)
        return 1 + len(lines)

    def _update_orders(self, cursor: Cursor) -> int:
        """Update one order by its key, and several by one statement."""
        first = 1 + self._rng.randrange(self._sizes.orders)
        one = _execute(cursor, "UPDATE orders SET status = 'paid', paid = NOW(6) WHERE id = %s", first)
        several = _execute(
            cursor,
            "UPDATE orders SET total = total + 0.01, remark = %s WHERE id BETWEEN %s AND %s",
            sample_database.words(self._rng, 3),
            first + 1,
            first + 5,
        )
        return one + several

    def _change_customers(self, cursor: Cursor) -> int:
        """Insert, update and delete a customer."""
        rng = self._rng
        self._next_customer += 1
        row = sample_database.customer(rng, self._next_customer)
        cursor.execute(f"INSERT INTO customers VALUES ({', '.join(['%s'] * len(row))})", row)
        changed = _execute(
            cursor,
            "UPDATE customers SET credit = credit - 7.25, notes = %s, preferences = JSON_SET(preferences, '$.seen', %s)"
            " WHERE id = %s",
            sample_database.words(rng, 6),
            rng.randrange(1000),
            1 + rng.randrange(self._sizes.customers),
        )
        deleted = _execute(cursor, "DELETE FROM customers WHERE id = %s", 1 + rng.randrange(self._sizes.customers))
        return 1 + changed + deleted

    def _change_products(self, cursor: Cursor) -> int:
        """Insert a product and update the prices of others."""
        row = sample_database.product(self._rng, sample_database.sku(self._next_product))
        self._next_product += 1
        cursor.execute(f"INSERT INTO products VALUES ({', '.join(['%s'] * len(row))})", row)
        chosen = [sample_database.sku(1 + self._rng.randrange(self._sizes.products)) for _ in range(5)]
        sql = "UPDATE products SET price = price * 1.1, on_sale = NOT on_sale, tags = 'sale' WHERE sku IN %s"
        return 1 + _execute(cursor, sql, chosen)

    def _delete_order(self, cursor: Cursor) -> int:
        """Delete an order with its lines."""
        key = 1 + self._rng.randrange(self._sizes.orders)
        lines = _execute(cursor, "DELETE FROM order_lines WHERE order_id = %s", key)
        return lines + _execute(cursor, "DELETE FROM orders WHERE id = %s", key)

    def _update_keys(self, cursor: Cursor) -> int:
        """Update an integer key, a text key and a part of a composite key. Some rows get their old key back."""
        rng, sizes = self._rng, self._sizes
        self._next_customer += 1
        customer = 1 + rng.randrange(sizes.customers)
        changed = _execute(cursor, "UPDATE customers SET id = %s WHERE id = %s", self._next_customer, customer)
        if changed and rng.random() < 0.5:
            changed += _execute(cursor, "UPDATE customers SET id = %s WHERE id = %s", customer, self._next_customer)
        sku = sample_database.sku(1 + rng.randrange(sizes.products))
        changed += _execute(cursor, "UPDATE products SET sku = %s WHERE sku = %s", f"{sku}x"[:24], sku)
        sql = "UPDATE order_lines SET line = line + 100 WHERE order_id = %s AND line < 100 ORDER BY line DESC"
        return changed + _execute(cursor, sql, 1 + rng.randrange(sizes.orders))


def _execute(cursor: Cursor, sql: str, *args: Any) -> int:
    """Run one statement and return the number of changed rows."""
    return cursor.execute(sql, args)
