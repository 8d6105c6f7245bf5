"""Tables that are altered at the source end equal in Delta, through the real server, producer and consumer."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from tailrace.schemas.names import INCREMENTAL_HEADER
from tailrace.spark_consumer.errors import SinkError
from tests.spark.running import consume, settings
from tests.support.capture import CaptureThread, eventually, properties, records_of
from tests.support.online_schema_change import gh_ost, pt_online_schema_change

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
        ("ADD t TIMESTAMP(3) DEFAULT CURRENT_TIMESTAMP(3)", "ADD g INT AS (a + 1)"),
    ),
    "charset": Case(
        "v VARCHAR(20) CHARACTER SET latin1, t TEXT CHARACTER SET utf8mb3, c CHAR(5) CHARACTER SET ascii",
        ("1, 'é', 'ü', 'abc'", "2, NULL, '', ''", "3, 'ß', 'ß', 'c'"),
        ("CONVERT TO CHARACTER SET utf8mb4", "MODIFY v VARCHAR(20) CHARACTER SET latin2, DEFAULT CHARACTER SET latin1",
         "MODIFY c VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"),
        "9, 'é', '😀', '😀'",
    ),
    "partitioned": Case(
        "n INT",
        ("1, 1", "2, 2", "3, 3"),
        ("PARTITION BY HASH (id) PARTITIONS 3", "ADD PARTITION PARTITIONS 1", "REMOVE PARTITIONING",
         "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (3), PARTITION p1 VALUES LESS THAN MAXVALUE)",
         "REORGANIZE PARTITION p1 INTO (PARTITION p1 VALUES LESS THAN (8), PARTITION p2 VALUES LESS THAN MAXVALUE)"),
        "9, 9",
    ),
    "members": Case(
        "e ENUM('a','b'), s SET('x','y')",
        ("1, 'a', 'x'", "2, 'b', 'x,y'", "3, NULL, ''"),
        ("MODIFY e ENUM('a','b','c'), MODIFY s SET('x','y','z')", "MODIFY e ENUM('c','b','a')", "MODIFY e VARCHAR(9)"),
        "9, 'free', 'x,z'",
    ),
    "nullable": Case(
        "a INT NULL, b INT NOT NULL, c VARCHAR(9) NULL DEFAULT 'x'",
        ("1, 1, 1, 'c'", "2, 2, 2, NULL", "3, 3, 3, 'd'"),
        ("MODIFY a INT NOT NULL, MODIFY b INT NULL", "MODIFY b INT NULL DEFAULT 4, MODIFY a INT NULL"),
        "9, NULL, NULL, NULL",
    ),
    "reordered": Case(
        "a INT, b VARCHAR(9), c DATE",
        ("1, 1, 'b', '2020-01-01'", "2, NULL, NULL, NULL", "3, 3, '', '2021-01-01'"),
        ("MODIFY a INT AFTER c, MODIFY c DATE FIRST", "CHANGE b b VARCHAR(20) FIRST"),
        "'z', '2022-01-01', 9, 5",
    ),
    "generated": Case(
        "a INT, g INT AS (a * 2) STORED, v INT AS (a + 1) VIRTUAL",
        ("1, 1, DEFAULT, DEFAULT", "2, NULL, DEFAULT, DEFAULT", "3, 3, DEFAULT, DEFAULT"),
        ("ADD h INT AS (a * 3) STORED", "MODIFY g INT AS (a * 2) STORED COMMENT 'x', DROP v",
         "ADD w VARCHAR(20) AS (CONCAT('x', a))"),
        "9, 9, DEFAULT, DEFAULT, DEFAULT",
    ),
    "options": Case(
        "n INT",
        ("1, 1", "2, 2", "3, 3"),
        ("ENGINE=InnoDB", "ADD INDEX i (n), ALGORITHM=INPLACE", "RENAME INDEX i TO j", "DROP INDEX j, ADD UNIQUE (n)",
         "FORCE", "ADD CHECK (n <> 77)", "ALTER n SET DEFAULT 5"),
    ),
    "texts": Case(
        "a VARCHAR(5), b TEXT, c BLOB, d VARBINARY(4), e BINARY(2)",
        ("1, 'a', 'b', 'c', x'00ff', x'0001'", "2, '', '', '', '', x'ffff'", "3, NULL, NULL, NULL, NULL, NULL"),
        ("MODIFY a VARCHAR(500), MODIFY b LONGTEXT, MODIFY c LONGBLOB, MODIFY d VARBINARY(9)",
         "MODIFY a CHAR(50), MODIFY e VARBINARY(4)"),
        "9, 'longer text', 'b', x'ff00', x'0011223344', x'001122'",
    ),
    "numbers": Case(
        "a TINYINT UNSIGNED, b SMALLINT UNSIGNED, c INT UNSIGNED, d MEDIUMINT, g DECIMAL(5,2), f FLOAT",
        ("1, 255, 65535, 4294967295, 8388607, -999.99, 0.5", "2, 0, 0, 0, 0, 0, 0", "3, NULL, NULL, NULL, NULL, 1, 1"),
        ("MODIFY a SMALLINT, MODIFY b INT, MODIFY c BIGINT, MODIFY d INT UNSIGNED, MODIFY g DECIMAL(20,10)",
         "MODIFY a BIGINT, MODIFY c DECIMAL(20,0), MODIFY d BIGINT"),
        "9, 9223372036854775807, 2147483647, 99999999999999999999, -1, 1234567890.0123456789, 2.5",
    ),
    "temporal": Case(
        "a DATE, b DATETIME, d TIMESTAMP(3) NULL, y YEAR",
        ("1, '1000-01-01', '1000-01-01 00:00:01', '2001-01-01 00:00:00.123', 1901", "2, NULL, NULL, NULL, NULL",
         "3, '9999-12-31', '9999-12-31 23:59:59', '2037-01-01', 2155"),
        ("MODIFY b DATETIME(6), MODIFY d TIMESTAMP(6) NULL, MODIFY y INT", "MODIFY a DATETIME(3)"),
        "9, '2020-01-01 01:02:03.123', '2020-01-01 01:02:03.123456', '2020-01-01 01:02:03.123456', 100000",
    ),
    "key_widened": Case(
        "n INT", ("1, 1", "2, 2", "3, 3"), ("MODIFY id BIGINT", "MODIFY n BIGINT FIRST"), "9, 9223372036854775807"
    ),
}  # fmt: skip


class Stop(NamedTuple):
    """An ALTER TABLE that a Delta table cannot follow, and the reason that the consumer gives."""

    case: Case
    reason: str
    text: frozenset[str] = frozenset()
    """Columns that are text in a target which is created with the values from before and after the statement."""


_ROWS: Final = ("1, 1, 1", "2, 2, 2", "3, 3, 3")
STOPPED: Final[dict[str, Stop]] = {
    "key_extended": Stop(
        Case("a INT NOT NULL, b INT", _ROWS, ("DROP PRIMARY KEY, ADD PRIMARY KEY (id, a)",), "9, 9, 9"), "key"
    ),
    "key_renamed": Stop(Case("a INT, b INT", _ROWS, ("RENAME COLUMN id TO uid",), "9, 9, 9"), "key"),
    "key_dropped": Stop(Case("a INT, b INT", _ROWS, ("DROP PRIMARY KEY",), "9, 9, 9"), "key"),
    "key_text": Stop(Case("a INT, b INT", _ROWS, ("MODIFY id VARCHAR(20)",), "9, 9, 9"), "type of column id"),
    "exchanged": Stop(
        Case("a INT, b INT", _ROWS, ("RENAME COLUMN a TO b, RENAME COLUMN b TO a",), "9, 9, 9"), "exchanged their names"
    ),
    "to_text": Stop(Case("a INT, b DOUBLE", _ROWS, ("MODIFY a VARCHAR(20), MODIFY b TEXT",), "9, 'x', 'y'"), "type of"),
    "to_number": Stop(Case("a VARCHAR(9), b DECIMAL(9,1)", _ROWS, ("MODIFY a INT, MODIFY b DOUBLE",), "9, 9, 1e300"),
                      "type of column", text=frozenset({"a"})),
    "to_instant": Stop(
        Case("a DATETIME, b DATE", ("1, '2020-01-01', '2020-01-01'", "2, NULL, NULL"),
             ("MODIFY a TIMESTAMP NULL, MODIFY b INT",), "9, '2020-02-02', 20200202"), "type of column"),
    "to_bytes": Stop(Case("a VARCHAR(9), b BIT(3)", ("1, 'a', b'1'", "2, NULL, NULL"),
                          ("MODIFY a VARBINARY(9), MODIFY b BIT(9)",), "9, x'ff', b'100000001'"), "type of column"),
}  # fmt: skip


READ_AFTER_ALTER: Final = {"narrowed", "computed", "generated"}
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
    return {row["id" if "id" in row else "uid"]: row for row in found}


def target_rows(spark: SparkSession, path: Path, columns: list[str], *, exact: bool) -> dict[int, dict[str, Any]]:
    """Return the rows of a Delta table by id; ``exact``: it has no other columns."""
    frame = spark.read.format("delta").load(str(path)).drop("_seq")
    assert not exact or sorted(frame.columns) == sorted(columns)
    rows = frame.select(*columns).collect()
    found = {row["id"]: row.asDict() for row in rows}
    assert len(found) == len(rows), "duplicate key in the table"
    return found


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


def run_stopped(work: Work, target: str, *, early: bool) -> dict[str, str]:
    """Alter the tables; return the reasons of those that stopped, with the values seen. All others are equal.

    ``early``: the target has the rows before the statements.
    """
    database = work.database
    database.execute("SET time_zone = '+00:00'")
    prefix = f"{work.prefix}{int(early)}"
    for name, (case, *_) in STOPPED.items():
        written(database, name, case)
    written(database, "other", CASES["options"])
    given = settings(work.broker, prefix, work.folder / target)
    changes = {"tailrace.tables.without.key": "full-row"}
    with CaptureThread(properties(database.server, work.broker, prefix, database.name, changes)) as capture:
        capture.wait_snapshot()
        if early:
            consume(work.spark, given)
        before = {name: source_rows(database, name) for name in STOPPED}
        for name, (case, *_) in STOPPED.items():
            alter(database, name, case)
        alter(database, "other", CASES["options"])
        capture.wait_position(database.server)
    with pytest.raises(SinkError) as caught:
        consume(work.spark, given)
    reasons = {topic.split(".")[-1]: str(text) for topic, text in caught.value.context.items()}
    for name in [*STOPPED, "other"]:
        path = work.folder / target / "tables" / database.name / name
        if name not in reasons:
            expected = source_rows(database, name)
            for column in STOPPED[name].text if name in STOPPED else ():
                for row in expected.values():
                    row[column] = None if row[column] is None else str(row[column])
            columns = list(next(iter(expected.values())))
            assert target_rows(work.spark, path, columns, exact=False) == expected, name
        elif early:
            assert target_rows(work.spark, path, list(before[name][1]), exact=True) == before[name], name
        else:
            assert not path.exists() or target_rows(work.spark, path, ["id"], exact=False) == {}, name
    for name in [*STOPPED, "other"]:
        database.execute(f"DROP TABLE `{name}`")
    return reasons


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
@pytest.mark.timeout(900)
def test_tables_that_a_tool_has_migrated_end_equal_to_their_source(work: Work) -> None:
    """A query that has the rows from before takes up the column and its value for the rows that the tool has copied."""
    database, tools = work.database, {"ghost": gh_ost, "pt": pt_online_schema_change}
    for name in tools:
        database.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, v VARCHAR(50))")
        database.execute(f"INSERT INTO {name} VALUES " + ", ".join(f"({n}, 'row {n}')" for n in range(1, 201)))
    given = settings(work.broker, work.prefix, work.folder, **{"schema.change.behavior": "evolve"})
    with CaptureThread(properties(database.server, work.broker, work.prefix, database.name)) as capture:
        capture.wait_snapshot()
        capture.wait_position(database.server)
        consume(work.spark, given)
        for name, migrate in tools.items():
            migrate(database, name)
            database.execute(f"UPDATE {name} SET v = 'last' WHERE id % 10 = 0")
        capture.wait_position(database.server)
    consume(work.spark, given)
    for name in tools:
        expected = source_rows(database, name)
        assert {row["w"] for row in expected.values()} == {5}
        path = work.folder / "tables" / database.name / name
        assert target_rows(work.spark, path, ["id", "v", "w"], exact=True) == expected, name


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("ansi", "targets"),
    [("true", {"lenient": True, "evolve-once": False}), ("false", {"evolve": True, "lenient-once": False})],
)
def test_every_alter_ends_equal_to_the_source(work: Work, ansi: str, targets: dict[str, bool]) -> None:
    """All cases, over several batches and in one, with both modes of Spark's arithmetic."""
    work.spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        run(work, CASES, targets)
    finally:
        work.spark.conf.unset("spark.sql.ansi.enabled")


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_alter_that_a_table_cannot_follow_stops_it(work: Work, ansi: str) -> None:
    """With a reason, and the rows from before; read in one batch, a table ends equal or is stopped."""
    work.spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        early = {name: run_stopped(work, name, early=name == "lenient") for name in ("lenient", "lenient-once")}
    finally:
        work.spark.conf.unset("spark.sql.ansi.enabled")
    assert {name: bool(re.search(STOPPED[name].reason, text)) for name, text in early["lenient"].items()} == (
        dict.fromkeys(STOPPED, True)
    ), early["lenient"]
