"""``tailrace verify`` finds each fault of a table that is full of them, and nothing else: in targets and in topics."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import orjson
import pytest
from confluent_kafka import Producer
from structlog.testing import capture_logs

from tailrace.schemas.verification import BUCKETS
from tailrace.spark_consumer.verify.command import sample_size
from tests.embedded.kafka import KafkaBroker
from tests.sinks.jdbc_backend import JdbcBackend, serve
from tests.spark.running import consume, settings
from tests.spark.test_verify import Verified, captured, reported
from tests.support.database import Database
from tests.support.topics import read_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1800)

ROWS: Final = 700
LOST: Final = range(600, 650)
"""The keys of one split, as the producer of the tests reads it."""

Fault = Callable[[int, Callable[[bytes], str]], tuple[str, str]]
"""``(row, literal)`` -> a column, and an expression of its new value; ``literal`` makes one of bytes."""


def photo(number: int) -> bytes:
    """Return the BLOB of a row."""
    return bytes([number % 256, 0, 255, 128])


FAULTS: Final[dict[str, Fault]] = {
    "trailing blank": lambda n, _: ("name", f"'Zoë {n} '"),
    "no trailing blank": lambda n, _: ("padded", f"'pad {n}'"),
    "case": lambda n, _: ("name", f"'zoë {n}'"),
    "accent, which the collation ignores": lambda n, _: ("name", f"'Zoe {n}'"),
    "decomposed accent": lambda n, _: ("name", f"'Zoe\u0308 {n}'"),
    "sixth digit": lambda *_: ("at", "TIMESTAMP '2024-01-02 03:04:05.000007'"),
    "last digit of the scale": lambda n, _: ("amount", f"{n}.2501"),
    "sign": lambda n, _: ("amount", f"-{n}.25"),
    "flipped bit": lambda n, literal: ("photo", literal(bytes([photo(n)[0] ^ 0x40, *photo(n)[1:]]))),
    "shorter BLOB": lambda n, literal: ("photo", literal(photo(n)[:-1])),
    "NULL instead of empty": lambda *_: ("nothing", "NULL"),
    "empty instead of NULL": lambda *_: ("absent", "''"),
    "last bit of a double": lambda n, _: ("score", repr((n + 0.5) * (1 + 2**-52))),
}


def fill(database: Database) -> None:
    """Create the table."""
    database.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(50) COLLATE utf8mb4_0900_ai_ci, padded VARCHAR(50), "
        "amount DECIMAL(20,4), at DATETIME(6), photo BLOB, nothing VARCHAR(9), absent VARCHAR(9), score DOUBLE, "
        "phone VARCHAR(20) DEFAULT '0170 4711')"
    )
    database.executemany(
        "INSERT INTO t VALUES (%s, %s, %s, %s, '2024-01-02 03:04:05.000006', %s, '', NULL, %s, DEFAULT)",
        [(n, f"Zoë {n}", f"pad {n} ", f"{n}.2500", photo(n), n + 0.5) for n in range(ROWS)],
    )


def planted(
    sql: Callable[[str], Any], target: str, literal: Callable[[bytes], str], *, seed: int, count: int
) -> dict[tuple[int], str]:
    """Change the target; return the difference of each key that is wrong now."""
    chance = random.Random(seed)
    keys = chance.sample(range(LOST.start), count + 4)
    kinds = [*FAULTS, *chance.choices(list(FAULTS), k=max(0, count - len(FAULTS)))][:count]
    one, two, within, double, *rest = keys
    changes: dict[str, dict[int, str]] = {
        "name": {one: f"'Zoë {two}'", two: f"'Zoë {one}'", within: f"'pad {within} '"},
        "padded": {within: f"'Zoë {within}'"},
    }
    for key, kind in zip(rest, kinds, strict=False):
        column, value = FAULTS[kind](key, literal)
        changes.setdefault(column, {})[key] = value
    cases = {
        column: " ".join(f"WHEN {key} THEN {value}" for key, value in each.items()) for column, each in changes.items()
    }
    wrong = sorted({key for each in changes.values() for key in each})
    assert len(wrong) == count + 3
    assignments = ", ".join(f"{column} = CASE id {text} ELSE {column} END" for column, text in cases.items())
    sql(f"UPDATE {target} SET {assignments} WHERE id IN ({', '.join(map(str, wrong))})")
    sql(f"DELETE FROM {target} WHERE id >= {LOST.start} AND id < {LOST.stop}")
    found = {(key,): "different" for key in wrong} | {(key,): "missing" for key in LOST}
    return found | {(double,): "twice"}


def hexadecimal(data: bytes) -> str:
    """Return a literal of Spark and of MySQL."""
    return f"X'{data.hex()}'"


@pytest.mark.parametrize(
    ("seed", "count"), [(1, len(FAULTS)), *(pytest.param(n, 40, marks=pytest.mark.long) for n in range(2, 7))]
)
def test_each_fault_of_a_delta_table_is_found_and_nothing_else(
    *,
    seed: int,
    count: int,
    spark: SparkSession,
    database: Database,
    kafka_broker: KafkaBroker,
    prefix: str,
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    fill(database)
    given = settings(kafka_broker, prefix, tmp_path)
    target = f"delta.`{tmp_path}/tables/{database.name}/t`"
    with captured(spark, database, kafka_broker, prefix, given=given, work=tmp_path) as verified:
        consume(spark, given)
        assert verified.run() == 0
        assert reported(capfdbinary) == {}

        expected = planted(spark.sql, target, hexadecimal, seed=seed, count=count)
        [double] = [key for (key,), how in expected.items() if how == "twice"]
        spark.sql(f"INSERT INTO {target} SELECT * FROM {target} WHERE id = {double}")

        assert verified.run() == 3
        assert reported(capfdbinary) == expected


@pytest.mark.long
@pytest.mark.parametrize("engine", [pytest.param("postgresql", marks=pytest.mark.postgresql), "mysql"])
def test_each_fault_of_a_database_target_is_found_and_nothing_else(
    *,
    engine: str,
    spark: SparkSession,
    database: Database,
    kafka_broker: KafkaBroker,
    prefix: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    """The key of a target is unique: no row is twice."""
    backend = type("Backend", (JdbcBackend,), {"database": engine})
    serve(backend, request)
    target = backend(spark, kafka_broker, tmp_path)
    fill(database)
    given = settings(kafka_broker, prefix, tmp_path, sink="jdbc", **target.settings())
    with captured(spark, database, kafka_broker, prefix, given=given, work=tmp_path) as verified:
        consume(spark, given)
        try:
            assert verified.run() == 0
            expected = planted(
                target.sql,
                "{s}.t",
                hexadecimal if engine == "mysql" else lambda data: f"'\\x{data.hex()}'::bytea",
                seed=1,
                count=len(FAULTS),
            )
            assert verified.run() == 3
            found = {key: how for key, how in expected.items() if how != "twice"}
            assert reported(capfdbinary) == found
        finally:
            target.drop()


def test_the_last_record_of_each_key_of_a_topic_is_compared_with_the_source(
    *,
    spark: SparkSession,
    database: Database,
    kafka_broker: KafkaBroker,
    prefix: str,
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    """No target is read: the sink has none."""
    fill(database)
    given = settings(kafka_broker, prefix, tmp_path, sink="console")
    with captured(spark, database, kafka_broker, prefix, given=given, work=tmp_path) as verified:
        database.execute("UPDATE t SET name = CONCAT(name, ' ') WHERE id % 3 = 0")
        database.execute("UPDATE t SET id = id + 10000 WHERE id % 50 = 7")
        database.execute("DELETE FROM t WHERE id % 100 = 5")

        assert verified.run(topics=True) == 0
        assert reported(capfdbinary) == {}

        expected = planted_in_topic(verified, kafka_broker, f"{prefix}.{database.name}.t")
        assert verified.run(topics=True) == 3
        assert reported(capfdbinary) == expected

        # A part of the keys is the same one in each run, and its result says so.
        part = {key: how for key, how in expected.items() if crc32(str(key[0]).encode()) % BUCKETS < sample_size("36%")}
        assert 0 < len(part) < len(expected)
        metrics = tmp_path / "verify.prom"
        with capture_logs() as logs:
            assert verified.run(topics=True, sample=sample_size("36%"), metrics=metrics) == 3
        assert reported(capfdbinary) == part
        [entry] = [each for each in logs if each["event"] == "table compared"]
        assert entry["compared"] == "1475 of 4096 buckets of keys"
        assert 150 < entry["rows"] < 400
        differences = re.findall(
            r'table_differences{difference="(\w+)".* ([\d.]+)', metrics.read_text(encoding="utf-8")
        )
        assert {kind: float(count) for kind, count in differences} == Counter(part.values())

        assert verified.run(topics=True, repair=True) == 0
        assert reported(capfdbinary) == expected
        assert verified.run(topics=True) == 0


def planted_in_topic(verified: Verified, broker: KafkaBroker, topic: str) -> dict[tuple[int], str]:
    """Write records that no change tells of: another value, a row of no key of the source, a delete."""
    assert verified.given["sink"] == "console"
    last = {each.key: each for each in read_topic(broker.bootstrap, topic) if each.value is not None}
    by_id = {orjson.loads(key or b"")["id"]: each for key, each in last.items()}
    changed, other, deleted = by_id[9], by_id[10], by_id[11]
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for record, key, old, new in (
        (changed, changed.key, "Zoë 9 ".encode(), "Zoë 9".encode()),
        (other, (other.key or b"").replace(b"10", b"90010"), b'"id":10', b'"id":90010'),
    ):
        assert record.value is not None
        assert old in record.value
        producer.produce(topic, record.value.replace(old, new), key, headers=[*record.headers.items()])
    value = deleted.json
    gone = {**value, "op": "d", "before": value["after"], "after": None}
    producer.produce(topic, orjson.dumps(gone), deleted.key, headers=[*deleted.headers.items()])
    producer.flush(60)
    return {(9,): "different", (90010,): "extra", (11,): "missing"}


def test_an_upsert_topic_is_compared_with_the_source(
    *,
    spark: SparkSession,
    database: Database,
    kafka_broker: KafkaBroker,
    prefix: str,
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    fill(database)
    given = settings(kafka_broker, prefix, tmp_path, sink="upsert-kafka")
    target = f"latest.{prefix}.{database.name}.t"
    with captured(spark, database, kafka_broker, prefix, given=given, work=tmp_path) as verified:
        database.execute("DELETE FROM t WHERE id = 5")
        consume(spark, given)
        assert verified.run() == 0
        assert reported(capfdbinary) == {}

        last = {each.key: each.value for each in read_topic(kafka_broker.bootstrap, target)}
        by_id = {orjson.loads(key or b"")["id"]: (key, value) for key, value in last.items()}
        producer = Producer({"bootstrap.servers": kafka_broker.bootstrap})
        (key, value), (lost, _) = by_id[9], by_id[11]
        assert value is not None
        producer.produce(target, value.replace("Zoë 9".encode(), "Zoë 9 ".encode()), key)
        producer.produce(target, value.replace(b'"id":9', b'"id":90009'), b'{"id":90009}')
        producer.produce(target, None, lost)
        producer.flush(60)

        assert verified.run() == 3
        assert reported(capfdbinary) == {(9,): "different", (90009,): "extra", (11,): "missing"}
