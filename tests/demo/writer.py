"""The writer: a shop at work, in transactions, while tables are read and the log is followed."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from tests.demo import shop
from tests.demo.running import Source

if TYPE_CHECKING:
    from pymysql.cursors import Cursor

_UNDONE_SHARE: Final = 0.02
"""Transactions that are rolled back: nothing of them may be seen."""


class Writer:
    """Runs transactions in a thread of its own, at most ``rate`` a second, until stopped."""

    def __init__(self, server: Source, sizes: shop.Sizes, *, rate: float) -> None:
        self._server = server
        self._sizes = sizes
        self._pause_s = 1 / rate
        self._stop = threading.Event()
        self._dice = random.Random(11)
        self._next_product = 0
        self._next_customer = 0
        self._thread = threading.Thread(target=self._run, name="shop-writer", daemon=True)
        self._failure: BaseException | None = None
        self.transactions = 0
        self.changes = 0

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """End after the transaction under way; raise what went wrong, if anything did."""
        self._stop.set()
        self._thread.join(60)
        self.check()

    def check(self) -> None:
        """Raise what ended the writer, if anything did."""
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        shares = {
            self._new_order: 5,
            self._progress: 4,
            self._customers: 2,
            self._cancel: 2,
            self._products: 1,
            self._move_keys: 1,
        }
        steps = [step for step, share in shares.items() for _ in range(share)]
        try:
            with self._server.connect(database=shop.DATABASE, autocommit=False) as session:
                with session.cursor() as cursor:
                    self._number(cursor)
                due = time.monotonic()
                while not self._stop.is_set():
                    with session.cursor() as cursor:
                        changes = self._dice.choice(steps)(cursor)
                    if self._dice.random() < _UNDONE_SHARE:
                        session.rollback()
                    else:
                        session.commit()
                        self.transactions += 1
                        self.changes += changes
                    due = max(due + self._pause_s, time.monotonic() - 1)  # a slow second is made up for, not more
                    self._stop.wait(max(0.0, due - time.monotonic()))
        except BaseException as error:  # noqa: BLE001 - raised by check()
            self._failure = error

    def _number(self, cursor: Cursor) -> None:
        """Begin behind the numbers that are taken: a shop may be written to again."""
        cursor.execute("SELECT MAX(id) FROM customers")
        [(customer,)] = cursor.fetchall()
        cursor.execute(
            "SELECT MAX(CAST(SUBSTRING_INDEX(TRIM(TRAILING 'x' FROM sku), '-', -1) AS UNSIGNED)) FROM products"
        )
        [(product,)] = cursor.fetchall()
        self._next_customer = max(10_000_000, customer + 1)
        self._next_product = product + 1

    def _new_order(self, cursor: Cursor) -> int:
        """An order and its lines; the server gives the key."""
        dice, sizes = self._dice, self._sizes
        row = shop.order(dice, None, sizes.customers)
        cursor.execute(f"INSERT INTO orders VALUES ({', '.join(['%s'] * len(row))})", row)
        key = cursor.lastrowid
        lines = [shop.order_line(dice, key, 1 + n, sizes.products) for n in range(dice.randrange(1, 7))]
        cursor.executemany("INSERT INTO order_lines VALUES (%s, %s, %s, %s, %s, %s)", lines)
        return 1 + len(lines)

    def _progress(self, cursor: Cursor) -> int:
        """Some orders anywhere move on: single rows, and a few by one statement."""
        first = 1 + self._dice.randrange(self._sizes.orders)
        one = _execute(cursor, "UPDATE orders SET status = 'paid', paid = NOW(6) WHERE id = %s", first)
        several = _execute(
            cursor,
            "UPDATE orders SET total = total + 0.01, remark = %s WHERE id BETWEEN %s AND %s",
            shop.words(self._dice, 3),
            first + 1,
            first + 5,
        )
        return one + several

    def _customers(self, cursor: Cursor) -> int:
        """A new customer, a changed one, and one that leaves."""
        dice = self._dice
        self._next_customer += 1
        row = shop.customer(dice, self._next_customer)
        cursor.execute(f"INSERT INTO customers VALUES ({', '.join(['%s'] * len(row))})", row)
        changed = _execute(
            cursor,
            "UPDATE customers SET credit = credit - 7.25, notes = %s, preferences = JSON_SET(preferences, '$.seen', %s)"
            " WHERE id = %s",
            shop.words(dice, 6),
            dice.randrange(1000),
            1 + dice.randrange(self._sizes.customers),
        )
        gone = _execute(cursor, "DELETE FROM customers WHERE id = %s", 1 + dice.randrange(self._sizes.customers))
        return 1 + changed + gone

    def _products(self, cursor: Cursor) -> int:
        """A new product, and new prices for some."""
        row = shop.product(self._dice, shop.sku(self._next_product))
        self._next_product += 1
        cursor.execute(f"INSERT INTO products VALUES ({', '.join(['%s'] * len(row))})", row)
        chosen = [shop.sku(1 + self._dice.randrange(self._sizes.products)) for _ in range(5)]
        sql = "UPDATE products SET price = price * 1.1, on_sale = NOT on_sale, tags = 'sale' WHERE sku IN %s"
        return 1 + _execute(cursor, sql, chosen)

    def _cancel(self, cursor: Cursor) -> int:
        """An order disappears with its lines."""
        key = 1 + self._dice.randrange(self._sizes.orders)
        lines = _execute(cursor, "DELETE FROM order_lines WHERE order_id = %s", key)
        return lines + _execute(cursor, "DELETE FROM orders WHERE id = %s", key)

    def _move_keys(self, cursor: Cursor) -> int:
        """Rows take other keys: an integer, a text and a part of a composite one; then one comes back."""
        dice, sizes = self._dice, self._sizes
        self._next_customer += 1
        customer = 1 + dice.randrange(sizes.customers)
        moved = _execute(cursor, "UPDATE customers SET id = %s WHERE id = %s", self._next_customer, customer)
        if moved and dice.random() < 0.5:
            moved += _execute(cursor, "UPDATE customers SET id = %s WHERE id = %s", customer, self._next_customer)
        sku = shop.sku(1 + dice.randrange(sizes.products))
        moved += _execute(cursor, "UPDATE products SET sku = %s WHERE sku = %s", f"{sku}x"[:24], sku)
        sql = "UPDATE order_lines SET line = line + 100 WHERE order_id = %s AND line < 100 ORDER BY line DESC"
        return moved + _execute(cursor, sql, 1 + dice.randrange(sizes.orders))


def _execute(cursor: Cursor, sql: str, *args: Any) -> int:
    """Run one statement and return how many rows it changed."""
    return cursor.execute(sql, args)
