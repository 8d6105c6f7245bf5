"""``tailrace verify``: a target that equals its source, one with planted faults, and both under writes."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from tailrace.spark_consumer import config
from tailrace.spark_consumer.app import load_sinks
from tailrace.spark_consumer.monitor.status import Status
from tailrace.spark_consumer.query import RunningQuery
from tailrace.spark_consumer.verify.command import VerifyOptions, compare_tables, source_command
from tests.embedded.kafka import KafkaBroker
from tests.sinks.jdbc_backend import JdbcBackend, serve
from tests.spark.running import consume, settings
from tests.support.background_writes import writing
from tests.support.capture import CaptureThread, properties
from tests.support.database import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1800)

ROWS = 300


def fill(database: Database) -> None:
    """Create an empty table, and one with a key of two columns, one of them text of a collation; fill the second."""
    database.execute("CREATE TABLE nothing (id INT PRIMARY KEY)")
    database.execute(
        "CREATE TABLE t (a INT, b VARCHAR(20) COLLATE utf8mb4_0900_ai_ci, name VARCHAR(50), amount DECIMAL(20,4), "
        "at DATETIME(6), photo BLOB, score DOUBLE, doc JSON, phone VARCHAR(20) DEFAULT '0170 4711', PRIMARY KEY (a, b))"
    )
    database.executemany(
        "INSERT INTO t VALUES (%s, %s, %s, %s, '2024-01-02 03:04:05.000006', %s, %s, '{}', DEFAULT)",
        [(n // 7, f"K{n} é", f"Zoë {n}", f"{n}.2500", bytes([n % 256, 0, 255]), n / 3) for n in range(ROWS)],
    )


class Verified:
    """A captured database, and the configurations of both programs."""

    def __init__(self, spark: SparkSession, given: dict[str, str], source: Path) -> None:
        self.spark, self.given, self._source = spark, given, source

    def run(self, wait_s: float = 120, **chosen: Any) -> int:
        """Compare; return the exit code. ``chosen``: other fields of the options."""
        options = VerifyOptions(source_command(None, str(self._source)), wait_s=wait_s, **chosen)
        return compare_tables(self.spark, config.parse(self.given), options)

    @contextmanager
    def consuming(self) -> Iterator[None]:
        """Run the query of the target while the block runs."""
        parsed = config.parse(self.given)
        query = RunningQuery(self.spark, parsed, load_sinks(parsed), Status(parsed.name, parsed.sink_names))
        thread = threading.Thread(target=query.wait)
        thread.start()
        try:
            yield
        finally:
            query.stop()
            thread.join()


@contextmanager
def captured(
    spark: SparkSession, database: Database, broker: KafkaBroker, prefix: str, *, given: dict[str, str], work: Path
) -> Iterator[Verified]:
    """Capture while the block runs; the snapshot is complete before it."""
    file = work / "producer.json"
    changes = {
        "column.mask.with.3.chars": rf"{database.name}\.t\.phone",
        "signal.enabled.channels": "kafka",
        "signal.poll.interval.ms": 100,
    }
    producer = properties(database.server, broker, prefix, database.name, changes)
    file.write_text(json.dumps(producer), encoding="utf-8")
    with CaptureThread(producer) as capture:
        capture.wait_snapshot()
        yield Verified(spark, given, file)


def printed(capfdbinary: pytest.CaptureFixture[bytes]) -> dict[tuple[Any, ...], Any]:
    """Return the printed lines by key."""
    lines = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines() if line.startswith(b"{")]
    return {tuple(line["key"].values()): line for line in lines}


def reported(capfdbinary: pytest.CaptureFixture[bytes]) -> dict[tuple[Any, ...], str]:
    """Return what was printed: the difference of each key."""
    return {key: line["difference"] for key, line in printed(capfdbinary).items()}


def tables_of(sink: str, name: str, work: Path) -> tuple[dict[str, str], str]:
    """Return the settings of a sink, and the name of its target in SQL."""
    if sink == "delta":
        return {}, f"delta.`{work}/tables/{name}/t`"
    return {"sink.table": "iceberg.{database}.{table}"}, f"iceberg.{name}.t"


@pytest.mark.long
@pytest.mark.parametrize("sink", ["delta", "iceberg"])
def test_planted_faults_are_reported_and_nothing_else(
    *,
    sink: str,
    spark: SparkSession,
    database: Database,
    kafka_broker: KafkaBroker,
    prefix: str,
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    fill(database)
    of_sink, target = tables_of(sink, database.name, tmp_path)
    given = settings(kafka_broker, prefix, tmp_path, sink=sink) | of_sink
    with captured(spark, database, kafka_broker, prefix, given=given, work=tmp_path) as verified:
        database.execute("UPDATE t SET name = CONCAT(name, ' ') WHERE a % 3 = 0")
        database.execute("DELETE FROM t WHERE a = 5")
        consume(spark, given)

        assert verified.run() == 0
        assert reported(capfdbinary) == {}

        planted = {
            "DELETE FROM {} WHERE a = 1 AND b = 'K8 é'": ((1, "K8 é"), "missing"),
            "UPDATE {} SET name = rtrim(name) WHERE a = 3 AND b = 'K21 é'": ((3, "K21 é"), "different"),
            "UPDATE {} SET at = at + INTERVAL 1 MICROSECOND WHERE a = 3 AND b = 'K22 é'": ((3, "K22 é"), "different"),
            "UPDATE {} SET photo = X'1801FF' WHERE a = 3 AND b = 'K24 é'": ((3, "K24 é"), "different"),
            "UPDATE {} SET name = NULL WHERE a = 3 AND b = 'K23 é'": ((3, "K23 é"), "different"),
            "UPDATE {} SET amount = amount + 0.0001 WHERE a = 3 AND b = 'K25 é'": ((3, "K25 é"), "different"),
            "UPDATE {} SET score = score + 1e-13 WHERE a = 3 AND b = 'K26 é'": ((3, "K26 é"), "different"),
            "UPDATE {} SET b = 'k0 é' WHERE a = 0 AND b = 'K0 é'": ((0, "k0 é"), "extra"),
        }
        for statement in planted:
            spark.sql(statement.format(target))
        spark.sql(f"INSERT INTO {target} SELECT * FROM {target} WHERE a = 9 AND b = 'K63 é'")

        assert verified.run() == 3
        expected = {**dict(planted.values()), (0, "K0 é"): "missing", (9, "K63 é"): "twice"}
        lines = printed(capfdbinary)
        assert {key: line["difference"] for key, line in lines.items()} == expected
        whole = {
            "name": "Zoë 8",
            "amount": "8.25",
            "at": "2024-01-02 03:04:05.000006",
            "photo": {"sha256": hashlib.sha256(bytes([8, 0, 255])).hexdigest()},
            "score": 8 / 3,
        }  # without the column that is masked, and the JSON column
        values = {key: (line.get("source"), line.get("target")) for key, line in lines.items()}
        assert values[1, "K8 é"] == (whole, None)
        assert values[0, "k0 é"][0] is None
        assert values[3, "K21 é"] == ({"name": "Zoë 21 "}, {"name": "Zoë 21"})
        assert values[3, "K23 é"] == ({"name": "Zoë 23 "}, {"name": None})
        assert values[3, "K25 é"] == ({"amount": "25.25"}, {"amount": "25.2501"})
        assert values[9, "K63 é"] == ({}, [{}, {}])

        # A target that is behind is not compared.
        database.execute("INSERT INTO t (a, b) VALUES (1000, '')")
        assert verified.run(wait_s=5) == 1
        assert reported(capfdbinary) == {}


@pytest.mark.long
def test_no_difference_is_reported_while_both_are_written(
    *,
    spark: SparkSession,
    database: Database,
    kafka_broker: KafkaBroker,
    prefix: str,
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    fill(database)
    given = settings(kafka_broker, prefix, tmp_path, trigger__availableNow="false", trigger__processingTime="1 second")

    def change(cursor: Any, number: int) -> None:
        cursor.execute("UPDATE t SET name = %s WHERE a = %s", (f"name {number}", number % 40))
        cursor.execute("DELETE FROM t WHERE a = %s LIMIT 1", (number * 7 % 40,))
        cursor.execute("REPLACE INTO t (a, b, amount) VALUES (%s, %s, %s)", (number % 40, f"K{number % 11}", number))

    with captured(spark, database, kafka_broker, prefix, given=given, work=tmp_path) as verified:
        consume(spark, {**given, "trigger.availableNow": "true"})
        with verified.consuming(), capture_logs() as logs:
            with writing(database, change, pause_s=0.3):
                for _ in range(10):
                    verified.run(300)
                    if changed_meanwhile(logs):
                        break
            assert verified.run(300) == 0

    assert reported(capfdbinary) == {}
    # Keys that change all the time may be not decided.
    outcomes = [entry["result"] for entry in logs if entry["event"] == "table compared"]
    assert set(outcomes) <= {"equal", "not decided"}
    assert changed_meanwhile(logs) > 0, "nothing changed while the table was compared"


def changed_meanwhile(logs: list[Any]) -> int:
    """Return how many keys changed between the readings of source and target."""
    return sum(int(entry["changed_meanwhile"]) for entry in logs if entry["event"] == "rows compared")


@pytest.mark.long
@pytest.mark.parametrize("sink", ["delta", "iceberg"])
def test_differences_are_repaired_while_both_are_written(
    *,
    sink: str,
    spark: SparkSession,
    database: Database,
    kafka_broker: KafkaBroker,
    prefix: str,
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    fill(database)
    of_sink, target = tables_of(sink, database.name, tmp_path)
    live = {"trigger.availableNow": "false", "trigger.processingTime": "1 second"}
    given = settings(kafka_broker, prefix, tmp_path, sink=sink) | of_sink | live

    def change(cursor: Any, number: int) -> None:
        cursor.execute("UPDATE t SET name = %s WHERE a = %s", (f"name {number}", 20 + number % 20))
        cursor.execute("DELETE FROM t WHERE a = %s LIMIT 1", (20 + number * 7 % 20,))

    with captured(spark, database, kafka_broker, prefix, given=given, work=tmp_path) as verified:
        consume(spark, {**given, "trigger.availableNow": "true"})
        columns = spark.table(target).columns
        extra = ", ".join({"b": "'k8 é' AS b"}.get(name, f"`{name}`") for name in columns)
        spark.sql(f"INSERT INTO {target} SELECT {extra} FROM {target} WHERE a = 1 AND b = 'K8 é'")
        spark.sql(f"DELETE FROM {target} WHERE a = 1 AND b = 'K9 é'")
        spark.sql(f"UPDATE {target} SET amount = amount + 1 WHERE a = 3 AND b = 'K21 é'")
        swapped = "CASE b WHEN 'K28 é' THEN 'Zoë 29' ELSE 'Zoë 28' END"
        spark.sql(f"UPDATE {target} SET name = {swapped} WHERE a = 4 AND b IN ('K28 é', 'K29 é')")
        with verified.consuming(), writing(database, change, pause_s=0.5):
            assert verified.run(300, repair=True) == 0
            assert reported(capfdbinary) == {
                (1, "k8 é"): "extra",
                (1, "K9 é"): "missing",
                (3, "K21 é"): "different",
                (4, "K28 é"): "different",
                (4, "K29 é"): "different",
            }
            verified.run(300)
            assert reported(capfdbinary) == {}
        with verified.consuming():
            assert verified.run(300) == 0
            # Nothing is written to the source: what is read has the position of what was read before.
            for name in ("x", "y"):
                spark.sql(f"UPDATE {target} SET name = '{name}' WHERE a = 3 AND b = 'K21 é'")
                assert verified.run(300, repair=True) == 0
                [line] = printed(capfdbinary).values()
                assert (line["source"], line["target"]) == ({"name": "Zoë 21"}, {"name": name})


@pytest.mark.long
@pytest.mark.parametrize("engine", [pytest.param("postgresql", marks=pytest.mark.postgresql), "mysql"])
def test_planted_faults_of_a_database_target(
    *,
    spark: SparkSession,
    database: Database,
    kafka_broker: KafkaBroker,
    prefix: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    capfdbinary: pytest.CaptureFixture[bytes],
    engine: str,
) -> None:
    backend = type("Backend", (JdbcBackend,), {"database": engine})
    serve(backend, request)
    target = backend(spark, kafka_broker, tmp_path)
    fill(database)
    given = settings(kafka_broker, prefix, tmp_path, sink="jdbc", **target.settings())
    with captured(spark, database, kafka_broker, prefix, given=given, work=tmp_path) as verified:
        database.execute("UPDATE t SET name = CONCAT(name, ' ') WHERE a % 3 = 0")
        consume(spark, given)
        try:
            assert verified.run() == 0
            assert reported(capfdbinary) == {}

            target.sql("DELETE FROM {s}.t WHERE a = 1 AND b = 'K8 é'")
            target.sql("UPDATE {s}.t SET name = trim(name) WHERE a = 3 AND b = 'K21 é'")
            target.sql("UPDATE {s}.t SET amount = 7.0001 WHERE a = 4 AND b = 'K28 é'")

            assert verified.run() == 3
            expected = {(1, "K8 é"): "missing", (3, "K21 é"): "different", (4, "K28 é"): "different"}
            assert reported(capfdbinary) == expected

            target.sql("UPDATE {s}.t SET b = 'none' WHERE a = 5 AND b = 'K35 é'")
            verified.given = given | {"trigger.availableNow": "false", "trigger.processingTime": "1 second"}
            with verified.consuming():
                assert verified.run(300, repair=True) == 0
                assert len(reported(capfdbinary)) == 5
                assert verified.run(300) == 0
        finally:
            target.drop()
