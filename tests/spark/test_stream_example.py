"""The page on streams runs against real tables: after each round of changes its tables are equal to MySQL's queries."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyspark.pipelines
import pytest

from tests.docs.pages import PAGES, blocks
from tests.support.capture import CaptureThread, properties
from tests.support.database import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.embedded.kafka import KafkaBroker

pytestmark = pytest.mark.timeout(900)

TABLES: Final = (
    "CREATE TABLE orders (id INT PRIMARY KEY, state VARCHAR(10) NOT NULL)",
    "CREATE TABLE order_lines (id INT PRIMARY KEY, order_id INT, product VARCHAR(9), quantity INT, price DECIMAL(9,2))",
    "INSERT INTO orders VALUES (1, 'paid'), (2, 'open'), (3, 'paid')",
    "INSERT INTO order_lines VALUES (10, 1, 'pen', 3, 1.50), (11, 1, 'ink', 1, 7.25), (12, 2, 'pen', 5, 1.50)",
    "INSERT INTO order_lines VALUES (13, 3, 'cup', 1, 4.00), (14, NULL, 'cup', 9, 4.00)",
)
CHANGES: Final = (
    "INSERT INTO order_lines VALUES (15, 4, 'ink', 2, 7.25)",  # before its order
    "INSERT INTO orders VALUES (4, 'paid')",
    "UPDATE orders SET state = 'paid' WHERE id = 2",
    "UPDATE order_lines SET order_id = 2 WHERE id = 11",  # another join key
    "UPDATE order_lines SET order_id = 1 WHERE id = 14",  # from NULL
    "UPDATE order_lines SET product = 'pen', price = 1.75 WHERE id = 15",
    "UPDATE order_lines SET id = 20 WHERE id = 10",  # another primary key
    "UPDATE orders SET id = 30 WHERE id = 3",  # its line is left without an order
    "DELETE FROM order_lines WHERE id = 12",
    "UPDATE orders SET state = 'open' WHERE id = 1",
    "UPDATE order_lines SET quantity = quantity + 1",
)
SOLD: Final = (
    "SELECT l.id, o.id, o.state, l.product, l.quantity * l.price FROM orders o JOIN order_lines l ON l.order_id = o.id"
)
REVENUE: Final = (
    "SELECT l.product, SUM(l.quantity * l.price), COUNT(*) FROM orders o JOIN order_lines l ON l.order_id = o.id"
    " WHERE o.state = 'paid' GROUP BY l.product"
)


@pytest.fixture(autouse=True)
def settings_of_the_session(spark: SparkSession) -> Iterator[None]:
    """Remove the settings of the page."""
    yield
    spark.conf.unset("spark.sql.streaming.stateStore.providerClass")
    spark.conf.unset("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled")


def joined_rows(spark: SparkSession, folder: Path) -> list[tuple[Any, ...]]:
    """Return the table that the changelog describes: what is added and not retracted."""
    sign = "CASE WHEN kind IN ('+I', '+U') THEN 1 ELSE -1 END"
    left = spark.sql(f"SELECT row, SUM({sign}) n FROM delta.`{folder}/sold` GROUP BY row HAVING n <> 0").collect()
    assert {row["n"] for row in left} <= {1}
    return sorted(tuple(row["row"]) for row in left)


def test_the_page_runs(
    spark: SparkSession, kafka_broker: KafkaBroker, database: Database, prefix: str, tmp_path: Path
) -> None:
    for statement in TABLES:
        database.execute(statement)
    page = next(page for page in PAGES if page.name == "streams.md")
    code = "\n".join(block.text for block in blocks(page) if block.language == "python")
    code = code.replace("shop.inventory.", f"{prefix}.{database.name}.").replace('prefix="shop"', f'prefix="{prefix}"')
    with CaptureThread(properties(database.server, kafka_broker, prefix, database.name)) as capture:
        capture.wait_snapshot()
        for changes in (CHANGES[:6], CHANGES[6:]):
            for statement in changes:
                database.execute(statement)
            capture.wait_position(database.server)
            names: dict[str, Any] = {"spark": spark, "broker": kafka_broker.bootstrap, "folder": tmp_path}

            exec(code, names)  # noqa: S102

            sold, revenue = database.execute(SOLD), database.execute(REVENUE)
            found = spark.sql(f"SELECT product, revenue, lines FROM delta.`{tmp_path}/revenue`").collect()
            [[orders]] = database.execute("SELECT COUNT(*) FROM orders")
            [[lines]] = database.execute("SELECT COUNT(order_id) FROM order_lines")
            assert joined_rows(spark, tmp_path) == sorted(sold)
            assert sorted(map(tuple, found)) == sorted(revenue)
            assert names["state"] == [len(sold), orders + lines]
    assert {(product, total) for product, total, _ in revenue} == {("ink", Decimal("14.50")), ("pen", Decimal("5.25"))}


def test_spark_has_no_auto_cdc() -> None:
    """When this fails: replace the section on AUTO CDC in docs/streams.md by an example that a test runs."""
    assert not hasattr(pyspark.pipelines, "create_auto_cdc_flow")
