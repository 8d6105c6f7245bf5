"""The shop database: its tables, and rows that look like a shop's."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from pymysql import Connection

DATABASE: Final = "shop"
PREFIX: Final = "demo"
"""Of the topics."""

TABLES: Final = {
    "customers": """
        id          BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
        email       VARCHAR(120) NOT NULL UNIQUE,
        name        VARCHAR(80) NOT NULL,
        segment     ENUM('new', 'regular', 'vip') NOT NULL DEFAULT 'new',
        credit      DECIMAL(12,2) NOT NULL DEFAULT 0,
        born        DATE NULL,
        newsletter  TINYINT(1) NOT NULL DEFAULT 0,
        preferences JSON NULL,
        notes       TEXT NULL,
        created     DATETIME(6) NOT NULL,
        seen        TIMESTAMP(6) NULL""",
    "products": """
        sku         VARCHAR(24) NOT NULL PRIMARY KEY,
        title       VARCHAR(120) NOT NULL,
        description TEXT NOT NULL,
        price       DECIMAL(10,2) NOT NULL,
        weight_g    INT UNSIGNED NOT NULL,
        tags        SET('eco', 'sale', 'bulky', 'fragile') NOT NULL DEFAULT '',
        attributes  JSON NOT NULL,
        on_sale     BIT(1) NOT NULL DEFAULT b'0',
        released    YEAR NOT NULL""",
    "orders": """
        id          BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
        customer_id BIGINT UNSIGNED NOT NULL,
        status      ENUM('open', 'paid', 'sent', 'returned') NOT NULL,
        total       DECIMAL(14,2) NOT NULL,
        currency    CHAR(3) NOT NULL,
        placed      DATETIME(6) NOT NULL,
        paid        TIMESTAMP(6) NULL,
        remark      VARCHAR(200) NULL,
        KEY (customer_id)""",
    "order_lines": """
        order_id    BIGINT NOT NULL,
        line        SMALLINT UNSIGNED NOT NULL,
        sku         VARCHAR(24) NOT NULL,
        quantity    INT NOT NULL,
        unit_price  DECIMAL(10,2) NOT NULL,
        discount    DOUBLE NULL,
        PRIMARY KEY (order_id, line)""",
}
"""Table -> columns. Keys: two integers, one text, one composite."""

ROWS: Final = 210_000
"""Rows of all tables together, unless asked otherwise."""

_SHARES: Final = {"customers": 0.10, "products": 0.02, "orders": 0.28}
_BATCH: Final = 2_000
_FIRST_DAY: Final = datetime(2024, 1, 1, tzinfo=UTC).replace(tzinfo=None)

_NAMES: Final = (
    "Zoë Müller",
    "Søren Ångström",
    "李小龍",
    "Наталья Орлова",
    "محمد علي",
    "Ana-María O'Neill",
    "ひかり",
    "🦊 Fox",
)
_WORDS: Final = (
    "lamp",
    "stool",
    "crème",
    "Straße",
    "茶壺",
    "самовар",
    "mug",
    "kettle",
    'quoted "x"',
    "back\\slash",
    "🎁",
)


class Sizes(NamedTuple):
    """How many rows each table gets."""

    customers: int
    products: int
    orders: int
    order_lines: int

    @classmethod
    def of(cls, total: int) -> Sizes:
        """Share ``total`` rows out; every table gets at least ten."""
        shares = {table: max(10, round(total * share)) for table, share in _SHARES.items()}
        return cls(**shares, order_lines=max(10, total - sum(shares.values())))


Row = tuple[Any, ...]


def exists(session: Connection[Any]) -> bool:
    """Tell whether the database is there."""
    with session.cursor() as cursor:
        return bool(cursor.execute("SHOW DATABASES LIKE %s", (DATABASE,)))


def create(session: Connection[Any]) -> None:
    """Make the database and its tables, empty."""
    with session.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4")
        for table, columns in TABLES.items():
            cursor.execute(f"CREATE TABLE {DATABASE}.{table} ({columns})")


def load(session: Connection[Any], sizes: Sizes) -> None:
    """Fill the tables by multi-row inserts."""
    dice = random.Random(7)
    for table, count in sizes._asdict().items():
        rows = _ROWS[table](dice, sizes)
        for start in range(0, count, _BATCH):
            batch = [next(rows) for _ in range(min(_BATCH, count - start))]
            insert(session, table, batch)


def insert(session: Connection[Any], table: str, rows: Sequence[Row]) -> None:
    """Insert whole rows by one statement."""
    marks = ", ".join(["%s"] * len(rows[0]))
    with session.cursor() as cursor:
        cursor.executemany(f"INSERT INTO {DATABASE}.{table} VALUES ({marks})", rows)


def words(dice: random.Random, count: int) -> str:
    """Return text in many scripts."""
    return " ".join(dice.choice(_WORDS) for _ in range(count))


def money(dice: random.Random, limit: int) -> Decimal:
    """Return an amount below ``limit`` with two decimals."""
    return Decimal(dice.randrange(limit * 100)).scaleb(-2)


def sku(number: int) -> str:
    """Return the key of product ``number``; neighbours in number are not neighbours in order."""
    return f"{'ABCDEFGH'[number % 8]}{number * 7919 % 100_003:05d}-{number}"


def moment(dice: random.Random) -> datetime:
    """Return a moment of the last years to the microsecond, without a zone."""
    return _FIRST_DAY + timedelta(microseconds=dice.randrange(2 * 365 * 86_400 * 1_000_000))


def customer(dice: random.Random, key: int) -> Row:
    """Return a row of ``customers``."""
    preferences = {"lang": dice.choice(["de", "fr", "日本語"]), "limits": [dice.randrange(99), 0.5, None], "dark": True}
    return (
        key,
        f"c{key}.{dice.randrange(1 << 40):x}@example.org",
        dice.choice(_NAMES),
        dice.choice(["new", "regular", "vip"]),
        money(dice, 9_000) - 1_000,
        date(1940 + dice.randrange(65), 1 + dice.randrange(12), 1 + dice.randrange(28))
        if dice.random() < 0.8
        else None,
        dice.randrange(2),
        json.dumps(preferences, ensure_ascii=False) if dice.random() < 0.7 else None,
        words(dice, dice.randrange(1, 12)) if dice.random() < 0.5 else None,
        moment(dice),
        moment(dice) if dice.random() < 0.6 else None,
    )


def product(dice: random.Random, key: str) -> Row:
    """Return a row of ``products``."""
    attributes = {"colour": dice.choice(["rot", "青", "black"]), "sizes": [1, 2.25, {"deep": [True, None]}]}
    return (
        key,
        words(dice, 3),
        words(dice, 20),
        money(dice, 2_000),
        dice.randrange(1 << 32),
        ",".join(tag for tag in ("eco", "sale", "bulky", "fragile") if dice.random() < 0.3),
        json.dumps(attributes, ensure_ascii=False),
        dice.randrange(2),
        1970 + dice.randrange(60),
    )


def order(dice: random.Random, key: int | None, customers: int) -> Row:
    """Return a row of ``orders``; without a key the server gives one."""
    placed = moment(dice)
    return (
        key,
        1 + dice.randrange(customers),
        dice.choice(["open", "paid", "sent", "returned"]),
        money(dice, 100_000),
        dice.choice(["EUR", "JPY", "USD"]),
        placed,
        placed + timedelta(seconds=dice.randrange(90_000)) if dice.random() < 0.7 else None,
        words(dice, 4) if dice.random() < 0.3 else None,
    )


def order_line(dice: random.Random, key: int, line: int, products: int) -> Row:
    """Return a row of ``order_lines``."""
    discount = dice.random() if dice.random() < 0.4 else None
    return (key, line, sku(1 + dice.randrange(products)), 1 + dice.randrange(20), money(dice, 2_000), discount)


def _order_lines(dice: random.Random, sizes: Sizes) -> Iterator[Row]:
    per_order = -(-sizes.order_lines // sizes.orders)
    for number in range(sizes.order_lines):
        yield order_line(dice, 1 + number // per_order, 1 + number % per_order, sizes.products)


_ROWS: Final[dict[str, Callable[[random.Random, Sizes], Iterator[Row]]]] = {
    "customers": lambda dice, sizes: (customer(dice, 1 + n) for n in range(sizes.customers)),
    "products": lambda dice, sizes: (product(dice, sku(1 + n)) for n in range(sizes.products)),
    "orders": lambda dice, sizes: (order(dice, 1 + n, sizes.customers) for n in range(sizes.orders)),
    "order_lines": _order_lines,
}
