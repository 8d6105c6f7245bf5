"""Tables that are altered at the source end equal in Delta, through the real server, producer and consumer."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from tailrace.schemas.names import INCREMENTAL_HEADER
from tests.spark.running import consume, settings
from tests.support.capture import CaptureThread, eventually, properties, records_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.embedded.kafka import KafkaBroker
    from tests.support.database import Database


class Case(NamedTuple):
    """A table with the columns ``id`` and ``columns``, its rows, statements, and a row that is written after them."""

    columns: str
    rows: tuple[str, ...]
    statements: tuple[str, ...]
    after: str = ""
    """Values of the row after the statements, with its id; '': defaults."""


CASES: Final[dict[str, Case]] = {
    "added": Case(
        "n INT",
        ("1, 10", "2, NULL", "3, 30"),
        (
            "ADD a INT NOT NULL DEFAULT 5 FIRST, ADD b VARCHAR(20) DEFAULT 'it''s' AFTER n, ADD c DEC(9,2) DEFAULT 1",
            "ADD COLUMN (d DATETIME DEFAULT '2020-01-02', e VARCHAR(9) NOT NULL, f BIGINT), ALTER a SET DEFAULT 9",
        ),
        "8, 9, 1, 'b', NULL, NULL, 'e', NULL",
    ),
    "renamed": Case(
        "a INT, b VARCHAR(20)",
        ("1, 1, 'x'", "2, 2, 'y'", "3, NULL, NULL"),
        ("RENAME COLUMN a TO a2, CHANGE b b2 VARCHAR(40)", "CHANGE a2 a3 BIGINT"),
        "9, 9, 'z'",
    ),
    "dropped": Case(
        "a INT, b INT", ("1, 1, 1", "2, 2, 2", "3, 3, 3"), ("DROP a", "ADD c INT DEFAULT 3, DROP COLUMN b")
    ),
    "replaced": Case(
        "a INT, b INT",
        ("1, 1, 1", "2, 2, 2", "3, 3, 3"),
        ("DROP a, ADD a INT DEFAULT 7", "DROP b", "ADD b INT"),
        "9, 9, 9",
    ),
    "widened": Case(
        "a TINYINT, b INT, c DECIMAL(6,2), d DATE, e VARCHAR(5), f INT NOT NULL, g FLOAT",
        ("1, 1, 1, 1.25, '2020-02-02', 'a', 1, 1.5", "2, -1, -2, -3.5, NULL, NULL, 2, NULL"),
        ("MODIFY a INT, MODIFY b BIGINT, MODIFY c DECIMAL(12,4), MODIFY d DATETIME, MODIFY e TEXT, MODIFY f INT NULL",
         "MODIFY g DOUBLE, ADD INDEX (b), COMMENT 'x', ROW_FORMAT=DYNAMIC"),
        "9, 100000, 5000000000, 123456.1234, '2021-01-01 10:00:00', 'longer', NULL, 1e300",
    ),
    "narrowed": Case(
        "a DECIMAL(10,4), b DATETIME(6), c BIGINT",
        ("1, 1.2345, '2020-01-01 00:00:00.987654', 1", "2, 2, '2020-01-01', 2"),
        ("MODIFY a DECIMAL(10,2), MODIFY b DATETIME(2)", "MODIFY c INT"),
        "9, 1.23, '2020-01-01 00:00:00.99', 3",
    ),
    "computed": Case(
        "a INT",
        ("1, 1", "2, 2"),
        ("ADD t TIMESTAMP(3) DEFAULT CURRENT_TIMESTAMP(3), ADD u VARCHAR(36) DEFAULT (UUID()), ADD g INT AS (a + 1)",),
    ),
}  # fmt: skip


READ_AFTER_ALTER: Final = {"narrowed", "computed"}
"""Tables with values that only an incremental snapshot has."""


def written(database: Database, name: str, case: Case) -> None:
    """Create a table with its rows."""
    database.execute(f"CREATE TABLE `{name}` (id INT PRIMARY KEY, {case.columns})")
    for row in case.rows:
        database.execute(f"INSERT INTO `{name}` VALUES ({row})")


def alter(database: Database, name: str, case: Case) -> None:
    """Run the statements, and write one row."""
    for statement in case.statements:
        database.execute(f"ALTER TABLE `{name}` {statement}")
    values = f"VALUES ({case.after})" if case.after else "(id) VALUES (9)"
    database.execute(f"INSERT INTO `{name}` {values}")


def source_rows(database: Database, name: str) -> dict[int, dict[str, Any]]:
    """Return the rows of a source table by id."""
    columns = [row[0] for row in database.execute(f"SHOW COLUMNS FROM `{name}`")]
    rows = database.execute(f"SELECT * FROM `{name}`")
    found = [dict(zip(columns, row, strict=True)) for row in rows]
    return {row["id"]: row for row in found}


def target_rows(spark: SparkSession, path: Path, columns: list[str], *, exact: bool) -> dict[int, dict[str, Any]]:
    """Return the rows of a Delta table by id; ``exact``: it has no other columns."""
    frame = spark.read.format("delta").load(str(path)).drop("_seq")
    assert not exact or sorted(frame.columns) == sorted(columns)
    rows = frame.select(*columns).collect()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row.asDict() for row in rows}


def is_read_after_alter(work: Work, name: str) -> bool:
    """Return whether an incremental snapshot has read all rows of a table."""
    records = records_of(work.broker.bootstrap, work.prefix, work.database.name, name)
    rows = {record.key for record in records if INCREMENTAL_HEADER in record.headers}
    return len(rows) >= len(source_rows(work.database, name))


def run(work: Work, cases: dict[str, Case], targets: dict[str, bool]) -> None:
    """Alter the tables, and compare each target; a target whose value is true has the rows before the statements."""
    database, prefix, broker = work.database, work.prefix, work.broker
    database.execute("SET time_zone = '+00:00'")
    for name, case in cases.items():
        written(database, name, case)
    given = {
        name: settings(broker, prefix, work.folder / name, **{"schema.change.behavior": name.split("-")[0]})
        for name in targets
    }
    changes = {"tailrace.snapshot.altered.tables": "true"}
    with CaptureThread(properties(database.server, broker, prefix, database.name, changes)) as capture:
        capture.wait_snapshot()
        for name in cases:
            database.execute(f"UPDATE `{name}` SET id = 4 WHERE id = 2")
        capture.wait_position(database.server)
        for name in [name for name, early in targets.items() if early]:
            consume(work.spark, given[name])
        for name, case in cases.items():
            alter(database, name, case)
        capture.wait_position(database.server)
        for name in READ_AFTER_ALTER & cases.keys():
            eventually(partial(is_read_after_alter, work, name), f"{name} is read")
    for target in targets:
        consume(work.spark, given[target])
        for name in cases:
            expected = source_rows(database, name)
            path = work.folder / target / "tables" / database.name / name
            found = target_rows(work.spark, path, list(expected[1]), exact="evolve" in target)
            assert found == expected, (target, name)


class Work(NamedTuple):
    """What a test uses."""

    spark: SparkSession
    broker: KafkaBroker
    prefix: str
    database: Database
    folder: Path


@pytest.fixture
def work(spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, database: Database, tmp_path: Path) -> Work:
    """Return the session, the servers and a folder."""
    return Work(spark, kafka_broker, prefix, database, tmp_path)


@pytest.mark.timeout(1800)
def test_tables_end_equal_to_their_source_after_alter(work: Work) -> None:
    """The statements find rows in the target, or in the batch that creates it."""
    run(work, {name: CASES[name] for name in ("added", "renamed", "narrowed")}, {"lenient": True, "evolve": False})


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_every_alter_ends_equal_to_the_source(work: Work, ansi: str) -> None:
    """All cases, over several batches and in one, with both modes of Spark's arithmetic."""
    work.spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        run(work, CASES, {"lenient": True, "evolve": True, "lenient-once": False, "evolve-once": False})
    finally:
        work.spark.conf.unset("spark.sql.ansi.enabled")
