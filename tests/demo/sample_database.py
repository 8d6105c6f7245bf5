"""The sample database: the tables of a shop and generators for their rows."""

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
"""The topic prefix."""

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
"""Table -> column definitions. Two tables have an integer key, one a text key, one a composite key."""

ROWS: Final = 210_000
"""Default number of rows in all tables."""

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
    """The number of rows per table."""

    customers: int
    products: int
    orders: int
    order_lines: int

    @classmethod
    def of(cls, total: int) -> Sizes:
        """Distribute ``total`` rows. Every table gets at least ten."""
        shares = {table: max(10, round(total * share)) for table, share in _SHARES.items()}
        return cls(**shares, order_lines=max(10, total - sum(shares.values())))


Row = tuple[Any, ...]


def exists(session: Connection[Any]) -> bool:
    """Return whether the database exists."""
    with session.cursor() as cursor:
        return bool(cursor.execute("SHOW DATABASES LIKE %s", (DATABASE,)))


def create(session: Connection[Any]) -> None:
    """Create the database and its empty tables."""
    with session.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4")
        for table, columns in TABLES.items():
            cursor.execute(f"CREATE TABLE {DATABASE}.{table} ({columns})")


def load(session: Connection[Any], sizes: Sizes) -> None:
    """Fill the tables with multi-row inserts."""
    rng = random.Random(7)
    for table, count in sizes._asdict().items():
        rows = _ROWS[table](rng, sizes)
        for start in range(0, count, _BATCH):
            batch = [next(rows) for _ in range(min(_BATCH, count - start))]
            insert(session, table, batch)


def insert(session: Connection[Any], table: str, rows: Sequence[Row]) -> None:
    """Insert complete rows with one statement."""
    marks = ", ".join(["%s"] * len(rows[0]))
    with session.cursor() as cursor:
        cursor.executemany(f"INSERT INTO {DATABASE}.{table} VALUES ({marks})", rows)


def words(rng: random.Random, count: int) -> str:
    """Return words in many scripts."""
    return " ".join(rng.choice(_WORDS) for _ in range(count))


def money(rng: random.Random, limit: int) -> Decimal:
    """Return an amount below ``limit`` with two decimals."""
    return Decimal(rng.randrange(limit * 100)).scaleb(-2)


def sku(number: int) -> str:
    """Return the key of product ``number``. Consecutive numbers are not consecutive in key order."""
    return f"{'ABCDEFGH'[number % 8]}{number * 7919 % 100_003:05d}-{number}"


def timestamp(rng: random.Random) -> datetime:
    """Return a time with microseconds and without a time zone."""
    return _FIRST_DAY + timedelta(microseconds=rng.randrange(2 * 365 * 86_400 * 1_000_000))


def customer(rng: random.Random, key: int) -> Row:
    """Return a row of ``customers``."""
    preferences = {"lang": rng.choice(["de", "fr", "日本語"]), "limits": [rng.randrange(99), 0.5, None], "dark": True}
    return (
        key,
        f"c{key}.{rng.randrange(1 << 40):x}@example.org",
        rng.choice(_NAMES),
        rng.choice(["new", "regular", "vip"]),
        money(rng, 9_000) - 1_000,
        date(1940 + rng.randrange(65), 1 + rng.randrange(12), 1 + rng.randrange(28)) if rng.random() < 0.8 else None,
        rng.randrange(2),
        json.dumps(preferences, ensure_ascii=False) if rng.random() < 0.7 else None,
        words(rng, rng.randrange(1, 12)) if rng.random() < 0.5 else None,
        timestamp(rng),
        timestamp(rng) if rng.random() < 0.6 else None,
    )


def product(rng: random.Random, key: str) -> Row:
    """Return a row of ``products``."""
    attributes = {"colour": rng.choice(["rot", "青", "black"]), "sizes": [1, 2.25, {"deep": [True, None]}]}
    return (
        key,
        words(rng, 3),
        words(rng, 20),
        money(rng, 2_000),
        rng.randrange(1 << 32),
        ",".join(tag for tag in ("eco", "sale", "bulky", "fragile") if rng.random() < 0.3),
        json.dumps(attributes, ensure_ascii=False),
        rng.randrange(2),
        1970 + rng.randrange(60),
    )


def order(rng: random.Random, key: int | None, customers: int) -> Row:
    """Return a row of ``orders``. Without a key the server assigns one."""
    placed = timestamp(rng)
    return (
        key,
        1 + rng.randrange(customers),
        rng.choice(["open", "paid", "sent", "returned"]),
        money(rng, 100_000),
        rng.choice(["EUR", "JPY", "USD"]),
        placed,
        placed + timedelta(seconds=rng.randrange(90_000)) if rng.random() < 0.7 else None,
        words(rng, 4) if rng.random() < 0.3 else None,
    )


def order_line(rng: random.Random, key: int, line: int, products: int) -> Row:
    """Return a row of ``order_lines``."""
    discount = rng.random() if rng.random() < 0.4 else None
    return (key, line, sku(1 + rng.randrange(products)), 1 + rng.randrange(20), money(rng, 2_000), discount)


def _order_lines(rng: random.Random, sizes: Sizes) -> Iterator[Row]:
    per_order = -(-sizes.order_lines // sizes.orders)
    for number in range(sizes.order_lines):
        yield order_line(rng, 1 + number // per_order, 1 + number % per_order, sizes.products)


_ROWS: Final[dict[str, Callable[[random.Random, Sizes], Iterator[Row]]]] = {
    "customers": lambda rng, sizes: (customer(rng, 1 + n) for n in range(sizes.customers)),
    "products": lambda rng, sizes: (product(rng, sku(1 + n)) for n in range(sizes.products)),
    "orders": lambda rng, sizes: (order(rng, 1 + n, sizes.customers) for n in range(sizes.orders)),
    "order_lines": _order_lines,
}
