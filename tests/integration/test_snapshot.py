"""The snapshot on a real server: every kind of table arrives completely, in splits with certificates."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.producer.snapshot.hooks import SnapshotHooks
from tailrace.schemas.names import watermarks_topic
from tests.support.capture import CaptureThread, properties, verified_rows
from tests.support.reference_model import ends_of
from tests.support.topics import read_topic

if TYPE_CHECKING:
    from tailrace.producer.model.split import Split
    from tailrace.schemas.watermark import Watermark
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database

CHUNK = 50

SHAPES: dict[str, tuple[str, Sequence[tuple[object, ...]]]] = {
    "dense integers": ("id INT PRIMARY KEY, v VARCHAR(20)", [(n, f"v{n}") for n in range(1, 331)]),
    "integers of two densities": (
        "id INT PRIMARY KEY, v INT",
        [(n if n < 166 else 3 * n - 330, n) for n in range(1, 331)],
    ),
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
    "decimals of two densities": (
        "id DECIMAL(65,2) PRIMARY KEY, v INT",
        [(f"{'9' * 50}{key // 100}.{key % 100:02d}", n) for n in range(300) for key in [max(n, 3 * n - 300)]],
    ),
    "binary": ("id VARBINARY(16) PRIMARY KEY, v INT", [(bytes([n % 256, n // 256, 0]), n) for n in range(300)]),
    "moments": (
        "id DATETIME(3) PRIMARY KEY, v INT",
        [(f"20{n % 90 + 10}-01-0{n % 9 + 1} 00:00:00.{n:03d}", n) for n in range(300)],
    ),
    "a key that cannot be cut": ("id ENUM('b','a','c') PRIMARY KEY, v INT", [("a", 1), ("b", 2), ("c", 3)]),
    "one row": ("id INT PRIMARY KEY, v INT", [(7, 7)]),
    "no row": ("id INT PRIMARY KEY, v INT", []),
    "a unique index for a key": ("u INT NOT NULL, v INT, UNIQUE KEY (u)", [(n, n) for n in range(120)]),
    "a chosen key": (
        "chosen VARCHAR(9) NOT NULL, id INT PRIMARY KEY, v INT, UNIQUE KEY (chosen)",
        [(f"k{n * 7 % 120}", n, n) for n in range(120)],
    ),
}


EVEN = {
    "dense integers": 50,
    "integers of two densities": 100,
    "signed from the minimum": 50,
    "decimals of two densities": Decimal(1),
    "a unique index for a key": 50,
}
"""The shapes whose keys are cut by arithmetic, and the width of their splits; the others are cut by queries."""

WHOLE = {"a key that cannot be cut", "no row"}
"""The shapes that are one split without bounds."""


@pytest.mark.parametrize("shape", SHAPES)
def test_snapshot_of_each_shape_then_changes(
    shape: str, database: Database, mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str
) -> None:
    """All rows arrive once, in certified splits; later changes of every row follow in order."""
    columns, rows = SHAPES[shape]
    database.execute(f"CREATE TABLE t ({columns})")
    if rows:
        database.executemany(f"INSERT INTO t VALUES ({', '.join(['%s'] * len(rows[0]))})", rows)
    database.execute("ANALYZE TABLE t")  # the method of the cut is chosen by the statistics

    changes: dict[str, object] = {"incremental.snapshot.chunk.size": CHUNK}
    if "chosen" in columns:
        changes["message.key.columns"] = f"{database.name}.t:chosen"
    settings = properties(mysql_server, kafka_broker, prefix, database.name, changes)
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        database.execute("UPDATE t SET v = 1000 WHERE v IS NOT NULL LIMIT 40")
        database.execute("DELETE FROM t LIMIT 5")
        capture.wait_position(mysql_server)
    found = verified_rows(kafka_broker.bootstrap, prefix, database.name, "t")

    expected = max(0, len(rows) - 5)
    assert len(found) == expected
    assert database.execute("SELECT COUNT(*) FROM t")[0][0] == expected
    ends = ends_of(read_topic(kafka_broker.bootstrap, watermarks_topic(prefix)), f"{prefix}.{database.name}.t")
    _check_cut(shape, len(rows), sorted((end for end in ends if not end.lower_open), key=lambda end: end.number))


def _number(bound: Any) -> Decimal:
    return Decimal(bound["decimal"] if isinstance(bound, dict) else bound)


def _check_cut(shape: str, rows: int, splits: Sequence[Watermark]) -> None:
    """Assert that splits join, and that each has the requested number of rows or, if even, of keys."""
    assert sum(split.rows for split in splits) == rows
    assert splits[0].lower is None
    assert all(left.upper == right.lower for left, right in itertools.pairwise(splits))
    if shape in WHOLE:
        assert [split.upper for split in splits] == [None]
        return
    assert splits[-1].closed
    if shape in EVEN:
        bounds = [_number(split.upper[0]) for split in splits[:-1] if split.upper is not None]
        assert {right - left for left, right in itertools.pairwise(bounds)} == {EVEN[shape]}
    else:
        *full, last = (split.rows for split in splits)
        assert set(full) <= {CHUNK}
        assert last <= CHUNK


def test_bounds_are_planned_a_few_ahead_of_the_readers(
    database: Database, mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str
) -> None:
    """While the first split is read, the server has told the bounds of a few: not for those of the whole table."""
    database.execute("CREATE TABLE t (id VARCHAR(20) COLLATE utf8mb4_bin PRIMARY KEY)")
    database.executemany("INSERT INTO t VALUES (%s)", [(f"k{n:04d}",) for n in range(30 * CHUNK)])
    requests_before: list[int] = []

    def count(split: Split) -> None:
        if split.number == 0:
            [(requests,)] = database.execute(
                "SELECT COALESCE(SUM(COUNT_STAR), 0) FROM performance_schema.events_statements_summary_by_digest"
                f" WHERE SCHEMA_NAME = '{database.name}' OR DIGEST_TEXT LIKE '%`{database.name}`%ORDER BY%LIMIT%'"
            )
            requests_before.append(int(requests))

    changes = {"incremental.snapshot.chunk.size": CHUNK, "snapshot.max.threads": 1}
    settings = properties(mysql_server, kafka_broker, prefix, database.name, changes)
    with CaptureThread(settings, SnapshotHooks(before_low=count)) as capture:
        capture.wait_snapshot()

    assert len(verified_rows(kafka_broker.bootstrap, prefix, database.name, "t")) == 30 * CHUNK
    assert requests_before
    assert requests_before[0] < 10


def test_initial_statements_run_in_the_sessions_of_the_readers(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """The account may read the table in a role that is not its default; no statement changes what values are."""
    account = f"role_{database.name}"
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMP DEFAULT '2026-01-02', v TEXT)")
    database.execute("INSERT INTO t (id, v) VALUES (1, 'é'), (2, 'é')")
    database.execute(f"CREATE ROLE {account}_reader")
    database.execute(f"GRANT SELECT ON `{database.name}`.* TO {account}_reader")
    database.execute(f"CREATE USER {account} IDENTIFIED BY 'm'")
    database.execute(f"GRANT {account}_reader TO {account}")
    database.execute(f"GRANT PROCESS, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {account}")
    changes = {"database.user": account, "database.password": "m"}
    changes["database.initial.statements"] = (
        f"SET ROLE {account}_reader; SET time_zone = '+05:00'; SET NAMES latin1; SET autocommit = 0"
    )
    with CaptureThread(properties(mysql_server, kafka_broker, prefix, database.name, changes)) as capture:
        capture.wait_snapshot()
        database.execute("INSERT INTO t (id, v) VALUES (3, 'é')")
        capture.wait_position(mysql_server)

    rows = verified_rows(kafka_broker.bootstrap, prefix, database.name, "t").values()
    assert [(row["at"], row["v"]) for row in rows] == [(row["at"], "é") for row in rows if row["id"] == 3] * 3
    database.execute(f"DROP USER {account}")
