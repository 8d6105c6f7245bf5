"""The snapshot on a real server: every kind of table arrives completely, in splits with certificates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from tests.support.capture import CaptureThread, properties, verified_rows

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database

SHAPES: dict[str, tuple[str, Sequence[tuple[object, ...]]]] = {
    "dense integers": ("id INT PRIMARY KEY, v VARCHAR(20)", [(n, f"v{n}") for n in range(1, 331)]),
    "sparse integers": ("id BIGINT PRIMARY KEY, v VARCHAR(20)", [(n**4, f"v{n}") for n in range(1, 331)]),
    "unsigned to the maximum": (
        "id BIGINT UNSIGNED PRIMARY KEY, v INT",
        [(2**64 - 1 - n, n) for n in range(200)] + [(n, n) for n in range(100)],
    ),
    "signed from the minimum": ("id BIGINT PRIMARY KEY, v INT", [(-(2**63) + n, n) for n in range(300)]),
    "text without regard to case": (
        "id VARCHAR(40) COLLATE utf8mb4_general_ci PRIMARY KEY, v INT",
        [(f"{'aBcDeFé'[n % 7]}{'-_ xY'[n % 5]}{n}", n) for n in range(300)],
    ),
    "text in binary order": (
        "id VARCHAR(40) COLLATE utf8mb4_bin PRIMARY KEY, v INT",
        [(f"{chr(0x41 + n % 50)}{chr(0x1F300 + n)}", n) for n in range(300)],
    ),
    "latin1 text that pads": (
        "id CHAR(12) CHARACTER SET latin1 PRIMARY KEY, v INT",
        [(f"{'äÄaAzß'[n % 6]}\t{n}" if n % 2 else f"{'äÄaAzß'[n % 6]}{n}", n) for n in range(300)],
    ),
    "two columns, few first values": (
        "a INT, b VARCHAR(10), v INT, PRIMARY KEY (a, b)",
        [(n % 2, f"k{n}", n) for n in range(300)],
    ),
    "decimals": ("id DECIMAL(20,4) PRIMARY KEY, v INT", [(f"{n * n - 5000}.{n:04d}", n) for n in range(300)]),
    "binary": ("id VARBINARY(16) PRIMARY KEY, v INT", [(bytes([n % 256, n // 256, 0]), n) for n in range(300)]),
    "moments": (
        "id DATETIME(3) PRIMARY KEY, v INT",
        [(f"20{n % 90 + 10}-01-0{n % 9 + 1} 00:00:00.{n:03d}", n) for n in range(300)],
    ),
    "a key that cannot be cut": ("id ENUM('b','a','c') PRIMARY KEY, v INT", [("a", 1), ("b", 2), ("c", 3)]),
    "one row": ("id INT PRIMARY KEY, v INT", [(7, 7)]),
    "no row": ("id INT PRIMARY KEY, v INT", []),
    "a unique index for a key": ("u INT NOT NULL, v INT, UNIQUE KEY (u)", [(n, n) for n in range(120)]),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_snapshot_of_each_shape_then_changes(
    shape: str, database: Database, mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str
) -> None:
    """All rows arrive once, in certified splits; later changes of every row follow in order."""
    columns, rows = SHAPES[shape]
    database.execute(f"CREATE TABLE t ({columns})")
    if rows:
        database.executemany(f"INSERT INTO t VALUES ({', '.join(['%s'] * len(rows[0]))})", rows)

    with CaptureThread(properties(mysql_server, kafka_broker, prefix, database.name)) as capture:
        capture.wait_snapshot()
        database.execute("UPDATE t SET v = 1000 WHERE v IS NOT NULL LIMIT 40")
        database.execute("DELETE FROM t LIMIT 5")
        capture.wait_position(mysql_server)
    found = verified_rows(kafka_broker.bootstrap, prefix, database.name, "t")

    expected = max(0, len(rows) - 5)
    assert len(found) == expected
    assert database.execute("SELECT COUNT(*) FROM t")[0][0] == expected
